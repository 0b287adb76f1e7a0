#include "cse/auto_inliner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "cse/bodies.h"
#include "cse/path_conditions.h"

namespace xhat {
namespace {

// A map dearer than this is not repeated: about one exp.
constexpr int64_t kCheap_ps = 150;

struct Scope {
  std::unordered_map<Id, AxisRange> ranges;  // of every axis bound around a node
};

bool is_constant_false(const Arena& a, Id id) {
  return a[id].op == Op::constant && a[id].type == DType::boolean && a[id].integer == 0;
}

// x && y, where y may read what only x keeps in bounds: && evaluates both sides.
Id guarded_by(Arena& a, Id x, Id y) {
  if (is_true(a, x)) return y;
  if (is_true(a, y)) return x;
  bool reads = std::ranges::any_of(reachable(a, y), [&](Id id) { return a[id].op == Op::read && a[id].arg_count > 0; });
  return reads ? a.select(x, y, a.boolean(false)) : a.land(x, y);
}

// What is known to hold wherever a node is evaluated.
struct Path {
  Id all;     // exactly where: the disjunction over all ways to the node
  Id shared;  // what all ways have in common, outer conditions first
};

Id outer_of(Arena& a, Id condition) {
  const Node& n = a[condition];
  bool chain = n.op == Op::land || (n.op == Op::select && is_constant_false(a, n.arg(2)));
  return chain ? n.arg(0) : a.boolean(true);
}

Id shared_of(Arena& a, Id x, Id y) {
  std::unordered_set<Id> outer;
  for (; !is_true(a, x); x = outer_of(a, x)) outer.insert(x);
  while (!is_true(a, y) && !outer.contains(y)) y = outer_of(a, y);
  return y;
}

std::unordered_map<Id, Path> path_conditions(Arena& a, Id root) {
  const Id always = a.boolean(true);
  auto narrow = [&](Path p, Id y) { return Path{guarded_by(a, p.all, y), guarded_by(a, p.shared, y)}; };
  auto join = [&](Path& known, Path p) {
    if (known.all == p.all && known.shared == p.shared) return;
    known.shared = shared_of(a, known.shared, p.shared);
    if (known.all == p.all) return;
    if (known.shared == known.all) return;
    if (known.shared == p.all) known.all = p.all;
    else known.all = is_true(a, known.all) || is_true(a, p.all) ? always : a.binary(Op::lor, known.all, p.all);
  };
  return known_on_paths(a, root, Path{always, always}, narrow, join);
}

class Lifter {
 public:
  explicit Lifter(const Program& p) : p_(p), a_(*p.arena) {}

  Program run() {
    std::vector<Definition> done;
    for (const Definition& d : p_.body.definitions) {
      if (d.is_call()) throw Bug("lift_reductions: calls must be expanded first");
      Definition lifted = d;
      lifted.body = lift(d);
      done.insert(done.end(), fresh_.begin(), fresh_.end());
      fresh_.clear();
      if (is_reduction(a_[lifted.body].op)) known_.try_emplace(nameless(lifted), lifted.target());
      done.push_back(std::move(lifted));
    }
    p_.body.definitions = std::move(done);
    return p_;
  }

 private:
  // c in 8*g..8*g+8 becomes c in 0..8 at 8*g + c: a box, so that what stands inside can be a definition of its own.
  Id boxed(Id body) {
    return rewrite(a_, body, [&](Id id) {
      if (!is_reduction(a_[id].op)) return id;
      std::vector<AxisRange> axes = reduce_axes(a_[id]);
      Replacements shift;
      for (AxisRange& r : axes) {
        const Node& end = a_[r.end];
        if (a_[r.begin].free_axes().empty() || end.op != Op::add) continue;
        Id width = end.arg(0) == r.begin ? end.arg(1) : end.arg(1) == r.begin ? end.arg(0) : kNone;
        if (width == kNone || !a_[width].free_axes().empty()) continue;
        shift[r.axis] = a_.add(r.begin, r.axis);
        r = {r.axis, a_.integer(0), width};
      }
      if (shift.empty()) return id;
      // Ranges of later axes may use a shifted one, so they are rewritten as well as the body.
      auto moved = [&](Id e) {
        return rewrite(a_, e, [&](Id x) {
          auto it = shift.find(x);
          return it == shift.end() ? x : it->second;
        });
      };
      for (AxisRange& r : axes) r = {r.axis, moved(r.begin), moved(r.end)};
      return a_.reduce(a_[id].op, axes, moved(a_[id].arg(1)), moved(a_[id].arg(0)));
    });
  }

