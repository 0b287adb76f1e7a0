// Functions of statistics and physics.
//
//   erfc            e^-x^2, with the square in two parts, times a polynomial in (x-2)/(x+2) over 1 + 2x: relative errors stay small in the tail
//   erfinv          x times polynomials in w = -log(1 - x^2) and in sqrt(w) (Giles, GPU Computing Gems 2, 2011)
//   lgamma          u (1 + u) P(u) around 2 with the arguments moved there by products, Stirling's series from 8, reflection below 0
//   digamma         (x - root) P around 1.5 with the arguments moved there, the asymptotic series from 10, reflection below 0
//   polygamma(n,x)  terms up to n + 10, then the sum by Euler and Maclaurin
//   i0e, i1e        the series in x^2/4 up to 7.75, then a polynomial in 1/x over sqrt(x)
//
// lgamma, digamma and polygamma of f32 are computed in f64.
#include <cmath>

#include "runtime/emit/special_coefficients.h"
#include "runtime/emit/vector_parts.h"

namespace xhat::vmath::parts {

namespace {

Expr negated(const Expr& x) { return x * number(x.type(), -1); }
Expr real(double v) { return number(Float(64), v); }

Expr erfinv(const Expr& x) {
  auto c = [&](double v) { return number(x.type(), v); };
  const Expr a = vmath::abs(x), w = negated(vmath::log((c(1) - a) * (c(1) + a))), root = vmath::sqrt(w);
  Expr p;
  if (is_single(x)) {
    p = select(w < c(5), polynomial(w - c(2.5), fits::erfinv_centre_f32), polynomial(root - c(3), fits::erfinv_tail_f32));
  } else {
    const Expr far = select(w < c(16), polynomial(root - c(3.25), fits::erfinv_middle_f64), polynomial(root - c(5), fits::erfinv_tail_f64));
    p = select(w < c(6.25), polynomial(w - c(3.125), fits::erfinv_centre_f64), far);
  }
  return select(a == c(1), x * c(infinity), select(a > c(1), c(quiet_nan), p * x));
}

// --- The gamma function's logarithm, and its derivatives ---------------------------------------------------

// For g >= 0.
Expr positive_lgamma(const Expr& g) {
  const Expr c = vmath::min(vmath::floor(g + real(0.5)), real(8)), u = g - c;
  const Expr near = u * (u + real(1)) * polynomial(u, fits::lgamma_near_f64);
  Expr product = real(1);  // of 2 + u, ..., g - 1
  for (int i = 2; i < 8; ++i) product = select(c > real(i), product * (u + real(i)), product);
  const Expr below = c < real(2), factor = select(below, select(c < real(1), g * (g + real(1)), g), product);
  const Expr log_factor = vmath::log(factor), moved = near + select(below, negated(log_factor), log_factor);
  const Expr far = vmath::max(g, real(8)), inverse = real(1) / far;
  static const Coefficients stirling = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                        1.0 / 1188, -691.0 / 360360, 1.0 / 156,  -3617.0 / 122400};
  const Expr series = vmath::fma(inverse, polynomial(inverse * inverse, stirling), real(0.41893853320467274));
  return select(g < real(8), moved, vmath::fma(far - real(0.5), vmath::log(far) - real(1), series));
}

Expr lgamma(const Expr& x) {
  const Expr a = vmath::abs(x), negative = x < real(0);
  // lgamma(x) = log(pi / |sin(pi x)|) - lgamma(1 - x)
  const Expr y = positive_lgamma(select(negative, a + real(1), a));
  const Expr reflected = vmath::log(real(pi) / vmath::abs(sincos_pi(x).sin)) - y;
  return select(a == real(infinity), a, select(negative, reflected, y));
}

// For g >= 0, or -0.
Expr positive_digamma(const Expr& g) {
  const Expr c = vmath::max(vmath::min(vmath::floor(g), real(10)), real(0));
  const Expr first = c < real(1), u = select(first, g - real(0.5), g - c - real(0.5)), base = u + real(1.5);
  const Expr near = ((u - real(fits::digamma_root[0] - 1.5)) - real(fits::digamma_root[1])) * polynomial(u, fits::digamma_near_f64);
  // The sum of 1/base, 1/(base + 1), ..., 1/(g - 1); or -1/g.
  Expr above = real(0), below = real(1);
  for (int i = 0; i < 9; ++i) {
    const Expr on = c > real(i + 1), term = base + real(i);
    above = select(on, vmath::fma(above, term, below), above);
    below = select(on, below * term, below);
  }
  const Expr moved = near + select(first, real(-1), above) / select(first, g, below);
  const Expr far = vmath::max(g, real(10)), inverse = real(1) / far, square = inverse * inverse;
  static const Coefficients series = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12, -3617.0 / 8160};
  const Expr asymptotic = vmath::log(far) - inverse * real(0.5) - square * polynomial(square, series);
  return select(g < real(10), moved, asymptotic);
}

