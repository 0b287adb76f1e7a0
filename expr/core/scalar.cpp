#include "expr/core/scalar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "expr/core/error.h"
#include "expr/core/special.h"

namespace xhat {
namespace {

// --- From a function of one to three numbers to its two forms ----------------------------------------------

template <class F, class In>
constexpr int arity_of() {
  if constexpr (std::is_invocable_v<F, In>)
    return 1;
  else if constexpr (std::is_invocable_v<F, In, In>)
    return 2;
  else
    return 3;
}

template <class F, class In, class Out>
Out call_at(const In* x) {
  if constexpr (arity_of<F, In>() == 1)
    return F{}(x[0]);
  else if constexpr (arity_of<F, In>() == 2)
    return F{}(x[0], x[1]);
  else
    return F{}(x[0], x[1], x[2]);
}

template <class F, class In, class Out>
void call_lanes(size_t n, Out* out, const Lanes<In>* x) {
  const In* a = x[0].data;
  if constexpr (arity_of<F, In>() == 1) {
    for (size_t i = 0; i < n; ++i) out[i] = F{}(a[i]);  // never called with stride 0 and more than one lane
  } else if constexpr (arity_of<F, In>() == 2) {
    // Separate loops for the usual strides let the compiler keep the repeated operand in a register.
    const In* b = x[1].data;
    if (x[0].stride && x[1].stride) {
      for (size_t i = 0; i < n; ++i) out[i] = F{}(a[i], b[i]);
    } else if (x[0].stride) {
      for (size_t i = 0; i < n; ++i) out[i] = F{}(a[i], b[0]);
    } else if (x[1].stride) {
      for (size_t i = 0; i < n; ++i) out[i] = F{}(a[0], b[i]);
    } else {
      for (size_t i = 0; i < n; ++i) out[i] = F{}(a[0], b[0]);
    }
  } else {
    for (size_t i = 0; i < n; ++i) out[i] = F{}(x[0][i], x[1][i], x[2][i]);
  }
}

template <class In, class Out, class F>
ScalarForm<In, Out> form(F) {
  return {call_at<F, In, Out>, call_lanes<F, In, Out>};
}
template <class F>
ScalarForm<double, double> real(F f) {
  return form<double, double>(f);
}
template <class F>
ScalarForm<int64_t, int64_t> integer(F f) {
  return form<int64_t, int64_t>(f);
}
template <class F>
ScalarForm<double, int64_t> test(F f) {
  return form<double, int64_t>(f);
}

// --- Integers: everything wraps at 64 bits, nothing is undefined -------------------------------------------

int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrapping_sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;  // -1: the machine instruction traps on the lowest value
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrapping_sub(0, a);
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// A negative exponent is the reciprocal, rounded towards 0; of 0 it is a division by 0, so 0.
int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = wrapping_mul(result, base);
    base = wrapping_mul(base, base);
  }
  return result;
}

// --- Floats: NaN goes through every operation --------------------------------------------------------------

