// Quantifiers are moved inwards. An axis that an equation determines is replaced by what it equals (the one-point rule); the others
// are eliminated one after the other, each over those parts alone that depend on it, the one that joins the fewest axes first (variable
// elimination, as for constraint networks: Dechter, Bucket elimination, 1999).
#include "runtime/kernel/exists.h"

#include <algorithm>
#include <optional>
#include <set>

#include "expr/core/conditions.h"

namespace xhat::runtime {
namespace {

constexpr size_t kMaxAlternatives = 16;  // beyond, a disjunction is left as it is: right, and slower

bool bounds_another(const Arena& a, std::span<const AxisRange> axes, Id axis) {
  return std::ranges::any_of(axes, [&](const AxisRange& r) { return a[r.begin].depends_on(axis) || a[r.end].depends_on(axis); });
}

// What the axis is where x == y, if sums alone stand around it.
std::optional<Id> solved_for(Arena& a, Id axis, Id x, Id y) {
  if (a[y].depends_on(axis)) std::swap(x, y);
  if (a[y].depends_on(axis) || !a[x].depends_on(axis) || a[x].type != DType::i64) return std::nullopt;
  y = a.to(DType::i64, y);
  while (x != axis) {
    const Node n = a[x];
    const bool plus = n.op == Op::add, minus = n.op == Op::sub;
    if (n.op == Op::neg) {
      x = n.arg(0);
      y = a.unary(Op::neg, y);
      continue;
    }
    if (!plus && !minus) return std::nullopt;
    const bool left = a[n.arg(0)].depends_on(axis);
    if (left && a[n.arg(1)].depends_on(axis)) return std::nullopt;
    x = n.arg(left ? 0 : 1);
    const Id other = n.arg(left ? 1 : 0);
    if (plus)
      y = a.sub(y, other);
    else
      y = left ? a.add(y, other) : a.sub(other, y);
  }
  return y;
}

struct QuantifierPoint {
  size_t axis, part;
  Id value;
};

// An axis that one of the parts determines, and no range needs.
std::optional<QuantifierPoint> determined(Arena& a, std::span<const AxisRange> axes, std::span<const Id> parts) {
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t k = 0; k < parts.size(); ++k) {
      const Node n = a[parts[k]];
      if (n.op != Op::eq || !is_integer(a[n.arg(0)].type) || bounds_another(a, axes, axes[i].axis)) continue;
      if (auto value = solved_for(a, axes[i].axis, n.arg(0), n.arg(1))) return QuantifierPoint{i, k, *value};
    }
  return std::nullopt;
}

class Quantifier {
 public:
  Quantifier(Arena& a, std::vector<AxisRange> axes, std::vector<Id> parts) : a_(a), axes_(std::move(axes)), parts_(std::move(parts)) {}

  Id run() {
    while (auto point = determined(a_, axes_, parts_)) replace(*point);
    while (!axes_.empty()) {
      set_aside();
      eliminate();
    }
    set_aside();
    return all(apart_);
  }

 private:
  // Parts that depend on none of the axes that are left.
  void set_aside() {
    std::erase_if(parts_, [&](Id part) {
      const bool depends = std::ranges::any_of(axes_, [&](const AxisRange& r) { return a_[part].depends_on(r.axis); });
      if (!depends) apart_.push_back(part);
      return !depends;
    });
  }

  void replace(const QuantifierPoint& p) {
    const AxisRange r = axes_[p.axis];
    axes_.erase(axes_.begin() + static_cast<std::ptrdiff_t>(p.axis));
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(p.part));
    std::vector<Id> scope;
    for (const AxisRange& x : axes_) scope.push_back(x.axis);
    for (Id& part : parts_) part = substitute(a_, part, {{r.axis, p.value}}, scope);
    parts_.push_back(a_.binary(Op::le, r.begin, p.value));
    parts_.push_back(a_.binary(Op::lt, p.value, r.end));
  }

  // What depends on the axis, and on which axes of ours that depends.
  struct Bucket {
    std::vector<size_t> parts;
    std::set<Id> axes;
  };
  Bucket bucket_of(const AxisRange& r) const {
    Bucket b;
    auto add = [&](Id e) {
      for (Id x : a_[e].free_axes())
        if (std::ranges::find(axes_, x, &AxisRange::axis) != axes_.end()) b.axes.insert(x);
    };
    b.axes.insert(r.axis);
    for (size_t k = 0; k < parts_.size(); ++k)
      if (a_[parts_[k]].depends_on(r.axis)) {
        b.parts.push_back(k);
        add(parts_[k]);
      }
    // A range that goes along with it may need further axes.
    for (size_t before = 0; before != b.axes.size();) {
      before = b.axes.size();
      for (const AxisRange& x : axes_)
        if (b.axes.contains(x.axis)) {
          add(x.begin);
          add(x.end);
        }
    }
    return b;
  }

