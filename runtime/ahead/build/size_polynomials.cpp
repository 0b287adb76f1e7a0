// Each number is interpolated dim by dim (Newton's divided differences), which is exact for polynomials of degree 2 in each dim.
#include "runtime/ahead/build/size_polynomials.h"

#include <cmath>
#include <map>

namespace xhat::runtime {
namespace {

// Values at the grid become coefficients of monomials in place, along one dim: entries `stride` apart belong together.
void interpolate(std::vector<long double>& f, size_t stride, int64_t first, int64_t step) {
  const auto x = static_cast<long double>(first), s = static_cast<long double>(step);
  for (size_t at = 0; at < f.size(); ++at) {
    if (at / stride % kGridSizes != 0) continue;
    long double &a = f[at], &b = f[at + stride], &c = f[at + 2 * stride];
    const long double slope = (b - a) / s, bend = (c - 2 * b + a) / (2 * s * s);
    const long double constant = a - slope * x + bend * x * (x + s), linear = slope - bend * (2 * x + s);
    a = constant, b = linear, c = bend;
  }
}

}  // namespace

size_t SizeGrid::points() const {
  size_t n = 1;
  for (size_t i = 0; i < first.size(); ++i) n *= kGridSizes;
  return n;
}

std::vector<int64_t> SizeGrid::sizes(size_t point) const {
  std::vector<int64_t> at;
  for (size_t i = 0; i < first.size(); ++i, point /= kGridSizes)
    at.push_back(first[i] + step[i] * static_cast<int64_t>(point % kGridSizes));
  return at;
}

bool gives(const AheadVariant& v, const std::vector<int64_t>& sizes, const Slots& plan) {
  const AheadNumbers at = numbers_at(v, sizes);
  return at.numbers == plan.numbers && at.reals == plan.reals;
}

std::string fit_polynomials(const SizeGrid& grid, const std::vector<Slots>& plans, AheadVariant& v) {
  const Slots& some = plans[0];
  for (const Slots& s : plans)
    if (s.kinds != some.kinds || s.reals != some.reals) return "other kernels";
  constexpr long double kWhole = 1e-6L;
  std::map<std::vector<int64_t>, int64_t> products;
  v.base.assign(some.numbers.size(), 0);
  for (double real : some.reals) v.reals.push_back({false, real, 0});
  for (size_t i = 0; i < some.numbers.size(); ++i) {
    std::vector<long double> f;
    bool varies = false;
    for (const Slots& s : plans) {
      f.push_back(static_cast<long double>(s.numbers[i]));
      varies |= s.numbers[i] != some.numbers[i];
    }
    v.base[i] = some.numbers[i];
    if (!varies) continue;
    if (some.kinds[i] != SlotKind::size) return "other kernels";
    for (size_t d = 0, stride = 1; d < grid.first.size(); ++d, stride *= kGridSizes) interpolate(f, stride, grid.first[d], grid.step[d]);
    for (size_t at = 0; at < f.size(); ++at) {
      const long double whole = std::round(f[at]);
      if (std::abs(f[at] - whole) > kWhole) return "a size that is no polynomial";
      if (at == 0) v.base[i] = static_cast<int64_t>(whole);
      if (at == 0 || whole == 0) continue;
      std::vector<int64_t> product;
      for (size_t d = 0, rest = at; d < grid.first.size(); ++d, rest /= kGridSizes)
        product.insert(product.end(), rest % kGridSizes, static_cast<int64_t>(d));
      auto [it, fresh] = products.emplace(product, static_cast<int64_t>(v.products.size()));
      if (fresh) v.products.push_back(product);
      v.slopes.push_back({static_cast<int64_t>(i), it->second, static_cast<int64_t>(whole)});
    }
  }
  for (size_t at = 0; at < plans.size(); ++at)
    if (!gives(v, grid.sizes(at), plans[at])) return "a size that is no polynomial";
  return "";
}

}  // namespace xhat::runtime
