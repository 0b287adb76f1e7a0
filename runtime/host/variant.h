// A plan for a range of sizes: a row of numbers, some of which depend linearly on the one open dim. runtime/host/walk_archive.h and
// runtime/device/device_table.h, which write and read plans, define the meaning and order of the numbers.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace xhat::runtime {

// A number that depends on the open dim: base + slope * dim.
struct AheadReal {
  bool inverse = false;  // the number is 1 / (base + slope * dim)
  double base = 0, slope = 0;
};

struct AheadVariant {
  std::vector<int64_t> fixed;  // per argument dim: its value; -1: open
  int64_t open = -1;           // position of the open dim; -1: none
  int64_t first = 0, last = 0;  // smallest and largest value of the open dim
  // The row of integers, base + slope * dim each, then the reals.
  std::vector<int64_t> base;
  std::vector<std::pair<int64_t, int64_t>> slopes;  // (position in base, slope), for slopes other than 0
  std::vector<AheadReal> reals;

  bool serves(const std::vector<int64_t>& dims) const {
    for (size_t i = 0; i < fixed.size(); ++i)
      if (fixed[i] >= 0 && fixed[i] != dims[i]) return false;
    return open < 0 || (first <= dims[static_cast<size_t>(open)] && dims[static_cast<size_t>(open)] <= last);
  }
};

struct AheadNumbers {
  std::vector<int64_t> numbers;
  std::vector<double> reals;
};

inline AheadNumbers numbers_at(const AheadVariant& v, const std::vector<int64_t>& dims) {
  int64_t n = v.open < 0 ? 0 : dims[static_cast<size_t>(v.open)];
  AheadNumbers at{v.base, {}};
  for (auto [place, slope] : v.slopes) at.numbers[static_cast<size_t>(place)] += slope * n;
  for (const AheadReal& r : v.reals) {
    double value = r.base + r.slope * static_cast<double>(n);
    at.reals.push_back(r.inverse ? 1 / value : value);
  }
  return at;
}

// A: ByteWriter or ByteReader of bytes.h.
template <class A>
void transfer_variants(A& a, std::vector<AheadVariant>& variants) {
  auto each = [&](auto& list, auto&& f) {
    a.resize(list);
    for (auto& x : list) f(x);
  };
  auto number = [&](auto& x) { a.number(x); };
  each(variants, [&](AheadVariant& v) {
    each(v.fixed, number);
    a.number(v.open);
    a.number(v.first);
    a.number(v.last);
    each(v.base, number);
    each(v.slopes, [&](auto& s) {
      a.number(s.first);
      a.number(s.second);
    });
    each(v.reals, [&](AheadReal& r) {
      a.number(r.inverse);
      a.real(r.base);
      a.real(r.slope);
    });
  });
}

}  // namespace xhat::runtime
