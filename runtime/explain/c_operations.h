// How each row of ops.def is written in C.
#pragma once
#include "expr/core/expr.h"

namespace xhat {

// Precedences of C, the larger the tighter.
enum : int {
  kTernary = 3,
  kOr = 4,
  kAnd = 5,
  kBitOr = 6,
  kBitXor = 7,
  kBitAnd = 8,
  kEqual = 9,
  kLess = 10,
  kSum = 12,
  kProduct = 13,
  kUnary = 15
};

struct COperation {
  Op op;
  const char* real;     // of floats: {0}, {1}, {2} operands, {T} the type
  const char* integer;  // of data; null: as for floats
  int precedence = 20;
};
const COperation& c_operation(Op op);

}  // namespace xhat