  // A name has one range in the whole body: else what stands below two reductions would be lifted over the range of one.
  Id distinct(const Definition& d) {
    Id body = d.body;
    std::vector<Id> used = all_axes(a_, std::span<const Id>(&body, 1));
    for (const AxisRange& r : d.axes) used.push_back(r.axis);
    for (Id clash = kNone;; clash = kNone) {
      std::unordered_map<Id, AxisRange> range;
      for (const AxisRange& r : d.axes) range[r.axis] = r;
      std::vector<Id> ids = reachable(a_, body);
      for (size_t i = ids.size(); i-- > 0 && clash == kNone;)
        if (is_reduction(a_[ids[i]].op))
          for (const AxisRange& r : reduce_axes(a_[ids[i]]))
            if (!(range.emplace(r.axis, r).first->second == r)) clash = ids[i];
      if (clash == kNone) return body;
      std::unordered_map<Id, Id> done = {{clash, substitute(a_, clash, {}, used)}};
      for (Id x : all_axes(a_, std::span<const Id>(&done.at(clash), 1))) used.push_back(x);
      std::vector<Id> args;
      for (Id id : ids) {
        if (id == clash) continue;
        args.clear();
        for (Id x : a_[id].args()) args.push_back(done.at(x));
        done[id] = a_.with_args(id, args);
      }
      body = done.at(body);
    }
  }

  Id lift(const Definition& original) {
    Definition d = original;
    std::vector<Id> ids = reachable(a_, d.body);
    auto reductions = std::ranges::count_if(ids, [&](Id id) { return is_reduction(a_[id].op); });
    if (reductions > 1) {
      d.body = distinct(d);
      d.body = boxed(d.body);
      ids = reachable(a_, d.body);
    }
    std::unordered_map<Id, AxisRange> range;
    for (const AxisRange& r : d.axes) range[r.axis] = r;
    bool nested = false;
    for (Id id : ids)
      if (is_reduction(a_[id].op)) {
        nested |= id != d.body;
        for (const AxisRange& r : reduce_axes(a_[id])) range[r.axis] = r;
      }
    if (!nested) return d.body;
    auto path = path_conditions(a_, d.body);
    std::unordered_map<Id, Id> done;
    std::vector<Id> args;
    for (Id id : ids) {
      args.clear();
      for (Id x : a_[id].args()) args.push_back(done.at(x));
      Id rebuilt = a_.with_args(id, args);
      if (is_reduction(a_[id].op) && id != d.body) {
        Path around = path.at(id);
        around = {with_lifted(around.all, done), with_lifted(around.shared, done)};
        rebuilt = separate(d, rebuilt, around, range);
      }
      done[id] = rebuilt;
    }
    return done.at(d.body);
  }

  // A condition with what has been lifted already as reads.
  Id with_lifted(Id condition, const std::unordered_map<Id, Id>& done) {
    std::unordered_map<Id, Id> now;
    std::vector<Id> args;
    for (Id id : reachable(a_, condition)) {
      args.clear();
      for (Id x : a_[id].args()) args.push_back(now.at(x));
      auto it = done.find(id);
      now[id] = it != done.end() ? it->second : a_.with_args(id, args);
    }
    return now.at(condition);
  }

  // The reduction as a definition of its own over its free axes, and the read that stands for it.
  Id separate(const Definition& d, Id reduction, Path path, std::unordered_map<Id, AxisRange> range) {
    const Node& n = a_[reduction];
    std::vector<Id> axes(n.free_axes().begin(), n.free_axes().end());
    std::optional<Id> around = condition_around(d, n, path, range);
    if (!around) return reduction;
    for (Id x : a_[*around].free_axes())
      if (!has(axes, x)) axes.push_back(x);
    // Ranges that depend on other axes (j in 0..i+1) give way to a box, and hold as a condition where reads need it.
    Id bounds = a_.boolean(true);
    for (size_t i = 0; i < axes.size(); ++i) {
      AxisRange& r = range.at(axes[i]);
      if (a_[r.begin].axes_count + a_[r.end].axes_count == 0) continue;
      Id extent = largest_end(r, range);
      if (extent == kNone) return reduction;
      if (!is_constant(a_, r.begin, 0)) bounds = guarded_by(a_, bounds, a_.binary(Op::le, r.begin, r.axis));
      bounds = guarded_by(a_, bounds, a_.binary(Op::lt, r.axis, r.end));
      for (Id e : {r.begin, r.end})
        for (Id x : a_[e].free_axes())
          if (!has(axes, x)) axes.push_back(x);
      r = {r.axis, a_.integer(0), extent};
    }
    if (!is_true(a_, bounds) && reads_inside(n, range, *around)) {
      bounds = a_.boolean(true);
      std::erase_if(axes, [&](Id x) { return !has_free(n, x) && !has_free(a_[*around], x); });
    }
    Id alone = under(d, reduction, guarded_by(a_, bounds, *around));
    return alone == kNone ? reduction : read_of(d, alone, axes, range);
  }

  // What holds around the reduction, as far as its own definition must know; none: it cannot be said there.
  std::optional<Id> condition_around(const Definition& d, const Node& n, Path path,
                                     const std::unordered_map<Id, AxisRange>& range) {
    Id condition = path.all;
    // Reached in several ways: what they share is shorter than where they lead, if it is enough. An axis that is bound on
    // some of the ways is of no use.
    if (path.shared != path.all) {
      auto sayable = [&](Id c) {
        return std::ranges::all_of(a_[c].free_axes(), [&](Id x) {
          return has_free(n, x) || std::ranges::find(d.axes, x, &AxisRange::axis) != d.axes.end();
        });
      };
      if (!sayable(path.shared)) path.shared = a_.boolean(true);
      if (reads_inside(n, range, path.shared)) condition = path.shared;
      else if (!sayable(path.all)) return std::nullopt;
    }
    // A condition on other axes would make a tensor over these as well: left behind if nothing needs its protection.
    bool foreign = std::ranges::any_of(a_[condition].free_axes(), [&](Id x) { return !has_free(n, x); });
    if (foreign && reads_inside(n, range, a_.boolean(true))) condition = a_.boolean(true);
    return condition;
  }

  // The reduction where the condition holds; kNone: cannot be.
  Id under(const Definition& d, Id reduction, Id condition) {
    if (is_true(a_, condition)) return reduction;
    const Node& n = a_[reduction];
    for (Id id : reachable(a_, condition))
      if (id == reduction) return kNone;
    // It moves inside the reduction: its own bound axes give way to the reduction's.
    std::vector<Id> taken = all_axes(a_, std::vector<Id>{reduction, d.body});
    for (const AxisRange& r : d.axes) taken.push_back(r.axis);
    condition = substitute(a_, condition, {}, taken);
    if (n.op != Op::argmax && n.op != Op::argmin)
      return a_.reduce(n.op, reduce_axes(n), guarded_by(a_, condition, n.arg(1)), n.arg(0));
    // argmax over nothing is an error: it runs over all, over zeros where the condition fails.
    if (!is_true(a_, n.arg(1))) return kNone;
    Id zero = a_.constant(a_[n.arg(0)].type, 0);
    return a_.reduce(n.op, reduce_axes(n), kNone, a_.select(condition, n.arg(0), zero));
  }

  // Defines it over the axes, whose ranges are boxes.
  Id read_of(const Definition& d, Id reduction, std::vector<Id> axes, const std::unordered_map<Id, AxisRange>& range) {
    // In the order of the definition's axes, then of binding.
    std::ranges::stable_sort(axes, [&](Id x, Id y) { return place(d, x) < place(d, y); });
    Definition made;
    made.direction = d.direction;
    made.pos = d.pos;
    std::vector<Id> shape, indices;
    Replacements shift;
    for (Id x : axes) {
      AxisRange r = range.at(x);
      Id extent = is_constant(a_, r.begin, 0) ? r.end : a_.sub(r.end, r.begin);
      shape.push_back(extent);
      made.axes.push_back({x, a_.integer(0), extent});
      indices.push_back(is_constant(a_, r.begin, 0) ? x : a_.sub(x, r.begin));
      if (!is_constant(a_, r.begin, 0)) shift[x] = a_.add(x, r.begin);
    }
    made.body = shift.empty() ? reduction : substitute(a_, reduction, shift);
    DType type = a_[reduction].type;
    auto [it, fresh] = known_.try_emplace(nameless(made));
    if (fresh) {
      it->second = p_.add_tensor(p_.tensors[d.target()].name + "_" + std::string(info(a_[reduction].op).text), type, shape);
      made.targets = {it->second};
      fresh_.push_back(made);
    }
    return a_.read(it->second, type, indices);
  }

