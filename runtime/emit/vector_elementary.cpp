// Exponentials and logarithms to other bases, hyperbolic functions, inverse functions, roots and remainders.
//
//   exp2, log2, log10   the reductions of exp and log; whole exponents and powers of two come out exactly
//   sinh, cosh          h = e^|x|/2 without overflow, h -+ 1/(4h); sinh below 1 by a polynomial
//   asin, acos          a polynomial up to 1/2; beyond, asin(x) = pi/2 - 2 asin(sqrt((1-x)/2))
//   atan, atan2         the smaller over the larger, a polynomial on [0,1], then pi/2 and pi in two parts
//   asinh, acosh, atanh by log1p
//   cbrt                a third of the exponent's bits, then Halley's iteration, the last one with its residual in two parts
//   fmod, remainder     f32: exactly, in f64, 51 bits of the quotient at a time; f64: libm
#include <cmath>

#include "runtime/emit/special_coefficients.h"
#include "runtime/emit/vector_parts.h"

namespace xhat::vmath {
namespace parts {

namespace {

constexpr double ln2 = 0.69314718055994531, log2_e = 1.4426950408889634, log10_e = 0.43429448190325183, log10_2 = 0.30102999566398120;

// high - x for a constant that needs two numbers of x's type.
Expr constant_minus(double high, double low, const Expr& x) {
  const double first = is_single(x) ? static_cast<double>(static_cast<float>(high)) : high;
  const double rest = is_single(x) ? high - first : low;
  return number(x.type(), first) - (x - number(x.type(), rest));
}
constexpr double pi_low = 1.2246467991473532e-16;
Expr half_pi_minus(const Expr& x) { return constant_minus(pi / 2, pi_low / 2, x); }
Expr pi_minus(const Expr& x) { return constant_minus(pi, pi_low, x); }

// x + x t P(t)
Expr odd(const Expr& x, const Expr& t, const Coefficients& c) { return vmath::fma(x * t, polynomial(t, c), x); }

// --- Exponentials and logarithms ---------------------------------------------------------------------------

Expr exp2(const Expr& x) {
  const Format& f = format(x);
  const double bias = static_cast<double>(f.bias);
  const Expr c = at_least(at_most(x, bias + 1), 1 - bias);
  const Expr magic = number(f.type, f.magic + bias - 1);
  const Expr t = vmath::fma(c, number(f.type, 1), magic);
  return exp_reduced((c - (t - magic)) * number(f.type, ln2), 2) * power_of_two(f, bits_of(t));
}

// x = 2^k m: k, and log(m).
std::pair<Expr, Expr> log_parts(const Expr& x) {
  const Format& f = format(x);
  const Expr zero = number(f.type, 0), tiny = x < number(f.type, f.smallest_normal);
  const Scaled v = scale_log(select(tiny, x * number(f.type, f.subnormal_scale), x), select(tiny, number(f.type, f.mantissa), zero));
  return {v.k, log_reduced(v.m - number(f.type, 1), zero)};
}

Expr log2(const Expr& x) {
  const auto [k, m] = log_parts(x);
  return log_specials(x, vmath::fma(m, number(x.type(), log2_e), k));
}

Expr log10(const Expr& x) {
  const auto [k, m] = log_parts(x);
  const double high = static_cast<double>(static_cast<float>(log10_2));  // k of f64 times it is exact
  const Expr rest = vmath::fma(k, number(x.type(), log10_2 - high), m * number(x.type(), log10_e));
  return log_specials(x, vmath::fma(k, number(x.type(), high), rest));
}

Expr logaddexp(const Expr& x, const Expr& y) {
  const Expr zero = number(x.type(), 0);
  const Expr distance = select(x == y, zero, vmath::abs(x - y));  // of two infinities NaN
  return vmath::max(x, y) + vmath::softplus(distance * number(x.type(), -1));
}

// --- Hyperbolic functions ----------------------------------------------------------------------------------

// e^a / 2, which is finite where sinh and cosh are.
Expr half_exp(const Expr& a) {
  const Format& f = format(a);
  const Reduced e = reduce_exp(at_most(a, f.exp_high), static_cast<double>(f.bias) - 2);
  return exp_reduced(e.r, 2) * power_of_two(f, e.bits);
}

Expr cosh(const Expr& x) {
  const Expr h = half_exp(vmath::abs(x));
  return h + number(x.type(), 0.25) / h;
}

Expr sinh(const Expr& x) {
  const Expr a = vmath::abs(x), h = half_exp(a), t = a * a;
  const Expr small = odd(a, t, fit(x, fits::sinh_small_f32, fits::sinh_small_f64));
  return with_sign(select(a < number(x.type(), 1), small, h - number(x.type(), 0.25) / h), sign_bit(x));
}

// log(1 + u), and for a beyond 2^(mantissa + 2) log(2 a).
Expr log1p_or_log_of_twice(const Expr& a, const Expr& u) {
  const Expr large = a > number(a.type(), std::ldexp(1.0, format(a).mantissa + 2));
  return vmath::log1p(select(large, a, u)) + select(large, number(a.type(), ln2), number(a.type(), 0));
}

Expr asinh(const Expr& x) {
  const Expr a = vmath::abs(x), one = number(x.type(), 1), square = a * a;
  return with_sign(log1p_or_log_of_twice(a, a + square / (one + vmath::sqrt(one + square))), sign_bit(x));
}

Expr acosh(const Expr& x) {
  const Expr t = x - number(x.type(), 1);
  const Expr y = log1p_or_log_of_twice(x, t + vmath::sqrt(t * (t + number(x.type(), 2))));
  return select(x < number(x.type(), 1), number(x.type(), quiet_nan), y);
}

Expr atanh(const Expr& x) {
  const Expr a = vmath::abs(x);
  const Expr y = vmath::log1p((a + a) / (number(x.type(), 1) - a)) * number(x.type(), 0.5);
  return select(x == number(x.type(), 0), x, with_sign(vmath::abs(y), sign_bit(x)));
}

// --- Inverse trigonometric functions -----------------------------------------------------------------------

struct ArcSine {
  Expr small;  // |x| < 1/2
  Expr part;   // asin(|x|) if small, else asin(sqrt((1-|x|)/2))
};
ArcSine arc_sine(const Expr& x) {
  const Expr a = vmath::abs(x), half = number(x.type(), 0.5), small = a < half;
  const Expr t = select(small, a * a, (number(x.type(), 1) - a) * half);
  return {small, odd(select(small, a, vmath::sqrt(t)), t, fit(x, fits::asin_small_f32, fits::asin_small_f64))};
}

Expr asin(const Expr& x) {
  const ArcSine s = arc_sine(x);
  return with_sign(vmath::abs(select(s.small, s.part, half_pi_minus(s.part + s.part))), sign_bit(x));
}

Expr acos(const Expr& x) {
  const ArcSine s = arc_sine(x);
  const Expr negative = x < number(x.type(), 0), twice = s.part + s.part;
  const Expr near = half_pi_minus(select(negative, s.part * number(x.type(), -1), s.part));
  return select(s.small, near, select(negative, pi_minus(twice), twice));
}

Expr atan_of_quotient(const Expr& q, const Expr& turned) {
  const Expr p = odd(q, q * q, fit(q, fits::atan_small_f32, fits::atan_small_f64));
  return select(turned, half_pi_minus(p), p);
}

Expr atan(const Expr& x) {
  const Expr a = vmath::abs(x), one = number(x.type(), 1), turned = a > one;
  return with_sign(vmath::abs(atan_of_quotient(select(turned, one, a) / select(turned, a, one), turned)), sign_bit(x));
}

Expr atan2(const Expr& y, const Expr& x) {
  const Expr ax = vmath::abs(x), ay = vmath::abs(y), zero = number(x.type(), 0), one = number(x.type(), 1), turned = ay > ax;
  const Expr above = select(turned, ax, ay), below = select(turned, ay, ax);
  // 0/0 is 0, as beside a positive number; two infinities are a diagonal.
  const Expr q = select(above == below, select(above == zero, zero, one), vmath::quotient(above, below));
  const Expr angle = atan_of_quotient(q, turned);
  const Expr behind = sign_bit(x) != word(UInt(x.type().bits()), 0);
  return with_sign(vmath::abs(select(behind, pi_minus(angle), angle)), sign_bit(y));
}

// --- Roots -------------------------------------------------------------------------------------------------

// The larger operand decides by what both are scaled.
Expr hypot(const Expr& x, const Expr& y) {
  const bool single = is_single(x);
  auto c = [&](double in_single, double in_double) { return number(x.type(), single ? in_single : in_double); };
  const Expr a = vmath::max(vmath::abs(x), vmath::abs(y)), b = vmath::min(vmath::abs(x), vmath::abs(y));
  const Expr huge = a > c(0x1p60, 0x1p500), tiny = a < c(0x1p-50, 0x1p-400), one = number(x.type(), 1);
  const Expr down = c(0x1p-80, 0x1p-600), up = c(0x1p80, 0x1p600);
  const Expr scale = select(huge, down, tiny, up, one), u = a * scale, v = b * scale;
  return vmath::sqrt(vmath::fma(u, u, v * v)) * select(huge, up, tiny, down, one);
}

Expr cbrt(const Expr& x) {
  const Format& f = format(x);
  const bool single = is_single(x);
  const Expr a = vmath::abs(x);
  const Expr tiny = a<number(f.type, f.smallest_normal), huge = a> number(f.type, single ? 0x1p100 : 0x1p1000);
  const int shift = single ? 24 : 54;
  auto power = [&](int k) { return number(f.type, std::ldexp(1.0, k)); };
  const Expr u = a * select(tiny, power(shift), huge, power(-shift), power(0));
  // The bits of a number are about its logarithm; a third of them, and two thirds of the bias, are within 4 % of the root.
  const Expr high = single ? bits_of(u) : cast(UInt(32), bits_of(u) >> word(f.bits, 32));
  const double bias = static_cast<double>(f.bias);
  const auto constant = static_cast<uint64_t>((bias - bias / 3 - 0.0331) * std::ldexp(1.0, single ? 23 : 20));
  const Expr third = high / word(UInt(32), 3) + word(UInt(32), constant);
  Expr y = reinterpret(f.type, single ? third : cast(UInt(64), third) << word(f.bits, 32));
  for (int i = 0; i < (single ? 1 : 2); ++i) {  // each cubes the error
    const Expr cube = y * y * y;
    y = y * ((cube + u + u) / (cube + cube + u));
  }
  const Expr square = y * y, cube = square * y, minus = number(f.type, -1);
  const Expr lost = vmath::fma(square, y, cube * minus) + vmath::fma(y, y, square * minus) * y;
  y = vmath::fma(y, ((u - cube) - lost) / (cube + cube + u), y);
  const Expr root = y * select(tiny, power(-shift / 3), huge, power(shift / 3), power(0));
  const Expr finite = a > number(f.type, 0) && a < number(f.type, infinity);
  return select(finite, with_sign(root, sign_bit(x)), x);
}

// --- Remainders --------------------------------------------------------------------------------------------

// |x| modulo b > 0, of numbers that have 24 bits, in f64: exact.
Expr exact_modulo(const Expr& x, const Expr& b) {
  const Type f64 = Float(64);
  const Expr zero = number(f64, 0), inverse = vmath::quotient(number(f64, 1), b);
  Expr r = vmath::abs(x);
  for (int step = 0; step < 6; ++step)  // of 277 bits that a quotient of f32 may have
    r = vmath::fma(vmath::floor(r * inverse) * number(f64, -1), b, r);
  r = select(r < zero, r + b, r);
  r = select(r >= b, r - b, r);
  return select(b == number(f64, infinity) && vmath::abs(x) < b, vmath::abs(x), r);
}

Expr fmod(const Expr& x, const Expr& y) {
  if (!is_single(x)) return libm("fmod", {x, y});
  const Expr r = exact_modulo(cast(Float(64), x), vmath::abs(cast(Float(64), y)));
  return with_sign(vmath::abs(cast(Float(32), r)), sign_bit(x));
}

Expr remainder(const Expr& x, const Expr& y) {
  if (!is_single(x)) return libm("remainder", {x, y});
  // Modulo 2y the quotient's last bit is known, which decides ties.
  const Expr b = vmath::abs(cast(Float(64), y));
  Expr r = exact_modulo(cast(Float(64), x), b + b);
  const Expr once = r - b;
  r = select(r + r > b, select(once + once >= b, once - b, once), r);
  const Expr single = cast(Float(32), r);
  return reinterpret(x.type(), bits_of(single) ^ sign_bit(x));
}

Expr copysign(const Expr& x, const Expr& y) { return select(vmath::is_nan(y), y, with_sign(vmath::abs(x), sign_bit(y))); }

Expr trunc(const Expr& x) { return select(x < number(x.type(), 0), vmath::ceil(x), vmath::floor(x)); }

// --- sin(pi x) / (pi x) ------------------------------------------------------------------------------------

Expr sinc(const Expr& x) {
  const Expr a = vmath::abs(x), s = sincos_pi(a).sin, zero = number(x.type(), 0);
  const Expr below = at_most(a, std::ldexp(1.0, format(x).mantissa + 2)) * number(x.type(), pi);
  return select(a == zero, number(x.type(), 1),
                vmath::abs(s) / below * select(s < zero, number(x.type(), -1), number(x.type(), 1)));
}

}  // namespace

// Of x = k/2 + f, |f| <= 1/4, exactly; beyond 2^(mantissa + 2) x is a multiple of 2.
SinCos sincos_pi(const Expr& x) {
  const Expr a = at_most(vmath::abs(x), std::ldexp(1.0, format(x).mantissa + 2)), half = number(x.type(), 0.5);
  const Expr k = vmath::round(a + a), r = (a - k * half) * number(x.type(), pi), t = r * r;
  SinCos v;
  if (is_single(x))
    v = sincos_reduced(r);
  else
    v = {odd(r, t, fits::sin_quarter_f64), vmath::fma(t, polynomial(t, fits::cos_quarter_f64), number(x.type(), 1))};
  const Expr quarter = k - vmath::floor(k * number(x.type(), 0.25)) * number(x.type(), 4);  // 0 to 3
  auto is = [&](double q) { return quarter == number(x.type(), q); };
  const Expr turned = is(1) || is(3), minus = number(x.type(), -1), one = number(x.type(), 1);
  const Expr sine = select(turned, v.cos, v.sin) * select(is(2) || is(3), minus, one);
  const Expr cosine = select(turned, v.sin, v.cos) * select(is(1) || is(2), minus, one);
  return {sine * select(x < number(x.type(), 0), minus, one), cosine};
}

std::vector<Row> elementary_rows() {
  using Args = std::span<const Expr>;
  constexpr double big = std::numeric_limits<float>::max();
  return {
      {"exp2", 1, -125.4, 129, 1.2, 1.2, [](Args a) { return parts::exp2(a[0]); }},
      {"log2", 1, 0, big, 2, 2.5, [](Args a) { return parts::log2(a[0]); }},
      {"log10", 1, 0, big, 2.5, 3, [](Args a) { return parts::log10(a[0]); }},
      {"sinh", 1, -90, 90, 2.5, 2.5, [](Args a) { return parts::sinh(a[0]); }},
      {"cosh", 1, -90, 90, 2, 2, [](Args a) { return parts::cosh(a[0]); }},
      {"asin", 1, -1, 1, 3, 3, [](Args a) { return parts::asin(a[0]); }},
      {"acos", 1, -1, 1, 2, 2, [](Args a) { return parts::acos(a[0]); }},
      {"atan", 1, -big, big, 2, 2, [](Args a) { return parts::atan(a[0]); }},
      {"atan2", 2, -big, big, 2, 2, [](Args a) { return parts::atan2(a[0], a[1]); }},
      {"asinh", 1, -big, big, 3, 3, [](Args a) { return parts::asinh(a[0]); }},
      {"acosh", 1, 1, big, 3, 3, [](Args a) { return parts::acosh(a[0]); }},
      {"atanh", 1, -1, 1, 3, 3, [](Args a) { return parts::atanh(a[0]); }},
      {"hypot", 2, -big, big, 1.2, 1.2, [](Args a) { return parts::hypot(a[0], a[1]); }},
      {"cbrt", 1, -big, big, 1, 1, [](Args a) { return parts::cbrt(a[0]); }},
      {"fmod", 2, -big, big, 0, 0, [](Args a) { return parts::fmod(a[0], a[1]); }},
      {"remainder", 2, -big, big, 0, 0, [](Args a) { return parts::remainder(a[0], a[1]); }},
      {"copysign", 2, -big, big, 0, 0, [](Args a) { return parts::copysign(a[0], a[1]); }},
      {"trunc", 1, -big, big, 0, 0, [](Args a) { return parts::trunc(a[0]); }},
      {"sinc", 1, -big, big, 4, 4, [](Args a) { return parts::sinc(a[0]); }},
      {"logaddexp", 2, -big, big, 3, 3, [](Args a) { return parts::logaddexp(a[0], a[1]); }},
  };
}

}  // namespace parts
}  // namespace xhat::vmath
