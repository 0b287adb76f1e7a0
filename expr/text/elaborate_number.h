// Values during elaboration: typed nodes, and numbers that wait for a type.
//
// "Literals, and expressions of literals and dims only, take the other operand's type." An untyped value therefore
// carries both readings, as an i64 node (integers, which floor) and as an f64 node (folded in f64), and becomes a node
// of one type when it meets a typed operand. `1/2*x`: 1/2 is 0 as an integer and 0.5 as a float; x decides.
//
// What materialise() makes of the float reading, for type T: a constant keeps its f64 value; an expression of dims
// becomes Cast(T, the f64 expression); anything else (a select between literals, a sum of ones) is rebuilt in T.
#pragma once
#include <span>
#include <string>

#include "expr/core/expr.h"
#include "expr/text/ast.h"

namespace xhat {

// A scalar that a program named and that was untyped when it did (`half = N/2`) is f32, and beside integers the integer that was meant: it has
// all three.
struct Value {
  Id typed = kNone;     // set: the value has a type
  Id as_int = kNone;    // untyped: i64 reading; kNone where there is none, see no_int
  Id as_float = kNone;  // untyped: f64 reading
  std::string no_int = {};
  bool pure = false;  // made of literals and dims only
  bool untyped() const { return typed == kNone; }
  // What it is beside integers, and as an index.
  Value among_integers() const {
    Value v = *this;
    if (as_int != kNone) v.typed = kNone;
    return v;
  }
};

Value typed_value(Id node);
Value integer_value(Arena& a, int64_t v);
Value dim_value(Arena& a, Id dim);
Value literal_value(Arena& a, const ast::Node& number);

// The node of type t that an untyped value stands for; typed values are only cast. Sums of integers stay i64.
Id materialise(Arena& a, const Value& v, DType t, Pos pos);
// As an index, range or extent: i64 (or i32, if the value is).
Id as_index(Arena& a, const Value& v, Pos pos, const char* what);
// What a definition, or another place that gives no type, makes of it: untyped becomes f32.
Id settled(Arena& a, const Value& v, Pos pos);
Id as_condition(Arena& a, const Value& v, Pos pos, const char* what);

// `sign` is how the user wrote it, for messages.
Value apply_value(Arena& a, Op op, std::span<const Value> operands, Pos pos, const std::string& sign);
Value cast_value(Arena& a, DType t, const Value& v, Pos pos);
Value choose_value(Arena& a, const Value& condition, const Value& then, const Value& otherwise, Pos pos);
// sum prod max min any all argmax argmin mean.
Value reduce_value(Arena& a, const std::string& name, std::span<const AxisRange> axes, Id condition, const Value& body, Pos pos);

}  // namespace xhat
