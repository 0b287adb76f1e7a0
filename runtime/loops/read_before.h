// What a definition makes at one place along an axis, of elements that stand elsewhere, is made before and has memory of its own: an
// antidiagonal, a row that data name.
//
//   y[i,j] = if j == s-i then f(x[i-1,j], x[i,j-1]) else x[i,j]
//   =>  t[i] = if 0 <= s-i && s-i < N then f(x[i-1,s-i], x[i,s-i-1]) else 0,   y[i,j] = if j == s-i then t[i] else x[i,j]
//
// So y can be written over x, a few elements; otherwise all of x is copied.
#pragma once
#include <functional>
#include <vector>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

// Changes the body of m, which is a map, such that none of these reads is left in it, and appends what is made before. False: nothing is
// changed, for some of them are needed at more places, or stand in a condition.
bool read_before(KernelSpec& spec, SpecMember& m, const std::function<bool(Id read)>& these, std::vector<SpecMember>& before);

// Of a nest, for results and operands (by tensor, of one shape): what a result reads of the operand at other elements than its own.
void read_before_writing(KernelSpec& spec, const std::function<bool(uint32_t)>& is_result, const std::function<bool(uint32_t)>& is_operand);

}  // namespace xhat::runtime