Expr digamma(const Expr& x) {
  const Expr negative = x < real(0), y = positive_digamma(select(negative, real(1) - x, x));
  const SinCos v = sincos_pi(x);
  const Expr reflected = y - real(pi) * v.cos / v.sin;
  return select(negative, select(v.sin == real(0), real(quiet_nan), reflected), y);
}

Expr whole_power(const Expr& x, int k) {
  Expr result = x;
  for (int i = 1; i < k; ++i) result = result * x;
  return result;
}

// (-1)^(n+1) n! (sum of (x+k)^-(n+1)): the terms up to n + 10, and the rest by Euler and Maclaurin.
Expr positive_polygamma(int n, const Expr& x) {
  const int terms = n + 10;
  Expr sum = real(0);
  for (int k = 0; k < terms; ++k) sum = sum + real(1) / whole_power(x + real(k), n + 1);
  const Expr inverse = real(1) / (x + real(terms)), square = inverse * inverse;
  static const double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510};
  Coefficients series;
  double rising = n + 1;  // (n+1) ... (n+2j-1) / (2j)!
  for (int j = 1; j <= 8; ++j) {
    series.push_back(bernoulli[j - 1] * rising / 2);
    rising *= (n + 2.0 * j) * (n + 2.0 * j + 1) / ((2.0 * j + 1) * (2.0 * j + 2));
  }
  const Expr rest = real(1.0 / n) + inverse * (real(0.5) + inverse * polynomial(square, series));
  sum = sum + whole_power(inverse, n) * rest;
  return sum * real((n % 2 ? 1 : -1) * std::tgamma(n + 1));
}

// The n-th derivative of pi cot(pi x) is pi^(n+1) p(cot(pi x)); of p, which is odd or even, the coefficients of every second power.
Coefficients cotangent_derivative(int n) {
  std::vector<double> p = {0, 1};
  for (int times = 0; times < n; ++times) {  // p -> -(1 + c^2) p'
    std::vector<double> next(p.size() + 1);
    for (size_t k = 1; k < p.size(); ++k) {
      next[k - 1] -= static_cast<double>(k) * p[k];
      next[k + 1] -= static_cast<double>(k) * p[k];
    }
    p = std::move(next);
  }
  Coefficients used;
  for (size_t k = n % 2 ? 0 : 1; k < p.size(); k += 2) used.push_back(p[k] * std::pow(pi, n + 1));
  return used;
}

Expr polygamma(int n, const Expr& x) {
  if (n == 0) return digamma(x);
  const Expr negative = x < real(0), y = positive_polygamma(n, select(negative, real(1) - x, x));
  const SinCos v = sincos_pi(x);
  const Expr c = v.cos / v.sin, slope = polynomial(c * c, cotangent_derivative(n));
  return select(negative, n % 2 ? negated(slope) - y : y - slope * c, y);
}

