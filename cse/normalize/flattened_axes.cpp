#include "cse/normalize/flattened_axes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace xhat {
namespace {

// A product of dims and numbers.
struct Size {
  int64_t number = 1;
  std::vector<Id> dims;  // ascending
  bool operator==(const Size&) const = default;
  size_t rank() const { return dims.size() + (number != 1); }
};

std::optional<Size> size_of(const Arena& a, Id id) {
  const Node& n = a[id];
  if (n.op == Op::constant && n.integer > 0) return Size{n.integer, {}};
  if (n.op == Op::dim) return Size{1, {id}};
  if (n.op != Op::mul) return std::nullopt;
  auto x = size_of(a, n.arg(0)), y = size_of(a, n.arg(1));
  if (!x || !y) return std::nullopt;
  x->number *= y->number;
  x->dims.insert(x->dims.end(), y->dims.begin(), y->dims.end());
  std::ranges::sort(x->dims);
  return x;
}

// whole = quotient * part
std::optional<Size> divided(const Size& whole, const Size& part) {
  if (whole.number % part.number != 0 || !std::ranges::includes(whole.dims, part.dims)) return std::nullopt;
  Size quotient{whole.number / part.number, {}};
  std::ranges::set_difference(whole.dims, part.dims, std::back_inserter(quotient.dims));
  return quotient;
}

Size times(Size x, const Size& y) {
  x.number *= y.number;
  x.dims.insert(x.dims.end(), y.dims.begin(), y.dims.end());
  std::ranges::sort(x.dims);
  return x;
}

Id expression(Arena& a, const Size& s) {
  Id value = s.number == 1 && !s.dims.empty() ? kNone : a.integer(s.number);
  for (Id dim : s.dims) value = value == kNone ? dim : a.mul(value, dim);
  return value;
}

class TakenApart {
 public:
  TakenApart(Arena& arena, const AxisRange& axis, std::vector<Id> taken) : a_(arena), axis_(axis), taken_(std::move(taken)) {}

  // The axes instead of this one, and the expressions over them.
  std::optional<std::vector<AxisRange>> run(Id& body, Id& condition) {
    const auto whole = range_is_plain(a_, axis_) ? size_of(a_, axis_.end) : std::nullopt;
    if (!whole || whole->rank() < 2) return std::nullopt;
    std::optional<Size> part;
    for (Id id : reachable(a_, std::vector<Id>{body, condition}))
      if (auto by = modulus(id); by && divided(*whole, *by) && *by != *whole && (!part || by->rank() > part->rank())) part = by;
    if (!part) return std::nullopt;
    const Size rest = *divided(*whole, *part);
    const Id upper = a_.fresh_axis(axis_.axis, taken_);
    taken_.push_back(upper);
    const Id lower = a_.fresh_axis(axis_.axis, taken_);
    const bool moves = moves_a_window(body) || moves_a_window(condition);
    const Id whole_again = a_.add(a_.mul(upper, expression(a_, *part)), lower);
    for (Id* x : {&body, &condition}) {
      *x = rewrite(a_, *x, [&](Id id) { return split(id, *part, upper, lower); });
      if (moves) *x = rewrite(a_, *x, [&](Id id) { return is_read(a_[id].op) ? substitute(a_, id, {{axis_.axis, whole_again}}) : id; });
      if (a_[*x].depends_on(axis_.axis)) return std::nullopt;
    }
    return {{{upper, a_.integer(0), expression(a_, rest)}, {lower, a_.integer(0), expression(a_, *part)}}};
  }

 private:
  // Is a quotient or remainder of it added to another axis, or compared with one?
  bool moves_a_window(Id root) const {
    auto others = [&](Id id) { return std::ranges::any_of(a_[id].free_axes(), [&](Id x) { return x != axis_.axis; }); };
    return std::ranges::any_of(reachable(a_, root), [&](Id id) {
      const Node& n = a_[id];
      if (n.op != Op::add && n.op != Op::sub && n.op != Op::eq && n.op != Op::lt && n.op != Op::le) return false;
      if (!is_integer(a_[n.arg(0)].type) || !others(id)) return false;
      return std::ranges::any_of(reachable(a_, id), [&](Id x) { return modulus(x).has_value(); });
    });
  }

