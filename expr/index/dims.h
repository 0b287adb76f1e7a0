// From sizes at hand to the values of a program's dims, and back to the shape of every tensor.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

using DimValues = std::map<std::string, int64_t>;
using Shapes = std::map<std::string, std::vector<int64_t>>;  // by tensor name

// The values of all dims of a program. A dim is solved from the first parameter extent that is linear in it
// alone (`2*C`, `H+1`), else taken from `given`, else solved from an extent in which all other dims are known
// (`G*C`), else computed from its definition. Then everything is
// checked: every extent of every shape that was handed in, given values against solved ones, extents >= 0,
// and the preconditions. input_shapes may lack tensors (nothing is solved from them) and may hold cotangents.
// Throws Error naming the op, the tensor, the dimension and both values.
DimValues solve_dims(const Program& p, const Shapes& input_shapes, const DimValues& given = {});

// Of an op that is called with arguments of these shapes. Dims that they leave open are the caller's of the same name.
DimValues dims_of_call(const Program& callee, const Shapes& arguments, const DimValues& caller);

// factor * dim + offset; dim kNone: a constant.
struct LinearExtent {
  Id dim = kNone;
  int64_t factor = 0;
  int64_t offset = 0;
};
// The extent as a linear function of one dim alone (`2*C+1`), if it is one: what a dim is solved from.
std::optional<LinearExtent> linear_form(const Arena& a, Id extent);

// Dims that no parameter's extent determines by itself and no definition computes: they must be given, but for one that shapes decide
// together (G of `G*C`, where C is known).
std::vector<std::string> free_dims(const Program& p);

// An i64 (or, for conditions, bool) expression over dims and constants, and axes whose values are given. Throws Error for a
// dim without a value, and where a value that the result depends on leaves 64 bits.
using AxisValues = std::unordered_map<Id, int64_t>;
int64_t evaluate_extent(const Arena& a, Id extent, const DimValues& dims, const AxisValues& axes = {});

// What a definition computes over a range that ends before it begins (0..N-1 at N = 0) has no elements.
std::vector<int64_t> shape_of(const Program& p, TensorId t, const DimValues& dims);
int64_t bytes_of(const Program& p, TensorId t, const DimValues& dims);

// The reads that are not proved in bounds for all sizes, but decided each time when sizes are known: "x[i*M+j] reads element
// i * M + j of x's dimension 0 (K)".
std::vector<std::string> open_reads(const Program& p);

// Small odd sizes, different ones where possible, that meet all preconditions; `given` ones are kept.
// Throws Error if none are found.
DimValues sample_dims(const Program& p, uint64_t seed, const DimValues& given = {});

// An error of the op, with the place where it is known.
Error op_error(const Program& p, const std::string& message, Pos pos = {});

std::string dims_text(const DimValues& dims);  // "N = 3, C = 5"

}  // namespace xhat
