// What the files of vector math share: exact range reductions, polynomials, bits.
#pragma once

#include <limits>
#include <vector>

#include "runtime/emit/vector_math.h"

namespace xhat::vmath::parts {

using Halide::cast;
using Halide::Float;
using Halide::Int;
using Halide::reinterpret;
using Halide::select;
using Halide::Type;
using Halide::UInt;
using Coefficients = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN();
constexpr double pi = 3.14159265358979323846;

// What differs between f32 and f64.
struct Format {
  Type type, bits;
  int mantissa;                             // stored bits
  uint64_t bias;                            // of the exponent
  double magic;                             // 1.5 * 2^mantissa: adding it rounds to an integer in the low bits
  double ln2_hi, ln2_lo;                    // their sum is ln 2; n*ln2_hi is subtracted by fma, so it may use all bits
  double exp_low, exp_high;                 // beyond these exp is 0 and infinity for certain; of exp_low, n is 1 - bias
  double expm1_high;                        // expm1 is infinite here already, and still n = bias + 1
  double saturation;                        // exp(-saturation) is nothing beside 1
  uint64_t two_thirds;                      // bits of 2/3
  double smallest_normal, subnormal_scale;  // the scale is 2^mantissa
  Coefficients expm1;                       // (e^r - 1 - r) / r^2 on |r| <= ln2/2
  Coefficients log;                         // (log(1+f) - f + f^2/2) / f^3 on |f| <= 1/3
};
const Format& format(const Expr& x);
inline bool is_single(const Expr& x) { return x.type().bits() == 32; }
// Of a polynomial, by the type of x.
inline const Coefficients& fit(const Expr& x, const Coefficients& single, const Coefficients& twice) {
  return is_single(x) ? single : twice;
}

Expr number(Type t, double value);
Expr word(Type t, uint64_t value);
// Clamps that keep NaN.
Expr at_most(const Expr& x, double c);
Expr at_least(const Expr& x, double c);
Expr polynomial(const Expr& x, const Coefficients& c);
Expr bits_of(const Expr& x);
Expr sign_bit(const Expr& x);
Expr with_sign(const Expr& magnitude, const Expr& sign);  // magnitude >= 0 or NaN
Expr far_angle(const std::string& name, const Expr& x);   // sin, cos or tan of an angle that is rarely so large
Expr libm(const char* name, const std::vector<Expr>& x);  // of f64

struct Reduced {
  Expr bits;  // low bits hold n + offset
  Expr r;     // x - n ln2
};
Reduced reduce_exp(const Expr& x, double offset);
// 2^(biased - bias), from the low bits of `biased`; 0 gives 0 and 2 bias + 1 gives infinity.
Expr power_of_two(const Format& f, const Expr& biased);
// e^r, or a multiple of it, for |r| <= ln2/2.
Expr exp_reduced(const Expr& r, double factor = 1);

struct Scaled {
  Expr m, k;   // u = m * 2^k, 2/3 <= m < 4/3
  Expr field;  // (k + bias + 1) where the exponent stands
};
// For positive normal u; else garbage, which the caller replaces. `shift` is subtracted from k.
Scaled scale_log(const Expr& u, const Expr& shift);
// log(1 + f) + k ln2, |f| <= 1/3.
Expr log_reduced(const Expr& f, const Expr& k);
// log's specials, given its argument u and the value y for positive finite u.
Expr log_specials(const Expr& u, const Expr& y);

struct SinCos {
  Expr sin, cos;  // of r
};
SinCos sincos_reduced(const Expr& r);  // f32, |r| <= pi/4
SinCos sincos_pi(const Expr& x);       // of pi x, for every x
Expr erfc(const Expr& x);

// The rows of each file.
std::vector<Row> elementary_rows();
std::vector<Row> special_rows();

}  // namespace xhat::vmath::parts
