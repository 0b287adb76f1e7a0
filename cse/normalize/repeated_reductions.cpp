#include "cse/normalize/repeated_reductions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <unordered_map>

#include "cse/match/bodies.h"
#include "cse/match/same_but_for_names.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

constexpr size_t kLargest = 200;  // nodes of a reduction that is compared, names written out

class Repeated {
 public:
  explicit Repeated(const Program& p) : p_(p), a_(*p_.arena) {}

  Program run() {
    for (size_t i = 0; i < p_.forward.definitions.size(); ++i) look_at(i);
    for (Class& c : classes_) keep_what_fits(c);
    if (std::ranges::none_of(classes_, &Class::worth_a_name)) return p_;
    std::vector<Definition> done;
    for (size_t i = 0; i < p_.forward.definitions.size(); ++i) {
      Definition d = p_.forward.definitions[i];
      d.body = named(i, d, done);
      done.push_back(std::move(d));
    }
    p_.forward.definitions = std::move(done);
    return without_dead(p_);
  }

 private:
  struct Instance {
    size_t definition;
    Id node;
    std::vector<AxisRange> free;    // in the order of the definition's axes, then of binding
    std::vector<AxisRange> around;  // of all axes there
    bool root;                      // it is all that the definition says
    AxesOfOther axes;               // of the first instance, those here
    Replacements groups;            // c/4, where c is asked for in no other way, by the axis that stands for it
  };
  struct Class {
    Id form;  // of the first instance
    std::vector<Instance> instances;
    std::map<Id, Id> ends;  // of the axes of the first instance, where one of them runs over all from 0
    TensorId tensor = kNoTensor;
    // Of c in groups, too: it is the same for all of a group.
    bool worth_a_name() const {
      return instances.size() > 1 || std::ranges::any_of(instances, [](const Instance& i) { return !i.groups.empty(); });
    }
  };

  void look_at(size_t index) {
    const Definition& d = p_.forward.definitions[index];
    std::map<Id, AxisRange> ranges;
    std::vector<Id> order;
    auto note = [&](const AxisRange& r) {
      auto [it, fresh] = ranges.try_emplace(r.axis, r);
      if (fresh)
        order.push_back(r.axis);
      else if (!(it->second == r))
        it->second.begin = kNone;  // two ranges of one name
    };
    take_names(d);
    for (const AxisRange& r : d.axes) note(r);
    const std::vector<Id> all = reachable(a_, d.body);
    for (Id id : all | std::views::reverse)
      if (is_reduction(a_[id].op))
        for (const AxisRange& r : reduce_axes(a_[id])) note(r);
    std::vector<AxisRange> around;
    for (Id axis : order)
      if (ranges.at(axis).begin != kNone) around.push_back(ranges.at(axis));
    std::unordered_map<Id, Id> forms;
    std::vector<Id> args;
    bool reduces = false;
    for (Id id : all) {
      args.clear();
      for (Id x : a_[id].args()) args.push_back(forms.at(x));
      forms[id] = a_.with_args(id, args);
      const Node n = a_[id];
      if (!is_reduction(n.op)) continue;
      reduces = true;
      Instance here{index, id, {}, around, id == d.body, {}, {}};
      for (Id axis : order)
        if (n.depends_on(axis)) here.free.push_back(ranges.at(axis));
      if (auto found = class_of(std::move(here), forms.at(id))) forms[id] = *found;
    }
    if (!reduces && !is_integer(a_[d.body].type)) maps_[d.target()] = &d;
  }

  void take_names(const Definition& d) {
    taken_ = all_axes(a_, std::span<const Id>(&d.body, 1));
    for (const AxisRange& r : d.axes) taken_.push_back(r.axis);
  }

  // An axis that is asked for its quotient by one number only gives way to that quotient.
  void group(Id reduction, AxisRange& r, Replacements& groups) {
    Id quotient = kNone;
    for (Id id : reachable(a_, reduction)) {
      const Node n = a_[id];
      if (std::ranges::count(n.args(), r.axis) == 0) continue;
      if (n.op != Op::div || n.arg(0) != r.axis || (quotient != kNone && quotient != id)) return;
      quotient = id;
    }
    if (quotient == kNone || r.begin == kNone || !range_is_plain(a_, r)) return;
    const Id by = a_[quotient].arg(1);
    const Node end = a_[r.end];
    if (a_[by].op != Op::constant || a_[by].integer < 2 || end.op != Op::mul || (end.arg(0) != by && end.arg(1) != by)) return;
    const Id whole = a_.fresh_axis(r.axis, taken_);
    groups[quotient] = whole;
    r = {whole, r.begin, end.arg(0) == by ? end.arg(1) : end.arg(0)};
  }

  // What an axis of it is in the definition.
  static Id index_of(const Instance& i, Id axis) {
    for (const auto& [quotient, whole] : i.groups)
      if (whole == axis) return quotient;
    return axis;
  }