double minimum_of(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double maximum_of(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// C's pow says pow(1, nan) = pow(nan, 0) = 1; the language says NaN.
double power(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (b == 2) return a * a;
  return std::pow(a, b);
}

double sigmoid(double a) {
  if (a >= 0) return 1 / (1 + std::exp(-a));
  double e = std::exp(a);  // small: no overflow, and no loss where the result is tiny
  return e / (1 + e);
}

double softplus(double a) {
  return std::isnan(a) ? a : std::fmax(a, 0.0) + std::log1p(std::exp(-std::fabs(a)));
}

double sign_of(double a) { return std::isnan(a) || a == 0 ? a : static_cast<double>((a > 0) - (a < 0)); }

// C's hypot(inf, nan) is inf, its copysign(1, nan) 1.
double hypotenuse(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : std::hypot(a, b); }
double with_sign_of(double a, double b) { return std::isnan(b) ? b : std::copysign(a, b); }
double lgamma_of(double a) {  // std::lgamma writes to a global variable
  int sign = 0;
  return ::lgamma_r(a, &sign);
}

// A count below 0 or of 64 and more shifts everything out; at narrower types what is shifted beyond them is cut off by the caller.
int64_t shifted_left(int64_t a, int64_t count) {
  return count < 0 || count > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << count);
}
int64_t shifted_right(int64_t a, int64_t count) { return a >> (count < 0 || count > 63 ? 63 : count); }

// --- The table ---------------------------------------------------------------------------------------------

struct FormsRow {
  Op op;
  ScalarOp forms;
};

std::vector<ScalarOp> build_table() {
  using I = int64_t;
  using D = double;
  const FormsRow rows[] = {
      {Op::neg, {real([](D a) { return -a; }), integer([](I a) { return wrapping_sub(0, a); }), {}, {}}},
      {Op::lnot, {{}, integer([](I a) -> I { return !a; }), {}, {}}},
      {Op::add,
       {real([](D a, D b) { return a + b; }), integer([](I a, I b) { return wrapping_add(a, b); }), {}, {}}},
      {Op::sub,
       {real([](D a, D b) { return a - b; }), integer([](I a, I b) { return wrapping_sub(a, b); }), {}, {}}},
      {Op::mul,
       {real([](D a, D b) { return a * b; }), integer([](I a, I b) { return wrapping_mul(a, b); }), {}, {}}},
      {Op::div,
       {real([](D a, D b) { return a / b; }), integer([](I a, I b) { return floor_div(a, b); }), {}, {}}},
      {Op::mod,
       {real([](D a, D b) { return a - b * std::floor(a / b); }),
        integer([](I a, I b) { return floor_mod(a, b); }),
        {},
        {}}},
      {Op::pow,
       {real([](D a, D b) { return power(a, b); }),
        integer([](I a, I b) { return integer_power(a, b); }),
        {},
        {}}},
      {Op::eq,
       {{}, integer([](I a, I b) -> I { return a == b; }), test([](D a, D b) -> I { return a == b; }), {}}},
      {Op::ne,
       {{}, integer([](I a, I b) -> I { return a != b; }), test([](D a, D b) -> I { return a != b; }), {}}},
      {Op::lt,
       {{}, integer([](I a, I b) -> I { return a < b; }), test([](D a, D b) -> I { return a < b; }), {}}},
      {Op::le,
       {{}, integer([](I a, I b) -> I { return a <= b; }), test([](D a, D b) -> I { return a <= b; }), {}}},
      {Op::land, {{}, integer([](I a, I b) -> I { return a & b; }), {}, {}}},
      {Op::lor, {{}, integer([](I a, I b) -> I { return a | b; }), {}, {}}},
      {Op::minimum,
       {real([](D a, D b) { return minimum_of(a, b); }),
        integer([](I a, I b) { return a < b ? a : b; }),
        {},
        {}}},
      {Op::maximum,
       {real([](D a, D b) { return maximum_of(a, b); }),
        integer([](I a, I b) { return a > b ? a : b; }),
        {},
        {}}},
      {Op::clamp,
       {real([](D a, D lo, D hi) { return minimum_of(maximum_of(a, lo), hi); }),
        integer([](I a, I lo, I hi) { return std::min(std::max(a, lo), hi); }),
        {},
        {}}},
      {Op::exp, {real([](D a) { return std::exp(a); }), {}, {}, {}}},
      {Op::log, {real([](D a) { return std::log(a); }), {}, {}, {}}},
      {Op::log1p, {real([](D a) { return std::log1p(a); }), {}, {}, {}}},
      {Op::expm1, {real([](D a) { return std::expm1(a); }), {}, {}, {}}},
      {Op::sqrt, {real([](D a) { return std::sqrt(a); }), {}, {}, {}}},
      {Op::rsqrt, {real([](D a) { return 1 / std::sqrt(a); }), {}, {}, {}}},
      {Op::sin, {real([](D a) { return std::sin(a); }), {}, {}, {}}},
      {Op::cos, {real([](D a) { return std::cos(a); }), {}, {}, {}}},
      {Op::tan, {real([](D a) { return std::tan(a); }), {}, {}, {}}},
      {Op::tanh, {real([](D a) { return std::tanh(a); }), {}, {}, {}}},
      {Op::sigmoid, {real([](D a) { return sigmoid(a); }), {}, {}, {}}},
      {Op::erf, {real([](D a) { return std::erf(a); }), {}, {}, {}}},
      {Op::abs,
       {real([](D a) { return std::fabs(a); }),
        integer([](I a) { return a < 0 ? wrapping_sub(0, a) : a; }),
        {},
        {}}},
      {Op::sign,
       {real([](D a) { return sign_of(a); }), integer([](I a) -> I { return (a > 0) - (a < 0); }), {}, {}}},
      {Op::floor, {real([](D a) { return std::floor(a); }), {}, {}, {}}},
      {Op::ceil, {real([](D a) { return std::ceil(a); }), {}, {}, {}}},
      {Op::round, {real([](D a) { return std::nearbyint(a); }), {}, {}, {}}},  // half to even
      {Op::relu,
       {real([](D a) { return std::isnan(a) || a > 0 ? a : 0.0; }),
        integer([](I a) -> I { return a > 0 ? a : 0; }),
        {},
        {}}},
      {Op::softplus, {real([](D a) { return softplus(a); }), {}, {}, {}}},
      {Op::isnan, {{}, {}, test([](D a) -> I { return std::isnan(a); }), {}}},
      {Op::isfinite, {{}, {}, test([](D a) -> I { return std::isfinite(a); }), {}}},
      {Op::exp2, {real([](D a) { return std::exp2(a); }), {}, {}, {}}},
      {Op::log2, {real([](D a) { return std::log2(a); }), {}, {}, {}}},
      {Op::log10, {real([](D a) { return std::log10(a); }), {}, {}, {}}},
      {Op::sinh, {real([](D a) { return std::sinh(a); }), {}, {}, {}}},
      {Op::cosh, {real([](D a) { return std::cosh(a); }), {}, {}, {}}},
      {Op::asin, {real([](D a) { return std::asin(a); }), {}, {}, {}}},
      {Op::acos, {real([](D a) { return std::acos(a); }), {}, {}, {}}},
      {Op::atan, {real([](D a) { return std::atan(a); }), {}, {}, {}}},
      {Op::atan2, {real([](D a, D b) { return std::atan2(a, b); }), {}, {}, {}}},
      {Op::asinh, {real([](D a) { return std::asinh(a); }), {}, {}, {}}},
      {Op::acosh, {real([](D a) { return std::acosh(a); }), {}, {}, {}}},
      {Op::atanh, {real([](D a) { return std::atanh(a); }), {}, {}, {}}},
      {Op::hypot, {real([](D a, D b) { return hypotenuse(a, b); }), {}, {}, {}}},
      {Op::cbrt, {real([](D a) { return std::cbrt(a); }), {}, {}, {}}},
      {Op::erfc, {real([](D a) { return std::erfc(a); }), {}, {}, {}}},
      {Op::erfinv, {real([](D a) { return special::erfinv(a); }), {}, {}, {}}},
      {Op::lgamma, {real([](D a) { return lgamma_of(a); }), {}, {}, {}}},
      {Op::digamma, {real([](D a) { return special::digamma(a); }), {}, {}, {}}},
      {Op::polygamma, {real([](D a, D b) { return special::polygamma(a, b); }), {}, {}, {}}},
      {Op::i0e, {real([](D a) { return special::scaled_bessel(0, a); }), {}, {}, {}}},
      {Op::i1e, {real([](D a) { return special::scaled_bessel(1, a); }), {}, {}, {}}},
      {Op::sinc, {real([](D a) { return special::sinc(a); }), {}, {}, {}}},
      {Op::logaddexp, {real([](D a, D b) { return special::logaddexp(a, b); }), {}, {}, {}}},
      {Op::fmod, {real([](D a, D b) { return std::fmod(a, b); }), {}, {}, {}}},
      {Op::remainder, {real([](D a, D b) { return std::remainder(a, b); }), {}, {}, {}}},
      {Op::copysign, {real([](D a, D b) { return with_sign_of(a, b); }), {}, {}, {}}},
      {Op::trunc, {real([](D a) { return std::trunc(a); }), {}, {}, {}}},
      {Op::bit_and, {{}, integer([](I a, I b) { return a & b; }), {}, {}}},
      {Op::bit_or, {{}, integer([](I a, I b) { return a | b; }), {}, {}}},
      {Op::bit_xor, {{}, integer([](I a, I b) { return a ^ b; }), {}, {}}},
      {Op::bit_not, {{}, integer([](I a) { return ~a; }), {}, {}}},
      {Op::shift_left, {{}, integer([](I a, I b) { return shifted_left(a, b); }), {}, {}}},
      {Op::shift_right, {{}, integer([](I a, I b) { return shifted_right(a, b); }), {}, {}}},
      {Op::stop_gradient, {real([](D a) { return a; }), integer([](I a) { return a; }), {}, {}}},
      {Op::random, {{}, {}, {}, form<I, D>([](I seed, I i) { return random_at(seed, i); })}},
  };
  std::vector<ScalarOp> table;
  for (const FormsRow& row : rows) {
    auto at = static_cast<size_t>(row.op);
    if (table.size() <= at) table.resize(at + 1);
    table[at] = row.forms;
  }
  return table;
}

}  // namespace

