// Element types, their order under promotion, and rounding a value to one of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace xhat {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, u32, u8, boolean };

bool is_float(DType t);
bool is_integer(DType t);  // i64 i32 u32 u8, not boolean
size_t byte_size(DType t);
std::string_view name_of(DType t);                       // "f32", "bool", ...
std::optional<DType> dtype_from_name(std::string_view);  // inverse of name_of

// The wider of two types of the same kind: f16 with bf16 gives f32, u8 with i32 gives i32, i32 with u32 gives i64.
// None where a cast is needed: float beside integer, bool beside anything else.
std::optional<DType> promote(DType a, DType b);

// What reductions of t deliver: f16 and bf16 are summed in f32 and rounded back once; integer sums and products are i64.
DType accumulator_of(DType t);

// The value of type t nearest to v (float types: round to nearest even; integer types: truncate, then wrap).
double round_to(DType t, double v);
int64_t wrap_to(DType t, int64_t v);

uint16_t f16_bits(double v);
double f16_value(uint16_t bits);
uint16_t bf16_bits(double v);
double bf16_value(uint16_t bits);

}  // namespace xhat
