// A call to a library of functions on matrices and images, as plain data. Sizes are numbers; steps count elements.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "expr/core/dtype.h"

namespace xhat {

// An operand of a call: a tensor, the offset of its first element, and steps, in elements.
struct LibrarySide {
  uint32_t tensor = 0;  // TensorId
  DType type = DType::f32;
  int64_t offset = 0;
  std::vector<int64_t> steps;
  bool operator==(const LibrarySide&) const = default;
};

// c[i,j] = alpha * sum(k: a[i,k] * b[k,j]), for every point of the batch. Steps are those of a along (i, k), of b along (k, j), of c along
// (i, j), each followed by those along the batch's axes.
struct MatrixProduct {
  int64_t rows = 1, columns = 1, terms = 1;
  std::vector<int64_t> batch;
  LibrarySide a, b, c;
  double alpha = 1;
};

// output[n, g*K+k, o] = alpha * sum(c, r: input[n, g*C+c, stride*o + dilation*r - pad] * filter[g*K+k, c, r]), where input is 0 outside.
// The kind says which of the three tensors is computed from the other two. Steps of input and output: images, channels, space; of the
// filter: filters, channels, space.
struct Convolution {
  enum class Kind : uint8_t { forward, data, filter } kind = Kind::forward;
  struct Space {
    int64_t input = 1, filter = 1, output = 1;
    int64_t pad = 0, stride = 1, dilation = 1;
    bool flipped = false;  // reads filter[R-1-r] instead of filter[r]
    bool operator==(const Space&) const = default;
  };
  int64_t images = 1, groups = 1, channels = 1, filters = 1;  // of each group
  std::vector<Space> space;
  LibrarySide input, filter, output;
  double alpha = 1;
};

using LibraryCall = std::variant<MatrixProduct, Convolution>;

// The operand that a call writes, and those that it reads, in the order of the call's members.
const LibrarySide& result_of(const LibraryCall& call);
std::array<const LibrarySide*, 2> operands_of(const LibraryCall& call);
int64_t flops_of(const LibraryCall& call);
// For people: "product 512 x 512 x 1024, 8 times", "convolution of 8 images, 32 -> 64 channels, 28 by 3 pad 1, 28 by 3 pad 1".
std::string to_text(const LibraryCall& call);

}  // namespace xhat
