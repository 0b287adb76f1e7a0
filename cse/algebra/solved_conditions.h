// The conditions of a sum, where they say which terms there are: one form for what can be written in many.
//
//   sum(j if j <= i: e[j])                    =>   sum(j in 0..i+1: e[j])
//   sum(j: if j <= i then e[j] else 0)        =>   sum(j in 0..i+1: e[j])
//   sum(d: if l[n] == d then e[d] else 0)     =>   if 0 <= l[n] && l[n] < D then e[l[n]] else 0
//
// ad/gather solves equations between axes in sums of the backward as they are derived; here are what factors are guarded by, and indices
// that are data. What cannot be said by a range, or by a value of the axis, stays where it is.
// Real-only: outside of its guard a factor is 0, whatever the others are.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "cse/algebra/known_indices.h"
#include "cse/match/bodies.h"

namespace xhat {

// sum(bound if condition: body) at the points of scope, rewritten. Did it change?
bool solve_conditions(TensorExprTree& tree, std::vector<AxisRange>& bound, Id& condition, Product& body, std::span<const AxisRange> scope,
                      const KnownIndices& indices = {});

// guards: of tensors, where they are not 0. A factor that reads one leaves out the terms elsewhere:
//   d[i,j] = if j <= i then … else 0      sum(j: k[j]*d[i,j])   =>   sum(j if j <= i: k[j]*d[i,j])
void add_conditions_of_factors(Arena& a, const std::map<TensorId, PointValue>& guards, const Product& body,
                               std::span<const AxisRange> bound, std::span<const AxisRange> scope, Id& condition);

}  // namespace xhat
