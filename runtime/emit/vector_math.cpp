// Every function is a polynomial on a small interval, reached by an exact range reduction.
//
//   exp     x = n ln2 + r, |r| <= ln2/2 (Cody-Waite, two constants); e^r by a polynomial; times 2^n.
//           n comes from adding 1.5*2^23 (or 2^52): the sum's low bits are n in two's complement, and a shift
//           makes 2^n of them.
//   log     x = 2^k m, 2/3 <= m < 4/3, by integer operations on the bits; log(1+f) = f - f^2/2 + f^3 P(f).
//   tanh    f32: a quotient of polynomials; f64: -u/(u+2) with u = expm1(-2|x|). No second branch near 0: nothing cancels.
//   sin     vector_trigonometry.cpp
//   pow     exp2(y log2|x|) in double, rounded once.
//
// The reductions are those of Cephes (Moshier) and fdlibm (Sun); 2/3..4/3 and the erf split follow N. Juffa's
// public single-precision code; the Payne-Hanek window is cut as in ARM's optimized routines. Coefficients
// are our own weighted Remez fits: tools/fit_vector_math.py prints them. NaN passes through because every
// clamp is written so that the hardware's min and max return their second operand.
//
// f64: the same code; sin, cos and tan of more than 1e8 and pow call libm.
#include "runtime/emit/vector_math.h"

#include <cmath>
#include <cstring>
#include <string>

#include "runtime/emit/vector_parts.h"

