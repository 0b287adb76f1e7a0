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
      if (n->realized() && !n->origin) n->need_mark = epoch_, n->need = true;
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

void keep(Node& leaf) {
  auto own = new_storage(leaf.type, leaf.shape);
  copy_elements(own->view, leaf.storage->view);
  leaf.storage = std::move(own);
}

}  // namespace xhat::lazy::detail
