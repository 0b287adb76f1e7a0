#include "fusion/plan/chunked_variance.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace xhat {
namespace {

class Moments {
 public:
  Moments(const Program& p, const DimValues& sizes, int64_t cache_bytes) : p_(p), a_(*p.arena), sizes_(sizes), cache_bytes_(cache_bytes) {}

  Program run() {
    for (size_t v = 1; v < p_.forward.definitions.size(); ++v)
      for (size_t s = 0; s < v; ++s)
        if (auto pair = matched(s, v)) {
          split(s, v, *pair);
          v += kNew;
          break;
        }
    return std::move(p_);
  }

 private:
  // v sums up the squares of what s sums up less a part of s.
  struct Pair {
    Id term = kNone;       // of s
    Id count = kNone;      // M
    std::vector<AxisRange> axes;  // of both sums, as s has them
    size_t outer = 0;             // so many of them, the first ones, are walked by parts
  };

  bool plain_sum(const Definition& d) const {
    const Node& n = a_[d.body];
    if (n.op != Op::sum || (n.type != DType::f32 && n.type != DType::f64) || (reduce_condition(n) != kNone && !is_true(a_, reduce_condition(n)))) return false;
    return std::ranges::all_of(reduce_axes(n), [&](const AxisRange& r) { return range_is_plain(a_, r); });
  }

