// Reverse mode through one definition: from the adjoint of its tensor to a contribution to every tensor it
// reads.
//
// The adjoint of a node lives on exactly that node's free axes (and those that their ranges depend on):
// handing it down sums over the axes the child lacks, so that in y[i,j] = x[i,j]*f(m[i]) the adjoint of f is
// sum(j: dy[i,j]*x[i,j]) and f' is evaluated once per i. Conditions (select branches, reduction conditions)
// travel beside the value, see guards.h.
#pragma once
#include "ad/common/differentiation.h"

namespace xhat {

// definition: not a call, and its target has terms.
void sweep(Differentiation& d, const Definition& definition);

}  // namespace xhat
