#include "expr/index/hull.h"

#include <algorithm>
#include <cmath>

#include "expr/core/scalar.h"
#include "expr/index/linear.h"

namespace xhat {
namespace {

std::optional<int64_t> number(const Arena& a, Id x) {
  if (x == kNone || a[x].op != Op::constant) return std::nullopt;
  return a[x].integer;
}

// Is a term of a linear form >= 0 for all sizes?
bool nonnegative_term(const Arena& a, Id x) {
  const Node& n = a[x];
  auto below = [&](size_t i) { return nonnegative_term(a, n.arg(i)); };
  switch (n.op) {
    case Op::dim: return true;
    case Op::constant: return n.integer >= 0;
    case Op::add:
    case Op::mul:
    case Op::div:
    case Op::mod:
    case Op::minimum: return below(0) && below(1);
    case Op::maximum: return below(0) || below(1);
    default: return false;
  }
}

}  // namespace

std::optional<AxisRange> Hull::box(const AxisRange& r) {
  Id begin = interval(r.begin).low, end = interval(r.end).high;
  if (begin == kNone || end == kNone) return std::nullopt;
  return AxisRange{r.axis, begin, end};
}

bool Hull::surely_le(Id x, Id y) const {
  Linear difference = linear(a_, a_.sub(y, x));
  return difference.constant >= 0 && std::ranges::all_of(difference.terms, [&](const auto& term) {
           return term.second > 0 && nonnegative_term(a_, term.first);
         });
}

Id Hull::apply(Op op, Id x, Id y) const {
  if (x == kNone || y == kNone) return kNone;
  if (auto c = number(a_, x), d = number(a_, y); c && d) {
    int64_t operands[] = {*c, *d};
    return a_.integer(scalar(op).integers.at(operands));
  }
  return tidy_index(a_, a_.binary(op, x, y));
}

Id Hull::least(Id x, Id y) const {
  if (x == kNone || y == kNone) return kNone;
  return surely_le(x, y) ? x : surely_le(y, x) ? y : apply(Op::minimum, x, y);
}

Id Hull::largest(Id x, Id y) const {
  if (x == kNone || y == kNone) return kNone;
  return surely_le(x, y) ? y : surely_le(y, x) ? x : apply(Op::maximum, x, y);
}

Id Hull::largest_magnitude(const Interval& x) const {
  return nonnegative(x.low) ? x.high : largest(negated(x.low), x.high);
}

Hull::Interval Hull::interval(Id e) {
  for (Id id : reachable(a_, e)) {
    if (known_.contains(id)) continue;
    Interval found = computed(id);
    known_[id] = found;
  }
  return known_.at(e);
}

Hull::Interval Hull::computed(Id e) {
  const Node& n = a_[e];
  auto x = [&](size_t i) { return known_.at(n.arg(i)); };
  const Id zero = a_.integer(0), one = a_.integer(1);
  if (n.type == DType::boolean) return {zero, one};
  if (is_float(n.type))
    if (auto bounds = of_float(n)) return *bounds;
  switch (n.op) {
    case Op::constant: return {a_.integer(n.integer), a_.integer(n.integer)};
    case Op::dim: return {e, e};
    case Op::axis: {
      AxisRange r = ranges_.at(e);
      return {interval(r.begin).low, minus_one(interval(r.end).high)};
    }
    case Op::neg: return {negated(x(0).high), negated(x(0).low)};
    case Op::add: return together(e, {apply(Op::add, x(0).low, x(1).low), apply(Op::add, x(0).high, x(1).high)});
    case Op::sub: return together(e, {apply(Op::sub, x(0).low, x(1).high), apply(Op::sub, x(0).high, x(1).low)});
    case Op::mul: return product(x(0), x(1));
    case Op::div: return quotient(x(0), x(1));
    case Op::mod: return remainder(x(0), x(1));
    case Op::pow: {
      // A negative exponent gives 0, 1 or -1.
      Id power = apply(Op::pow, largest(one, largest_magnitude(x(0))), largest(zero, x(1).high));
      return {nonnegative(x(0).low) ? zero : negated(power), power};
    }
    case Op::minimum:
    case Op::maximum:
    case Op::clamp: {
      // One operand bounds a minimum from above, both are needed from below.
      auto lesser = [&](Interval u, Interval v) {
        return Interval{least(u.low, v.low), u.high == kNone ? v.high : v.high == kNone ? u.high : least(u.high, v.high)};
      };
      auto greater = [&](Interval u, Interval v) {
        return Interval{u.low == kNone ? v.low : v.low == kNone ? u.low : largest(u.low, v.low), largest(u.high, v.high)};
      };
      if (n.op == Op::clamp) return lesser(greater(x(0), x(1)), x(2));
      return n.op == Op::minimum ? lesser(x(0), x(1)) : greater(x(0), x(1));
    }
    case Op::abs: return {nonnegative(x(0).low) ? x(0).low : zero, largest_magnitude(x(0))};
    case Op::sign: return {a_.integer(-1), one};
    case Op::relu: return {x(0).low == kNone ? zero : largest(zero, x(0).low), largest(zero, x(0).high)};
    case Op::bit_and:
      for (size_t i : {0u, 1u})
        if (nonnegative(x(i).low)) return {zero, x(i).high};
      return {};
    case Op::shift_right: return nonnegative(x(0).low) ? Interval{zero, x(0).high} : Interval{};
    case Op::select: return {least(x(1).low, x(2).low), largest(x(1).high, x(2).high)};
    case Op::stop_gradient: return x(0);
    case Op::cast: return converted(n);
    default: return is_reduction(n.op) ? reduced(n) : Interval{};
  }
}

Hull::Interval Hull::together(Id e, Interval apart) {
  if (is_float(a_[e].type) || a_[e].free_axes().size() < 2) return apart;
  const Linear sum = linear(a_, e);
  for (const auto& [x, factor] : sum.terms) {
    if (a_[x].op != Op::axis) continue;
    const AxisRange r = ranges_.at(x);
    const auto meets = [&](Id bound) {
      return std::ranges::any_of(sum.terms, [&](const auto& other) { return other.first != x && a_[bound].depends_on(other.first); });
    };
    // The ends that it surely has, each of which bounds the sum.
    const auto bounded = [&](bool above) {
      Id most = kNone;
      const bool by_end = (factor > 0) == above;
      for (Id bound : operands_of(a_, by_end ? r.end : r.begin, by_end ? Op::minimum : Op::maximum)) {
        if (!meets(bound)) continue;
        const Id there = tidy_index(a_, substitute(a_, e, {{x, by_end ? a_.sub(bound, a_.integer(1)) : bound}}));
        const Interval found = interval(there);
        const Id one = above ? found.high : found.low;
        most = one == kNone ? most : most == kNone ? one : above ? least(most, one) : largest(most, one);
      }
      return most;
    };
    if (!meets(r.begin) && !meets(r.end)) continue;
    const Id low = bounded(false), high = bounded(true);
    if (low != kNone) apart.low = apart.low == kNone ? low : largest(apart.low, low);
    if (high != kNone) apart.high = apart.high == kNone ? high : least(apart.high, high);
  }
  return apart;
}

Hull::Interval Hull::converted(const Node& n) {
  if (n.type == DType::u8) return {a_.integer(0), a_.integer(255)};
  if (n.type == DType::u32) return {a_.integer(0), a_.integer(UINT32_MAX)};
  Interval x = known_.at(n.arg(0));
  if (is_float(n.type) || !is_float(a_[n.arg(0)].type)) return x;
  // NaN gives 0, and f32 and bf16 round: 1/64 is several roundings of bf16.
  const Id zero = a_.integer(0);
  auto slack = [&](Id most) { return apply(Op::add, apply(Op::div, most, a_.integer(64)), a_.integer(1)); };
  Id low = least(zero, x.low), high = largest(zero, x.high);
  return {apply(Op::sub, low, slack(negated(low))), apply(Op::add, high, slack(high))};
}

// Whole numbers around a float's values; none: by the rule for integers.
std::optional<Hull::Interval> Hull::of_float(const Node& n) {
  constexpr double kWhole = 0x1p53;
  auto x = [&](size_t i) { return known_.at(n.arg(i)); };
  const Id zero = a_.integer(0), one = a_.integer(1), minus = a_.integer(-1);
  switch (n.op) {
    case Op::constant:
      if (!(std::abs(n.value) < kWhole)) return Interval{};
      return Interval{a_.integer(static_cast<int64_t>(std::floor(n.value))), a_.integer(static_cast<int64_t>(std::ceil(n.value)))};
    case Op::div: {
      // By a number: x/0.3 lies in 4*x.
      const Node& by = a_[n.arg(1)];
      double factor = by.op == Op::constant ? std::ceil(1 / std::abs(by.value)) : 0;
      if (!(factor > 0 && factor < kWhole)) return Interval{};
      Id most = apply(Op::mul, largest_magnitude(x(0)), a_.integer(static_cast<int64_t>(factor)));
      return Interval{nonnegative(x(0).low) && by.value > 0 ? zero : negated(most), most};
    }
    case Op::mod: return nonnegative(x(1).low) ? Interval{zero, x(1).high} : Interval{};
    case Op::pow: return nonnegative(x(1).low) ? std::nullopt : std::optional(Interval{});
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc: return x(0);
    case Op::sqrt: return Interval{zero, largest(one, x(0).high)};
    case Op::log: return Interval{kNone, largest(zero, x(0).high)};
    case Op::softplus: return Interval{zero, apply(Op::add, one, largest(zero, x(0).high))};
    case Op::sin:
    case Op::cos:
    case Op::tanh:
    case Op::erf:
    case Op::i1e:
    case Op::sinc: return Interval{minus, one};
    case Op::atan: return Interval{a_.integer(-2), a_.integer(2)};
    case Op::atan2: return Interval{a_.integer(-4), a_.integer(4)};
    case Op::erfc: return Interval{zero, a_.integer(2)};
    case Op::sigmoid:
    case Op::i0e:
    case Op::random: return Interval{zero, one};
    default: return std::nullopt;
  }
}

Hull::Interval Hull::product(const Interval& x, const Interval& y) {
  if (nonnegative(x.low) && nonnegative(y.low))
    return {apply(Op::mul, x.low, y.low), apply(Op::mul, x.high, y.high)};
  for (auto [c, other] : {std::pair(x, y), std::pair(y, x)})
    if (auto factor = number(a_, c.low); factor && c.low == c.high) {
      Id from_low = apply(Op::mul, c.low, other.low), from_high = apply(Op::mul, c.low, other.high);
      return *factor >= 0 ? Interval{from_low, from_high} : Interval{from_high, from_low};
    }
  Id most = apply(Op::mul, largest_magnitude(x), largest_magnitude(y));
  return {negated(most), most};
}

Hull::Interval Hull::quotient(const Interval& x, const Interval& y) {
  if (auto divisor = number(a_, y.low); divisor && y.low == y.high) {
    Id from_low = apply(Op::div, x.low, y.low), from_high = apply(Op::div, x.high, y.low);
    return *divisor >= 0 ? Interval{from_low, from_high} : Interval{from_high, from_low};
  }
  // Division by 0 gives 0.
  const Id zero = a_.integer(0);
  if (nonnegative(y.low)) return {least(zero, x.low), largest(zero, x.high)};
  Id most = largest_magnitude(x);
  return {negated(most), most};
}

Hull::Interval Hull::remainder(const Interval& x, const Interval& y) {
  const Id zero = a_.integer(0);
  if (nonnegative(y.low)) {
    Id most = largest(zero, minus_one(y.high));
    if (!nonnegative(x.low)) return {zero, most};
    return {zero, most == kNone ? x.high : x.high == kNone ? most : least(most, x.high)};
  }
  Id most = largest_magnitude(y);
  return {negated(most), most};
}

Hull::Interval Hull::reduced(const Node& n) {
  std::vector<AxisRange> axes = reduce_axes(n);
  if (n.op == Op::argmax || n.op == Op::argmin)
    return {interval(axes[0].begin).low, minus_one(interval(axes[0].end).high)};
  if (n.op != Op::sum) return {};  // a product is huge, an extreme over nothing is the type's own
  const Id zero = a_.integer(0);
  Id count = a_.integer(1);
  for (const AxisRange& r : axes)
    count = apply(Op::mul, count, largest(zero, apply(Op::sub, interval(r.end).high, interval(r.begin).low)));
  Interval body = known_.at(reduce_body(n));
  return {apply(Op::mul, count, least(zero, body.low)), apply(Op::mul, count, largest(zero, body.high))};
}

}  // namespace xhat
