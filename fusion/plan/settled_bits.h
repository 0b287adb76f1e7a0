// What is compared for equality has the same bits in every kernel that computes it.
//
//   m[i] = max(k: x[i,k]*w[k] + b)              the forward
//   if x[i,k]*w[k] + b == m[i] then … else 0    a kernel of the backward
//
// finds its ties only if both compute the operand alike. A kernel may contract a*b + c into one fma, divide by what has fewer axes
// than the quotient by way of a reciprocal, and keep f16 and bf16 unrounded in f32: whether it does depends on where the expression
// stands, since inlining, other axes and values that are stored change what stands beside an operation. So in expressions that decide
// something each operation is rounded by itself. They are marked by stop_gradient, whose value is its operand's and through which the
// emitter does not look (a gradient is not derived of these programs any more):
//
//   stop_gradient(x[i,k]*w[k]) + b       the sum does not stand on a product
//   e[i,k] / stop_gradient(s[i])         a division
//   stop_gradient(a*b), in f16           rounded to f16
//
// Marked are, in both directions alike:
//   - what max, min, argmax or argmin are taken of, what == or != compares, and what is rounded to an integer (x[i64(floor(p))] and
//     p - floor(p) belong together), with all that it is computed from, through the maps and the products (prod) of other definitions, of
//     which one kernel may store the value and another compute it. Not through sums: each has a definition that is computed once
//     (cse/stash/stash_planner.h keeps those that decide);
//   - what other comparisons, and roundings of f16 and bf16, look at, in the definition where they stand, and what an extreme is
//     subtracted from, with the subtraction: exp(x*w - max(x*w)) is at most 1, but an fma would leave what rounding took from x*w, which
//     is large where x*w is. An extreme is also what an extreme is chosen as (if m > -inf then m else 0), and max(a, b) or floor(a)
//     subtracted from a. There f16 and bf16 are only rounded where they are compared.
// Where a marked expression stands a second time, under nothing that decides, it is the marked one: it is computed once.
//
// Needs: the program after all passes, with both directions. Keeps: every value but for roundings; the order of everything.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program settle_bits(const Program& p);

}  // namespace xhat
