#include "expr/index/plain_bounds.h"

#include <algorithm>
#include <array>
#include <optional>

#include "expr/index/linear.h"

namespace xhat {
namespace {

class Inside {
 public:
  Inside(const Arena& a, std::span<const AxisRange> axes) : a_(a), axes_(axes) {}

  // Is l >= 0? Inner axes are replaced first, by one bound of their range after the other.
  bool nonnegative(const Linear& l, size_t axes) {
    while (axes > 0 && !l.terms.contains(axes_[axes - 1].axis)) --axes;
    if (axes == 0) return of_dims(l);
    const AxisRange& r = axes_[axes - 1];
    const int64_t k = l.terms.at(r.axis);
    // A max is at least each of its operands, a min at most.
    for (Id side : operands_of(a_, k > 0 ? r.begin : r.end, k > 0 ? Op::maximum : Op::minimum)) {
      if (++tried_ > kMaxTried) return false;
      Linear bound = linear(a_, side), next = l;
      if (k < 0) bound.constant -= 1;
      next.terms.erase(r.axis);
      add_scaled(next, bound, k);
      if (nonnegative(next, axes - 1)) return true;
    }
    return false;
  }

 private:
  static constexpr int kMaxTried = 64;

  bool of_dims(const Linear& l) {
    if (plain(l)) return true;
    // Where there is a point, its ranges have one: N > 0 for n in 0..N.
    return std::ranges::any_of(axes_, [&](const AxisRange& r) {
      Linear rest = l;
      add_scaled(rest, linear(a_, r.end), -1);
      add_scaled(rest, linear(a_, r.begin), 1);
      rest.constant += 1;
      return plain(rest);
    });
  }
  bool plain(const Linear& l) const {
    return l.constant >= 0 && std::ranges::all_of(l.terms, [&](const auto& t) { return a_[t.first].op == Op::dim && t.second > 0; });
  }

  const Arena& a_;
  std::span<const AxisRange> axes_;
  int tried_ = 0;
};

}  // namespace

bool surely_inside(const Arena& a, Id index, Id extent, std::span<const AxisRange> axes) {
  Linear low = linear(a, index), high = linear(a, extent);
  add_scaled(high, low, -1);
  high.constant -= 1;
  Inside inside(a, axes);
  return inside.nonnegative(low, axes.size()) && inside.nonnegative(high, axes.size());
}

bool surely_outside(const Arena& a, Id index, Id extent, std::span<const AxisRange> axes) {
  // Dims 5, 7, 9, …: neither equal, nor multiples. Then once more with 0 for those that no range is made of.
  constexpr int64_t kSize = 5, kNext = 2;
  return std::ranges::any_of(std::array{false, true}, [&](bool others_zero) {
    std::map<Id, int64_t> sizes;
    bool zero = false;
    auto at = [&](const Linear& l) -> std::optional<int64_t> {
      int64_t value = l.constant;
      for (auto [node, k] : l.terms) {
        if (a[node].op != Op::dim) return std::nullopt;
        int64_t size = zero ? 0 : kSize + kNext * static_cast<int64_t>(sizes.size());
        value += k * sizes.try_emplace(node, size).first->second;
      }
      return value;
    };
    Linear lowest = linear(a, index), highest = lowest;
    for (const AxisRange& r : axes) {
      auto begin = at(linear(a, r.begin)), end = at(linear(a, r.end));
      if (!begin || !end || *begin >= *end) return false;  // perhaps there is no point at all
      auto it = lowest.terms.find(r.axis);
      if (it == lowest.terms.end()) continue;
      int64_t k = it->second;
      lowest.constant += k * (k > 0 ? *begin : *end - 1);
      highest.constant += k * (k > 0 ? *end - 1 : *begin);
      lowest.terms.erase(r.axis);
      highest.terms.erase(r.axis);
    }
    zero = others_zero;
    auto low = at(lowest), high = at(highest), size = at(linear(a, extent));
    return low && high && size && (*low < 0 || *high >= *size);
  });
}

}  // namespace xhat
