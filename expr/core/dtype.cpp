#include "expr/core/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace xhat {
namespace {

struct TypeRow {
  std::string_view name;
  size_t bytes;
  bool floating;
  bool integer;
};
// In the order of the enum.
constexpr std::array<TypeRow, 9> kTypes = {{
    {"f64", 8, true, false},
    {"f32", 4, true, false},
    {"f16", 2, true, false},
    {"bf16", 2, true, false},
    {"i64", 8, false, true},
    {"i32", 4, false, true},
    {"u32", 4, false, true},
    {"u8", 1, false, true},
    {"bool", 1, false, false},
}};
const TypeRow& row(DType t) { return kTypes[static_cast<size_t>(t)]; }

// Rounds v to a binary float with `digits` bits of significand (including the leading one) and smallest normal
// exponent `least` (v = m * 2^e with 1 <= m < 2), to nearest even, with gradual underflow; overflow to infinity above
// `largest`. Doing it from the double directly avoids double rounding through f32.
double round_binary(double v, int digits, int least, double largest) {
  if (v == 0 || !std::isfinite(v)) return v;
  int exponent = std::max(std::ilogb(v), least);
  double unit = std::ldexp(1.0, exponent - digits + 1);
  double rounded = std::nearbyint(v / unit) * unit;
  if (std::abs(rounded) > largest) return std::copysign(std::numeric_limits<double>::infinity(), v);
  return rounded;
}

}  // namespace

bool is_float(DType t) { return row(t).floating; }
bool is_integer(DType t) { return row(t).integer; }
size_t byte_size(DType t) { return row(t).bytes; }
std::string_view name_of(DType t) { return row(t).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) && is_float(b)) {
    if (byte_size(a) == 2 && byte_size(b) == 2) return DType::f32;
    return byte_size(a) > byte_size(b) ? a : b;
  }
  if (is_integer(a) && is_integer(b)) {
    auto either = [&](DType t) { return a == t || b == t; };
    if (either(DType::i64)) return DType::i64;
    if (either(DType::i32)) return either(DType::u32) ? DType::i64 : DType::i32;
    return DType::u32;  // u8 with u32
  }
  return std::nullopt;
}

DType accumulator_of(DType t) {
  if (t == DType::f16 || t == DType::bf16) return DType::f32;
  return is_integer(t) ? DType::i64 : t;
}

int64_t wrap_to(DType t, int64_t v) {
  switch (t) {
    case DType::i32: return static_cast<int32_t>(static_cast<uint32_t>(v));
    case DType::u32: return static_cast<uint32_t>(v);
    case DType::u8: return static_cast<uint8_t>(v);
    case DType::boolean: return v != 0;
    case DType::i64:
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16: return v;
  }
  return v;
}

double round_to(DType t, double v) {
  switch (t) {
    case DType::f64: return v;
    case DType::f32: return static_cast<double>(static_cast<float>(v));
    case DType::f16: return round_binary(v, 11, -14, 65504.0);
    case DType::bf16: return round_binary(v, 8, -126, 0x1.fep127);
    case DType::i64:
    case DType::i32:
    case DType::u32:
    case DType::u8:
    case DType::boolean: {
      if (std::isnan(v)) return 0;
      double whole = std::trunc(v);
      // Beyond 2^63 the conversion itself would be undefined: saturate first.
      int64_t i = whole >= 0x1p63    ? std::numeric_limits<int64_t>::max()
                  : whole < -0x1p63 ? std::numeric_limits<int64_t>::min()
                                    : static_cast<int64_t>(whole);
      return static_cast<double>(wrap_to(t, i));
    }
  }
  return v;
}

double f16_value(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  int fraction = bits & 1023;
  double magnitude = exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN()
                                                 : std::numeric_limits<double>::infinity())
                     : exponent == 0 ? std::ldexp(fraction, -24)
                                     : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t f16_bits(double v) {
  uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return sign | 0x7e00;
  double magnitude = std::abs(round_to(DType::f16, v));
  if (std::isinf(magnitude)) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));
  int exponent = std::ilogb(magnitude);
  auto fraction = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent) - 1024);
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | fraction);
}

double bf16_value(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

uint16_t bf16_bits(double v) {
  if (std::isnan(v)) return std::signbit(v) ? 0xffc0 : 0x7fc0;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(round_to(DType::bf16, v))) >> 16);
}

}  // namespace xhat
