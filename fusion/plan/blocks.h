// A result whose index is only read by its quotient and remainder is computed with these as axes, those of one operand side by side, and copied
// to its place.
//
//   g[i in 0..16*H, c] = sum(k: w[k,c,i%16] * dy[i/16,k])     =>     g_blocks[a,c,b] = sum(k: w[k,c,b] * dy[a,k])
//                                                                    g[i,c] = g_blocks[i/16,c,i%16]
//
// which is a product of matrices: gradients of patches, of strided convolutions whose windows do not overlap, of pixels rearranged. What depends
// on no remainder is computed once per block. So are groups that are said as quotients, y[o] = sum(c: w[o,c]*x[o/8*4+c]): a product for each. Only
// where a larger product comes of it, or fewer points, or where the columns of one leap from block to block: o[j/32,t,j%32]. Blocks that the sum's
// condition leaves without terms are not computed: of sum(t if 4 <= e/8: …) the others are 0 where they are copied.
//
// Needs: a program of one direction in normal form, sizes for all dims, divisors that are numbers (with_numbers_as_divisors). Keeps: every value and every bit. Does nothing under a policy other than
// full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program blocks_as_axes(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat
