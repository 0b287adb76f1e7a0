// The end of the DSL's nodes, and what tensors say of themselves.
#include "expr/dsl/dsl_state.h"

namespace xhat::dsl::detail {
namespace {

void move_to(std::vector<NodePtr>& work, std::vector<NodePtr>& from) {
  for (NodePtr& node : from) work.push_back(std::move(node));
  from.clear();
}

void move_definition_to(std::vector<NodePtr>& work, TensorState& tensor) {
  move_to(work, tensor.extents);
  for (TensorState::Axis& axis : tensor.axes) {
    if (axis.begin) work.push_back(std::move(axis.begin));
    if (axis.end) work.push_back(std::move(axis.end));
  }
  if (tensor.body) work.push_back(std::move(tensor.body));
  if (tensor.call && tensor.call.use_count() == 1) move_to(work, tensor.call->arguments);
}

// Frees nodes without recursion: a node that is about to die hands its children over first.
void release(std::vector<NodePtr> work) {
  while (!work.empty()) {
    NodePtr node = std::move(work.back());
    work.pop_back();
    if (node.use_count() > 1) continue;
    move_to(work, node->children);
    if (node->tensor && node->tensor.use_count() == 1) move_definition_to(work, *node->tensor);
  }
}

}  // namespace

Node::~Node() {
  std::vector<NodePtr> work = std::move(children);
  if (tensor && tensor.use_count() == 1) move_definition_to(work, *tensor);
  release(std::move(work));
}

TensorState::~TensorState() {
  std::vector<NodePtr> work;
  move_definition_to(work, *this);
  release(std::move(work));
}

std::vector<NodePtr> TensorState::parts() const {
  std::vector<NodePtr> result;
  for (const Axis& axis : axes) {
    if (axis.begin) result.insert(result.end(), {axis.begin, axis.end});
  }
  if (body) result.push_back(body);
  if (call) result.insert(result.end(), call->arguments.begin(), call->arguments.end());
  return result;
}

const char* TensorState::role_text() const {
  switch (role) {
    case Role::undefined: return "undefined";
    case Role::input: return "an input";
    case Role::defined: return "defined";
    case Role::result: return "a call's result";
    case Role::cotangent: return "a cotangent";
  }
  throw Bug("unknown role of a tensor");
}

}  // namespace xhat::dsl::detail
