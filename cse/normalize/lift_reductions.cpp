#include "cse/normalize/lift_reductions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "cse/match/bodies.h"
#include "cse/match/unify.h"
#include "cse/normalize/ranges.h"
#include "cse/normalize/read_bounds.h"
#include "cse/normalize/ways.h"
#include "expr/core/axes_as_read.h"
#include "expr/core/conditions.h"
#include "expr/core/distinct_axes.h"
#include "expr/index/loop_bounds.h"

namespace xhat {
namespace {

bool is_index_of_extreme(Op op) { return op == Op::argmax || op == Op::argmin; }

class Lifter {
 public:
  Lifter(const Program& p, bool before_gather) : p_(p), a_(*p.arena), reads_(p_), before_gather_(before_gather) {}

  Program run() {
    map_regions(p_, [&](const Region& r) {
      std::vector<Definition> done;
      for (const Definition& d : r.definitions) {
        if (d.is_call()) throw Bug("lift_reductions: calls must be expanded first");
        Definition next = d;
        next.body = lifted(d);
        done.insert(done.end(), fresh_.begin(), fresh_.end());
        fresh_.clear();
        if (is_reduction(a_[next.body].op)) known_.try_emplace(nameless_reduction(a_, next), next.target());
        done.push_back(std::move(next));
      }
      return done;
    });
    return p_;
  }

 private:
  Id lifted(const Definition& d) {
    Id body = d.body;
    auto reductions = std::ranges::count_if(reachable(a_, body), [&](Id id) { return is_reduction(a_[id].op); });
    if (reductions == 0) return body;
    if (reductions > 1) body = with_distinct_axes(a_, d.axes, body).body;
    body = arguments_from_zero(a_, with_plain_ranges(a_, d, body));
    bool nested = std::ranges::any_of(reachable(a_, body), [&](Id id) { return is_reduction(a_[id].op) && id != body; });
    if (!nested) return boxed(a_, body, false);
    body = boxed(a_, body, true);
    definition_ = &d;
    body_ = body;
    ranges_ = ranges_in(a_, d, body);
    ways_ = ways_to(a_, body);
    done_.clear();
    if (before_gather_) find_placed();
    return boxed(a_, replaced(body), false);
  }

  // With reads for the reductions in it, but for the body's own.
  Id replaced(Id root) {
    std::vector<Id> args;
    for (Id id : reachable(a_, root)) {
      if (done_.contains(id)) continue;
      args.clear();
      for (Id x : a_[id].args()) args.push_back(done_.at(x));
      Id rebuilt = a_.with_args(id, args);
      bool lift = is_reduction(a_[id].op) && id != body_ && !(before_gather_ && (holds_equation(id) || placed_.contains(id)));
      done_[id] = lift ? stand_in(id, rebuilt) : rebuilt;
    }
    return done_.at(root);
  }

  // sum(j if i + j == n: …), where n is from outside: nothing is left of it once gather has solved that.
  bool holds_equation(Id reduction) {
    return std::ranges::any_of(reachable(a_, reduction), [&](Id id) {
      if (a_[id].op != Op::sum) return false;
      return std::ranges::any_of(reachable(a_, a_[id].arg(1)), [&](Id x) {
        const Node& n = a_[x];
        return n.op == Op::eq && std::ranges::any_of(n.args(), [&](Id side) {
                 return a_[side].op == Op::axis && has_axis(a_, id, side) && !has_axis(a_, n.arg(n.arg(0) == side), side);
               });
      });
    });
  }

  // What stands in sum(v, k if f[g,k] == v: …) and depends on v and g is wanted at one v for each g and k, of which gather knows: a tensor
  // over all g and v would have V elements for each g.
  void find_placed() {
    placed_.clear();
    for (Id id : reachable(a_, body_)) {
      const Node sum = a_[id];
      if (sum.op != Op::sum) continue;
      const std::vector<AxisRange> bound = reduce_axes(sum);
      auto is_bound = [&](Id x) { return std::ranges::find(bound, x, &AxisRange::axis) != bound.end(); };
      for (Id literal : conjuncts(a_, sum.arg(1))) {
        const Node eq = a_[literal];
        if (eq.op != Op::eq) continue;
        for (size_t side : {0u, 1u}) {
          const Id axis = eq.arg(side), place = eq.arg(1 - side);
          if (a_[axis].op != Op::axis || !is_bound(axis) || has_axis(a_, place, axis) || tensors_read(a_, place).empty()) continue;
          for (Id inner : reachable(a_, sum.arg(0))) {
            const auto free = a_[inner].free_axes();
            const bool along = std::ranges::any_of(free, [&](Id x) { return x != axis && has_axis(a_, place, x); });
            if (is_reduction(a_[inner].op) && has_axis(a_, inner, axis) && along) placed_.insert(inner);
          }
        }
      }
    }
  }

