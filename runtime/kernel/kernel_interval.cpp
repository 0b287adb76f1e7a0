// Between which values an index of a kernel lies, at the sizes that the kernel is made for.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "expr/index/linear.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kFar = KernelSpec::kFar;

// Of intervals: what is unbounded stays so, whatever is added to it or divides it.
int64_t plus(int64_t u, int64_t v) {
  if (u <= -kFar || v <= -kFar) return -kFar;
  return u >= kFar || v >= kFar ? kFar : u + v;
}
int64_t divided(int64_t u, int64_t divisor) {
  if (std::abs(u) >= kFar) return u;
  return u >= 0 ? u / divisor : -((-u + divisor - 1) / divisor);
}

}  // namespace

std::pair<int64_t, int64_t> KernelSpec::interval(Id e) const {
  const Arena& a = *arena;
  std::unordered_map<Id, std::pair<int64_t, int64_t>> known;
  auto clip = [](int64_t v) { return std::clamp(v, -kFar, kFar); };
  const std::pair<int64_t, int64_t> zero = {0, 0};
  for (Id id : reachable(a, e)) {
    const Node& n = a[id];
    std::pair<int64_t, int64_t> r = {-kFar, kFar};
    auto x = [&](size_t i) { return known.at(n.arg(i)); };
    switch (n.op) {
      case Op::constant:
        if (!is_float(n.type)) r = {clip(n.integer), clip(n.integer)};
        break;
      case Op::axis:
        if (auto it = axes.find(id); it != axes.end())
          r = {0, sealed && it->second.sized ? kLargestSize - 1 : std::max<int64_t>(0, it->second.extent - 1)};
        break;
      case Op::dim:
        if (auto it = sizes.find(id); it != sizes.end()) {
          const int64_t size = axes.at(it->second).extent;
          r = sealed ? std::pair(int64_t{1}, kLargestSize) : std::pair(size, size);
        }
        break;
      case Op::add: r = {plus(x(0).first, x(1).first), -plus(-x(0).second, -x(1).second)}; break;
      case Op::sub: r = {plus(x(0).first, -x(1).second), -plus(-x(0).second, x(1).first)}; break;
      case Op::neg: r = {-x(0).second, -x(0).first}; break;
      case Op::abs: r = {std::max({int64_t{0}, x(0).first, -x(0).second}), std::max(-x(0).first, x(0).second)}; break;
      case Op::relu: r = {std::max(int64_t{0}, x(0).first), std::max(int64_t{0}, x(0).second)}; break;
      case Op::mul: {
        auto [l, h] = x(0);
        auto [m, i] = x(1);
        if (std::max(std::abs(l), std::abs(h)) >= kFar || std::max(std::abs(m), std::abs(i)) >= kFar) break;
        // In double: below 2^40 products are exact, beyond they are clipped anyway.
        auto times = [](int64_t u, int64_t v) { return static_cast<double>(u) * static_cast<double>(v); };
        auto [lo, hi] = std::minmax({times(l, m), times(l, i), times(h, m), times(h, i)});
        r = {static_cast<int64_t>(std::max(lo, -0x1p40)), static_cast<int64_t>(std::min(hi, 0x1p40))};
        break;
      }
      case Op::div:
        if (x(1).first >= kFar) break;
        if (x(1).first == x(1).second && x(1).first > 0) {
          r = {divided(x(0).first, x(1).first), divided(x(0).second, x(1).first)};
        } else if (x(1) == zero) {
          r = zero;  // x/0 is 0
        }
        break;
      case Op::mod:
        if (x(1).first > 0) r = {0, x(1).second - 1};
        if (x(1) == zero) r = zero;
        break;
      case Op::minimum: r = {std::min(x(0).first, x(1).first), std::min(x(0).second, x(1).second)}; break;
      case Op::maximum: r = {std::max(x(0).first, x(1).first), std::max(x(0).second, x(1).second)}; break;
      case Op::clamp:
        r = {std::min(std::max(x(0).first, x(1).first), x(2).first), std::min(std::max(x(0).second, x(1).second), x(2).second)};
        break;
      case Op::select: r = {std::min(x(1).first, x(2).first), std::max(x(1).second, x(2).second)}; break;
      case Op::bit_and:
        for (size_t i : {0u, 1u})
          if (x(i).first >= 0) r = {0, std::min(r.second, x(i).second)};
        break;
      case Op::bit_or:
      case Op::bit_xor:
        // No digit before the first one of either.
        if (x(0).first >= 0 && x(1).first >= 0)
          r = {0, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(x(0).second, x(1).second)) + 1)) - 1};
        break;
      case Op::bit_not: r = {-plus(x(0).second, 1), -plus(x(0).first, 1)}; break;
      case Op::shift_left:
        if (x(0).first >= 0 && x(1).second < kFar)
          r = {0, static_cast<int64_t>(
                      std::min(std::ldexp(static_cast<double>(x(0).second), static_cast<int>(std::clamp<int64_t>(x(1).second, 0, 64))),
                               static_cast<double>(kFar)))};
        break;
      case Op::shift_right: r = {std::min<int64_t>(x(0).first, 0), std::max<int64_t>(x(0).second, 0)}; break;
      case Op::cast:
        if (!is_float(a[n.arg(0)].type) && (n.type == DType::i64 || n.type == DType::i32)) r = x(0);
        break;
      default: break;
    }
    // What is computed in 32 bits wraps where it leaves them.
    constexpr int64_t kMin32 = std::numeric_limits<int32_t>::min(), kMax32 = std::numeric_limits<int32_t>::max();
    if (n.type == DType::i32 && (r.first < kMin32 || r.second > kMax32)) r = {kMin32, kMax32};
    if (n.type == DType::boolean) r = {0, 1};
    if (n.type == DType::u8) r = {0, 255};
    if (n.type == DType::u32) r = {0, std::numeric_limits<uint32_t>::max()};
    known[id] = {clip(r.first), clip(r.second)};
  }
  return known.at(e);
}

double KernelSpec::places_in_tile(Id index) const {
  double places = 1;
  for (const auto& [term, step] : linear(*arena, index).terms) {
    auto [low, high] = interval(term);
    double of_term = static_cast<double>(high - low + 1);
    for (Id id : (*arena)[term].free_axes()) {
      const SpecAxis& x = axes.at(id);
      of_term *= static_cast<double>(x.in_tile()) / static_cast<double>(std::max<int64_t>(1, x.extent));
    }
    places += std::abs(static_cast<double>(step)) * (std::max(1.0, of_term) - 1);
  }
  return places;
}

}  // namespace xhat::runtime
