// Running sums inside of other sums, and those whose terms count as often as they are places away, as running sums of their own.
//
//   g = sum(t, k in 0..t+1: a[t]*x[k]*d^(t-k))              =>   r[t] = sum(k in 0..t+1: x[k]*d^(t-k))    g = sum(t: a[t]*r[t])
//   g[k] = sum(b, t in k..N: a[b,t]*d[b]^(t-k))             =>   r[b,k] = sum(t in k..N: a[b,t]*d[b]^(t-k))    g[k] = sum(b: r[b,k])
//   y[t] = sum(k in 0..t+1: (t-k)*x[k]*d^(t-k-1))           =>   r[t] = sum(k in 0..t+1: x[k]*d^(t-k))    q[t] = sum(k in 0..t+1: r[k]*d^(t-k))
//                                                                y[t] = q[t-1 else 0]
//
// The gradient of an exponential average by its decay is the first and the third: sums over all pairs of places. Of the third, a term x[k]
// goes into r[k], …, r[t-1], which is t-k times, each time with the weight d^(t-1-k). Nothing is subtracted, as t*sum(…) - sum(k*…) would.
//
//   g = sum(t, k in 0..t+1, j in k+1..t+1: f)               =>   g = sum(j in 0..N-1, k in 0..j+1, t in j+1..N: f at j+1)
//
// if f has the products between k, j and t: the gradient of a recurrence by what all its factors depend on, two running sums for each j. A sum
// over one more axis inside of such a sum becomes part of it.
//
// Then prefix_sums.h and recurrences.h make each n operations or n log n. Needs and keeps: as they do.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program running_sums_apart(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
