// What is several operations of the language at once: sums of products as einsum text, and random numbers of other distributions.
//
//     Op op("attention_scores");
//     Dim B("B"), S("S"), D("D");
//     Tensor q = op.input("q", f32, {B, S, D}), k = op.input("k", f32, {B, S, D}), y("y");
//     einsum(y, "bid,bjd->bij", {q, k});                    // y[b,i,j] = sum(d: q[b,i,d] * k[b,j,d])
#pragma once
#include <string>
#include <vector>

#include "expr/dsl/dsl.h"

namespace xhat::dsl {

// Defines `result`. A letter is an axis; a letter twice in one operand reads the diagonal; blanks are ignored. Letters that the result lacks are
// summed over. Without "->" the result has the letters that occur once, in alphabetical order. "..." stands for leading dimensions, of operands
// that are parameters or defined; those of all operands are aligned at the last, and stand where the result has "..." (by default first).
void einsum(const Tensor& result, const std::string& subscripts, const std::vector<Tensor>& operands);

// Of the normal distribution with mean 0 and variance 1: sqrt(2) erfinv(v), v in the middle of the 2^24 intervals of [-1, 1) that random() tells
// apart. So no value is beyond 5.42.
Expr random_normal(const Expr& seed, const Expr& i);
// Of the whole numbers from low to before high, i64; high - low is at most 2^24, and a number's probability is off by 2^-24 at most.
Expr random_int(const Expr& seed, const Expr& i, const Expr& low, const Expr& high);

}  // namespace xhat::dsl
