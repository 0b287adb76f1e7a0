// The graph that classic graph compilers fuse: whole-tensor ops with a kind each, numbered so that arguments precede their users, with
// edges from an op to its users.
//
//     a = exp(x); y = a + b     =>     0 x opaque, external: 2:elemwise
//                                      1 b opaque, external: 3:elemwise
//                                      2 a elemwise: 3:elemwise
//                                      3 y elemwise, external:
//
// An edge has the kind of the op it leads to; a broadcast of an argument that already has the result's shape is elementwise. An external
// node is also used where fusion cannot reach: parameters, results, values that a branch or a reference holds.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xhat::fusion {

// How an op's elements depend on its arguments' elements; the larger, the less can be fused.
enum class OpKind : uint8_t {
  elemwise = 0,     // the same place of every argument
  broadcast = 1,    // places in order, some axes left out
  injective = 2,    // one place per argument, anywhere: transpose, reshape, take, concat
  comm_reduce = 3,  // a sum, a maximum, ... of one place per step
  out_fusable = 4,  // a product, a convolution, a pooling: elementwise ops can follow in the same kernel
  tuple = 7,
  opaque = 8
};
std::string_view name_of(OpKind kind);

struct DataflowOp {
  enum class Form : uint8_t {
    parameter,
    constant,
    call,
    tuple,
    tuple_get,  // one field of its argument
    stop,       // a mark that no fusion crosses; computes nothing
    control     // a branch, a binding, a reference: its arguments are used from outside
  };
  std::string name;
  Form form = Form::call;
  OpKind kind = OpKind::opaque;    // of a call
  std::vector<size_t> args = {};   // positions in DataflowGraph::ops, smaller than its own
  std::vector<std::string> shape = {};  // extents as text; "?": known only at run time
  bool is_tensor = true;           // false: a reference, a function
  bool only_reshapes = false;
};

struct DataflowGraph {
  std::vector<DataflowOp> ops;
  std::vector<size_t> results;
};

struct ForwardEdge {
  size_t to;
  OpKind kind;
};

struct ForwardNode {
  size_t op = 0;  // in the dataflow graph
  OpKind kind = OpKind::opaque;
  bool external = false;
  std::vector<size_t> args;        // nodes, as the op names them
  std::vector<ForwardEdge> users;  // ascending
};

// Nodes in post-DFS order from the results, all parameters first. Ops that no result needs are left out.
struct ForwardGraph {
  const DataflowGraph* ops = nullptr;  // must outlive it
  std::vector<ForwardNode> nodes;
  const DataflowOp& op(size_t node) const { return ops->ops[nodes[node].op]; }
};

ForwardGraph forward_graph(const DataflowGraph& ops);

// A line per node: number, name, kind, "external", and its edges as number:kind.
std::string debug_dump(const ForwardGraph& graph);

}  // namespace xhat::fusion
