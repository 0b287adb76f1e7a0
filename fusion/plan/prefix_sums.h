// Prefix sums, maxima and minima in n or n log n instead of n^2.
//
//   y[i] = sum(k in 0..i+1: f[k])      =>     s0[u] = f[u]
//                                             s1[u] = sum(t in 0..4: s0[u-t else 0])        of 4 terms
//                                             s2[u] = sum(t in 0..4: s1[u-4*t else 0])      of 16
//                                             …  y[i], of all
//
// Each step is a map of a few shifted reads, so it runs in vectors along any axis (Hillis and Steele, Data parallel algorithms, 1986, with four
// reads a step instead of two: half as many steps over the cache). A range that ends with the axis (`k in i..N`) goes the other way. Where a term
// depends on the result by a weight that carries over (`d^(i-k)`, prefix_terms.h), a step multiplies what it reads by the weight from there:
//
//   y[i] = sum(k in 0..i+1: d^(i-k)*f[k])   =>   s1[u] = sum(t in 0..4: d^t * s0[u-t else 0]),   s2[u] = sum(t in 0..4: d^(4*t) * s1[u-4*t else 0]),  …
//
// Where other axes fill vectors, a processor needs no steps: it walks, as recurrences.h does, in n operations,
//
//   y[u,d] = y[u-1,d else 0]*weight[u] + f[u,d]
//
// whose roundings grow with the terms as those of a loop do (numpy.cumsum).
//
// Both ends may move with different axes (`u in j+1..i`): the steps go along the one that the terms know least of, and the other end is a
// condition of the terms.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: tensors and their numbers (new ones are appended), and values up to
// the order of additions and of the factors of a weight. Does nothing for other reductions, for other terms that depend on the axis themselves,
// for 16-bit floats and integers, and under a policy other than full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program prefix_sums_by_steps(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