const ScalarOp& scalar(Op op) {
  static const std::vector<ScalarOp> table = build_table();
  auto at = static_cast<size_t>(op);
  if (at >= table.size()) throw Bug("scalar(): no row in expr/core/scalar.cpp for op " + std::to_string(at));
  const ScalarOp& row = table[at];
  if (!row.reals && !row.integers && !row.tests && !row.draws)
    throw Bug("scalar(): no row in expr/core/scalar.cpp for op " + std::string(info(op).id));
  return row;
}

int64_t lowest_of(DType t) {
  switch (t) {
    case DType::i64: return std::numeric_limits<int64_t>::min();
    case DType::i32: return std::numeric_limits<int32_t>::min();
    case DType::u32:
    case DType::u8:
    case DType::boolean: return 0;
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16: break;
  }
  throw Bug("lowest_of() of a float type");
}

int64_t highest_of(DType t) {
  switch (t) {
    case DType::i64: return std::numeric_limits<int64_t>::max();
    case DType::i32: return std::numeric_limits<int32_t>::max();
    case DType::u32: return std::numeric_limits<uint32_t>::max();
    case DType::u8: return 255;
    case DType::boolean: return 1;
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16: break;
  }
  throw Bug("highest_of() of a float type");
}

double identity_of(Op reduction) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return reduction == Op::prod ? 1 : reduction == Op::max ? -kInfinity : reduction == Op::min ? kInfinity : 0;
}

int64_t identity_of(Op reduction, DType integer_type) {
  if (reduction == Op::max) return lowest_of(integer_type);
  if (reduction == Op::min) return highest_of(integer_type);
  return reduction == Op::prod || reduction == Op::all ? 1 : 0;
}

int64_t integer_from(DType to, double value) {
  if (to == DType::boolean) return value != 0;
  if (std::isnan(value)) return 0;
  double whole = std::trunc(value);
  // >=: 2^63 - 1 is no double; as one it is 2^63, which does not fit.
  if (whole >= static_cast<double>(highest_of(to))) return highest_of(to);
  if (whole <= static_cast<double>(lowest_of(to))) return lowest_of(to);
  return static_cast<int64_t>(whole);
}

int64_t integer_from(DType to, int64_t value) {
  return to == DType::boolean ? value != 0 : wrap_to(to, value);
}

double real_from(DType to, int64_t value) {
  // Straight to f32: through double it would be rounded twice, wrongly beyond 2^53.
  if (to == DType::f32) return static_cast<double>(static_cast<float>(value));
  return round_to(to, static_cast<double>(value));
}

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;  // the paper's constants
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = kMultiplier0 * c0, p1 = kMultiplier1 * c2;
    uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

double random_at(int64_t seed, int64_t i) {
  auto low = [](int64_t v) { return static_cast<uint32_t>(static_cast<uint64_t>(v)); };
  auto high = [](int64_t v) { return static_cast<uint32_t>(static_cast<uint64_t>(v) >> 32); };
  const uint32_t counter[4] = {low(i), high(i), 0, 0};
  const uint32_t key[2] = {low(seed), high(seed)};
  uint32_t word[4];
  philox4x32(counter, key, word);
  return static_cast<double>(word[0] >> 8) / 16777216.0;
}

}  // namespace xhat
