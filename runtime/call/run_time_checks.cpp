#include "runtime/call/run_time_checks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/checked_index.h"
#include "expr/core/conditions.h"
#include "expr/core/uses.h"
#include "expr/index/affine.h"
#include "expr/index/linear.h"
#include "runtime/kernel/exists.h"

namespace xhat::runtime {
namespace {

Id either(Arena& a, Id x, Id y) { return x == kNone ? y : y == kNone ? x : a.binary(Op::lor, x, y); }

// What sizes alone decide: a box of these axes has points at all of which the test is the same.
bool is_of_sizes(const Arena& a, Id test, const std::vector<AxisRange>& axes) {
  auto plain = [&](Id e) {
    return a[e].axes_count == 0 &&
           std::ranges::none_of(reachable(a, e), [&](Id id) { return is_read(a[id].op) || is_reduction(a[id].op); });
  };
  return plain(test) && std::ranges::all_of(axes, [&](const AxisRange& r) { return plain(r.begin) && plain(r.end); });
}

// Something that fails where `test` holds, at the points of the axes where `when` holds.
struct Risk {
  std::vector<AxisRange> axes;
  Id when, test;
  std::string checked;
};

class Finder {
 public:
  explicit Finder(const Program& direction) : direction_(direction), exact_(direction), first_(direction), a_(*direction.arena) {
    exact_.outputs.clear();
    first_.outputs.clear();
  }

  Checks run() {
    for (size_t i = 0; i < direction_.forward.definitions.size(); ++i) add(i);
    if (checks_.checks.empty()) return std::move(checks_);
    auto tidied = [](const Program& p) { return without_dead(inline_injective(without_dead(p))); };
    checks_.of_data = tidied(exact_);
    if (cheaper_first_) checks_.at_first = tidied(first_);
    return std::move(checks_);
  }

 private:
  void add(size_t definition) {
    const Definition& d = direction_.forward.definitions[definition];
    auto when = conditions_on_paths(a_, d.body);
    // A definition's own reduction binds axes of what stands in it.
    std::vector<AxisRange> inside = d.axes;
    if (is_reduction(a_[d.body].op))
      for (const AxisRange& r : reduce_axes(a_[d.body])) inside.push_back(r);
    Id exact = kNone, first = kNone;
    std::string checked;
    for (Id id : reachable(a_, d.body)) {
      const std::vector<AxisRange>& axes = id == d.body ? d.axes : inside;
      for (const Risk& r : risks(id, axes, when.at(id))) {
        auto [precise, quick] = tests_of(r);
        if (precise == kNone) continue;
        exact = either(a_, exact, precise);
        first = either(a_, first, quick);
        if (!checked.ends_with(r.checked)) checked += (checked.empty() ? "" : ", ") + r.checked;
      }
    }
    if (exact == kNone) return;
    const TensorId fails = define(exact_, exact, definition);
    if (define(first_, first, definition) != fails) throw Bug("checks are numbered alike in both programs");
    checks_.checks.push_back({fails, definition, checked});
  }

  TensorId define(Program& p, Id body, size_t definition) {
    Definition check;
    const TensorId target = direction_.forward.definitions[definition].target();
    check.targets = {p.add_tensor("fails_" + direction_.tensors[target].name, DType::boolean, {})};
    check.body = body;
    p.outputs.push_back(check.target());
    p.forward.definitions.push_back(check);
    return check.target();
  }

  std::vector<Risk> risks(Id id, const std::vector<AxisRange>& axes, Id when) {
    const Node n = a_[id];
    std::vector<Risk> found;
    if (n.op == Op::read)
      for (size_t i = 0; i < n.arg_count; ++i) {
        if (!depends_on_data(a_, n.arg(i)) && !out_of_reach(a_, n.arg(i))) continue;
        const Id extent = direction_.tensors[n.symbol].shape[i];
        if (proved_inside(a_, uses_, n.arg(i), extent, axes, when)) continue;
        found.push_back(outside(a_.to(DType::i64, n.arg(i)), extent, axes, when));
        found.back().checked = print(direction_, id);
      }
    if (n.op == Op::argmax || n.op == Op::argmin) add_nothing(found, id, axes, when);
    return found;
  }

