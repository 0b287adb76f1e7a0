// Values between inputs and results lie as these do: their axes stand in the order of an input's, a cotangent's or a result's.
//
//   z[k,n] = sum(d: x[n,d]*w[d,k])   y[n,k] = tanh(z[k,n])     =>     z[n,k] = sum(d: x[n,d]*w[d,k])   y[n,k] = tanh(z[n,k])
//
// Who has all axes of a value where it is computed or read has a say, and so has who got its order in this way. Where several disagree, one
// who says what is written has the last word, even with two of the axes: of s[j,k] = sum(i: x[i,j,k]), which y[k,j] reads, x says so. Nobody
// has a say in the scores of attention, s[b,h,i,j] = sum(d: q[b,i,h,d]*k[b,j,h,d]): they stay.
//
// Needs: the normal form of auto_inliner. Keeps: values to the bit, and what is delivered.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program axes_in_one_order(const Program& p);

}  // namespace xhat