Expr polygamma(const Expr& n, const Expr& x) {
  if (const auto order = Halide::Internal::as_const_float(n)) {
    if (!(*order >= 0 && *order <= 20 && *order == std::floor(*order))) return real(quiet_nan);
    return polygamma(static_cast<int>(*order), x);
  }
  Expr result = real(quiet_nan);  // an order that data decide: each of them
  for (int order = 4; order >= 0; --order) result = select(cast(Float(64), n) == real(order), polygamma(order, x), result);
  return result;
}

// --- Bessel functions --------------------------------------------------------------------------------------

struct BesselTables {
  const Coefficients &small_single, &small_twice, &large_single, &large_twice;
};

// e^-|x| I(x), where `factor` stands before the series in x^2/4; of |x|.
Expr scaled_bessel(const Expr& a, const Expr& factor, const BesselTables& t) {
  auto c = [&](double v) { return number(a.type(), v); };
  constexpr double split = 7.75;
  const Expr near = at_most(a, split), far = at_least(a, split);
  const Expr small = factor * polynomial(near * near * c(0.25), fit(a, t.small_single, t.small_twice)) * vmath::exp(negated(near));
  const Expr large = polynomial(c(1) / far - c(0.0645), fit(a, t.large_single, t.large_twice)) / vmath::sqrt(far);
  return select(a > c(split), large, small);
}

Expr i0e(const Expr& x) {
  return scaled_bessel(vmath::abs(x), number(x.type(), 1),
                       {fits::i0_small_f32, fits::i0_small_f64, fits::i0_large_f32, fits::i0_large_f64});
}

Expr i1e(const Expr& x) {
  const Expr a = vmath::abs(x);
  const BesselTables t = {fits::i1_small_f32, fits::i1_small_f64, fits::i1_large_f32, fits::i1_large_f64};
  return with_sign(scaled_bessel(a, a * number(x.type(), 0.5), t), sign_bit(x));
}

// f32 by way of f64.
template <Expr (*function)(const Expr&)>
Expr in_double(std::span<const Expr> a) {
  return is_single(a[0]) ? cast(Float(32), function(cast(Float(64), a[0]))) : function(a[0]);
}
Expr polygamma_in_double(std::span<const Expr> a) {
  return is_single(a[1]) ? cast(Float(32), polygamma(a[0], cast(Float(64), a[1]))) : polygamma(a[0], a[1]);
}

}  // namespace

Expr erfc(const Expr& x) {
  auto c = [&](double v) { return number(x.type(), v); };
  const Expr a = at_most(vmath::abs(x), 28);  // whose erfc is 0 in both types
  const Expr p = polynomial((a - c(2)) / (a + c(2)), fit(x, fits::erfc_scaled_f32, fits::erfc_scaled_f64));
  const Expr square = a * a, lost = vmath::fma(a, a, negated(square));
  const Expr tail = vmath::exp(negated(square)) * (p / vmath::fma(a, c(2), c(1)));
  const Expr y = vmath::fma(negated(tail), lost, tail);
  return select(x < c(0), c(2) - y, y);
}

std::vector<Row> special_rows() {
  using Args = std::span<const Expr>;
  constexpr double big = std::numeric_limits<float>::max();
  return {
      {"erfc", 1, -9, 9.19, 5, 5, [](Args a) { return parts::erfc(a[0]); }},
      {"erfinv", 1, -1, 1, 4, 5, [](Args a) { return parts::erfinv(a[0]); }},
      {"lgamma", 1, 0, big, 1, 8, in_double<parts::lgamma>},
      {"digamma", 1, 0, big, 1, 4, in_double<parts::digamma>},
      {"polygamma", 2, 0, 4, 2, 8, polygamma_in_double},
      {"i0e", 1, -big, big, 4, 4, [](Args a) { return parts::i0e(a[0]); }},
      {"i1e", 1, -big, big, 4, 4, [](Args a) { return parts::i1e(a[0]); }},
  };
}

}  // namespace xhat::vmath::parts