  // Where an axis that no condition and no other range needs moves the index straight on, the ends of its range decide:
  //   x[start[b] + k], k in 0..K: start[b] < 0 || N <= start[b] + K - 1
  Risk outside(Id index, Id extent, std::vector<AxisRange> axes, Id when) {
    Id low = index, high = index;
    bool may_wrap = false;  // beside data of 64 bits: an end beyond the largest number is one below 0
    for (size_t i = axes.size(); i-- > 0;) {
      const AxisRange r = axes[i];
      auto has = [&](Id e) { return a_[e].depends_on(r.axis); };
      if (!has(index) || has(when) || std::ranges::any_of(axes, [&](const AxisRange& x) { return has(x.begin) || has(x.end); })) continue;
      Id step = collected(a_, a_.sub(substitute(a_, index, {{r.axis, a_.add(r.axis, a_.integer(1))}}), index));
      const bool wraps = a_[step].op != Op::constant;
      if (wraps) step = tidy_index(a_, step);
      if (a_[step].op != Op::constant) continue;
      may_wrap = may_wrap || wraps;
      const Id last = a_.sub(r.end, a_.integer(1));
      const bool up = a_[step].integer >= 0;
      low = substitute(a_, low, {{r.axis, up ? r.begin : last}});
      high = substitute(a_, high, {{r.axis, up ? last : r.begin}});
      const Id some = a_.binary(Op::lt, r.begin, r.end);
      when = is_true(a_, when) ? some : a_.land(when, some);
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
    }
    Id test = a_.binary(Op::lor, a_.binary(Op::lt, low, a_.integer(0)), a_.binary(Op::le, extent, high));
    if (may_wrap) test = a_.binary(Op::lor, test, a_.binary(Op::lor, a_.binary(Op::le, extent, low), a_.binary(Op::lt, high, a_.integer(0))));
    return {axes, when, test, {}};
  }

  // Does an argmax run over nothing?
  void add_nothing(std::vector<Risk>& found, Id id, const std::vector<AxisRange>& axes, Id when) {
    const Node n = a_[id];
    const AxisRange r = reduce_axes(n)[0];
    const Id condition = reduce_condition(n);
    const bool always = is_true(a_, condition), fixed = a_[r.begin].op == Op::constant && a_[r.end].op == Op::constant;
    if (always && fixed && a_[r.begin].integer < a_[r.end].integer) return;
    Id nothing = always ? a_.binary(Op::le, r.end, r.begin) : a_.unary(Op::lnot, a_.reduce(Op::any, std::vector{r}, kNone, condition));
    const Id here = is_true(a_, when) ? nothing : a_.select(when, nothing, a_.boolean(false));
    if (!is_of_sizes(a_, here, axes)) return found.push_back({axes, when, nothing, print(direction_, id)});
    nothing = here;
    for (const AxisRange& x : axes) nothing = a_.land(nothing, a_.binary(Op::lt, x.begin, x.end));
    checks_.of_sizes.push_back(nothing);
  }

  // The exact test and the quick one; kNone if an earlier definition has the same.
  std::pair<Id, Id> tests_of(const Risk& r) {
    const Id whole = is_true(a_, r.when) ? r.test : a_.land(r.when, r.test);
    Id exact = kNone, first = kNone;
    for (const std::vector<Id>& parts : alternatives(a_, whole, r.axes)) {
      const Id test = in_canonical_names(exists(a_, r.axes, parts));
      if (!known_.insert(test).second) continue;
      const Id quick = in_canonical_names(exists(a_, r.axes, cheap(parts, r.test)));
      cheaper_first_ = cheaper_first_ || cost_of(quick) < cost_of(test);
      exact = either(a_, exact, test);
      first = either(a_, first, quick);
    }
    return {exact, first};
  }

  // Of those parts, what depends on nothing but inputs and on no axis that the test does not depend on.
  std::vector<Id> cheap(std::vector<Id> parts, Id test) {
    const auto own = a_[test].free_axes();
    auto keeps = [&](Id part) {
      return std::ranges::includes(own, a_[part].free_axes()) &&
             std::ranges::none_of(tensors_read(a_, part), [&](TensorId t) { return uses_.definition(t) != nullptr; });
    };
    for (Id& part : parts)
      if (part != test) part = weaker(part, keeps);
    std::erase_if(parts, [&](Id part) { return is_true(a_, part); });
    return parts;
  }
  // What follows from a condition and says no more than what may be asked; true if nothing does.
  Id weaker(Id condition, const std::function<bool(Id)>& keeps) {
    if (keeps(condition)) return condition;
    const Node n = a_[condition];
    const bool and_then = n.op == Op::select && n.type == DType::boolean && is_false(a_, n.arg(2));
    if (n.op != Op::land && n.op != Op::lor && !and_then) return a_.boolean(true);
    const Id x = weaker(n.arg(0), keeps), y = weaker(n.arg(1), keeps);
    if (is_true(a_, x)) return n.op == Op::lor ? x : y;
    if (is_true(a_, y)) return n.op == Op::lor ? y : x;
    return n.op == Op::select ? a_.select(x, y, a_.boolean(false)) : a_.binary(n.op, x, y);
  }

  // The most axes that are walked at once, then how many tensors are read that must be computed for it.
  std::pair<size_t, size_t> cost_of(Id test) const {
    size_t walked = 0, computed = 0;
    for (Id id : reachable(a_, test))
      if (a_[id].op == Op::any) walked = std::max(walked, reduce_axes(a_[id]).size() + a_[id].axes_count);
    for (TensorId t : tensors_read(a_, test)) computed += uses_.definition(t) != nullptr;
    return {walked, computed};
  }

  // Definitions name their axes as they like; equal checks have equal names then. Axes of one reduction go in the order in which the
  // body first mentions them, so that a tensor's last dimension is innermost.
  Id in_canonical_names(Id test) {
    std::set<std::string, std::less<>> taken;
    for (const Tensor& t : direction_.tensors) taken.insert(t.name);
    for (const Dim& d : direction_.dims) taken.insert(a_.name(d.dim));
    for (Id x : all_axes(a_, {{test}})) taken.insert(a_.name(x));
    int next = 0;
    auto fresh = [&] {
      std::string name = "at" + std::to_string(next++);
      while (taken.contains(name)) name += "_";
      return a_.axis(name);
    };
    return rewrite(a_, test, [&](Id id) {
      const Node n = a_[id];
      if (n.op != Op::any || !is_true(a_, reduce_condition(n))) return id;
      std::vector<AxisRange> ranges = reduce_axes(n);
      std::vector<Id> met;
      collect_axes(reduce_body(n), met);
      auto place = [&](const AxisRange& r) { return std::ranges::find(met, r.axis) - met.begin(); };
      bool plain = std::ranges::all_of(ranges, [&](const AxisRange& r) { return a_[r.begin].axes_count + a_[r.end].axes_count == 0; });
      if (plain) std::ranges::stable_sort(ranges, {}, place);
      Replacements names;
      for (AxisRange& r : ranges) {
        const Id name = fresh();
        names[r.axis] = name;
        r = {name, substitute(a_, r.begin, names), substitute(a_, r.end, names)};
      }
      return a_.reduce(Op::any, ranges, kNone, substitute(a_, reduce_body(n), names));
    });
  }

  void collect_axes(Id e, std::vector<Id>& met) const {
    std::set<Id> seen;
    std::vector<Id> stack{e};
    while (!stack.empty()) {
      const Id id = stack.back();
      stack.pop_back();
      if (!seen.insert(id).second) continue;
      if (a_[id].op == Op::axis) met.push_back(id);
      for (size_t i = a_[id].arg_count; i-- > 0;) stack.push_back(a_[id].arg(i));
    }
  }

  const Program& direction_;
  const Uses uses_{direction_};
  Program exact_, first_;
  Arena& a_;
  Checks checks_;
  std::set<Id> known_;
  bool cheaper_first_ = false;
};

}  // namespace

Checks run_time_checks(const Program& direction) { return Finder(direction).run(); }

}  // namespace xhat::runtime