  Id grouped(const Instance& i, Id node) {
    if (i.groups.empty()) return node;
    return rewrite(a_, node, [&](Id id) {
      auto it = i.groups.find(id);
      return it == i.groups.end() ? id : it->second;
    });
  }

  // The read that stands for it in what contains it; of a class of its own if there is none like it.
  std::optional<Id> class_of(Instance here, Id with_inner_ones) {
    const Node n = a_[with_inner_ones];
    if (n.op == Op::argmax || n.op == Op::argmin) return std::nullopt;
    if (std::ranges::any_of(here.free, [](const AxisRange& r) { return r.begin == kNone; })) return std::nullopt;
    if (std::ranges::any_of(reachable(a_, reduce_body(n)), [&](Id id) { return is_reduction(a_[id].op); })) return std::nullopt;
    Id open = written_out(with_inner_ones);
    if (open == kNone) return std::nullopt;
    for (AxisRange& r : here.free) group(open, r, here.groups);
    here.root = here.root && here.free.size() == p_.forward.definitions[here.definition].axes.size() && here.groups.empty();
    open = grouped(here, open);
    const Id form = with_squares_as_products(simplify(a_, open));
    if (!is_reduction(a_[form].op)) return std::nullopt;
    for (size_t c = 0; c < classes_.size(); ++c)
      if (auto axes = same(classes_[c], form, here)) {
        here.axes = *axes;
        return joined(c, std::move(here));
      }
    for (const AxisRange& r : here.free) here.axes[r.axis] = r.axis;
    classes_.push_back({form, {}, {}});
    return joined(classes_.size() - 1, std::move(here));
  }

  Id joined(size_t c, Instance here) {
    const bool plain = std::ranges::all_of(here.free, [&](const AxisRange& r) { return range_is_plain(a_, r); });
    for (const auto& [first, axis] : here.axes)
      if (auto at = std::ranges::find(here.free, axis, &AxisRange::axis); plain && at != here.free.end())
        classes_[c].ends.try_emplace(first, at->end);
    const Id stands = token(c, here);
    classes_[c].instances.push_back(std::move(here));
    return stands;
  }

  // Instances that are part of one tensor, the first of which may say what it is.
  void keep_what_fits(Class& c) {
    const std::vector<AxisRange> free = c.instances[0].free;
    std::erase_if(c.instances, [&](const Instance& i) {
      return std::ranges::any_of(free, [&](const AxisRange& first) {
        auto end = c.ends.find(first.axis);
        if (end == c.ends.end()) return true;
        const Id axis = i.axes.at(first.axis);
        const AxisRange r = *std::ranges::find(i.free, axis, &AxisRange::axis);
        return range_is_plain(a_, r) ? r.end != end->second : !in_bounds(a_, axis, end->second, i.around);
      });
    });
    if (!c.worth_a_name()) return;
    const Instance& first = c.instances[0];
    if (!is_inside(a_[c.form], whole(c)) || (first.groups.empty() && !is_inside(a_[first.node], whole(c, first)))) c.instances.clear();
  }

  // The axes of an instance, from 0 to the tensor's ends.
  std::vector<AxisRange> whole(const Class& c, const Instance& i) {
    std::vector<AxisRange> ranges = i.free;
    for (AxisRange& r : ranges)
      for (const auto& [first, axis] : i.axes)
        if (axis == r.axis) r = {axis, a_.integer(0), c.ends.at(first)};
    return ranges;
  }
  std::vector<AxisRange> whole(const Class& c) {
    std::vector<AxisRange> ranges;
    for (const auto& [axis, end] : c.ends) ranges.push_back({axis, a_.integer(0), end});
    return ranges;
  }

  // A class is a tensor that does not exist yet.
  Id token(size_t c, const Instance& at) {
    std::vector<Id> indices;
    const Instance& first = classes_[c].instances.empty() ? at : classes_[c].instances[0];
    for (const AxisRange& r : first.free) indices.push_back(index_of(at, at.axes.at(r.axis)));
    return a_.read(static_cast<TensorId>(p_.tensors.size() + c), a_[at.node].type, indices);
  }

