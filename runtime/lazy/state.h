// What an Array is a handle of, and the list of all of them that are expressions: before memory is written over, those that still need
// what it holds are found through it.
#pragma once
#include <functional>
#include <mutex>

#include "runtime/lazy/array.h"
#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

struct State {
  NodePtr node;                        // an expression; a view: what was made of `viewed` last
  std::shared_ptr<Variable> variable;  // set: an array with memory
  std::shared_ptr<State> base;         // set: a view of that array
  ViewStep step;
  NodePtr viewed;

  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

 private:
  friend void for_each_expression(const std::function<void(const NodePtr&)>&);
  State *before = nullptr, *after = nullptr;
};

// Held while values are computed and memory changes hands.
std::recursive_mutex& engine_mutex();
// The nodes of all living arrays that are no views.
void for_each_expression(const std::function<void(const NodePtr&)>& f);

Array of_node(NodePtr node);
// The node of what the array stands for now.
const NodePtr& node_of(const Array& x);
NodePtr& node_of(State& s);
Array view_of(const Array& x, Kind kind, const Shape& shape, Params params);

// The node that a step of movement makes; folds movement of movement, and movement of constants.
NodePtr moved(const NodePtr& x, Kind kind, const Shape& shape, Params params);

// Elements of one operation: types promoted, shapes broadcast, constants and neutral operands folded.
NodePtr elementwise(Op op, NodeList operands, const Site& site);
NodePtr cast_node(const NodePtr& x, DType type);
NodePtr expanded(const NodePtr& x, const Shape& shape);  // broadcast to shape, which it must fit
// The shape that operands broadcast to; none where they do not.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);
// An axis in [0, rank), counted from the end where negative.
size_t axis_of(int64_t axis, size_t rank, const Site& site);

}  // namespace xhat::lazy::detail