  // A reduction's body and ranges without the names of its axes: equal ones have the same values.
  std::vector<Id> nameless(const Definition& reduction) {
    Pattern p = pattern_of(a_, reduction);
    std::vector<Id> key = {a_.reduce(a_[reduction.body].op, p.bound, p.condition, p.body)};
    for (const AxisRange& r : p.free) key.push_back(r.end);
    return key;
  }

  // An extent of dims that r, whose range depends on axes, stays within; kNone: none found.
  Id largest_end(const AxisRange& r, const std::unordered_map<Id, AxisRange>& range) {
    Id end = r.end;
    constexpr int kDeepest = 8;
    for (int depth = 0; depth < kDeepest && a_[end].axes_count; ++depth) {
      Replacements last;
      for (Id x : a_[end].free_axes()) last[x] = a_.sub(range.at(x).end, a_.integer(1));
      end = substitute(a_, end, last);
    }
    if (a_[end].axes_count) return kNone;
    end = tidy_index(a_, end);
    // From the outermost in: an axis stands after those that its range uses.
    std::vector<AxisRange> scope = {r};
    for (size_t i = 0; i < scope.size(); ++i)
      for (Id e : {scope[i].begin, scope[i].end})
        for (Id x : a_[e].free_axes()) scope.push_back(range.at(x));
    std::ranges::reverse(scope);
    std::vector<AxisRange> axes;
    for (const AxisRange& x : scope)
      if (std::ranges::find(axes, x) == axes.end()) axes.push_back(x);
    return in_bounds(a_, r.axis, end, axes) ? end : kNone;
  }

  static bool has_free(const Node& n, Id x) { return std::ranges::find(n.free_axes(), x) != n.free_axes().end(); }
  static bool has(const std::vector<Id>& axes, Id x) { return std::ranges::find(axes, x) != axes.end(); }

  // Are all reads, the condition's too, in bounds if no more than this is known from around the reduction?
  bool reads_inside(const Node& reduction, const std::unordered_map<Id, AxisRange>& range, Id condition) {
    std::vector<Id> known;
    for (Id c = condition; !is_true(a_, c); c = outer_of(a_, c)) {
      Id inner = outer_of(a_, c) == a_.boolean(true) ? c : a_[c].arg(1);
      if (tensors_read(a_, inner).empty()) known.push_back(inner);
    }
    std::vector<AxisRange> axes;  // and those that their ranges use
    std::vector<Id> open(reduction.free_axes().begin(), reduction.free_axes().end());
    open.insert(open.end(), a_[condition].free_axes().begin(), a_[condition].free_axes().end());
    for (size_t i = 0; i < open.size(); ++i) {
      if (std::ranges::find(axes, open[i], &AxisRange::axis) != axes.end()) continue;
      axes.push_back(range.at(open[i]));
      for (Id e : {axes.back().begin, axes.back().end})
        open.insert(open.end(), a_[e].free_axes().begin(), a_[e].free_axes().end());
    }
    std::ranges::stable_sort(axes, {}, [&](const AxisRange& r) { return a_[r.begin].axes_count + a_[r.end].axes_count; });
    std::vector<AxisRange> bound = reduce_axes(reduction);
    axes.insert(axes.end(), bound.begin(), bound.end());
    for (Id id : reachable(a_, std::vector<Id>{reduction.arg(0), reduction.arg(1), condition})) {
      const Node read = a_[id];
      if (is_reduction(read.op)) return false;  // could not be lifted itself
      if (read.op != Op::read) continue;
      for (size_t i = 0; i < read.arg_count; ++i)
        if (!in_bounds(a_, read.arg(i), p_.tensors[read.symbol].shape[i], axes, known)) return false;
    }
    return true;
  }

  size_t place(const Definition& d, Id axis) const {
    for (size_t i = 0; i < d.axes.size(); ++i)
      if (d.axes[i].axis == axis) return i;
    return d.axes.size() + axis;
  }

