// Ops that a generator compiles ahead of time: xhat_add_op(TARGET SOURCES ops.cpp) links a source with such ops to a program of
// ours, which takes the options of xhat build.
//
//   #include "xhat.h"
//   using namespace xhat::dsl;
//
//   XHAT_OP(scaled_tanh) {
//     Op op("scaled_tanh");
//     Dim N("N");
//     Axis i("i");
//     Tensor x = op.input("x", f32, {N}), scale = op.input("scale", f32), y("y");
//     y(i) = scale * tanh(x(i));
//     op.output(y);
//     return op.build();
//   }
//
// The body is a function that returns a Program, however it comes by it: parse_op(text) and hvp(program) will do.
#pragma once
#include <string>
#include <vector>

#include "expr/core/program.h"

#define XHAT_OP(name)                                                                                           \
  static xhat::Program xhat_op_##name();                                                                        \
  static const bool xhat_has_op_##name = xhat::register_op({#name, __FILE__, __LINE__, &xhat_op_##name});        \
  static xhat::Program xhat_op_##name()

namespace xhat {

struct RegisteredOp {
  std::string name;
  const char* file;
  int line;
  Program (*make)();
};
bool register_op(const RegisteredOp& op);
const std::vector<RegisteredOp>& registered_ops();

// The op of that name; of none, the only one. Throws Error naming those that there are.
Program registered_op(const std::string& name);

}  // namespace xhat