  void eliminate() {
    const AxisRange* best = nullptr;
    Bucket least;
    for (const AxisRange& r : axes_) {
      if (bounds_another(a_, axes_, r.axis)) continue;
      Bucket b = bucket_of(r);
      if (best && b.axes.size() > least.axes.size()) continue;
      best = &r;
      least = std::move(b);
    }
    if (least.axes.size() == axes_.size()) {  // no fewer than all at once
      parts_ = {parts_.empty() ? some(axes_) : any(axes_, all(parts_))};
      return axes_.clear();
    }
    // Everything that no other part and no other range depends on goes with it.
    std::set<Id> stay;
    for (size_t k = 0; k < parts_.size(); ++k)
      if (std::ranges::find(least.parts, k) == least.parts.end())
        for (Id x : a_[parts_[k]].free_axes()) stay.insert(x);
    for (const AxisRange& r : axes_)
      if (!least.axes.contains(r.axis))
        for (Id e : {r.begin, r.end})
          for (Id x : a_[e].free_axes()) stay.insert(x);
    std::vector<AxisRange> gone, left;
    for (size_t i = axes_.size(); i-- > 0;) {
      const AxisRange& r = axes_[i];
      bool goes = least.axes.contains(r.axis) && !stay.contains(r.axis) && !bounds_another(a_, left, r.axis);
      (goes ? gone : left).insert((goes ? gone : left).begin(), r);
    }
    std::vector<Id> inside;
    for (size_t k = least.parts.size(); k-- > 0;) {
      inside.insert(inside.begin(), parts_[least.parts[k]]);
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(least.parts[k]));
    }
    // Parts that depend on no axis that goes stay outside.
    std::erase_if(inside, [&](Id part) {
      bool needs = std::ranges::any_of(gone, [&](const AxisRange& r) { return a_[part].depends_on(r.axis); });
      if (!needs) parts_.push_back(part);
      return !needs;
    });
    parts_.push_back(inside.empty() ? some(gone) : any(gone, all(inside)));
    axes_ = std::move(left);
  }

  // Is there a point at all?
  Id some(std::span<const AxisRange> axes) {
    std::vector<Id> tests;
    for (const AxisRange& r : axes)
      if (bounds_another(a_, axes, r.axis)) return a_.reduce(Op::any, axes, kNone, a_.boolean(true));
    for (const AxisRange& r : axes) tests.push_back(a_.binary(Op::lt, r.begin, r.end));
    return all(tests);
  }

  Id any(std::span<const AxisRange> axes, Id test) { return a_.reduce(Op::any, axes, kNone, test); }

  Id all(std::span<const Id> tests) {
    Id r = kNone;
    for (Id t : tests)
      if (!is_true(a_, t)) r = r == kNone ? t : a_.land(r, t);
    return r == kNone ? a_.boolean(true) : r;
  }

  Arena& a_;
  std::vector<AxisRange> axes_;
  std::vector<Id> parts_;
  std::vector<Id> apart_;
};

}  // namespace

std::vector<std::vector<Id>> alternatives(Arena& a, Id test, std::span<const AxisRange> axes) {
  std::vector<std::vector<Id>> open = {conjuncts(a, test)}, done;
  auto helps = [&](Id part) {
    auto ids = reachable(a, part);
    return a[part].op == Op::lor && std::ranges::any_of(ids, [&](Id id) { return determined(a, axes, {{id}}).has_value(); });
  };
  while (!open.empty()) {
    std::vector<Id> parts = std::move(open.back());
    open.pop_back();
    auto split = std::ranges::find_if(parts, helps);
    if (split == parts.end() || open.size() + done.size() + 2 > kMaxAlternatives) {
      done.push_back(std::move(parts));
      continue;
    }
    const Node n = a[*split];
    parts.erase(split);
    for (size_t i : {size_t{1}, size_t{0}}) {
      std::vector<Id> one = parts;
      for (Id c : conjuncts(a, n.arg(i))) one.push_back(c);
      open.push_back(std::move(one));
    }
  }
  return done;
}

Id exists(Arena& a, std::vector<AxisRange> axes, std::vector<Id> parts) { return Quantifier(a, std::move(axes), std::move(parts)).run(); }

}  // namespace xhat::runtime
