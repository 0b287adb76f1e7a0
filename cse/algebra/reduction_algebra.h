// Fewer and smaller sums in the backward.
//
//   bwd s[c] = sum(n: g[c]*dy[n,c] + k[c]*(x[n,c] - sx[c]/N))   =>   bwd t[c] = sum(n: dy[n,c]); s[c] is g[c]*t[c]
//
// - Factors that do not depend on the summed axes are pulled out; a sum of nothing else is a count.
// - Conditions become ranges of the summed axes, or their values (solved_conditions.h); those of no summed axis are taken out.
// - A sum that exists already (forward or backward, up to axes and the order of nested sums) is read.
// - A sum that contains one of these, over some of its axes, sums what that gives.
// - A sum of factors that are zero summed over one of its axes is zero: sum(n, d: a[d]*(x[n,d] - sx[d]/N)).
// - A sum over terms loses those that are zero; it is split where a part pulls out or exists already, and all have one sign:
//   what may cancel stays in one sum (docs/numerics.md). Zero, or one single term, is
//   proved by multiplying out, up to 32 terms: sum(x - sx/N) = sx - sx = 0 where sx is sum(x); softmax's gradient
//   through its maximum is S/s - S/s²·sum(e) = 0; attention's is zero by sum_j p·(sum_d do·v) = sum_d do·(sum_j p·v).
//   Nothing is multiplied out for another reason.
//
// Real-only, and applied to backward definitions only. A proved zero usually is more accurate than the sum.
// Calculates as if every sum had a term: guard_empty_sums (empty_sums.h) sees to those that have none.
// Needs: the normal form of auto_inliner (every body a map, or one reduction of a map). Keeps it.
#pragma once
#include <map>
#include <set>
#include <vector>

#include "cse/match/bodies.h"
#include "expr/core/program.h"

namespace xhat {

// Backward bodies are compared with the forward's maps (outputs too) written out. Those in kept are read
// instead. Forward reductions in hidden may not be read where they were not read before.
Program simplify_reductions(const Program& p, const std::vector<TensorId>& kept = {}, const std::vector<TensorId>& hidden = {});
// The same; tree: over p's arena, with the forms that are known already.
Program simplify_reductions(const Program& p, const std::vector<TensorId>& kept, TensorExprTree& tree);

// Multiplied out, all sums are of one term each: for proofs about all sums of a backward together (idle_sums.h). opaque: sums that stay as they are.
struct MultipliedOut {
  Program program;
  std::set<TensorId> zeros;                         // of the backward: proved to be zero
  std::map<TensorId, PointValue> terms_of_forward;  // of the backward: proved to be one term of what the forward has
  std::set<Id> zero_sums;                           // sums of terms beside reads of what is opaque: proved to be zero
};
MultipliedOut multiplied_out(const Program& p, const std::set<TensorId>& opaque);

}  // namespace xhat