  // The read that stands for a reduction; rebuilt: with reads for those inside.
  Id stand_in(Id original, Id reduction) {
    open_.insert(original);
    Ways ways = ways_.at(original);
    ways = {said(ways.all, original), said(ways.shared, original)};
    open_.erase(original);
    reduction = with_places(reduction, ways.shared);
    std::vector<Id> free(a_[reduction].free_axes().begin(), a_[reduction].free_axes().end());
    auto box = boxes(reduction);
    if (!box) return reduction;
    if (auto known = defined_already(reduction, *box, ways)) return *known;
    if (must_be_exact(reduction, *box))
      return defined(under(reduction, exists(guarded_by(a_, guarded_by(a_, asked_for(original), inside_of(free)), ways.all), free)));
    const Id needed = helpful(reduction, ways, *box);
    return defined(under(reduction, needed), needed);
  }

  // Where an equation around a reduction says that an axis is what data say (place[e] == i), the reduction has that in place of the axis: its
  // definition is over e, not over e and i.
  Id with_places(Id reduction, Id holds) {
    for (; !is_true(a_, holds); holds = outer_of(a_, holds)) {
      const Node n = a_[is_chain(a_, holds) ? a_[holds].arg(1) : holds];
      if (n.op != Op::eq) continue;
      for (size_t side : {0u, 1u})
        if (can_be_place(reduction, n.arg(side), n.arg(1 - side)))
          return with_places(substitute(a_, reduction, {{n.arg(side), n.arg(1 - side)}}), holds);
    }
    return reduction;
  }
  bool can_be_place(Id reduction, Id axis, Id place) {
    const auto free = a_[reduction].free_axes();
    auto is_free = [&](Id x) { return std::ranges::find(free, x) != free.end(); };
    if (a_[axis].op != Op::axis || !is_free(axis) || has_axis(a_, place, axis) || a_[place].type != DType::i64) return false;
    if (tensors_read(a_, place).empty() || !std::ranges::all_of(a_[place].free_axes(), is_free)) return false;
    return std::ranges::none_of(reachable(a_, reduction), [&](Id id) {  // ranges read no tensor
      return is_reduction(a_[id].op) && std::ranges::any_of(reduce_axes(a_[id]), [&](const AxisRange& r) {
               return has_axis(a_, r.begin, axis) || has_axis(a_, r.end, axis);
             });
    });
  }

  // The same reduction is a definition, and every way to here stays inside it: it is read, so that what is compared with its values is
  // its values. (Of `if p < 2 then sum(q: x[p,q]) == m` where the sum is defined for p below 2 alone.)
  std::optional<Id> defined_already(Id reduction, const std::vector<AxisRange>& box, const Ways& ways) {
    Definition same;
    same.axes = box;
    same.body = boxed(a_, reduction, false);
    const std::vector<Id> wanted = nameless_reduction(a_, same);
    auto of_same_body = [&](auto it) { return it != known_.end() && it->first[0] == wanted[0]; };
    auto known = known_.lower_bound({wanted[0]});  // keys are a body, then the ends of its axes
    if (!of_same_body(known)) return std::nullopt;
    std::vector<Id> holds;
    for (Id c : {ways.all, ways.shared})
      for (; !is_true(a_, c); c = outer_of(a_, c))
        if (Id last = is_chain(a_, c) ? a_[c].arg(1) : c; tensors_read(a_, last).empty()) holds.push_back(last);
    std::vector<Id> indices;
    for (const AxisRange& r : box) indices.push_back(r.axis);
    for (; of_same_body(known); ++known) {
      const Tensor& t = p_.tensors[known->second];
      if (known->first.size() != wanted.size()) continue;
      bool inside = true;
      for (size_t i = 0; i < box.size() && inside; ++i)
        inside = reads_.place(box[i].axis, t.shape[i], box, holds) == ReadBounds::Place::inside;
      if (!inside) continue;
      const bool whole = std::ranges::equal(box, t.shape, {}, &AxisRange::end);
      return whole ? a_.read(known->second, t.type, indices) : a_.read_or(known->second, t.type, indices, a_.constant(t.type, 0));
    }
    return std::nullopt;
  }

