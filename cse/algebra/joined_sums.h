// Sums of the backward that are read only to be added up become one sum.
//
//   s[k] = sum(n: dy[n,k]*y[n,k])   t[k] = sum(n: r[n]*y[n,k])   grad_b[k] = s[k] - t[k]
//     =>   u[k] = sum(n: dy[n,k]*y[n,k] - r[n]*y[n,k])   grad_b[k] = u[k]
//
// A gradient has a sum for each use of a tensor; of what is read at places that data find, one that adds by place. Added term by term nothing
// cancels between large sums, and there is a sum less. Factors of the sums (3*s[k]/v[k]) go in. Not joined are matrix products, which have
// kernels of their own (a sum of which no read has all axes), what goes along the rows of memory with what goes down its columns
// (sum(j: w[i,j]*f[i,j]) and sum(j: w[j,i]*f[i,j])), and what would make one sum wait for another that it did not need.
// Real-only, and applied to backward definitions only. Needs: the normal form of auto_inliner. Keeps it.
#pragma once
#include "expr/core/program.h"

namespace xhat {

// An equal program if there is nothing to join.
Program with_joined_sums(const Program& p);

}  // namespace xhat
