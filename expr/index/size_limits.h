// Sizes that kernels cannot take, found before anything is allocated or compiled.
#pragma once
#include <limits>

#include "expr/index/dims.h"

namespace xhat {

// Kernels count elements and steps of loops with 32 bits.
constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();

// Throws Error if the tensor has more elements than that.
void check_elements(const Program& p, TensorId t, const DimValues& dims);

// Throws Error if an input, output, cotangent or gradient has more elements, or an axis whose range depends on dims alone takes more
// steps. Other definitions may well be larger: what is computed inside of a tile never exists as a whole.
void check_kernel_sizes(const Program& p, const DimValues& dims);

}  // namespace xhat
