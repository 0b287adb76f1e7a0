// A reduction that is written several times is one definition, before gradients are derived of it.
//
//   m[n] = max(d: sum(k: x[n,k]*w[k,d]))                e[n,d] = exp(sum(k: w[k,d]*x[n,k]) - m[n])
//     =>   m_sum[n,d] = sum(k: x[n,k]*w[k,d])    m[n] = max(d: m_sum[n,d])    e[n,d] = exp(m_sum[n,d] - m[n])
//
// Compared with the values of maps in place of their names, whatever the axes are called, in any order of the axes (but of prod, whose order
// is its meaning), with the operands of what commutes in any order. Only what may be computed everywhere: every index is inside without the
// conditions around.
// Exact, but for the order of addition, which sums leave open. Needs: calls expanded. Keeps: outputs.
#pragma once
#include "expr/core/program.h"

namespace xhat {

Program without_repeated_reductions(const Program& p);

}  // namespace xhat