  std::optional<AxesOfOther> same(const Class& c, Id form, const Instance& here) {
    const Node u = a_[c.form], v = a_[form];
    const std::vector<AxisRange>& free = c.instances[0].free;
    if (u.op != v.op || u.type != v.type || u.arg_count != v.arg_count || free.size() != here.free.size()) return std::nullopt;
    auto axes = same_but_for_names(a_, {{reduce_condition(u), reduce_condition(v)}, {reduce_body(u), reduce_body(v)}});
    if (!axes) return std::nullopt;
    const Replacements to(axes->begin(), axes->end());
    const std::vector<AxisRange> ours = reduce_axes(u), theirs = reduce_axes(v);
    for (size_t i = 0; i < ours.size(); ++i) {
      auto it = axes->find(ours[i].axis);
      if (it == axes->end()) return std::nullopt;
      auto at = std::ranges::find(theirs, it->second, &AxisRange::axis);
      if (at == theirs.end() || (u.op == Op::prod && at != theirs.begin() + static_cast<std::ptrdiff_t>(i))) return std::nullopt;
      if (substitute(a_, ours[i].begin, to) != at->begin || substitute(a_, ours[i].end, to) != at->end) return std::nullopt;
    }
    for (const AxisRange& r : free) {
      auto it = axes->find(r.axis);
      if (it == axes->end()) return std::nullopt;
      auto at = std::ranges::find(here.free, it->second, &AxisRange::axis);
      if (at == here.free.end()) return std::nullopt;
    }
    return axes;
  }

  // With the values of maps in place of their names; kNone if that is much.
  Id written_out(Id root) {
    for (int round = 0; round < 8; ++round) {
      if (reachable(a_, root).size() > kLargest) return kNone;
      const Id next = rewrite(a_, root, [&](Id id) {
        const Node n = a_[id];
        if (n.op != Op::read || !maps_.contains(n.symbol)) return id;
        const Definition& map = *maps_.at(n.symbol);
        Replacements at;
        for (size_t i = 0; i < n.arg_count; ++i) at[map.axes[i].axis] = a_.to(DType::i64, n.arg(i));
        return substitute(a_, map.body, at, taken_);
      });
      if (next == root) return root;
      root = next;
    }
    return kNone;
  }

  Id with_squares_as_products(Id root) {
    return rewrite(a_, root, [&](Id id) {
      const Node n = a_[id];
      return n.op == Op::pow && is_float(n.type) && is_constant(a_, n.arg(1), 2) ? a_.mul(n.arg(0), n.arg(0)) : id;
    });
  }

  bool is_inside(const Node& reduction, const std::vector<AxisRange>& free) {
    std::vector<AxisRange> axes = free;
    for (const AxisRange& r : reduce_axes(reduction)) axes.push_back(r);
    for (Id id : reachable(a_, std::vector<Id>{reduce_body(reduction), reduce_condition(reduction)})) {
      const Node n = a_[id];
      if (n.op != Op::read || n.symbol >= p_.tensors.size()) continue;
      for (size_t i = 0; i < n.arg_count; ++i)
        if (!in_bounds(a_, n.arg(i), p_.tensors[n.symbol].shape[i], axes)) return false;
    }
    return true;
  }

  // The body with reads for what stands several times; definitions of what has no name yet go to `before`.
  Id named(size_t index, const Definition& d, std::vector<Definition>& before) {
    std::map<Id, std::pair<Class*, const Instance*>> wanted;
    for (Class& c : classes_)
      for (const Instance& i : c.instances)
        if (i.definition == index && c.worth_a_name()) wanted[i.node] = {&c, &i};
    if (wanted.empty()) return d.body;
    take_names(d);
    std::unordered_map<Id, Id> done;
    std::vector<Id> args;
    for (Id id : reachable(a_, d.body)) {
      args.clear();
      for (Id x : a_[id].args()) args.push_back(done.at(x));
      done[id] = a_.with_args(id, args);
      auto it = wanted.find(id);
      if (it == wanted.end()) continue;
      auto& [c, here] = it->second;
      if (c->tensor == kNoTensor) {
        const std::vector<AxisRange> free = whole(*c, *here);
        if (here->root) {
          c->tensor = d.target();
          shape_of_[c->tensor] = d.axes;
          continue;
        }
        Definition made;
        std::vector<Id> shape;
        for (const AxisRange& r : free) shape.push_back(r.end);
        made.axes = free;
        made.body = here->groups.empty() ? done.at(id) : grouped(*here, written_out(done.at(id)));
        made.pos = d.pos;
        made.derived = d.derived;
        c->tensor = p_.add_tensor(p_.tensors[d.target()].name + "_" + std::string(info(a_[id].op).text), a_[id].type, shape);
        made.targets = {c->tensor};
        before.push_back(made);
        shape_of_[c->tensor] = free;
      }
      std::vector<Id> indices;
      for (const AxisRange& r : shape_of_.at(c->tensor)) indices.push_back(index_of(*here, here->axes.at(r.axis)));
      done[id] = a_.read(c->tensor, a_[id].type, indices);
    }
    return done.at(d.body);
  }

  Program p_;
  Arena& a_;
  std::vector<Class> classes_;
  std::map<TensorId, const Definition*> maps_;
  std::map<TensorId, std::vector<AxisRange>> shape_of_;
  std::vector<Id> taken_;
};

}  // namespace

Program without_repeated_reductions(const Program& p) {
  for (const Definition& d : p.definitions())
    if (d.is_call()) return p;
  return Repeated(p).run();
}

}  // namespace xhat
