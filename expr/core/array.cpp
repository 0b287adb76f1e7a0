#include "expr/core/array.h"

#include <algorithm>
#include <cmath>

#include "expr/core/error.h"
#include "expr/core/scalar.h"

namespace xhat {

int64_t element_count(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t extent : shape)
    if (__builtin_mul_overflow(n, extent, &n))
      throw Error("shape " + shape_text(shape) + " has too many elements");
  return n;
}

Array zeros(DType type, std::vector<int64_t> shape) {
  Array a;
  a.type = type;
  auto n = static_cast<size_t>(element_count(shape));
  a.shape = std::move(shape);
  if (a.real())
    a.reals.resize(n);
  else
    a.integers.resize(n);
  return a;
}

Array array_of(DType type, std::vector<int64_t> shape, std::vector<double> values) {
  if (static_cast<int64_t>(values.size()) != element_count(shape))
    throw Error("shape " + shape_text(shape) + " needs " + std::to_string(element_count(shape)) +
                " values, but " + std::to_string(values.size()) + " are given");
  Array a;
  a.type = type;
  a.shape = std::move(shape);
  if (a.real()) {
    a.reals = std::move(values);
  } else {
    a.integers.reserve(values.size());
    for (double v : values) a.integers.push_back(integer_from(DType::i64, v));
  }
  return a;
}

Array rounded(Array a) {
  for (double& v : a.reals) v = round_to(a.type, v);
  for (int64_t& v : a.integers) v = wrap_to(a.type, v);
  return a;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<int64_t> position_of(size_t i, std::span<const int64_t> shape) {
  std::vector<int64_t> position(shape.size());
  auto rest = static_cast<int64_t>(i);
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = rest % shape[d];
    rest /= shape[d];
  }
  return position;
}

bool all_finite(const Arrays& arrays) {
  return std::ranges::all_of(arrays, [](const auto& named) {
    return std::ranges::all_of(named.second.reals, [](double v) { return std::isfinite(v); });
  });
}

double rms(const Array& a) {
  double squares = 0;
  size_t finite = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(a.at(i))) {
      squares += a.at(i) * a.at(i);
      ++finite;
    }
  return finite ? std::sqrt(squares / static_cast<double>(finite)) : 0;
}

}  // namespace xhat
