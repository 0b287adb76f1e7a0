// The operations of the language on Halide expressions.
#pragma once
#include <vector>

#include "Halide.h"
#include "expr/core/expr.h"

namespace xhat::runtime::ops {

using Halide::Expr;

// bool is UInt(1) where it is computed and UInt(8) where it is stored.
Expr boolean(const Expr& stored);
Expr stored(const Expr& e);
Expr number(DType t, double v);
Expr constant(const Node& n);
Expr wrapping(Op op, const Expr& a, const Expr& b);
Expr floor_div(const Expr& a, const Expr& b);
Expr floor_mod(const Expr& a, const Expr& b);
Expr cast_to(DType t, const Expr& e);
// The element of an input. Not through the function that stands for the input in Halide: it is inlined by `let`s of one name, and where an
// index is itself read there, one stands inside the other, which its simplifier refuses.
Expr element(const Halide::ImageParam& input, const std::vector<Expr>& place);
// A value as its tensor keeps it. A choice between 16-bit floats is made by their bits: they are in f32 here, and to round the choice once
// more is work for nothing; LLVM's propagation of constants (v20) also fails an assertion there, at a vector of which it knows some lanes.
Expr as_stored(Halide::Type to, const Expr& e);
Expr philox(const Expr& seed, const Expr& i);
Expr float_op(const Node& n, const std::vector<Expr>& x);
Expr integer_op(const Node& n, const std::vector<Expr>& x);
Expr compare(Op op, const Expr& a, const Expr& b);
Expr power(const Arena& a, const Node& n, const std::vector<Expr>& x);
Expr divide_by_invariant(const Expr& x, const Expr& s);

}  // namespace xhat::runtime::ops
