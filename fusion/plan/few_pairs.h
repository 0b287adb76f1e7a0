// A sum for each pair of a place and a segment, where only pairs are read in which the segment has the place: it is summed up where it is
// read.
//
//   d[r,t] = sum(v: x[t,v]*dy[r,v])                                R*T*V
//   g[t] = sum(r if o[r] <= t && t < o[r+1]: e[r,t]*d[r,t])
//
//   =>  g[t] = sum(r, v if o[r] <= t && t < o[r+1]: e[r,t]*x[t,v]*dy[r,v])        (R+T)*V
//
// So are the gradients of segments' softmaxes, and of what is weighted by them. Real-only: a sum is put together in another order.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program few_pairs_where_read(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
