// Dimensions of tensors that nobody outside sees, in one order.
//
//   t[j,h,i] = sum(d: q[h,i,d]*k[h,j,d])   y[h,i,d] = sum(j: exp(t[j,h,i])*v[h,j,d])     =>     t[h,i,j] = …
//
// A kernel reads and writes tiles: whose rows lie across those of its other members waits for memory, and stands apart. So what is read along
// results lies as they do, and summed axes lie behind those that stay; where that leaves two axes open, what the body reads says which comes
// first, in the end the order of the inputs. Exact. Keeps: inputs, outputs, gradients, what calls read and return.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program with_settled_layouts(const Program& p);

}  // namespace xhat
