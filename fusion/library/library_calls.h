// Definitions that a library has a function for: products of matrices (cuBLAS) and convolutions (cuDNN).
//
//   y[b,i,j] = 0.125 * sum(k: x[b,i,k] * w[j,k])                    alpha * X * W^T, for every b
//   y[n,k,i] = sum(c,r: x[n,c,2*i+r-1 else 0] * w[k,c,r])           a convolution, stride 2, padding 1
//   grad_x[n,c,h] = sum(k, i in h/2..(h+1)/2+1: dy[n,k,i] * w[k,c,h-2*i+1])        the same one, by its data
//   grad_w[k,c,r] = sum(n,i: dy[n,k,i] * x[n,c,2*i+r-1 else 0])                    and by its filter
//
// The planner calls a sum a product by two of its axes (Shape::product). A library also needs all elements at places that strides give.
// For axes that share an index (i and r in 2*i+r-1), the triples of places that meet are listed and compared with those of each
// convolution, so a convolution is found however it is written. Sizes are numbers here. Operands must be tensors: library_operands.h
// materializes operands that are expressions.
#pragma once
#include <array>
#include <optional>

#include "expr/core/program.h"
#include "expr/index/dims.h"
#include "fusion/library/library_call.h"

namespace xhat {

// A body as a number times factors.
struct Factors {
  double alpha = 1;
  std::vector<Id> factors;  // all that are not numbers
};
Factors factors_of(const Arena& a, Id body);

// The library call that computes this definition; none: no function does.
std::optional<LibraryCall> library_call(const Program& p, const Definition& d, const DimValues& sizes);

namespace fusion {

// One of the two reads; its indices take axis values as numbers.
struct LibraryRead {
  TensorId tensor;
  DType type;
  std::vector<Id> indices;
  bool may_miss;  // the read is 0 outside of its tensor
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
std::vector<int64_t> steps_of(const std::vector<int64_t>& shape);  // row-major steps of a tensor without gaps, in elements

}  // namespace fusion
}  // namespace xhat
