// Says what a program means, by plain loops. Every other way to run a program is compared with this one.
//
//   Arrays in = {{"x", array_of(DType::f32, {2, 3}, {…})}};
//   Arrays out = evaluate(program, in);  // out["y"], and out["grad_x"] if in has "dy"
//
// What LANGUAGE.md leaves open is decided here:
//   - select and read_or are lazy: what goes wrong in a branch not taken, or where a reduction's condition is
//     false, is no error. Everything else is strict: `&&` and `||` evaluate both sides.
//   - sums are accumulated in double and rounded once (sums may be reassociated, so no order of rounding is
//     the right one); prods, which may not, are rounded after every factor, to the accumulator's type.
//   - max and min of integers over nothing give the lowest and the highest value of the type.
//   - float to integer casts saturate, NaN gives 0; integer x^n with n < 0 truncates (2^-1 = 0); pow with a
//     NaN is NaN.
//   - float % is x - y*floor(x/y) computed in double and rounded once.
#pragma once
#include "expr/core/array.h"
#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat {

enum class Rounding : uint8_t {
  exact,    // floats are doubles throughout; integers have their declared width all the same
  declared  // every node is rounded to its type, so exp(100) in f32 is inf
};

struct EvaluateOptions {
  Rounding rounding = Rounding::declared;
  bool every_tensor = false;  // deliver temporaries too, not only outputs and gradients
  // Each result that an operation rounds, and each partial sum, is moved by at most this part of it: the difference says how much of
  // rounding the formula keeps, in a type that has no wider one. Equal operands are moved alike.
  double noise = 0;
};

inline constexpr EvaluateOptions kExact = {.rounding = Rounding::exact};

// inputs: every input by name and, to run the backward as well, every cotangent; without any cotangent only
// the forward runs (a program whose cotangents are an empty list always runs both). Throws Error for inputs
// that are missing, unknown, or of another type or shape, for a read outside a tensor, and for argmax over
// nothing; the message names op, tensor, position and index.
Arrays evaluate(const Program& p, const Arrays& inputs, const DimValues& dims,
                const EvaluateOptions& options = {});
// Dims solved from the inputs.
Arrays evaluate(const Program& p, const Arrays& inputs, const EvaluateOptions& options = {});

Shapes shapes_of(const Arrays& arrays);

}  // namespace xhat
