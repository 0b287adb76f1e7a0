// A plan for a range of sizes: a row of numbers, some of which depend on the open dims. runtime/host/walk_archive.h and
// runtime/device/device_table.h, which write and read plans, define the meaning and order of the numbers.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace xhat::runtime {

// A number that depends on the one open dim: base + slope * dim.
struct AheadReal {
  bool inverse = false;  // the number is 1 / (base + slope * dim)
  double base = 0, slope = 0;
};

// Adds `factor` times a product of dims to the number at `place`.
struct AheadSlope {
  int64_t place = 0, product = 0, factor = 0;
};

// How the arrays lie that the caller may give with strides.
enum class AheadLayout : uint8_t {
  dense,  // row-major without gaps
  rows,   // elements of the last dimension are neighbours
  any
};

struct AheadVariant {
  AheadLayout layout = AheadLayout::dense;
  std::vector<int64_t> first, last;  // per argument dim: the smallest and the largest value served; equal for those that are given
  std::vector<std::vector<int64_t>> products;  // of dims, by position; the first one is the open dim, if there is only one
  std::vector<int64_t> base;                   // the row of integers, without what slopes add
  std::vector<AheadSlope> slopes;
  std::vector<AheadReal> reals;

  bool serves(const std::vector<int64_t>& dims, AheadLayout wanted) const {
    if (layout != wanted) return false;
    for (size_t i = 0; i < first.size(); ++i)
      if (dims[i] < first[i] || last[i] < dims[i]) return false;
    return true;
  }
};

struct AheadNumbers {
  std::vector<int64_t> numbers;
  std::vector<double> reals;
};

inline AheadNumbers numbers_at(const AheadVariant& v, const std::vector<int64_t>& dims) {
  std::vector<int64_t> products;
  for (const auto& of : v.products) {
    products.push_back(1);
    for (int64_t dim : of) products.back() *= dims[static_cast<size_t>(dim)];
  }
  AheadNumbers at{v.base, {}};
  for (const AheadSlope& s : v.slopes) at.numbers[static_cast<size_t>(s.place)] += s.factor * products[static_cast<size_t>(s.product)];
  for (const AheadReal& r : v.reals) {
    double value = r.base + (products.empty() ? 0 : r.slope * static_cast<double>(products[0]));
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
    a.number(v.layout);
    each(v.first, number);
    each(v.last, number);
    each(v.products, [&](auto& of) { each(of, number); });
    each(v.base, number);
    each(v.slopes, [&](AheadSlope& s) {
      a.number(s.place);
      a.number(s.product);
      a.number(s.factor);
    });
    each(v.reals, [&](AheadReal& r) {
      a.number(r.inverse);
      a.real(r.base);
      a.real(r.slope);
    });
  });
}

}  // namespace xhat::runtime
