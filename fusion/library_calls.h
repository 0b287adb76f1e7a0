// Definitions that a library has a function for: products of matrices (cuBLAS) and convolutions (cuDNN).
//
//   y[b,i,j] = 0.125 * sum(k: x[b,i,k] * w[j,k])                    alpha * X * W^T, for every b
//   y[n,k,i] = sum(c,r: x[n,c,2*i+r-1 else 0] * w[k,c,r])           a convolution, stride 2, padding 1
//   grad_x[n,c,h] = sum(k, i in h/2..(h+1)/2+1: dy[n,k,i] * w[k,c,h-2*i+1])        the same one, by its data
//   grad_w[k,c,r] = sum(n,i: dy[n,k,i] * x[n,c,2*i+r-1 else 0])                    and by its filter
//
// The planner asks which two axes of a sum make it a product (Shape::product); a library wants to know more: every element
// read must be where strides say. Along an axis that indices share with others (i and r of 2*i+r-1), which places of the three tensors
// belong together is written down, and compared with those of each convolution: no form of writing one is special.
// Sizes are numbers here. What is read must be tensors: fusion/library_operands.h makes them of what is more.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "expr/dims.h"
#include "expr/program.h"

namespace xhat {

// Where a call finds its elements: a tensor, and steps in elements from the first one.
struct LibrarySide {
  TensorId tensor = 0;
  DType type = DType::f32;
  int64_t offset = 0;
  std::vector<int64_t> steps;
  bool operator==(const LibrarySide&) const = default;
};

// c[i,j] = alpha * sum(k: a[i,k] * b[k,j]), for every point of the batch. Steps: of a (i, k), of b (k, j), of c (i, j), then those
// along the batch's axes.
struct MatrixProduct {
  int64_t rows = 1, columns = 1, terms = 1;
  std::vector<int64_t> batch;
  LibrarySide a, b, c;
  double alpha = 1;
};

// output[n, g*K+k, o] = alpha * sum(c, r: input[n, g*C+c, stride*o + dilation*r - pad] * filter[g*K+k, c, r]), where input is 0 outside.
// Kind: which of the three is computed of the other two. Steps: of input and output (images, channels, space), of filter
// (filters, channels, space).
struct Convolution {
  enum class Kind : uint8_t { forward, data, filter } kind = Kind::forward;
  struct Space {
    int64_t input = 1, filter = 1, output = 1;
    int64_t pad = 0, stride = 1, dilation = 1;
    bool flipped = false;  // filter[R-1-r] in the place of filter[r]
    bool operator==(const Space&) const = default;
  };
  int64_t images = 1, groups = 1, channels = 1, filters = 1;  // of each group
  std::vector<Space> space;
  LibrarySide input, filter, output;
  double alpha = 1;
};

using LibraryCall = std::variant<MatrixProduct, Convolution>;

// A body as factors, and how a product could be made of them.
struct Factors {
  double alpha = 1;
  std::vector<Id> factors;  // that are no numbers
};
Factors factors_of(const Arena& a, Id body);

// What a library does for it; none: it has no function for that.
std::optional<LibraryCall> library_call(const Program& p, const Definition& d, const DimValues& sizes);

TensorId result_of(const LibraryCall& call);
std::array<TensorId, 2> operands_of(const LibraryCall& call);
int64_t flops_of(const LibraryCall& call);
// For people: "product 512 x 512 x 1024, 8 times", "convolution of 8 images, 32 -> 64 channels, 28 by 3 pad 1, 28 by 3 pad 1".
std::string to_text(const LibraryCall& call);

namespace fusion {

// One of the two things read, its indices as numbers can be put in.
struct LibraryRead {
  TensorId tensor;
  DType type;
  std::vector<Id> indices;
  bool may_miss;  // 0 outside
};

// A sum of products of two reads, taken apart.
struct TwoReads {
  std::vector<AxisRange> left, reduced;
  Id condition;
  std::array<LibraryRead, 2> reads;
  double alpha;
};
std::optional<TwoReads> two_reads(const Program& p, const Definition& d);
std::optional<Convolution> convolution_of(const Program& p, TensorId target, const TwoReads& s, const DimValues& sizes);
std::optional<MatrixProduct> product_of(const Program& p, TensorId target, const TwoReads& s, const DimValues& sizes);
std::vector<int64_t> steps_of(const std::vector<int64_t>& shape);  // of a tensor without gaps

}  // namespace fusion
}  // namespace xhat
