// Sums of products in the order in which they are least work: what few factors know is summed before it meets the others.
//
//   p[k] = sum(n,c: x[n,c]*w[k,c])                    =>   s[c] = sum(n: x[n,c])             p[k] = sum(c: s[c]*w[k,c])
//   y[n,o] = sum(r,i: x[n,i]*a[i,r]*b[r,o])           =>   t[n,r] = sum(i: x[n,i]*a[i,r])    y[n,o] = sum(r: t[n,r]*b[r,o])
//   p[n,k] = sum(i,j,c,r: x[n,c,i+r,j]*w[k,c,r])      =>   s[n,c,r] = sum(i,j: x[n,c,i+r,j])     p[n,k] = sum(c,r: s[n,c,r]*w[k,c,r])
//
// Among all trees of partial sums, the cheapest, if it is clearly cheaper than one sum over all axes. A tree is made of the products' factors, of
// which each is an expression with axes; a part of it sums over the axes that nobody outside of it has. An axis that a condition looks
// at, or whose range depends on others, is summed at the root. Each intermediate costs a write, reads and one more sweep.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: tensors and their numbers, values up to the order of
// additions and the rounding of products: each partial sum is off by roundings of its terms' sizes. Only sums of f32 and f64, and only under
// policy full. A definition is rewritten alike wherever it stands.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program products_in_order(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
