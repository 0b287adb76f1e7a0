// Ops in C++ sources that are compiled ahead of time: xhat_add_op(TARGET SOURCES ops.cpp) links such sources to a generator, a program with the
// options of xhat build.
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
// The body is a function that returns a Program, built in any way: parse_op(text) and hvp(program) work too.
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

// The op of that name; for an empty name, the only op. Otherwise throws Error naming the registered ops.
Program registered_op(const std::string& name);

}  // namespace xhat
