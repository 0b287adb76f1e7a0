// What each row of ops.def computes on plain numbers: the meaning of the language's scalar operations.
//
// A row may have several forms, by the kinds of its operands and of its result. Floats are computed in
// double, whatever their declared type, integers and bools in int64_t; whoever calls rounds or wraps to the
// declared type afterwards. Every form comes twice from one function: for one point, and for many points at
// once (lanes), which is what makes the evaluator fast enough for tensors of millions of elements.
#pragma once
#include <cstddef>
#include <cstdint>

#include "expr/core/expr.h"

namespace xhat {

// Operand values at consecutive points; stride 0 repeats one value.
template <class T>
struct Lanes {
  const T* data;
  size_t stride;
  T operator[](size_t i) const { return data[i * stride]; }
};

template <class In, class Out>
struct ScalarForm {
  Out (*at)(const In* operands) = nullptr;
  void (*lanes)(size_t count, Out* out, const Lanes<In>* operands) = nullptr;
  explicit operator bool() const { return at != nullptr; }
};

struct ScalarOp {
  ScalarForm<double, double> reals;       // float operands and result
  ScalarForm<int64_t, int64_t> integers;  // integer or bool operands and result (comparisons deliver 0 or 1)
  ScalarForm<double, int64_t> tests;      // float operands, bool result
  ScalarForm<int64_t, double> draws;      // integer operands, float result
};

// The forms of a row of ops.def (Bug for a node kind that is not one).
const ScalarOp& scalar(Op op);

// Casts. Float to integer truncates towards zero; what does not fit gives the nearest value of the type, NaN
// gives 0 (as CUDA and WebAssembly's saturating conversions do). Integer to integer wraps. To bool: is it not
// zero (NaN is not).
int64_t integer_from(DType to, double value);
int64_t integer_from(DType to, int64_t value);
double real_from(DType to, int64_t value);  // the nearest value of the float type

int64_t lowest_of(DType integer_type);
int64_t highest_of(DType integer_type);

// What a reduction gives over nothing, and starts from: of floats, and of an integer type or bool. (An argmax has none: 0.)
double identity_of(Op reduction);
int64_t identity_of(Op reduction, DType integer_type);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): out = four words.
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
// random(seed, i) of the language: uniform in [0, 1), 24 bits.
double random_at(int64_t seed, int64_t i);

}  // namespace xhat
