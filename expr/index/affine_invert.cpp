// Inverting an access relation: which bound points read the target element? The relation is split into groups
// of bound axes that indices, ranges or conditions connect (a whole strided 2-D convolution takes isl ten
// times as long as its two spatial groups); a plain index is a renaming and needs no isl; symbolic divisors
// have rules; each other group is solved by isl (affine_solve).
#include <algorithm>
#include <numeric>

#include "expr/index/affine_system.h"
#include "expr/index/simplify_index.h"

namespace xhat {
namespace {

using namespace affine;

template <class T>
bool contains(const std::vector<T>& v, const T& x) {
  return std::find(v.begin(), v.end(), x) != v.end();
}

class Inversion {
 public:
  Inversion(Arena& a, const InvertQuestion& q) : a_(a), q_(q) {}

  std::optional<InvertAnswer> run() {
    system_.axes.assign(q_.bound.begin(), q_.bound.end());
    system_.taken.assign(q_.taken.begin(), q_.taken.end());
    for (const AxisRange& r : q_.bound) system_.taken.push_back(r.axis);
    for (size_t d = 0; d < q_.indices.size(); ++d)
      system_.equations.push_back({q_.indices[d], q_.targets[d].axis});
    if (q_.condition != kNone) take_condition(q_.condition);
    if (q_.narrowing != kNone) {
      std::swap(system_.conditions, system_.inequalities);
      take_condition(q_.narrowing);
      std::swap(system_.conditions, system_.inequalities);
    }
    rename();
    apply_rules(a_, system_, q_.targets);
    rename();
    for (System& group : groups()) {
      group.taken = system_.taken;
      if (!looks_at_targets(group)) {  // nothing to invert: as the user wrote it
        remaining_.insert(remaining_.end(), group.axes.begin(), group.axes.end());
        guards_.insert(guards_.end(), group.conditions.begin(), group.conditions.end());
        continue;
      }
      const Solution s = solve(a_, group, q_.targets);
      progress_ = progress_ || s.progress;
      remaining_.insert(remaining_.end(), s.remaining.begin(), s.remaining.end());
      solved_.insert(solved_.end(), s.solved.begin(), s.solved.end());
      guards_.insert(guards_.end(), s.guards.begin(), s.guards.end());
      for (const AxisRange& r : s.remaining) system_.taken.push_back(r.axis);
    }
    if (!progress_) return std::nullopt;
    return answer();
  }

 private:
  bool looks_at_bound(Id e) const {
    return std::any_of(q_.bound.begin(), q_.bound.end(),
                       [&](const AxisRange& r) { return contains(axes_in(e), r.axis); });
  }

  bool looks_at_targets(const System& group) const {
    if (!group.equations.empty() || !group.inequalities.empty()) return true;
    return std::any_of(group.conditions.begin(), group.conditions.end(), [&](Id c) {
      return looks_at_bound(c) &&
             std::any_of(q_.targets.begin(), q_.targets.end(), [&](const AxisRange& t) { return contains(axes_in(c), t.axis); });
    });
  }

  // 2*i + r - 1 == o, as the condition of a sum that the user wrote.
  bool is_equation(const Node& n) const {
    if (n.op != Op::eq || a_[n.arg(0)].type != DType::i64) return false;
    const auto ids = reachable(a_, std::vector<Id>{n.arg(0), n.arg(1)});
    const bool data = std::any_of(ids.begin(), ids.end(), [&](Id id) {
      return is_read(a_[id].op) || is_reduction(a_[id].op) || is_float(a_[id].type);
    });
    return !data && (looks_at_bound(n.arg(0)) || looks_at_bound(n.arg(1)));
  }

  // max(x, y) <= z is two conditions, and so is z < min(x, y): to isl the pieces of an extreme are a union.
  std::optional<std::pair<Id, Id>> two_bounds(Node n) {
    if ((n.op != Op::le && n.op != Op::lt) || a_[n.arg(0)].type != DType::i64) return std::nullopt;
    const Id left = n.arg(0), right = n.arg(1);
    const Node l = a_[left], r = a_[right];
    if (l.op == Op::maximum) return std::pair{a_.binary(n.op, l.arg(0), right), a_.binary(n.op, l.arg(1), right)};
    if (r.op == Op::minimum) return std::pair{a_.binary(n.op, left, r.arg(0)), a_.binary(n.op, left, r.arg(1))};
    return std::nullopt;
  }

  bool is_range_of_target(const Node& n) const {
    return std::any_of(q_.targets.begin(), q_.targets.end(), [&](const AxisRange& t) {
      return (n.op == Op::le && n.arg(0) == t.begin && n.arg(1) == t.axis) || (n.op == Op::lt && n.arg(0) == t.axis && n.arg(1) == t.end);
    });
  }

  // Conjuncts that isl can use go to the system; those that look at data are only tested.
  void take_condition(Id condition) {
    std::vector<Id> todo{condition};
    while (!todo.empty()) {
      const Id c = todo.back();
      todo.pop_back();
      const Node& n = a_[c];
      if (n.op == Op::land) {
        todo.insert(todo.end(), {n.arg(1), n.arg(0)});
      } else if (auto both = two_bounds(n)) {
        todo.insert(todo.end(), {both->second, both->first});
      } else if (is_equation(n)) {
        const bool swapped = looks_at_bound(n.arg(1));
        if (swapped && looks_at_bound(n.arg(0)))
          system_.equations.push_back({a_.sub(n.arg(0), n.arg(1)), a_.integer(0)});
        else
          system_.equations.push_back({n.arg(swapped), n.arg(!swapped)});
      } else if (!is_true(a_, c) && !is_range_of_target(n)) {
        const auto ids = reachable(a_, c);
        const bool data = std::any_of(ids.begin(), ids.end(), [&](Id id) {
          return is_read(a_[id].op) || is_reduction(a_[id].op) || is_float(a_[id].type);
        });
        (data ? guards_ : system_.conditions).push_back(c);
      }
    }
  }