  // A path condition with reads for the reductions in it. A way to a reduction through a condition that holds this very
  // reduction is no way of its own: it was evaluated for the condition already. Two that stand in each other's conditions:
  // the first one does without.
  Id said(Id condition, Id self) {
    std::vector<Id> ids = reachable(a_, condition);
    if (std::ranges::none_of(ids, [&](Id id) { return open_.contains(id); })) return replaced(condition);
    std::unordered_map<Id, Id> now;  // of nodes above one that is open
    for (Id id : ids) {
      const Node n = a_[id];
      if (open_.contains(id) && n.type == DType::boolean) now[id] = a_.boolean(id != self);
      bool above = std::ranges::any_of(n.args(), [&](Id x) { return now.contains(x) || open_.contains(x); });
      if (open_.contains(id) || !above) continue;
      auto sub = [&](size_t i) { return now.contains(n.arg(i)) ? now.at(n.arg(i)) : replaced(n.arg(i)); };
      if (n.op == Op::lor) {
        now[id] = either(a_, sub(0), sub(1));
      } else if (is_chain(a_, id)) {
        // What an outer condition guards may not be asked without it.
        bool weaker = now.contains(n.arg(0)) && !is_false(a_, now.at(n.arg(0)));
        now[id] = weaker ? now.at(n.arg(0)) : guarded_by(a_, sub(0), sub(1));
      } else {
        auto below = reachable(a_, id);
        now[id] = a_.boolean(std::ranges::find(below, self) == below.end());
      }
    }
    return now.at(condition);
  }

  bool must_be_exact(Id reduction, const std::vector<AxisRange>& box) {
    const Node& n = a_[reduction];
    if (is_index_of_extreme(n.op) && (!is_true(a_, n.arg(1)) || !has_elements(reduce_axes(n)[0]))) return true;
    return reads_.any_checked(reduction, box);
  }

  bool has_elements(const AxisRange& r) const {
    return a_[r.begin].op == Op::constant && a_[r.end].op == Op::constant && a_[r.begin].integer < a_[r.end].integer;
  }

  // An argmax that may be over nothing: nobody asks for it where an axis around it, which it does not depend on, has no
  // values.
  Id asked_for(Id original) {
    Id asked = a_.boolean(true);
    if (!is_index_of_extreme(a_[original].op)) return asked;
    auto add = [&](const AxisRange& r) {
      if (!has_elements(r) && !has_axis(a_, original, r.axis)) asked = guarded_by(a_, asked, compared(Op::lt, r.begin, r.end));
    };
    for (const AxisRange& r : definition_->axes) add(r);
    for (Id id : reachable(a_, body_))
      if (is_reduction(a_[id].op) && is_only_inside(id, original))
        for (const AxisRange& r : reduce_axes(a_[id])) add(r);
    return asked;
  }

  // Does every way from the body to the node lead through the body of this reduction?
  bool is_only_inside(Id reduction, Id node) {
    std::unordered_set<Id> met = {node};
    for (Id id : reachable(a_, body_))
      for (size_t i = 0; i < a_[id].arg_count; ++i)
        if (met.contains(a_[id].arg(i)) && !(id == reduction && i < 2)) met.insert(id);
    return reduction != node && !met.contains(body_);
  }

