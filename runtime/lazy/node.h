// What lazy arrays are made of: nodes, which say how a value is computed, and the memory of those that are there already.
//
// A node does not change once it is made, but for one thing: when its value is computed, it becomes a leaf, which reads memory. What it was
// is then its `origin`, for gradients that are asked for later. Nodes point to their operands, so a graph lives as long as somebody needs
// its results.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "expr/core/program.h"
#include "runtime/lazy/block_pool.h"
#include "runtime/lazy/location.h"
#include "runtime/lazy/shape.h"
#include "runtime/lazy/small_vector.h"

namespace xhat::lazy::detail {

enum class Kind : uint8_t {
  leaf,         // Node::storage
  constant,     // Node::value or Node::integer, at every position
  iota,         // i64: the number of the element in row-major order
  elementwise,  // Node::op of the operands, which broadcast
  size_of,      // Node::type: the product of the operand's extents of dimensions params
  reduce,       // Node::op over dimensions params, which the result lacks
  reshape,      // same elements in row-major order
  permute,      // dimension d is the operand's params[d]
  expand,       // extents of 1 become others; the ranks are equal
  slice,        // per dimension: begin, step, is begin counted from the end (1), does it reach the end (1)
  pad,          // per dimension: elements before, elements after; value: operand 1, a scalar
  concat,       // along dimension params[0]
  take,         // operand 0 along dimension params[0] at the indices of operand 1, whose dimensions stand in its place
  gather,       // operand 0 along dimension params[0] at the indices of operand 1, which has the result's shape
  contract,  // einsum: sum of the products of the operands. params: letters of the result, then of each operand, each with its length first
  conv,      // x[n,c,...], w[o,c/groups,...]; params: groups, then per spatial dimension: stride, padding, dilation
  window,    // Node::op over windows of the last dimensions; params: per such dimension: size, stride, padding, dilation
  call,      // result params[0] of an op, applied to the operands; is_undone(): a gradient of a program whose loops stay
  contiguous,  // the operand, computed by itself and kept
  assign,      // operand 0, which becomes the variable's value
  update,      // operand 0 with operand 1 in place of a part, which `views` says
  grad,        // the derivative of operand 0, a scalar, by operand 1; further operands count as constants
};

uint64_t next_serial();

struct Node;
using NodePtr = std::shared_ptr<Node>;
using NodeList = SmallVector<NodePtr, 3>;
using Params = SmallVector<int64_t, 6>;

// Memory of one value, ours or the caller's.
struct Storage {
  TensorView view;
  std::shared_ptr<void> owner;
  bool claimed = false;  // a variable has it
  bool exposed = false;  // somebody outside knows the address: the caller, or who asked for a view
};

// An array that can be assigned to: memory, and the node that says what it holds now, or will hold when that is realized.
struct Variable {
  std::shared_ptr<Storage> storage;
  NodePtr current;
  NodePtr memory;  // the leaf of what the memory holds
};

struct Kept;     // runtime/lazy/kept.h
struct MadeHow;  // runtime/lazy/kept.h

// One step from an array to a view of it.
struct ViewStep {
  Kind kind;
  Shape from, shape;
  Params params;
};

struct Node : std::enable_shared_from_this<Node> {
  Kind kind = Kind::constant;
  Op op = Op::constant;
  DType type = DType::f32;
  bool weak = false;       // a number of the host language: takes the other operand's type
  bool is_loss = false;    // somebody asked for its derivatives
  bool expired = false;    // a leaf whose memory holds something else by now
  bool forgotten = false;  // a leaf whose origin was let go
  int generation = 0;      // how many realized nodes stand one behind the other in the origin
  Shape shape;
  NodeList args;
  Params params;
  double value = 0;
  int64_t integer = 0;
  std::shared_ptr<Storage> storage;
  std::weak_ptr<Variable> variable;  // assign, update
  std::vector<ViewStep> views;       // update: from operand 0 to the part
  NodePtr origin;
  // Realized: what the program that computed it kept for derivatives, and which of those results it is; how it was found.
  std::shared_ptr<Kept> kept;
  std::shared_ptr<const MadeHow> made;
  uint32_t kept_as = 0, made_as = 0;
  std::shared_ptr<const Program> program;  // call

  // Notes of walks over graphs, valid while an epoch lasts (runtime/lazy/graph.h).
  const uint64_t serial = next_serial();  // told apart from nodes that were at this address before
  uint64_t mark = 0, leaf_mark = 0, need_mark = 0, assumed_mark = 0, parts_mark = 0, seen_mark = 0;
  uint32_t index = 0, leaf_index = 0;
  bool need = false;

  Node();
  ~Node();
  Node(const Node& other);  // all but the notes and the serial
  Node& operator=(const Node&) = delete;

  bool realized() const { return kind == Kind::leaf; }
};

// The gradient by input params[0] of a call that runs by itself. Operands: the call's, its results, a cotangent per float result; what the
// call left for it is Node::kept.
inline bool is_undone(const Node& n) { return n.kind == Kind::call && n.params.size() == 2; }
// A call of a program whose loops or branches stay, or its gradient: these run by themselves.
inline bool has_loops(const Node& n) { return n.kind == Kind::call && n.program->steps != nullptr; }

inline bool is_movement(Kind k) { return k == Kind::reshape || k == Kind::permute || k == Kind::expand || k == Kind::slice; }
// Costs nothing wherever it is used: index maps, constants and memory.
inline bool is_free(Kind k) { return is_movement(k) || k == Kind::leaf || k == Kind::constant || k == Kind::iota || k == Kind::size_of; }

// Where a call stands in the caller's program.
struct Site {
  const char* call;
  Location at;
};
// "model.cpp:12: matmul: shapes [2,3] and [4,5]: …"
[[noreturn]] void fail(const Site& site, const std::string& what);
std::string file_and_line(const Location& at);

NodePtr make(Kind kind, DType type, const Shape& shape, NodeList args, Params params = {});
NodePtr constant(DType type, double value, const Shape& shape = {});
NodePtr constant_integer(DType type, int64_t value, const Shape& shape = {});
NodePtr iota(const Shape& shape);
NodePtr leaf(std::shared_ptr<Storage> storage);
int64_t living_nodes();
bool is_number(const NodePtr& n, double value);  // a constant of that value

}  // namespace xhat::lazy::detail
