// Vector math as Halide expressions: exp, log, tanh, ... that vectorize to straight-line code (no libm call
// per lane in f32), with measured errors and defined specials.
//
//     Halide::Func f("xh_squash");
//     f(i) = xhat::vmath::tanh(in(i));  // in: Float(32) or Float(64)
//
// Compile with Target::StrictFloat: Halide's default mode rewrites the compensated formulas and breaks them.
// LLVM backends only: fma, floor, ceil and round are LLVM intrinsics; OpenCL C needs its own.
//
// Operands of one call have the same type. NaN operands give NaN, except in pow, which follows C99: pow(x,0)
// = pow(1,y) = 1 even for NaN, so that the language's 0^0 = 1 holds. Errors and specials: docs/numerics.md.
// Nothing depends on the vector width: one lane or sixteen give the same bits.
#pragma once

#include "Halide.h"

#include <span>
#include <string>
#include <vector>

namespace xhat::vmath {

using Halide::Expr;

Expr fma(const Expr& a, const Expr& b, const Expr& c);  // a*b + c rounded once; one vfmadd per vector

Expr exp(const Expr& x);  // underflows gradually
Expr expm1(const Expr& x);
Expr log(const Expr& x);  // subnormals included
Expr log1p(const Expr& x);
Expr tanh(const Expr& x);     // tanh(-0) = -0
Expr sigmoid(const Expr& x);  // keeps relative accuracy for negative x; f32 results below 2^-128 flush to 0
Expr softplus(const Expr& x);
Expr erf(const Expr& x);
Expr sin(const Expr& x);  // any finite argument, however large
Expr cos(const Expr& x);
Expr tan(const Expr& x);
Expr pow(const Expr& x, const Expr& y);
// Halide refuses to divide by 0, as a mean over nothing does, and by what it finds to be 0 (a count of ties, where there is
// none): so it must not look.
Expr quotient(const Expr& x, const Expr& divisor);
Expr sqrt(const Expr& x);
Expr rsqrt(const Expr& x);

Expr max(const Expr& a, const Expr& b);  // NaN if either is
Expr min(const Expr& a, const Expr& b);
// Halide's own wrap the operand in strict_float at once, which walks the expression as a tree: minutes and gigabytes for
// tan(sin(i)) (v21). A strict pipeline does not fold x != x.
Expr is_nan(const Expr& x);
Expr is_finite(const Expr& x);
Expr sign(const Expr& x);  // sign(0) = 0 and keeps the zero's sign
Expr abs(const Expr& x);
Expr floor(const Expr& x);
Expr ceil(const Expr& x);
Expr round(const Expr& x);               // half to even
Expr mod(const Expr& x, const Expr& y);  // x - y*floor(x/y), each operation rounded

// One row per function: what the tests check, the docs state and the lowering looks up by name.
struct Row {
  const char* name;
  int arity;
  double low, high;  // f32 arguments tested, both ends included; the function is right beyond them too
  double max_ulp_f32, max_ulp_f64;  // claimed bounds; the measured maxima stand in docs/numerics.md
  Expr (*make)(std::span<const Expr> args);
};
const std::vector<Row>& rows();
const Row* find_row(const char* name);  // null if there is none

// Functions with long code are calls by name ("late") while Halide makes loops and vectors, as its passes would walk the code again and again.
// A pass over vectors puts the code there (runtime/cpu/ir/late_functions.h).
inline const std::string kRare = "rare.";                  // begins the name of code that hardly any argument needs
Expr call_of(const Row& row, const std::vector<Expr>& x);  // a call by name, or the code itself where it is short
bool is_late(const Halide::Internal::Call* call);
std::string name_of_late(const Halide::Internal::Call* call);
Expr late(const std::string& name, const std::vector<Expr>& x);  // the code; x are scalars
// A call by name of the rare code where the condition holds, else `usual`: a branch.
Expr rarely(const Expr& condition, const std::string& name, const std::vector<Expr>& x, const Expr& usual);
int operations(const Expr& x);  // nodes of the expression, those in several places once

}  // namespace xhat::vmath
