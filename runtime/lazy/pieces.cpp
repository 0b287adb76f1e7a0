#include "runtime/lazy/pieces.h"

namespace xhat::lazy::detail {
namespace {

// One kernel of 256 operations takes LLVM longer than four of 64: 0.9 s and 4 * 0.07 s, a fifth of them tanh.
constexpr size_t kElementsOnly = 4;

bool is_computed(const Item& item) { return item.role == Role::value && !is_free(item.node->kind); }

// Which piece each item is in.
std::vector<size_t> pieces_of(const Graph& g, size_t limit) {
  std::vector<size_t> piece;
  size_t current = 0, filled = 0;
  bool elements_only = true;
  for (const Item& item : g.items) {
    piece.push_back(current);
    if (!is_computed(item)) continue;
    elements_only &= item.node->kind == Kind::elementwise;
    if (++filled >= (elements_only ? limit / kElementsOnly : limit)) ++current, filled = 0, elements_only = true;
  }
  return piece;
}

}  // namespace

std::vector<std::vector<NodePtr>> read_by_later_pieces(const Graph& g, size_t limit) {
  const std::vector<size_t> piece = pieces_of(g, limit);
  std::vector<std::vector<NodePtr>> read(piece.back() + 1);
  std::vector<char> noted(g.items.size(), 0);
  std::vector<uint32_t> stack;
  for (size_t i = 0; i < g.items.size(); ++i) {
    if (g.items[i].role == Role::value && !is_computed(g.items[i])) continue;  // looked through, from what reads it
    stack.assign(g.args_of(g.items[i]).begin(), g.args_of(g.items[i]).end());
    while (!stack.empty()) {
      const uint32_t a = stack.back();
      const Item& item = g.items[a];
      stack.pop_back();
      if (item.role != Role::value) continue;
      if (!is_computed(item)) {
        stack.insert(stack.end(), g.args_of(item).begin(), g.args_of(item).end());
      } else if (piece[a] != piece[i] && !noted[a]) {
        noted[a] = 1;
        read[piece[a]].push_back(item.node->shared_from_this());
      }
    }
  }
  return read;
}

}  // namespace xhat::lazy::detail