  // B of p/B, p%B and p/C%(B/C).
  std::optional<Size> modulus(Id id) const {
    const Node& n = a_[id];
    if (n.op != Op::div && n.op != Op::mod) return std::nullopt;
    auto by = size_of(a_, n.arg(1));
    if (by && n.arg(0) == axis_.axis) return by;
    const Node& inner = a_[n.arg(0)];
    if (!by || n.op != Op::mod || inner.op != Op::div || inner.arg(0) != axis_.axis) return std::nullopt;
    auto below = size_of(a_, inner.arg(1));
    return below ? std::optional(times(*by, *below)) : std::nullopt;
  }

  // p is upper*part + lower. Operands have been rewritten, but for the axis itself.
  Id split(Id id, const Size& part, Id upper, Id lower) {
    const Node n = a_[id];
    if ((n.op != Op::div && n.op != Op::mod) || n.arg(0) != axis_.axis) {
      // (upper*k + lower/C) % k, for lower/C below k.
      if (n.op != Op::mod) return id;
      const Node sum = a_[n.arg(0)];
      if (sum.op != Op::add || a_[sum.arg(0)].op != Op::mul || a_[sum.arg(0)].arg(0) != upper) return id;
      auto by = size_of(a_, n.arg(1)), step = size_of(a_, a_[sum.arg(0)].arg(1));
      return by && step && *by == *step ? sum.arg(1) : id;
    }
    const auto by = size_of(a_, n.arg(1));
    if (!by) return id;
    if (*by == part) return n.op == Op::div ? upper : lower;
    const auto steps = divided(part, *by);
    if (!steps) return id;
    const Id size = expression(a_, *by);
    if (n.op == Op::mod) return a_.binary(Op::mod, lower, size);
    return a_.add(a_.mul(upper, expression(a_, *steps)), a_.binary(Op::div, lower, size));
  }

  Arena& a_;
  const AxisRange axis_;
  std::vector<Id> taken_;
};

class Unflattener {
 public:
  explicit Unflattener(const Program& p) : p_(p), a_(*p_.arena) {}

  Program run() {
    for (const Definition& d : p_.definitions())
      if (d.is_call()) return p_;
    bool changed = false;
    for (Definition& d : p_.definitions()) {
      taken_ = all_axes(a_, std::span<const Id>(&d.body, 1));
      for (const AxisRange& r : d.axes) taken_.push_back(r.axis);
      const Id body = rewrite(a_, d.body, [&](Id id) { return is_reduction(a_[id].op) ? without(id) : id; });
      changed = changed || body != d.body;
      d.body = body;
      if (std::ranges::none_of(reachable(a_, d.body), [&](Id id) { return is_reduction(a_[id].op); })) maps_[d.target()] = &d;
    }
    return changed ? without_dead(p_) : p_;
  }

 private:
  Id without(Id id) {
    const Node n = a_[id];
    if (n.op == Op::argmax || n.op == Op::argmin) return id;
    std::vector<AxisRange> axes = reduce_axes(n);
    Id body = reduce_body(n), condition = reduce_condition(n);
    bool changed = false;
    for (size_t i = 0; i < axes.size();) {
      const bool asked = std::ranges::any_of(
          axes, [&](const AxisRange& r) { return a_[r.begin].depends_on(axes[i].axis) || a_[r.end].depends_on(axes[i].axis); });
      const auto size = size_of(a_, axes[i].end);
      if (asked || !size || size->rank() < 2) {
        ++i;
        continue;
      }
      Id open = written_out(body, axes[i].axis), asking = written_out(condition, axes[i].axis);
      auto apart = TakenApart(a_, axes[i], taken_).run(open, asking);
      if (!apart) {
        ++i;
        continue;
      }
      body = open, condition = asking, changed = true;
      for (const AxisRange& r : *apart) taken_.push_back(r.axis);
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
      axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(i), apart->begin(), apart->end());
    }
    return changed ? a_.reduce(n.op, axes, condition, body) : id;
  }

  // Reads of maps at the axis become what these are.
  Id written_out(Id root, Id axis) {
    return rewrite(a_, root, [&](Id id) {
      const Node n = a_[id];
      if (n.op != Op::read || std::ranges::count(n.args(), axis) == 0 || !maps_.contains(n.symbol)) return id;
      const Definition& map = *maps_.at(n.symbol);
      Replacements at;
      for (size_t i = 0; i < n.arg_count; ++i) at[map.axes[i].axis] = a_.to(DType::i64, n.arg(i));
      return written_out(substitute(a_, map.body, at, taken_), axis);
    });
  }

  Program p_;
  Arena& a_;
  std::map<TensorId, const Definition*> maps_;
  std::vector<Id> taken_;
};

}  // namespace

Program without_flattened_axes(const Program& p) { return Unflattener(p).run(); }

}  // namespace xhat