namespace xhat::vmath {
namespace parts {

using Halide::Internal::Call;

const Format& format(const Expr& x) {
  // clang-format off
  static const Format single{
      Float(32), UInt(32), 23, 127, 12582912.0, 0.693147182464599609375, -1.9046542121259335545e-9,
      -87.3, 89.5, 88.9, 20.0, 0x3f2aaaabu, 0x1p-126, 0x1p23,
      {0.5, 0.166665435, 0.0416662805, 0.00836661085, 0.00139464985},
      {0.333332241, -0.249996886, 0.200100496, -0.166854784, 0.140108049, -0.121149398, 0.139630839,
       -0.131924808}};
  static const Format twice{
      Float(64), UInt(64), 52, 1023, 6755399441055744.0, 0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56,
      -708.3, 710.5, 709.9, 44.0, 0x3fe5555555555555u, 0x1p-1022, 0x1p52,
      {0.5, 0.16666666666666677, 0.041666666666666692, 0.0083333333333216585, 0.0013888888888870167,
       0.000198412698860929, 2.4801587356079936e-5, 2.7557244216544525e-6, 2.7557245597722682e-7,
       2.5109041567446304e-8, 2.0923755937584607e-9},
      {0.33333333333337961, -0.25000000000027517, 0.1999999999822249, -0.16666666659868637,
       0.14285714512522588, -0.12500000638395298, 0.11111097149518991, -0.099999689141340567,
       0.090913902165183358, -0.083342196183568321, 0.076823890291602595, -0.071272741544041646,
       0.067911209164314035, -0.064203959080673986, 0.049607465548805282, -0.044389370137072032,
       0.088519388360660173, -0.088826050630864434}};
  // clang-format on
  return x.type().bits() == 32 ? single : twice;
}

Expr number(Type t, double value) { return Halide::Internal::make_const(t, value); }
Expr word(Type t, uint64_t value) { return Halide::Internal::make_const(t, value); }

Expr at_most(const Expr& x, double c) { return vmath::min(x, number(x.type(), c)); }
Expr at_least(const Expr& x, double c) { return vmath::max(x, number(x.type(), c)); }

// Horner; in cache Estrin was within noise (the loop over vectors supplies the parallelism).
Expr polynomial(const Expr& x, const Coefficients& c) {
  Expr sum = number(x.type(), c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = vmath::fma(sum, x, number(x.type(), c[i]));
  return sum;
}

Expr bits_of(const Expr& x) { return reinterpret(UInt(x.type().bits()), x); }
Expr sign_bit(const Expr& x) {
  return bits_of(x) & word(UInt(x.type().bits()), uint64_t{1} << (x.type().bits() - 1));
}
Expr with_sign(const Expr& magnitude, const Expr& sign) {
  return reinterpret(magnitude.type(), bits_of(magnitude) | sign);
}
Expr rounding(const char* name, const Expr& x) {
  return Call::make(x.type(), name + std::string(x.type().bits() == 32 ? ".f32" : ".f64"), {x},
                    Call::PureExtern);
}
Expr libm(const char* name, const std::vector<Expr>& x) { return Call::make(Float(64), name, x, Call::PureExtern); }

// --- exp and its family ------------------------------------------------------------------------------------

Reduced reduce_exp(const Expr& x, double offset) {
  const Format& f = format(x);
  Expr magic = number(f.type, f.magic + offset);
  Expr t = vmath::fma(x, number(f.type, 0x1.71547652b82fep0), magic);
  Expr n = t - magic;
  Expr r = vmath::fma(n, number(f.type, -f.ln2_hi), x);
  return {bits_of(t), vmath::fma(n, number(f.type, -f.ln2_lo), r)};
}

Expr power_of_two(const Format& f, const Expr& biased) {
  return reinterpret(f.type, biased << word(f.bits, f.mantissa));
}

Expr exp_reduced(const Expr& r, double factor) {
  Coefficients c = format(r).expm1;
  c.insert(c.begin(), {1.0, 1.0});
  for (double& v : c) v *= factor;
  return polynomial(r, c);
}

// e^r - 1; then expm1(x) = p*s + (s - 1) with s = 2^n, where s - 1 is exact whenever it matters.
Expr expm1_reduced(const Expr& r) { return vmath::fma(polynomial(r, format(r).expm1), r * r, r); }

// expm1 on [-saturation, 0].
Expr expm1_negative(const Expr& x) {
  const Format& f = format(x);
  Reduced e = reduce_exp(x, double(f.bias));
  Expr s = power_of_two(f, e.bits);
  return vmath::fma(expm1_reduced(e.r), s, s - number(f.type, 1));
}

// --- log and its family ------------------------------------------------------------------------------------

Scaled scale_log(const Expr& u, const Expr& shift) {
  const Format& f = format(u);
  uint64_t mantissa = (uint64_t{1} << f.mantissa) - 1;
  Expr t = bits_of(u) + word(f.bits, ((f.bias + 1) << f.mantissa) - f.two_thirds);
  Expr m = reinterpret(f.type, (t & word(f.bits, mantissa)) + word(f.bits, f.two_thirds));
  // The exponent goes into the low bits of 2^mantissa: converted to float without AVX-512's int64
  // conversions.
  uint64_t unit_bits = (f.bias + uint64_t(f.mantissa)) << f.mantissa;
  Expr k = reinterpret(f.type, (t >> word(f.bits, uint64_t(f.mantissa))) | word(f.bits, unit_bits));
  double unit = double(mantissa + 1) + double(f.bias + 1);
  Expr base = shift.defined() ? shift + number(f.type, unit) : number(f.type, unit);
  return {m, k - base, t & word(f.bits, (~mantissa) & (~uint64_t{0} >> (64 - f.type.bits())))};
}

Expr log_reduced(const Expr& f, const Expr& k) {
  Expr q = vmath::fma(polynomial(f, format(f).log), f, number(f.type(), -0.5));
  Expr r = vmath::fma(f * f, q, f);
  return vmath::fma(k, number(f.type(), format(f).ln2_hi), r);
}

Expr log_specials(const Expr& u, const Expr& y) {
  Type t = u.type();
  Expr low = select(u == number(t, 0), number(t, -infinity), number(t, quiet_nan));
  return select(u > number(t, 0), select(u < number(t, infinity), y, u), low);
}

// --- pow ---------------------------------------------------------------------------------------------------

// log2 of a >= 0 in double, to 2^-33 relative: |y log2 a| < 150 where f32 has a result, so 0.2 ulp at most.
Expr log2_double(const Expr& a) {
  Type f64 = Float(64);
  Scaled v = scale_log(a, Expr());
  Expr f = v.m - number(f64, 1);
  Expr p =
      polynomial(f, {1.4426950407473231, -0.72134751962158905, 0.48089843789260783, -0.36067396926544298,
                     0.28852958220980734, -0.24043412872779388, 0.20645446521535907, -0.18079648502432907,
                     0.15432354278842031, -0.13754684991993932, 0.17609023647300709, -0.16582608058183221});
  Expr finite = select(a < number(f64, infinity), vmath::fma(f, p, v.k), a);
  return select(a == number(f64, 0), number(f64, -infinity), finite);
}

Expr exp2_double_to_single(const Expr& z) {
  Type f64 = Float(64);
  const Format& f = format(z);
  Expr c = at_least(at_most(z, 200), -200);  // beyond the range of f32 either way
  Expr magic = number(f64, f.magic + double(f.bias)), t = c + magic;
  Expr p = polynomial(c - (t - magic),
                      {1.0000000005550505, 0.6931472057670709, 0.24022646886083818, 0.055503287119293074,
                       0.0096184892444016457, 0.0013399957592659542, 0.00015345788929471484});
  return cast(Float(32), p * power_of_two(f, bits_of(t)));
}

}  // namespace parts

using namespace parts;

Expr fma(const Expr& a, const Expr& b, const Expr& c) {
  return Call::make(a.type(), a.type().bits() == 32 ? "llvm.fma.f32" : "llvm.fma.f64", {a, b, c},
                    Call::PureExtern);
}

Expr exp(const Expr& x) {
  const Format& f = format(x);
  // 2 e^r 2^(n-1), so that overflow comes out right by itself. n = 1 - bias, below twice the smallest normal number, gives 0:
  // gradual underflow took 4 of 18 instructions, and a microcode assist (3.5 ns) for each result that was subnormal.
  Reduced e = reduce_exp(at_least(at_most(x, f.exp_high), f.exp_low), double(f.bias) - 1);
  return exp_reduced(e.r, 2) * power_of_two(f, e.bits);
}

Expr expm1(const Expr& x) {
  const Format& f = format(x);
  Reduced e = reduce_exp(at_least(at_most(x, f.expm1_high), -f.saturation), double(f.bias) - 1);
  Expr s = power_of_two(f, e.bits), half = vmath::fma(expm1_reduced(e.r), s, s - number(f.type, 0.5));
  return half + half;  // halved on the way, as 2^128 would be infinite
}

Expr log(const Expr& x) {
  const Format& f = format(x);
  Expr tiny = x < number(f.type, f.smallest_normal), zero = number(f.type, 0);
  Expr u = select(tiny, x * number(f.type, f.subnormal_scale), x);
  Scaled v = scale_log(u, select(tiny, number(f.type, f.mantissa), zero));
  return log_specials(x, log_reduced(v.m - number(f.type, 1), v.k));
}

Expr log1p(const Expr& x) {
  const Format& f = format(x);
  Expr one = number(f.type, 1), u = x + one;
  Scaled v = scale_log(u, Expr());
  // What u lost by rounding, scaled as m is; 2^-k is 0 instead of subnormal, where u is too large for it.
  Expr lost = select(x < one, x - (u - one), one - (u - x));
  Expr top = word(f.bits, (2 * f.bias + 1) << f.mantissa);
  Expr scale = reinterpret(f.type, top - Halide::min(v.field, top));
  return log_specials(u, log_reduced(vmath::fma(lost, scale, v.m - one), v.k));
}

Expr tanh(const Expr& x) {
  const Format& f = format(x);
  if (f.type.bits() == 32) {
    // x P(x^2) / Q(x^2); beyond 9.02 it is 1 (and x P/Q is more than that).
    Expr t = at_most(x * x, 81.36);
    Expr p = polynomial(t, {1, 0.133826688, 0.00349743548, 2.06354471e-5, 1.33837492e-8});
    Expr q = polynomial(t, {1, 0.467159897, 0.0258842781, 0.000328848051, 7.79003187e-7});
    return at_least(at_most(x * (p / q), 1), -1);
  }
  Expr u = expm1_negative(at_least(vmath::abs(x) * number(f.type, -2), -f.saturation));
  Expr negative = u / (u + number(f.type, 2));
  return with_sign(vmath::abs(negative), sign_bit(x));
}

Expr sigmoid(const Expr& x) {
  const Format& f = format(x);
  // 1 / (1 + e^-x); e^-x = 2 e^r 2^(n-1), which is infinite where it should be.
  Expr y = at_least(at_most(x * number(f.type, -1), f.exp_high), -f.saturation);
  Reduced e = reduce_exp(y, double(f.bias) - 1);
  Expr one = number(f.type, 1);
  return one / vmath::fma(exp_reduced(e.r, 2), power_of_two(f, e.bits), one);
}

Expr softplus(const Expr& x) {
  const Format& f = format(x);
  Expr e = vmath::exp(vmath::abs(x) * number(f.type, -1)), positive = at_least(x, 0);
  if (f.type.bits() == 64) return positive + vmath::log1p(e);
  // log(1+e) on [0,1]: e - e^2/2 + ...; one polynomial, no second reduction.
  Expr p = polynomial(e, {-0.5, 0.333331734, -0.249947965, 0.199373826, -0.162720814, 0.127814591,
                          -0.0873660147, 0.0455313995, -0.0152612254, 0.00239166757});
  return positive + vmath::fma(e * e, p, e);
}

Expr erf(const Expr& x) {
  if (x.type().bits() == 64) {
    Expr a = vmath::abs(x), t = a * a, one = number(x.type(), 1);
    Expr p = polynomial(t, {0.12837916709551259, -0.37612638903183748, 0.11283791670954885, -0.026866170645077871, 0.0052239776248283942,
                            -0.0008548326981423854, 0.00012055331132907628, -1.4925595771306719e-5, 1.6461008467805588e-6,
                            -1.6350396154643622e-7, 1.4660328488809561e-8, -1.1374955602638346e-9, 5.9606862701179227e-11});
    return with_sign(select(a < one, vmath::fma(a, p, a), one - erfc(a)), sign_bit(x));
  }
  const Format& f = format(x);
  Expr a = vmath::abs(x), t = a * a, one = number(f.type, 1);
  Expr p = polynomial(t, {0.128379166, -0.376126349, 0.112837195, -0.0268607531, 0.0052044359,
                          -0.000818192784, 8.53884267e-5});
  Expr near = vmath::fma(a, p, a);
  // 1 - erfc(a), where -log(erfc(a))/a is smooth; from 3.93 on erf rounds to 1.
  Expr b = at_most(a, 3.93);
  Expr q = polynomial(b, {-1.12856197, -0.635570168, -0.105386645, 0.0228245202, -0.00303645316,
                          9.33648989e-5, 3.58521356e-5, -4.03802187e-6});
  Reduced e = reduce_exp(b * q, double(f.bias));
  Expr far = one - exp_reduced(e.r) * power_of_two(f, e.bits);
  return with_sign(select(a < number(f.type, 0.9), near, far), sign_bit(x));
}

Expr pow(const Expr& x, const Expr& y) {
  Type f64 = Float(64);
  if (x.type().bits() == 64) return Call::make(f64, "pow", {x, y}, Call::PureExtern);
  Type f32 = Float(32);
  Expr zero = number(f32, 0), one = number(f32, 1), ax = vmath::abs(x);
  Expr e = exp2_double_to_single(cast(f64, y) * log2_double(cast(f64, ax)));
  e = select(ax == one && y == y, one, e);  // (-1)^inf = 1: log2 gives 0*inf
  Expr half = y * number(f32, 0.5), whole = vmath::floor(y) == y, odd = whole && vmath::floor(half) != half;
  Expr root = x < zero && x > number(f32, -infinity) && !whole;  // a fractional power of a negative number
  Expr signed_e = reinterpret(f32, bits_of(e) ^ select(odd, sign_bit(x), word(UInt(32), 0)));
  return select(y == zero || x == one, one, select(root, number(f32, quiet_nan), signed_e));
}

Expr quotient(const Expr& x, const Expr& divisor) {
  if (is_const(divisor) && !is_const_zero(divisor)) return x / divisor;
  // LLVM makes nothing of the call.
  const char* call = divisor.type().bits() == 32 ? "llvm.copysign.f32" : "llvm.copysign.f64";
  return x / Call::make(divisor.type(), call, {divisor, divisor}, Call::PureExtern);
}

Expr sqrt(const Expr& x) { return Halide::sqrt(x); }
Expr rsqrt(const Expr& x) { return quotient(number(x.type(), 1), Halide::sqrt(x)); }

// vmaxps and vminps return their second operand when unordered, so only a NaN in the first needs a select; a number needs none.
static bool is_number(const Expr& e) {
  const auto value = Halide::Internal::as_const_float(e);
  return value && !std::isnan(*value);
}
Expr max(const Expr& a, const Expr& b) {
  if (is_number(a)) return select(a > b, a, b);
  if (is_number(b)) return select(b > a, b, a);
  return select(a != a, a, select(a > b, a, b));
}
Expr min(const Expr& a, const Expr& b) {
  if (is_number(a)) return select(a < b, a, b);
  if (is_number(b)) return select(b < a, b, a);
  return select(a != a, a, select(a < b, a, b));
}

Expr is_nan(const Expr& x) { return x != x; }
// Compares bits: where LLVM knows that the second of two floats is 0/0, its SSE4.1 code for their comparison with infinity leaves it out.
Expr is_finite(const Expr& x) {
  const Type whole = Int(x.type().bits());
  return reinterpret(whole, bits_of(vmath::abs(x))) < reinterpret(whole, bits_of(number(x.type(), infinity)));
}

Expr sign(const Expr& x) {
  Type t = x.type();
  return select(x > number(t, 0), number(t, 1), select(x < number(t, 0), number(t, -1), x));
}
Expr abs(const Expr& x) {  // by bits: Halide's keeps the sign of -0.0 in f64
  return reinterpret(x.type(),
                     bits_of(x) & word(UInt(x.type().bits()), ~uint64_t{0} >> (65 - x.type().bits())));
}

// Called by their LLVM names: Halide's own split a 512-bit vector in two (v21).
Expr floor(const Expr& x) { return rounding("llvm.floor", x); }
Expr ceil(const Expr& x) { return rounding("llvm.ceil", x); }
Expr round(const Expr& x) { return rounding("llvm.roundeven", x); }
Expr mod(const Expr& x, const Expr& y) { return x - y * vmath::floor(quotient(x, y)); }

const std::vector<Row>& rows() {
  using Args = std::span<const Expr>;
  constexpr double big = std::numeric_limits<float>::max();
  static const std::vector<Row> own{
      {"exp", 1, -86.9, 90, 1, 2, [](Args a) { return vmath::exp(a[0]); }},
      {"expm1", 1, -110, 90, 3, 3, [](Args a) { return vmath::expm1(a[0]); }},
      {"log", 1, 0, big, 1, 2, [](Args a) { return vmath::log(a[0]); }},
      {"log1p", 1, -1, big, 3, 3, [](Args a) { return vmath::log1p(a[0]); }},
      {"tanh", 1, -20, 20, 6, 4, [](Args a) { return vmath::tanh(a[0]); }},
      {"sigmoid", 1, -88.7, 88.7, 2.5, 3, [](Args a) { return vmath::sigmoid(a[0]); }},
      {"softplus", 1, -86.9, big, 3, 3, [](Args a) { return vmath::softplus(a[0]); }},
      {"erf", 1, -8, 8, 4, 2, [](Args a) { return vmath::erf(a[0]); }},
      {"sin", 1, -1e4, 1e4, 2, 2, [](Args a) { return vmath::sin(a[0]); }},
      {"cos", 1, -1e4, 1e4, 2, 2, [](Args a) { return vmath::cos(a[0]); }},
      {"tan", 1, -1e4, 1e4, 4, 2, [](Args a) { return vmath::tan(a[0]); }},
      {"pow", 2, -big, big, 4, 2, [](Args a) { return vmath::pow(a[0], a[1]); }},
      {"sqrt", 1, 0, big, 0.5, 0.5, [](Args a) { return vmath::sqrt(a[0]); }},
      {"rsqrt", 1, 0, big, 1.5, 1.5, [](Args a) { return vmath::rsqrt(a[0]); }},
      {"max", 2, -big, big, 0, 0, [](Args a) { return vmath::max(a[0], a[1]); }},
      {"min", 2, -big, big, 0, 0, [](Args a) { return vmath::min(a[0], a[1]); }},
      {"sign", 1, -big, big, 0, 0, [](Args a) { return vmath::sign(a[0]); }},
      {"abs", 1, -big, big, 0, 0, [](Args a) { return vmath::abs(a[0]); }},
      {"floor", 1, -big, big, 0, 0, [](Args a) { return vmath::floor(a[0]); }},
      {"ceil", 1, -big, big, 0, 0, [](Args a) { return vmath::ceil(a[0]); }},
      {"round", 1, -big, big, 0, 0, [](Args a) { return vmath::round(a[0]); }},
      {"mod", 2, -big, big, 0, 0, [](Args a) { return vmath::mod(a[0], a[1]); }},
      {"fma", 3, -big, big, 0.5, 0.5, [](Args a) { return vmath::fma(a[0], a[1], a[2]); }},
  };
  static const std::vector<Row> table = [] {
    std::vector<Row> all = own;
    for (const std::vector<Row>& more : {elementary_rows(), special_rows()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return table;
}

const Row* find_row(const char* name) {
  for (const Row& row : rows())
    if (std::strcmp(row.name, name) == 0) return &row;
  return nullptr;
}

int operations(const Expr& x) {
  struct Count : Halide::Internal::IRGraphVisitor {
    int nodes = 0;
    void include(const Expr& e) override {
      if (seen.insert(e.get()).second) ++nodes, e.accept(this);
    }
    std::set<const void*> seen;
  } count;
  count.include(x);
  return count.nodes;
}

namespace {

const std::string kLate = "xhat.late.";

Expr by_name(const std::string& name, const std::vector<Expr>& x) {
  return Halide::Internal::Call::make(x[0].type(), kLate + name, x, Halide::Internal::Call::PureExtern);
}

}  // namespace

bool is_late(const Halide::Internal::Call* call) { return call->name.starts_with(kLate); }
std::string name_of_late(const Halide::Internal::Call* call) { return call->name.substr(kLate.size()); }

Expr call_of(const Row& row, const std::vector<Expr>& x) {
  constexpr int kLong = 60;  // operations: exp and log have fewer, and parts in common with other functions of the same argument
  const Expr written_out = row.make(x);
  return operations(written_out) > kLong ? by_name(row.name, x) : written_out;
}

Expr late(const std::string& name, const std::vector<Expr>& x) {
  return name.starts_with(kRare) ? parts::far_angle(name.substr(kRare.size()), x[0]) : find_row(name.c_str())->make(x);
}

Expr rarely(const Expr& condition, const std::string& name, const std::vector<Expr>& x, const Expr& usual) {
  using Halide::Internal::Call;
  return Call::make(usual.type(), Call::if_then_else, {condition, by_name(kRare + name, x), usual}, Call::PureIntrinsic);
}

}  // namespace xhat::vmath
