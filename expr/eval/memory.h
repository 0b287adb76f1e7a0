// Values of the interpreter (expr/eval/interpret.h): views of memory that others may share.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expr/core/array.h"
#include "expr/core/expr.h"

namespace xhat::memory {

// Elements of an array, listed: whatever view of whatever view, it is a list of places. What is computed has an array of its own.
struct View {
  std::shared_ptr<Array> memory;
  std::vector<int64_t> shape;
  std::vector<size_t> places;  // in memory, by position in row-major order
  bool weak = false;           // made of literals and dims only: takes the other operand's type

  DType type() const { return memory->type; }
  size_t rank() const { return shape.size(); }
  int64_t elements() const { return static_cast<int64_t>(places.size()); }
  bool is_scalar() const { return shape.empty(); }
};

View fresh(DType type, std::vector<int64_t> shape);
View of(Array a);
View scalar_view(DType type, double value);
View integer_view(int64_t value);
View boolean_view(bool value);
View weak_view(double value);
View literal(const std::string& text, bool integers);  // a number as it is written; of digits only, it may be an integer

int64_t integer_of(const View& scalar);  // of an integer type, bool, or a weak number
Array array_of(const View& v);           // a copy

// Both as the type that they meet in; a weak one takes the other's. Throws Error for an integer beside a float.
void to_common_type(View& a, View& b);
View to_type(const View& v, DType type);

Op infix(const std::string& sign);  // the operator that is written so; > and >= are < and <= turned around

// Views of the same memory. Negative indices count from the end.
View selected(const View& v, size_t dimension, int64_t index);
View element(const View& v, size_t position);  // in row-major order
View sliced(const View& v, size_t dimension, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step);
View transposed(const View& v, int64_t i, int64_t j);
View squeezed(const View& v, int64_t i);
View unsqueezed(const View& v, int64_t i);
View expanded(const View& v, std::vector<int64_t> shape);  // by trailing dimensions; -1: as it is
View diagonal(const View& v);
View reshaped(const View& v, std::vector<int64_t> shape);  // -1: what is left

std::vector<int64_t> broadcast_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
// An operation of ops.def, element by element, operands broadcast and of one type.
View apply(Op op, std::vector<View> operands);
// A function of numbers, element by element, operands broadcast.
View at_each_point(DType type, const std::vector<View>& operands, const std::function<View(const std::vector<View>&)>& function);
View choose(const View& condition, const View& then, const View& otherwise);
// A reduction of the language over these numbers, in order; argmax and argmin count from `first`. Of none, what they would be
// of may be known.
View reduced(const std::string& reduction, const std::vector<View>& values, int64_t first, std::optional<DType> of_none = {});

View concatenated(size_t dimension, const std::vector<View>& parts);
View flipped(const View& v, size_t dimension);
View rolled(const View& v, size_t dimension, int64_t by);  // element i comes from i - by, around the end
// Overwrites the elements of `to`; `from` is broadcast, and copied first where it may share memory.
void write(const View& to, const View& from);

}  // namespace xhat::memory