  // What of the conditions around a reduction spares work, or keeps its reads inside, and is about its own axes.
  Id helpful(Id reduction, Ways ways, const std::vector<AxisRange>& box) {
    auto free = a_[reduction].free_axes();
    auto fits = [&](Id e) {
      return std::ranges::all_of(a_[e].free_axes(), [&](Id x) { return std::ranges::find(free, x) != free.end(); });
    };
    bool one_way = ways.all == ways.shared;
    while (!fits(ways.shared)) ways.shared = outer_of(a_, ways.shared);
    Id condition = ways.shared;
    if (!one_way && fits(ways.all) && !reads_.all_inside(reduction, box, condition)) condition = ways.all;
    Id bounds = a_.boolean(true);
    for (Id x : free) {
      const AxisRange& r = ranges_.at(x);
      if (is_box(a_, r) || !fits(r.begin) || !fits(r.end)) continue;
      bounds = guarded_by(a_, bounds, within(a_, r));
    }
    // A position in a condition may depend on data as well: it counts where it did.
    bool at_home = std::ranges::all_of(free, [&](Id x) { return is_box(a_, ranges_.at(x)); });
    while (!at_home && reads_.any_checked(condition, box)) condition = outer_of(a_, condition);
    if (is_true(a_, bounds) || reads_.all_inside(reduction, box, condition)) return condition;
    return guarded_by(a_, bounds, condition);
  }

  // ---- conditions over few axes ----

  // These axes are in their ranges.
  Id inside_of(const std::vector<Id>& axes) {
    Id inside = a_.boolean(true);
    for (Id x : axes)
      if (!is_box(a_, ranges_.at(x))) inside = guarded_by(a_, inside, within(a_, ranges_.at(x)));
    return inside;
  }

  // Does the condition hold for any values of the axes that are not in `kept`? As reads of what is defined for it.
  Id exists(Id condition, const std::vector<Id>& kept) {
    std::vector<AxisRange> others = others_in(condition, kept);
    if (others.empty()) return condition;
    const Node n = a_[condition];
    if (n.op == Op::lor) return either(a_, exists(n.arg(0), kept), exists(n.arg(1), kept));
    if (is_chain(a_, condition)) {
      if (others_in(n.arg(1), kept).empty()) return guarded_by(a_, exists(n.arg(0), kept), n.arg(1));
      // Several ways lead there, over different axes: none of them may depend on whether another's axes have values.
      std::vector<Id> ways = spread(n.arg(0));
      if (ways.size() > 1) {
        Id any = a_.boolean(false);
        for (Id way : ways) any = either(a_, any, exists(guarded_by(a_, way, n.arg(1)), kept));
        return any;
      }
    }
    if (Id solved = with_solved(condition, others); solved != condition) return exists(solved, kept);
    return defined(a_.reduce(Op::any, others, kNone, condition));
  }

  // A disjunction of ways, each with what follows on it.
  std::vector<Id> spread(Id condition) {
    const Node n = a_[condition];
    if (n.op != Op::lor && !is_chain(a_, condition)) return {condition};
    std::vector<Id> ways = spread(n.arg(0));
    if (n.op == Op::lor)
      for (Id way : spread(n.arg(1))) ways.push_back(way);
    else
      for (Id& way : ways) way = guarded_by(a_, way, n.arg(1));
    return ways;
  }

  // `e == v && c(v)` for some v of its range is `0 <= e && e < V && c(e)`: the equation that a read leaves in a gradient.
  Id with_solved(Id condition, const std::vector<AxisRange>& others) {
    std::vector<Id> literals;
    Id chain = condition;
    for (; is_chain(a_, chain); chain = a_[chain].arg(0)) literals.push_back(a_[chain].arg(1));
    literals.push_back(chain);
    std::ranges::reverse(literals);
    for (size_t k = 0; k < literals.size(); ++k) {
      const Node n = a_[literals[k]];
      if (n.op != Op::eq) continue;
      for (size_t side : {1u, 0u}) {
        Id axis = n.arg(side), value = n.arg(1 - side);
        auto r = std::ranges::find(others, axis, &AxisRange::axis);
        if (r == others.end() || !is_box(a_, *r) || has_axis(a_, value, axis)) continue;
        bool used =
            std::ranges::any_of(others, [&](const AxisRange& x) { return has_axis(a_, x.begin, axis) || has_axis(a_, x.end, axis); });
        for (size_t i = 0; i < k; ++i) used |= has_axis(a_, literals[i], axis);
        if (used) continue;
        Id solved = a_.boolean(true);
        Id inside = guarded_by(a_, compared(Op::le, r->begin, value), compared(Op::lt, value, r->end));
        for (size_t i = 0; i < literals.size(); ++i)
          solved = guarded_by(a_, solved, i == k ? inside : substitute(a_, literals[i], {{axis, value}}));
        return solved;
      }
    }
    return condition;
  }

