// Questions about quasi-affine index expressions, answered exactly by isl. The one door to isl: no isl type leaves it.
//
// Access: reading dimension d of a tensor at an index expression, for all values of the axes in scope. An index is
// within isl's reach if it is built from axes, dims, integers, + - *const / const % const, min, max, abs, clamp, select
// with such conditions; anything else (data-dependent, products of dims) is opaque.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "expr/expr.h"

namespace xhat {

struct BoundsQuestion {
  std::span<const AxisRange> axes;      // in scope, outer first; ranges may use dims and earlier axes
  std::span<const Id> conditions;       // known to hold (bool): select conditions, reduction conditions
  Id index;                             // i64 expression
  Id extent;                            // i64 expression over dims
};

struct BoundsAnswer {
  enum class Verdict {
    proved,        // 0 <= index < extent for all dims >= 0
    precondition,  // holds exactly when `safe` does: all dims at least some constants
    violated,      // can fall outside; example says where
    unknown        // out of isl's reach: checked when the kernel runs
  } verdict;
  std::vector<std::pair<Id, int64_t>> safe;  // precondition: dim node >= value
  std::string example;                        // violated: "i = 0, r = 0 with N = 1: index -1"
};
BoundsAnswer prove_bounds(Arena& a, const BoundsQuestion& q);

// Is the range empty or well formed for all dims >= 0? Extents: end - begin >= 0 else a precondition.

// Inversion. Solves { indices_d(axes) == target_d for all d } for as many of the bound axes as possible.
// bound: the axes to sum over (in order, with ranges); indices over them, outer parameters and dims; targets: the axes
// of the gradient (one per dimension) that are free in the result.
struct InvertQuestion {
  std::span<const AxisRange> bound;
  Id condition;                   // an additional known condition over bound axes (kNone: none)
  std::span<const Id> indices;
  std::span<const AxisRange> targets;
};
struct InvertAnswer {
  // What remains to be summed over, with new ranges over the targets (and earlier remaining axes), and the guard that
  // must still be tested (kNone: nothing). solved maps the other bound axes to expressions over targets and remaining.
  std::vector<AxisRange> remaining;
  std::vector<std::pair<Id, Id>> solved;
  Id guard = kNone;
};
// none: nothing could be solved; keep the condition (a scatter-add).
std::optional<InvertAnswer> invert(Arena& a, const InvertQuestion& q);

// Is a == b (as integers) for all dims >= 0 and all axes? Exact where within reach, else false.
bool provably_equal(Arena& a, Id x, Id y);

}  // namespace xhat
