// Reads of sums at places that stop at the ends of an axis, turn there or go round:
//   x[n,clamp(i+r-1,0,N-1)]   =>   x[n,i+r-1 else #]
// where # stands for what clamp(…) reads. The index is affine then, and all that is done for windows over zeros is done for these: vectors run
// along memory, and what a tile reads is copied with its border around it.
#pragma once
#include <compare>
#include <map>
#include <optional>
#include <vector>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

// Which place along a dimension is read for one outside of it: `index`, whose only axis `at` is the place, counted from `first`. kNone: the
// dimension is read where the index says.
struct Bend {
  Id at = kNone, index = kNone;
  int64_t first = 0;
  auto operator<=>(const Bend&) const = default;
};

// By what stands as `else` in such reads, a number that is none of theirs: a bend for each dimension.
using Borders = std::map<Id, std::vector<Bend>>;

// An index that bends is a place itself in its longest run: index == part + shift where first <= part <= last. (j + 1)%N is j + 1 for j in 0..N-1.
struct StraightRun {
  Id part;
  int64_t shift, first, last;
};

// Undefined where the index does not bend by a remainder, a choice or an absolute value, or where the run is less than half of all.
// (Of minimum, maximum and clamp Halide finds the run itself.)
std::optional<StraightRun> straight_run(const KernelSpec& spec, Id index);

// Of all reads of sums whose last index bends. Their axes `at` become axes of the kernel, over which nothing runs.
Borders take_borders(KernelSpec& spec);

}  // namespace xhat::runtime