  std::optional<Pair> matched(size_t s, size_t v) {
    const Definition &sum = p_.forward.definitions[s], &squares = p_.forward.definitions[v];
    if (!plain_sum(sum) || !plain_sum(squares) || sum.axes.size() != squares.axes.size()) return {};
    const std::vector<AxisRange> axes = reduce_axes(a_[sum.body]), others = reduce_axes(a_[squares.body]);
    if (axes.size() < 2 || axes.size() != others.size()) return {};
    Replacements same;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].end != others[i].end) return {};
      same[others[i].axis] = axes[i].axis;
    }
    for (size_t i = 0; i < sum.axes.size(); ++i) same[squares.axes[i].axis] = sum.axes[i].axis;
    const Node square = a_[reduce_body(a_[squares.body])];
    const bool power = square.op == Op::pow && is_constant(a_, square.arg(1), 2);
    if (!power && !(square.op == Op::mul && square.arg(0) == square.arg(1))) return {};
    const Node difference = a_[square.arg(0)];
    if (difference.op != Op::sub) return {};
    // A square says nothing of the order: (x - mean)^2 or (mean - x)^2.
    Id divisor = count_of(difference.arg(1), sum.target(), squares.axes), deviating = difference.arg(0);
    if (divisor == kNone) divisor = count_of(difference.arg(0), sum.target(), squares.axes), deviating = difference.arg(1);
    if (divisor == kNone) return {};
    const Id term = reduce_body(a_[sum.body]);
    if (substitute(a_, deviating, same) != term) return {};
    double terms = 1;
    for (const AxisRange& r : axes) terms *= static_cast<double>(evaluate_extent(a_, r.end, sizes_));
    const auto count = number(divisor);
    if (!count || std::fabs(*count - terms) > 1e-3 * terms || bytes(term, axes, 0) <= cache_bytes_) return {};
    size_t outer = 1;
    while (outer < axes.size() && bytes(term, axes, outer) > cache_bytes_) ++outer;
    if (outer == axes.size()) return {};
    return Pair{term, divisor, axes, outer};
  }

  // M of sum[axes]/M, or of a tensor at these axes that is defined so; kNone: it is something else.
  Id count_of(Id mean, TensorId sum, const std::vector<AxisRange>& axes) const {
    auto reads_here = [&](Id id) {
      const Node& n = a_[id];
      return n.op == Op::read && std::ranges::equal(read_indices(n), axes, {}, {}, &AxisRange::axis);
    };
    const Node& n = a_[mean];
    if (n.op == Op::div) return reads_here(n.arg(0)) && a_[n.arg(0)].symbol == sum ? n.arg(1) : kNone;
    if (!reads_here(mean)) return kNone;
    const Definition* d = p_.definition_of(n.symbol);
    return d && d->target() != sum && a_[d->body].op == Op::div ? count_of(d->body, sum, d->axes) : kNone;
  }

  // An expression of dims alone.
  std::optional<double> number(Id id) const {
    const Node& n = a_[id];
    if (!n.free_axes().empty()) return {};
    if (n.type == DType::i64) return static_cast<double>(evaluate_extent(a_, id, sizes_));
    if (n.op == Op::constant) return n.value;
    if (n.op == Op::cast) return number(n.arg(0));
    if (n.op != Op::mul && n.op != Op::div) return {};
    auto x = number(n.arg(0)), y = number(n.arg(1));
    if (!x || !y) return {};
    return n.op == Op::mul ? *x * *y : *x / *y;
  }

  // Of the terms of one result at one place of the axes before `first`.
  int64_t bytes(Id term, const std::vector<AxisRange>& axes, size_t first) const {
    int64_t total = 0;
    for (Id id : reachable(a_, term)) {
      if (!is_read(a_[id].op)) continue;
      int64_t n = static_cast<int64_t>(byte_size(a_[id].type));
      for (size_t i = first; i < axes.size(); ++i)
        if (a_[id].depends_on(axes[i].axis))
          n *= std::max<int64_t>(1, evaluate_extent(a_, axes[i].end, sizes_));
      total += n;
    }
    return total;
  }

  // first, sums, rests and offset stand before the two sums that are made of them.
  static constexpr size_t kNew = 4;
  // A first term above this is no shift: the square of a difference from it may overflow where the deviations do not.
  static constexpr double kLargestShift = 1e18;

  void split(size_t s, size_t v, const Pair& pair) {
    const Definition sum = p_.forward.definitions[s], squares = p_.forward.definitions[v];
    const auto middle = pair.axes.begin() + static_cast<std::ptrdiff_t>(pair.outer);
    const std::vector<AxisRange> outer(pair.axes.begin(), middle), inner(middle, pair.axes.end());
    const DType type = a_[sum.body].type;
    const std::string name = p_.tensors[sum.target()].name;
    std::vector<AxisRange> left = outer;  // as they lie in memory, the batch first
    left.insert(left.end(), sum.axes.begin(), sum.axes.end());
    std::vector<Id> at, of_first, results;
    for (const AxisRange& r : left) at.push_back(r.axis);
    for (const AxisRange& r : sum.axes) results.push_back(r.axis);
    for (size_t i = 0; i < outer.size(); ++i) of_first.push_back(a_.integer(0));
    of_first.insert(of_first.end(), results.begin(), results.end());
    auto terms = [&](const std::vector<AxisRange>& axes) {
      Id n = a_.integer(1);
      for (const AxisRange& r : axes) n = a_.mul(n, r.end);
      return a_.cast(type, n);
    };
    auto define = [&](const std::string& of, const std::vector<AxisRange>& axes, Id body) {
      std::vector<Id> shape;
      for (const AxisRange& r : axes) shape.push_back(r.end);
      Definition d = sum;
      d.targets = {p_.add_tensor(of, type, shape)};
      d.axes = axes;
      d.body = body;
      return d;
    };
    auto read = [&](const Definition& d, const std::vector<Id>& place) { return a_.read(d.target(), type, place); };
    auto square = [&](Id x) { return a_.mul(x, x); };

    Replacements at_zero;
    for (const AxisRange& r : inner) at_zero[r.axis] = a_.integer(0);
    const Id start = substitute(a_, pair.term, at_zero);
    const Id moderate = a_.binary(Op::lt, a_.unary(Op::abs, start), a_.constant(type, kLargestShift));
    const Definition first = define(name + "_first", left, a_.select(moderate, start, a_.constant(type, 0)));
    const Id shifted = a_.sub(pair.term, read(first, at)), count = terms(inner);
    const Definition sums = define(name + "_part", left, a_.reduce(Op::sum, inner, kNone, shifted));
    const Id own_mean = a_.div(read(sums, at), count);  // less the first term
    const Definition rests = define(p_.tensors[squares.target()].name + "_part", left,
                                    a_.reduce(Op::sum, inner, kNone, square(a_.sub(shifted, own_mean))));
    const Id shift = read(first, of_first), apart = a_.mul(count, a_.sub(read(first, at), shift));
    const Definition offset =
        define(name + "_offset", sum.axes, a_.reduce(Op::sum, outer, kNone, a_.add(apart, read(sums, at))));

    Definition total = sum, total_squares = sum;
    total.body = a_.add(a_.mul(terms(pair.axes), shift), read(offset, results));
    total_squares.targets = squares.targets;
    const Id mean = a_.div(read(sum, results), pair.count);
    const Id from_mean = a_.add(a_.sub(read(first, at), mean), own_mean);
    total_squares.body = a_.reduce(Op::sum, outer, kNone, a_.add(read(rests, at), a_.mul(count, square(from_mean))));
    auto& all = p_.forward.definitions;
    all[v] = total_squares;
    all[s] = total;
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(s), {first, sums, rests, offset});
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  const int64_t cache_bytes_;
};

}  // namespace

Program variance_by_chunks(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Moments(p, sizes, request.machine.cache_bytes).run() : p;
}

}  // namespace xhat
