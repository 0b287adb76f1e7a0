// A graph as a list: what has to be computed for some nodes, operands first, and the numbers that tell one graph from another.
//
// Derivatives are graphs of their own: of the loss, down to what it is derived by, through values that are realized already.
#pragma once
#include <memory>
#include <unordered_map>

#include "runtime/lazy/known_values.h"
#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

enum class Role : uint8_t {
  value,  // Item::node, of its operands
  leaf,   // memory; number: which of Walk::leaves
  cut,    // what a derivative is by; number: which of Derivative::wrt
  loss,   // the loss of a derivative that is computed as well; number: which of Graph::derivatives
  grad,   // number: which of Graph::derivatives; which: of its wrt
};

struct Item {
  Node* node;
  Role role = Role::value;
  uint32_t first = 0, count = 0;  // operands, in Graph::args
  uint32_t number = 0, which = 0;
  bool again = false;  // node is the origin of a value that is there, in a derivative
};

struct Derivative;
struct Graph {
  std::vector<Item> items;  // operands before those that use them
  std::vector<uint32_t> args;
  std::vector<uint32_t> roots;  // items
  std::vector<std::unique_ptr<Derivative>> derivatives;
  std::span<const uint32_t> args_of(const Item& i) const { return {args.data() + i.first, i.count}; }
};

struct Derivative {
  Node* loss;
  std::vector<Node*> constants;
  std::vector<Node*> wrt;           // none of them depends on another
  std::vector<uint32_t> wrt_items;  // where these stand in the graph that the derivative is used in
  Graph graph;                      // its items begin with one per wrt
};

struct Walk {
  Graph graph;
  std::vector<Node*> leaves;
  std::vector<Node*> numbers;         // constants, in order: the key has none of their values
  std::vector<Node*> roots;           // parallel to Graph::roots; the wanted ones come first
  std::vector<Structure> structures;  // per item of the graph
  uint64_t leaf_epoch = 0;            // Node::leaf_mark of the leaves
  bool reused = false;                // a node was found to be computed already, and reads that: walk again
  std::vector<uint64_t> key;
};

// Everything below the roots, and among the roots the assignments that are met and not yet done. Keeps notes in the nodes: under
// engine_mutex() only. assumed: nodes with this mark count as realized (0: none).
Walk walk(std::span<const NodePtr> roots, uint64_t assumed = 0);
// The number of a walk that marks nodes: a node with this mark has been seen.
uint64_t next_epoch();
// An assignment that its variable waits for.
bool is_pending(const Node& n);

}  // namespace xhat::lazy::detail
