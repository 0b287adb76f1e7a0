// A tensor's values on the host: what the evaluator reads and writes, whatever the declared type.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "expr/core/dtype.h"

namespace xhat {

// Row-major. Floats of every width stand in reals, integers and bools in integers; the other vector is empty.
struct Array {
  DType type = DType::f32;
  std::vector<int64_t> shape;  // empty: a scalar, one element
  std::vector<double> reals;
  std::vector<int64_t> integers;

  bool real() const { return is_float(type); }
  size_t size() const { return real() ? reals.size() : integers.size(); }
  double at(size_t i) const { return real() ? reals[i] : static_cast<double>(integers[i]); }
  bool operator==(const Array&) const = default;  // by value: NaN differs from itself
};

using Arrays = std::map<std::string, Array>;  // by tensor name

int64_t element_count(std::span<const int64_t> shape);

// Filled with zeros.
Array zeros(DType type, std::vector<int64_t> shape);
// Values as given, neither rounded nor wrapped. Throws Error unless there are as many as the shape says.
Array array_of(DType type, std::vector<int64_t> shape, std::vector<double> values);
inline Array scalar_of(DType type, double value) { return array_of(type, {}, {value}); }
// Every value rounded or wrapped to the array's own type.
Array rounded(Array a);
// Root of the mean square of the finite elements; 0 if there are none.
double rms(const Array& a);
bool all_finite(const Arrays& arrays);  // no NaN, no infinity

std::string shape_text(std::span<const int64_t> shape);  // "[3,4]"
// The position of the i-th element: {i / 4, i % 4} in [3,4].
std::vector<int64_t> position_of(size_t i, std::span<const int64_t> shape);

}  // namespace xhat
