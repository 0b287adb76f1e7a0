// What a stored value tells of the expressions it was made from.
//
//   y = 1/(1+exp(-x))        exp(-x) is 1/y - 1
//   y = log(1+exp(x))        exp(x)/(1+exp(x)) is -expm1(-y)
//   y = x - m - log(s)       exp(x-m)/s is exp(y)
//   y = 2*sigmoid(2*x) - 1   sigmoid(2*x) is (y+1)/2
//   y = x^3                  x^2 is abs(y)^(2/3)
//   y = if c then u else 0   u is y where c holds
//
// Each is a pattern and how to get it from a read of y: a row below, not an equation solved in general. Where y comes
// about by adding a number to something small, y does not have its digits: whether a form is used is decided where it is, by
// a bound on the error (accuracy.h).
#pragma once
#include <functional>
#include <vector>

#include "cse/match/bodies.h"

namespace xhat {

// A forward value that backward expressions may read, as a pattern.
struct StoredValue {
  using Recipe = std::function<Product(const Product& read)>;  // the pattern, from a read of the tensor
  TensorId tensor = 0;
  std::vector<AxisRange> free;  // of the pattern, one per dimension of the tensor
  Product form;
  Recipe value;
  bool whole = false;      // every factor must be there; else divisors over fewer axes may be missing
  bool numerator = false;  // only where no read is left in a denominator: 1/y is inf where y is 0
  Id read = kNone;         // where the pattern is about one place: the read of it
  Id condition = kNone;    // over `free`: the pattern holds where it does
};

// The value itself first, then what it can stand for.
std::vector<StoredValue> stored_forms(TensorExprTree& tree, DType type, TensorId tensor, const std::vector<AxisRange>& free,
                                      const Product& form);
// The same of a part of the value, which is known by way of it.
std::vector<StoredValue> stored_forms(TensorExprTree& tree, DType type, TensorId tensor, const std::vector<AxisRange>& free,
                                      const Product& form, const StoredValue::Recipe& value);

}  // namespace xhat