  Id compared(Op op, Id x, Id y) {
    if (a_[x].op != Op::constant || a_[y].op != Op::constant) return a_.binary(op, x, y);
    return a_.boolean(op == Op::le ? a_[x].integer <= a_[y].integer : a_[x].integer < a_[y].integer);
  }

  // With what their ranges depend on, outer ones first.
  std::vector<AxisRange> others_in(Id e, const std::vector<Id>& kept) {
    std::vector<Id> found;
    auto add = [&](Id x) {
      for (Id axis : a_[x].free_axes())
        if (std::ranges::find(kept, axis) == kept.end() && std::ranges::find(found, axis) == found.end()) found.push_back(axis);
    };
    add(e);
    for (size_t i = 0; i < found.size(); ++i) {
      add(ranges_.at(found[i]).begin);
      add(ranges_.at(found[i]).end);
    }
    std::vector<AxisRange> sorted;
    while (!found.empty()) {
      auto next = std::ranges::find_if(found, [&](Id x) {
        return std::ranges::none_of(
            found, [&](Id y) { return y != x && (has_axis(a_, ranges_.at(x).begin, y) || has_axis(a_, ranges_.at(x).end, y)); });
      });
      sorted.push_back(ranges_.at(*next));
      found.erase(next);
    }
    return sorted;
  }

  // The reduction where the condition holds.
  Id under(Id reduction, Id condition) {
    if (is_true(a_, condition)) return reduction;
    const Node n = a_[reduction];
    // It moves inside the reduction: its own bound axes give way to the reduction's.
    std::vector<Id> taken = all_axes(a_, std::vector<Id>{reduction, body_});
    for (const AxisRange& r : definition_->axes) taken.push_back(r.axis);
    condition = substitute(a_, condition, {}, taken);
    std::vector<AxisRange> axes = reduce_axes(n);
    bool extreme = n.op == Op::max || n.op == Op::min;
    if (!extreme && !is_index_of_extreme(n.op)) return a_.reduce(n.op, axes, guarded_by(a_, condition, n.arg(1)), n.arg(0));
    // Over nothing argmax is an error, and max is infinite, which times a zero would be no number: where the condition
    // fails, they run over zeros, and over one at least.
    Id counts = n.arg(1), here = condition;
    for (AxisRange& r : axes) {
      if (is_index_of_extreme(n.op) ? has_elements(r) : is_box(a_, r)) continue;
      Id inside = a_.binary(Op::lt, r.axis, r.end);
      r.end = a_.binary(Op::maximum, r.end, tidy_index(a_, a_.add(r.begin, a_.integer(1))));
      here = guarded_by(a_, here, inside);
      counts = guarded_by(a_, inside, counts);
    }
    if (!is_true(a_, counts)) counts = a_.select(condition, counts, a_.boolean(true));
    Id zero = a_.constant(a_[n.arg(0)].type, 0);
    return a_.reduce(n.op, axes, counts, a_.select(here, n.arg(0), zero));
  }

  // ---- definitions ----

  // What the reduction's axes run over in a tensor; none: not known.
  std::optional<std::vector<AxisRange>> boxes(Id reduction) {
    std::vector<Id> axes(a_[reduction].free_axes().begin(), a_[reduction].free_axes().end());
    // In the order of the definition's axes, then of binding, unless reads say otherwise.
    std::ranges::stable_sort(axes, {}, [&](Id x) {
      auto at = std::ranges::find(definition_->axes, x, &AxisRange::axis);
      return at != definition_->axes.end() ? static_cast<size_t>(at - definition_->axes.begin()) : definition_->axes.size() + x;
    });
    Hull hull(a_, ranges_);
    std::vector<AxisRange> found;
    for (Id x : axes_as_read(a_, reduction, axes)) {
      std::optional<AxisRange> box = ranges_.at(x);
      if (!is_box(a_, *box)) box = hull.box(*box);
      if (!box) return std::nullopt;
      found.push_back(*box);
    }
    return found;
  }

