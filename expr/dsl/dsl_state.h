// What the handles of expr/dsl/dsl.h and prog.h share. Private to expr/dsl.
//
// Ownership is shared and acyclic: nodes own their children and the tensors that they read, tensors own their
// definition. (Access::define refuses a definition that reads its own tensor, and a call holds the tree of
// its op, not the op.) Chains may be long, so nodes are freed by a loop, not by destructors that call each
// other.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "expr/dsl/dsl.h"

namespace xhat::dsl::detail {

struct DimState {
  std::string name;
  NodePtr definition;
  Where where;
};

struct Node {
  ast::Kind kind = ast::Kind::name;
  std::string text;
  struct Axis {
    std::string name;
    bool ranged;
  };
  std::vector<Axis> axes;  // reduce
  // In the order of the text: (begin, end) per ranged axis, the condition, the arguments, the value outside.
  mutable std::vector<NodePtr> children;
  size_t arg_count = 0;
  bool has_condition = false;
  bool has_otherwise = false;
  bool is_axis = false;
  std::shared_ptr<TensorState> tensor;  // read, or named
  std::shared_ptr<DimState> dim;        // a dim with a definition
  std::shared_ptr<const ast::File> callee;  // a call in an expression of a program
  bool absent = false;                      // what is left out, as a bound of a slice
  std::shared_ptr<const std::string> program;  // a variable of this one

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
};

struct CallState {
  std::shared_ptr<const ast::File> callee;
  std::string name;
  std::vector<NodePtr> arguments;
  std::vector<std::string> results;
};

struct TensorState {
  enum class Role : uint8_t { undefined, input, defined, result, cotangent } role = Role::undefined;
  std::string name;
  Where where;                   // of its definition; before there is one, of its name
  DType type = DType::f32;       // input
  std::vector<NodePtr> extents;  // input
  bool constant = false;         // input
  struct Axis {
    std::string name;
    NodePtr begin, end;
  };
  std::vector<Axis> axes;           // defined
  NodePtr body;                     // defined
  std::shared_ptr<CallState> call;  // result

  TensorState() = default;
  TensorState(const TensorState&) = delete;
  TensorState& operator=(const TensorState&) = delete;
  ~TensorState();

  // The expressions of its definition, in the order of the text.
  std::vector<NodePtr> parts() const;
  const char* role_text() const;
};

// Makes a node of these arguments.
NodePtr make_node(ast::Kind kind, std::string text, std::vector<NodePtr> args);
// "main.cpp:14: ", or nothing where the place is not known.
std::string prefix(const Where& where);
// Throws Error where the name is none: "an axis", "1x".
void check_name(const std::string& what, const std::string& name);

struct OpState {
  std::string name;
  Where where;
  std::vector<std::shared_ptr<TensorState>> inputs, outputs;
  using Pair = std::pair<std::shared_ptr<TensorState>, std::shared_ptr<TensorState>>;
  std::vector<Pair> cotangents;  // (output, cotangent)
  std::vector<Pair> gradients;   // (input, gradient)
};

}  // namespace xhat::dsl::detail