  // x[…, i, …] with i in the target's own range and nowhere else in the system: i is the target.
  void rename() {
    auto uses = [&](Id axis) {
      size_t n = 0;
      auto count = [&](Id e) { n += contains(axes_in(e), axis); };
      for (const Equation& e : system_.equations) count(e.left);
      for (const auto* tests : {&system_.conditions, &system_.inequalities})
        for (Id c : *tests) count(c);
      for (const AxisRange& r : system_.axes)
        for (Id e : {r.begin, r.end}) count(e);
      return n;
    };
    for (size_t i = 0; i < system_.equations.size(); ++i) {
      const Equation e = system_.equations[i];
      auto r = std::find_if(system_.axes.begin(), system_.axes.end(),
                            [&](const AxisRange& x) { return x.axis == e.left; });
      auto t = std::find_if(q_.targets.begin(), q_.targets.end(),
                            [&](const AxisRange& x) { return x.axis == e.right; });
      if (r == system_.axes.end() || t == q_.targets.end() || r->begin != t->begin || r->end != t->end)
        continue;
      if (uses(e.left) != 1) continue;
      solved_.emplace_back(e.left, e.right);
      progress_ = true;
      system_.axes.erase(r);
      system_.equations.erase(system_.equations.begin() + static_cast<std::ptrdiff_t>(i--));
    }
  }

  std::vector<Id> axes_in(Id e) const {
    const auto axes = a_[e].free_axes();
    return {axes.begin(), axes.end()};
  }

  // Bound axes connected by an equation, a condition or a range (union-find).
  std::vector<System> groups() {
    const auto& axes = system_.axes;
    std::vector<size_t> leader(axes.size());
    std::iota(leader.begin(), leader.end(), 0);
    auto find = [&](size_t i) {
      while (leader[i] != i) i = leader[i] = leader[leader[i]];
      return i;
    };
    constexpr size_t none = SIZE_MAX;
    auto join = [&](std::initializer_list<Id> together) {
      size_t first = none;
      for (Id e : together)
        for (size_t i = 0; i < axes.size(); ++i) {
          if (!contains(axes_in(e), axes[i].axis)) continue;
          if (first == none)
            first = find(i);
          else
            leader[std::max(find(i), first)] = std::min(find(i), first), first = find(i);
        }
      return first;
    };
    for (const AxisRange& r : axes) join({r.axis, r.begin, r.end});
    for (const Equation& e : system_.equations) join({e.left, e.right});
    for (const auto* tests : {&system_.conditions, &system_.inequalities})
      for (Id c : *tests) join({c});
    std::vector<System> all(axes.size() + 1);  // by leader; the last: what has no bound axis
    auto at = [&](size_t first) -> System& { return all[first == none ? axes.size() : find(first)]; };
    for (size_t i = 0; i < axes.size(); ++i) at(i).axes.push_back(axes[i]);
    for (const Equation& e : system_.equations) at(join({e.left, e.right})).equations.push_back(e);
    for (Id c : system_.conditions) at(join({c})).conditions.push_back(c);
    for (Id c : system_.inequalities) at(join({c})).inequalities.push_back(c);
    std::erase_if(
        all, [](const System& s) { return s.axes.empty() && s.equations.empty() && s.conditions.empty(); });
    return all;
  }

  // Everything over targets and remaining axes only, in the order of the question.
  InvertAnswer answer() {
    InvertAnswer r;
    Replacements replace;
    for (const auto& [axis, e] : solved_) {
      const Id over_remaining = substitute(a_, e, replace);
      replace[axis] = over_remaining;
      r.solved.emplace_back(axis, tidy(a_, over_remaining));
    }
    std::vector<AxisRange> around(q_.targets.begin(), q_.targets.end());
    auto simple = [&](Id bound) { return fusion::divides(a_, bound) ? fusion::simplified_index(a_, bound, around) : bound; };
    for (AxisRange x : remaining_) {
      r.remaining.push_back({x.axis, simple(substitute(a_, x.begin, replace)), simple(substitute(a_, x.end, replace))});
      around.push_back(r.remaining.back());
    }
    auto place = [&](Id axis) {
      for (size_t i = 0; i < q_.bound.size(); ++i)
        if (q_.bound[i].axis == axis) return i;
      return q_.bound.size();
    };
    std::stable_sort(r.solved.begin(), r.solved.end(),
                     [&](const auto& x, const auto& y) { return place(x.first) < place(y.first); });
    for (Id g : guards_) {
      const Id test = tidy(a_, substitute(a_, g, replace));
      if (!is_true(a_, test)) r.guard = r.guard == kNone ? test : a_.land(r.guard, test);
    }
    return r;
  }

  Arena& a_;
  const InvertQuestion& q_;
  System system_;
  std::vector<AxisRange> remaining_;
  std::vector<std::pair<Id, Id>> solved_;
  std::vector<Id> guards_;
  bool progress_ = false;
};

}  // namespace

std::optional<InvertAnswer> invert(Arena& a, const InvertQuestion& q) { return Inversion(a, q).run(); }

}  // namespace xhat
