// Questions about quasi-affine index expressions, answered exactly by isl. The one door to isl: no isl type
// leaves it.
//
// Access: reading dimension d of a tensor at an index expression, for all values of the axes in scope. An
// index is within isl's reach if it is built from axes, dims, integers, + - *const / const % const, min, max,
// abs, clamp, relu, select with such conditions. Anything else is opaque: an unknown number, the same
// wherever the same term stands, of which a little is known (i*W <= (H-1)*W for i in 0..H, 0 <= p % W < W,
// p/W < H for p < H*W, 0 <= u8 data <= 255), so that x[p/W, p%W], x[i*W + j] and clamped data are proved too. What is left open
// by that is asked again with flattened positions taken apart (expr/index/affine_split.h), where x[p/W, p%W+1] is decided.
// Conditions that are out of reach count as "may hold". Sizes and index arithmetic are taken to fit in 64
// bits; arithmetic on data may wrap and is opaque as a whole.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "expr/core/expr.h"

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
    precondition,  // where there is anything to iterate, holds exactly when `safe` does: all dims at least
                   // some constants
    violated,      // can fall outside; example says where
    unknown        // out of isl's reach: checked when the kernel runs
  } verdict;
  std::vector<std::pair<Id, int64_t>> safe;  // precondition: dim node >= value
  std::string example;                        // violated: "i = 0, r = 0 with N = 1: index -1"
};
BoundsAnswer prove_bounds(Arena& a, const BoundsQuestion& q);

// The same where the dims have these values: products of dims are numbers then, and hardly anything is unknown.
BoundsAnswer prove_bounds_at(Arena& a, const BoundsQuestion& q, const std::map<std::string, int64_t>& dims);
// What sizes say of a question that is unknown for all of them: `violated`, with one of them in its example, if it falls outside at each
// of those tried, small and large, at which anything is iterated; else unknown.
BoundsAnswer try_sizes(Arena& a, const BoundsQuestion& q);

// An unknown question as a bool over dims, to be decided when they are known: all(axes if conditions: 0 <= index && index < extent).
Id open_question(Arena& a, const BoundsQuestion& q);
// Has the index parts that no relation expresses at any sizes: bits, powers, products of axes, numbers that were floats? What is not
// proved of it is asked when a kernel runs, as of an index that depends on data.
bool out_of_reach(const Arena& a, Id index);
bool is_open_question(const Arena& a, Id condition);
// Its answer. The arena, which others may be reading, stays as it is.
BoundsAnswer answer_at(const Arena& a, Id open_question, const std::map<std::string, int64_t>& dims);

// Is a size (an extent, end - begin; i64 over dims) >= 0 for all dims >= 0? Verdicts as above: where the safe
// sizes are no box (N - M), `violated`: the caller can still state the condition itself as a precondition.
BoundsAnswer prove_nonnegative(Arena& a, Id size);

// Inversion. Solves { indices_d(axes) == target_d for all d } for as many of the bound axes as possible, and narrows the
// ranges of the others by the conditions that compare them with targets:
//   sum(i, r if 2*i + r - 1 == a: f(i, r))  =>  sum(i in a/2 .. min((a+1)/2 + 1, H): f(i, a - 2*i + 1))
// bound: the axes to sum over (in order, with ranges); indices over them, outer parameters and dims; targets:
// the axes of the gradient (one per dimension, known to lie in their ranges) that are free in the result.
struct InvertQuestion {
  std::span<const AxisRange> bound;
  Id condition;                   // bool over bound axes: where it fails, points do not count (kNone: all do)
  std::span<const Id> indices;
  std::span<const AxisRange> targets;
  std::span<const Id> taken = {};  // axes that a new one may not be called like, besides those of the question
  // A further condition, which narrows the ranges of axes also where no target stands in it: of sum(i, r if i + r < 2: …) it makes
  // sum(i in 0..2, r in 0..2-i: …).
  Id narrowing = kNone;
};
// The points of the answer (remaining in their ranges, the guard holds, the others as solved) are exactly the
// bound points that meet equations, ranges and condition, each once. A remaining axis may be new (steps of a
// stride).
struct InvertAnswer {
  // What remains to be summed over, with new ranges over the targets (and earlier remaining axes), and the
  // guard that must still be tested (kNone: nothing). solved maps the other bound axes to expressions over
  // targets and remaining.
  std::vector<AxisRange> remaining;
  std::vector<std::pair<Id, Id>> solved;
  Id guard = kNone;
};
// none: nothing could be solved; keep the condition (a scatter-add).
std::optional<InvertAnswer> invert(Arena& a, const InvertQuestion& q);

// Where there is a point of these axes (in order of nesting; ranges may use axes around): a condition on the axes
// around that holds there, and nowhere else if all is within isl's reach. kNone: everywhere.
Id nonempty(Arena& a, std::span<const AxisRange> axes, std::span<const AxisRange> around);

// The largest value of x - y while the axes run over their ranges; none: there is no largest, or it is out of reach.
std::optional<int64_t> largest_difference(Arena& a, Id x, Id y, std::span<const AxisRange> axes);

// The same integer, its sums collected (h + 1 - (h - 1 + t) is 2 - t); itself where that is out of reach.
Id collected(Arena& a, Id index);

// Is a == b (as integers) for all dims >= 0 and all axes? Exact where within reach, else false.
bool provably_equal(Arena& a, Id x, Id y);

}  // namespace xhat
