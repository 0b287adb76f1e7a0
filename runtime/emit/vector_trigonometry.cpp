// sin, cos and tan: x = n pi/2 + r, and polynomials on |r| <= pi/4.
//
//   f32    pi/2 in three constants up to 1e4; beyond, x * 2/pi modulo 4 in integers (Payne-Hanek)
//   f64    pi/2 in three constants up to 1e8, with what r lacks in a number of its own; beyond, libm
//
// The reduction of large arguments stands in a branch (runtime/cpu/ir/late_functions.h).
#include <cmath>
#include <map>
#include <string>

#include "runtime/emit/vector_math.h"
#include "runtime/emit/vector_parts.h"

namespace xhat::vmath {
namespace parts {

SinCos sincos_reduced(const Expr& r) {
  Expr t = r * r;
  Expr s = polynomial(t, {-0.166666552, 0.00833217707, -0.000195171699});
  Expr c = polynomial(t, {-0.5, 0.0416666456, -0.00138873665, 2.44383082e-5});
  return {vmath::fma(r * t, s, r), vmath::fma(t, c, number(Float(32), 1))};
}

namespace {

struct Quadrant {
  Expr r;     // |x| - n pi/2, in [-pi/4, pi/4]
  Expr rest;  // f64: what r lacks
  Expr n;     // u32 or u64, the low two bits count
};

// |x| * 2/pi modulo 4 by integers, for 1e4 < |x| < inf (Payne-Hanek): x = M 2^E, and only 96 bits of 2/pi
// matter.
Quadrant reduce_large(const Expr& bits) {
  static const uint32_t two_over_pi[] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  Type u32 = UInt(32), u64 = UInt(64);
  // The window's first bit: 20..134.
  Expr start = ((bits >> word(u32, 23)) & word(u32, 255)) - word(u32, 120);
  Expr index = start >> word(u32, 5), shift = start & word(u32, 31);
  Expr a[4], w[3];
  for (int j = 0; j < 4; j++) {
    a[j] = word(u32, two_over_pi[j + 4]);
    for (int i = 3; i >= 0; i--) a[j] = select(index == word(u32, uint64_t(i)), word(u32, two_over_pi[i + j]), a[j]);
  }
  for (int j = 0; j < 3; j++) w[j] = (a[j] << shift) | ((a[j + 1] >> word(u32, 1)) >> (word(u32, 31) - shift));
  Expr m = (bits & word(u32, 0x7fffff)) | word(u32, 0x800000);
  auto product = [&](const Expr& v) { return cast(u64, m) * cast(u64, v); };
  Expr middle = product(w[1]) + (product(w[2]) >> word(u64, 32));
  // Quarter turns: high * 2^-30 + low * 2^-62.
  Expr high = m * w[0] + cast(u32, middle >> word(u64, 32)), low = cast(u32, middle);
  Expr n = (high + word(u32, 1u << 29)) >> word(u32, 30);
  // The fraction's top 24 bits convert exactly, the next 32 nearly (2^-54 is lost: 1 ulp at the floats
  // nearest to a zero). pi/2 is in two parts, so that only the last operation rounds.
  Type f32 = Float(32);
  Expr fraction = high - (n << word(u32, 30));
  Expr top = cast(f32, reinterpret(Int(32), fraction) >> number(Int(32), 8));
  Expr rest = cast(f32, (fraction << word(u32, 24)) | (low >> word(u32, 8)));
  Expr r = vmath::fma(top, number(f32, -4.3711388286737928865e-8 * 0x1p-22), rest * number(f32, 0x1.921fb6p0 * 0x1p-54));
  return {vmath::fma(top, number(f32, 0x1.921fb6p0 * 0x1p-22), r), {}, n};
}

// In double, pi/2 in three parts: the first difference is exact (both are multiples of 2^-53); `rest` is the second one's error (Knuth's sum of
// two numbers) and that of the product in it, less the third.
Quadrant reduce_angle_f64(const Expr& x) {
  Type f64 = Float(64);
  Expr ax = vmath::abs(x), magic = number(f64, format(x).magic);
  Expr t = vmath::fma(ax, number(f64, 0x1.45f306dc9c883p-1), magic), n = t - magic;
  Expr first = vmath::fma(n, number(f64, -0x1.921fb54442d18p0), ax);
  Expr middle = number(f64, 0x1.1a62633145c07p-54), p = n * middle, below = vmath::fma(n, middle, p * number(f64, -1));
  Expr r = first - p, back = r - first, error = (first - (r - back)) - (p + back);
  Expr rest = error - vmath::fma(n, number(f64, -0x1.f1976b7ed8fbcp-110), below);
  return {r, rest, bits_of(t)};
}

Quadrant reduce_angle(const Expr& x) {
  if (x.type().bits() == 64) return reduce_angle_f64(x);
  Type f32 = Float(32);
  Expr ax = vmath::abs(x), magic = number(f32, format(x).magic);
  Expr t = vmath::fma(ax, number(f32, 0x1.45f306dc9c883p-1), magic);
  Expr n = t - magic;
  Expr r = vmath::fma(n, number(f32, -1.5707963705062866211), ax);  // exact: both are multiples of 2^-23
  r = vmath::fma(n, number(f32, 4.3711388286737928865e-8), r);
  r = vmath::fma(n, number(f32, 1.7151245100058818728e-15), r);
  return {r, {}, bits_of(t)};
}

SinCos sincos_of(const Quadrant& q) {
  if (!q.rest.defined()) return sincos_reduced(q.r);
  Expr t = q.r * q.r;
  Expr s = polynomial(t, {-0.16666666666666666, 0.0083333333333333245, -0.00019841269841256175, 2.755731921466856e-6,
                          -2.5052105019048863e-8, 1.6058378749190681e-10, -7.5792400662882333e-13});
  Expr c = polynomial(t, {0.041666666666666602, -0.0013888888888874125, 2.4801587289482161e-5, -2.7557314352325216e-7,
                          2.0875723272162534e-9, -1.1359747646612815e-11});
  // 1 - t/2 and what its rounding took (fdlibm), so that cos is rounded once.
  Expr one = number(Float(64), 1), half = t * number(Float(64), 0.5), near = one - half;
  Expr lost = (one - near) - half;
  return {q.r + vmath::fma(q.r * t, s, q.rest), near + vmath::fma(t * t, c, lost - q.r * q.rest)};
}

// sin(|x| + quarter pi/2), its sign flipped by `sign`.
Expr sin_quarter(const Expr& x, const Quadrant& q, uint64_t quarter, const Expr& sign) {
  const int bits = x.type().bits();
  SinCos v = sincos_of(q);
  Type u = UInt(bits);
  Expr n = quarter ? q.n + word(u, quarter) : q.n;
  Expr value = select((n & word(u, 1)) == word(u, 0), v.sin, v.cos);
  Expr flip = (n & word(u, 2)) << word(u, static_cast<uint64_t>(bits - 2));
  return reinterpret(Float(bits), bits_of(value) ^ (sign.defined() ? flip ^ sign : flip));
}
Expr sin_of(const Expr& x, const Quadrant& q) { return sin_quarter(x, q, 0, sign_bit(x)); }
Expr cos_of(const Expr& x, const Quadrant& q) { return sin_quarter(x, q, 1, Expr()); }
Expr tan_of(const Expr& x, const Quadrant& q) {
  const int bits = x.type().bits();
  SinCos v = sincos_of(q);
  Type u = UInt(bits);
  Expr odd = q.n & word(u, 1), even = odd == word(u, 0);  // tan(r + pi/2) = -cos/sin
  Expr value = select(even, v.sin, v.cos) / select(even, v.cos, v.sin);
  return reinterpret(Float(bits), bits_of(value) ^ (odd << word(u, static_cast<uint64_t>(bits - 1))) ^ sign_bit(x));
}

using OfAngle = Expr (*)(const Expr& x, const Quadrant& q);

// Of angles that hardly anybody has another reduction, in a branch. In f32 1e4 <= |x| < inf, found by one comparison of bits (what is no number
// stays so in the usual way); in f64 all that is not below 1e8, which libm takes.
Expr for_any_angle(const char* name, OfAngle make, const Expr& x) {
  constexpr uint64_t ten_thousand = 0x461c4000, infinite = 0x7f800000;
  const Expr ax = vmath::abs(x);
  const Expr far = x.type().bits() == 32 ? bits_of(ax) - word(UInt(32), ten_thousand) < word(UInt(32), infinite - ten_thousand)
                                         : !(ax < number(x.type(), 1e8));
  return rarely(far, name, {x}, make(x, reduce_angle(x)));
}

}  // namespace
}  // namespace parts

using namespace parts;

Expr sin(const Expr& x) { return for_any_angle("sin", sin_of, x); }
Expr cos(const Expr& x) { return for_any_angle("cos", cos_of, x); }
Expr tan(const Expr& x) { return for_any_angle("tan", tan_of, x); }

Expr parts::far_angle(const std::string& name, const Expr& x) {
  static const std::map<std::string, OfAngle> of_angles{{"sin", sin_of}, {"cos", cos_of}, {"tan", tan_of}};
  return x.type().bits() == 64 ? libm(name.c_str(), {x}) : of_angles.at(name)(x, reduce_large(bits_of(vmath::abs(x))));
}

}  // namespace xhat::vmath
