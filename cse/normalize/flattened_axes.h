// Reductions over flattened positions go over the axes that these are made of.
//
//   z[c, p in 0..H*W] = x[c,p/W,p%W]   s[c] = sum(p: z[c,p])     =>     s[c] = sum(h in 0..H, w in 0..W: x[c,h,w])
//
// An axis is taken apart if all that the reduction reads, the maps in it written out, depends on p/B and p%B only, for parts B of the product
// that p runs to. The terms come in the same order. What is read is then an axis again, which kernels, gradients and the algebra of
// sums see as such. Where a part of it moves a window (x[16*(p/W)+r,…] of patches), it is taken apart in any case, and what reads at p itself
// reads at h*W+w.
// Exact. Needs: calls expanded, definitions in order. Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program without_flattened_axes(const Program& p);

}  // namespace xhat
