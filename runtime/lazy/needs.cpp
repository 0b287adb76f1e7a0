#include "runtime/lazy/needs.h"

#include <unordered_set>

#include "runtime/lazy/graph.h"
#include "runtime/lazy/memory.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy::detail {
namespace {

// Marks all leaves that the value of a node is computed from, unless it is computed now.
class Search {
 public:
  explicit Search(const std::vector<Node*>& computed) : epoch_(next_epoch()) {
    for (Node* n : computed) n->need_mark = epoch_, n->need = false;
  }

  void from(const NodePtr& n) {
    open(n.get());
    while (!stack_.empty()) {
      const Node* next = stack_.back();
      stack_.pop_back();
      for (const NodePtr& a : next->args) open(a.get());
      // A derivative that is not there yet is computed from what the loss was computed from.
      if (next->kind == Kind::grad) past(next->args[0].get());
    }
  }

  bool found(const Node* leaf) const { return leaf->need_mark == epoch_ && leaf->need; }

 private:
  void open(Node* n) {
    if (n->need_mark == epoch_) return;
    n->need_mark = epoch_;
    n->need = n->realized();
    if (!n->realized()) stack_.push_back(n);
  }

  void past(Node* loss) {
    std::vector<Node*> stack = {loss};
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      if (!past_.insert(n).second) continue;
      const Node* as = n->realized() && n->origin ? n->origin.get() : n;
      if (n->realized() && (!n->origin || n->kept)) n->need_mark = epoch_, n->need = true;
      for (const NodePtr& a : as->args) stack.push_back(a.get());
    }
  }

  const uint64_t epoch_;
  std::vector<Node*> stack_;
  std::unordered_set<Node*> past_;
};

}  // namespace

std::vector<char> find_needed(const std::vector<Node*>& written, const std::vector<Node*>& computed,
                              const std::vector<std::vector<NodePtr>>& waiting) {
  Search search(computed);
  for_each_expression([&](const NodePtr& n) { search.from(n); });
  for (const auto& roots : waiting)
    for (const NodePtr& n : roots) search.from(n);
  std::vector<char> needed;
  for (const Node* n : written) needed.push_back(search.found(n));
  return needed;
}

uint64_t mark_dependents(Node* loss, std::span<Node* const> by, std::span<Node* const> constants) {
  const uint64_t epoch = next_epoch();
  for (Node* n : constants) n->need_mark = epoch, n->need = false;
  for (Node* n : by) n->need_mark = epoch, n->need = true;
  struct Visit {
    Node* node;
    Node* as;  // what its operands are those of: the node, or its origin
    size_t next = 0;
  };
  std::vector<Visit> stack;
  auto open = [&](Node* n) {
    if (n->need_mark == epoch) return;
    n->need_mark = epoch;
    n->need = false;
    if (n->kind == Kind::elementwise && n->op == Op::stop_gradient) return;
    if (n->forgotten)
      throw Error(
          "grad: the loss depends on an array that was realized long ago, by a chain of realized arrays, whose origin is not known any "
          "more; detach() it if it counts as a constant, or keep the chain lazy");
    stack.push_back({n, n->realized() && n->origin ? n->origin.get() : n});
  };
  open(loss);
  while (!stack.empty()) {
    Visit& v = stack.back();
    if (v.next < v.as->args.size()) {
      open(v.as->args[v.next++].get());
      continue;
    }
    for (const NodePtr& a : v.as->args) v.node->need |= a->need_mark == epoch && a->need;
    stack.pop_back();
  }
  return epoch;
}

void keep(Node& leaf) {
  auto own = new_storage(leaf.type, leaf.shape);
  copy_elements(own->view, leaf.storage->view);
  leaf.storage = std::move(own);
}

}  // namespace xhat::lazy::detail
