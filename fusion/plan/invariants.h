// What is expensive and the same for many of a definition's points is computed once for all of them, as a definition of its own.
//
//   y[b,t,h,k] = x[b,t,h,k] * cos(f32(t) * exp(-0.2*f32(k)))     =>     y_each[t,k] = cos(f32(t) * exp(-0.2*f32(k)))
//                                                                      y[b,t,h,k] = x[b,t,h,k] * y_each[t,k]
//
// Also what depends on fewer places than points: on a distance, or on what data name in a small tensor.
//
//   y[i] = sum(j: exp(-a*f32(abs(i-j)))*x[j])                  =>     y_each[u] = exp(-a*f32(u))      y[i] = sum(j: y_each[abs(i-j)]*x[j])
//   y[n,k] = x[n,k] * cos(w[id[n],k])                          =>     y_each[v,k] = cos(w[v,k])       y[n,k] = x[n,k] * y_each[id[n],k]
//
// Factors of a product that one table holds stand beside each other first, so that the rest is a product of two reads.
//
// Only what depends on the axis that vectors run along, or it is computed once per row anyhow. It costs a write, reads and
// one more sweep, which are priced as the stash planner prices them; the reads come from cache, where a table is small beside what is computed
// with it.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: every value, and every bit but for the order of a product's factors. Does nothing under a policy other than
// full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program invariants_apart(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