  // The box without what lies outside of where a condition holds: `if i < 5 then sum(…)` is needed for five i.
  std::vector<AxisRange> cut(std::vector<AxisRange> box, Id condition) {
    for (AxisRange& r : box) {
      LoopBounds bounds;
      for (Id part : conjuncts(a_, condition))
        if (a_[part].axes_count == 1 && a_[part].depends_on(r.axis) && tensors_read(a_, part).empty()) bound_by(a_, part, r.axis, &bounds);
      // Of begins and ends the larger and the smaller, if it is not known which.
      auto inside = [&](Id x, Id y) { return reads_.is_extent(tidy_index(a_, a_.sub(y, x))); };
      for (Id b : bounds.begins)
        if (!inside(b, r.begin)) r.begin = inside(r.begin, b) ? b : a_.binary(Op::maximum, r.begin, b);
      for (Id e : bounds.ends)
        if (!inside(r.end, e)) r.end = inside(e, r.end) ? e : a_.binary(Op::minimum, r.end, e);
    }
    return box;
  }

  // A definition of the reduction over its free axes, where it is needed, and the read of it.
  Id defined(Id reduction, Id needed = kNone) {
    auto box = *boxes(reduction);
    if (needed != kNone) box = cut(box, needed);
    reduction = reads_.made_total(reduction, box);
    Definition made;
    made.pos = definition_->pos;
    made.derived = definition_->derived;
    std::vector<Id> shape, indices;
    Replacements shift;
    for (const AxisRange& r : box) {
      Id extent = is_constant(a_, r.begin, 0) ? r.end : tidy_index(a_, a_.sub(r.end, r.begin));
      if (!reads_.is_extent(extent)) extent = a_.binary(Op::maximum, a_.integer(0), extent);
      shape.push_back(extent);
      made.axes.push_back({r.axis, a_.integer(0), extent});
      indices.push_back(is_constant(a_, r.begin, 0) ? r.axis : tidy_index(a_, a_.sub(r.axis, r.begin)));
      if (!is_constant(a_, r.begin, 0)) shift[r.axis] = a_.add(r.axis, r.begin);
    }
    made.body = boxed(a_, shift.empty() ? reduction : shifted(a_, reduction, shift), false);
    DType type = a_[reduction].type;
    auto [it, fresh] = known_.try_emplace(nameless_reduction(a_, made));
    if (fresh) {
      const std::string& name = p_.tensors[definition_->target()].name;
      it->second = p_.add_tensor(name + "_" + std::string(info(a_[reduction].op).text), type, shape);
      made.targets = {it->second};
      fresh_.push_back(made);
    }
    if (is_inside(box, indices, shape)) return a_.read(it->second, type, indices);
    return a_.read_or(it->second, type, indices, a_.constant(type, 0));
  }

  // Does what reads the tensor know that it stays inside? (It does; but the range may be beyond proof.)
  bool is_inside(const std::vector<AxisRange>& box, const std::vector<Id>& indices, const std::vector<Id>& shape) {
    for (size_t i = 0; i < box.size(); ++i)
      if (!(box[i] == ranges_.at(box[i].axis)) &&
          reads_.place(indices[i], shape[i], others_in(box[i].axis, {})) != ReadBounds::Place::inside)
        return false;
    return true;
  }

  Program p_;
  Arena& a_;
  ReadBounds reads_;
  bool before_gather_;
  std::vector<Definition> fresh_;
  std::map<std::vector<Id>, TensorId> known_;  // reductions that are definitions already, to share them
  // Of the definition at work:
  const Definition* definition_ = nullptr;
  Id body_ = kNone;
  Ranges ranges_;
  std::unordered_map<Id, Ways> ways_;
  std::unordered_map<Id, Id> done_;
  std::set<Id> placed_;  // reductions at places that gather finds
  std::set<Id> open_;    // reductions on whose conditions we are at work
};

}  // namespace

Program lift_reductions(const Program& p, bool before_gather) { return Lifter(p, before_gather).run(); }

}  // namespace xhat