  Program p_;
  Arena& a_;
  std::vector<Definition> fresh_;
  std::map<std::vector<Id>, TensorId> known_;  // reductions that are definitions already, to share them
};

bool has_reduction(const Arena& a, Id body) {
  return std::ranges::any_of(reachable(a, body), [&](Id id) { return is_reduction(a[id].op); });
}

class Inliner {
 public:
  Inliner(const Program& p, std::span<const TensorId> keep) : p_(p), a_(*p.arena), keep_(keep) {}

  Program run() {
    std::vector<Definition> done;
    for (const Definition& d : p_.body.definitions) {
      Definition next = d;
      next.body = inlined(d);
      bool leaves = std::ranges::find(p_.outputs, d.target()) != p_.outputs.end() ||
                    std::ranges::find(p_.gradients, d.target()) != p_.gradients.end() ||
                    std::ranges::find(keep_, d.target()) != keep_.end();
      if (!leaves && !has_reduction(a_, next.body)) {
        maps_[d.target()] = next;
        cost_[d.target()] = evaluation_cost_ps(a_, next.body);
      }
      done.push_back(std::move(next));
    }
    p_.body.definitions = std::move(done);
    return without_dead(p_);
  }

 private:
  Id inlined(const Definition& d) {
    std::vector<Id> scope;
    for (const AxisRange& r : d.axes) scope.push_back(r.axis);
    const bool reduces = is_reduction(a_[d.body].op);
    std::vector<Id> ids = reachable(a_, d.body);
    for (Id id : ids)
      if (a_[id].op == Op::axis && std::ranges::find(scope, id) == scope.end()) scope.push_back(id);
    std::unordered_map<Id, Id> done;
    std::vector<Id> args;
    for (Id id : ids) {
      args.clear();
      for (Id x : a_[id].args()) args.push_back(done.at(x));
      Id rebuilt = a_.with_args(id, args);
      const Node& n = a_[rebuilt];
      if (is_read(n.op) && maps_.contains(n.symbol) && !(reduces && repeats(n, scope))) rebuilt = expand(rebuilt, scope);
      done[id] = rebuilt;
    }
    return done.at(d.body);
  }

  // Would a reduction evaluate it again for steps of an axis it doesn't depend on?
  bool repeats(const Node& read, const std::vector<Id>& scope) const {
    if (cost_.at(read.symbol) <= kCheap_ps) return false;
    auto free = read.free_axes();
    return std::ranges::any_of(scope, [&](Id x) { return std::ranges::find(free, x) == free.end(); });
  }

  Id expand(Id read, const std::vector<Id>& scope) {
    const Node n = a_[read];
    const Definition& d = maps_.at(n.symbol);
    Replacements at;
    auto indices = read_indices(n);
    for (size_t i = 0; i < indices.size(); ++i) at[d.axes[i].axis] = a_.to(DType::i64, indices[i]);
    Id value = substitute(a_, d.body, at, scope);
    if (n.op == Op::read) return value;
    Id inside = a_.boolean(true);
    for (size_t i = 0; i < indices.size(); ++i) {
      Id index = at.at(d.axes[i].axis);
      Id within = a_.land(a_.binary(Op::le, a_.integer(0), index), a_.binary(Op::lt, index, d.axes[i].end));
      inside = is_true(a_, inside) ? within : a_.land(inside, within);
    }
    return a_.select(inside, value, n.args().back());
  }

  Program p_;
  Arena& a_;
  std::span<const TensorId> keep_;
  std::unordered_map<TensorId, Definition> maps_;
  std::unordered_map<TensorId, int64_t> cost_;
};

}  // namespace

int64_t evaluation_cost_ps(const Arena& a, Id body) {
  int64_t cost = 0;
  for (Id id : reachable(a, body)) {
    const Node& n = a[id];
    // Reads are paid by whoever moves the bytes; index arithmetic is nearly free, and numbers made of dims are.
    if (is_read(n.op) || (n.free_axes().empty() && tensors_read(a, id).empty())) continue;
    if (is_float(n.type) || n.type == DType::boolean) cost += info(n.op).cost_ps;
  }
  return cost;
}

Program lift_reductions(const Program& p) { return Lifter(p).run(); }
Program inline_maps(const Program& p, std::span<const TensorId> keep) { return Inliner(p, keep).run(); }
Program inline_injective(const Program& p, std::span<const TensorId> keep) {
  return inline_maps(lift_reductions(ordered(p)), keep);
}

}  // namespace xhat
