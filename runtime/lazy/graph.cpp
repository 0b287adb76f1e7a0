#include "runtime/lazy/graph.h"

#include <fmt/format.h>

#include <bit>

#include "runtime/lazy/kept.h"
#include "runtime/lazy/movement.h"
#include "runtime/lazy/needs.h"

namespace xhat::lazy::detail {
namespace {

class Walker {
 public:
  Walker(Walk& w, uint64_t assumed) : w_(w), leaf_epoch_(next_epoch()), assumed_(assumed) { w.leaf_epoch = leaf_epoch_; }

  void main(std::span<const NodePtr> roots) {
    // Losses come last: one that is derived anyway is not computed a second time.
    std::vector<Node*> order;
    for (const NodePtr& n : roots)
      if (n->kind == Kind::update && is_pending(*n) && n->args[0]->realized()) n->args[0]->parts_mark = leaf_epoch_;
    for (const NodePtr& n : roots)
      if (!n->is_loss) order.push_back(n.get());
    for (const NodePtr& n : roots)
      if (n->is_loss) order.push_back(n.get());
    const size_t items = w_.leaves.capacity();
    w_.graph.items.reserve(items);
    w_.graph.args.reserve(2 * items);
    w_.structures.reserve(items);
    w_.key.reserve(16 * items);
    collect(w_.graph, order, roots);
    for (uint32_t i = 0; i < w_.graph.items.size(); ++i) {
      Node* n = w_.graph.items[i].node;
      if (w_.graph.items[i].role == Role::value && is_pending(*n) && std::ranges::find(w_.roots, n) == w_.roots.end()) add_root(n, i);
    }
    describe(w_.graph);
  }

 private:
  void add_root(Node* n, uint32_t item) {
    w_.roots.push_back(n);
    w_.graph.roots.push_back(item);
  }
  bool is_leaf(const Node& n) const { return n.realized() || (assumed_ != 0 && n.assumed_mark == assumed_); }

  // A slice of memory is read as memory of its own: wherever it begins, it is the same program. Slices that are written in part are so
  // whatever their strides, so that what is written and what is read can be told apart.
  bool is_memory(const Node& n) const {
    if (!is_movement(n.kind)) return false;
    const Node* base = &n;
    bool sliced = true;
    for (; is_movement(base->kind); base = base->args[0].get()) sliced &= base->kind == Kind::slice || base->kind == Kind::reshape;
    if (!base->realized() || base->expired || (!sliced && base->parts_mark != leaf_epoch_)) return false;
    const auto v = alias_of(n);
    if (!v) return false;
    return base->parts_mark == leaf_epoch_ || v->rank == 0 || v->strides[static_cast<size_t>(v->rank) - 1] == 1;
  }

  // One visit of a node, whose operands are taken one after the other.
  struct Visit {
    Node* node;
    Node* as;  // what its operands are those of: the node, or its origin
    size_t next = 0;
  };

  void collect(Graph& g, const std::vector<Node*>& roots, std::span<const NodePtr> wanted) {
    const uint64_t epoch = next_epoch();
    for (Node* root : roots) {
      if (root->mark != epoch && root->is_loss && is_derived(g, root))
        add(g, root, epoch, {root, Role::loss, 0, 0, derived_, 0}), w_.structures.push_back({root->serial, 0});
      else
        visit(g, root, epoch, false);
    }
    for (const NodePtr& n : wanted) add_root(n.get(), n->index);
    for (auto& d : g.derivatives) {
      for (Node* by : d->wrt) d->wrt_items.push_back(by->index);
    }
    for (auto& d : g.derivatives) derive(*d);
  }

  bool is_derived(const Graph& g, const Node* loss) {
    for (size_t i = 0; i < g.derivatives.size(); ++i)
      if (g.derivatives[i]->loss == loss) return derived_ = static_cast<uint32_t>(i), true;
    return false;
  }

  void add(Graph& g, Node* n, uint64_t epoch, Item item) {
    n->mark = epoch;
    n->index = static_cast<uint32_t>(g.items.size());
    g.items.push_back(item);
  }

  static bool is_same_slice(const Node& n, const Node& o) {
    if (!is_movement(n.kind) || !is_movement(o.kind) || n.shape != o.shape) return false;
    const TensorView a = *alias_of(n), b = *alias_of(o);
    return a.data == b.data && a.type == b.type && std::equal(a.strides.begin(), a.strides.begin() + a.rank, b.strides.begin());
  }

  // Memory whose address somebody knows may hold something else each time: what was computed of it is never read instead.
  Structure memory_structure(const Node& n) const {
    if (n.realized()) return n.storage->exposed ? Structure{leaf_epoch_, n.serial} : structure_of(n, {});
    if (!is_movement(n.kind)) return structure_of(n, {});
    const Structure below = memory_structure(*n.args[0]);
    return structure_of(n, {&below, 1});
  }

  void leaf(Graph& g, Node* n, uint64_t epoch) {
    if (n->leaf_mark != leaf_epoch_) {
      n->leaf_mark = leaf_epoch_;
      n->leaf_index =
          static_cast<uint32_t>(std::ranges::find_if(w_.leaves, [&](const Node* o) { return is_same_slice(*n, *o); }) - w_.leaves.begin());
      if (n->leaf_index == w_.leaves.size()) w_.leaves.push_back(n);
    }
    if (n->expired)
      throw Error(
          "grad: an array that the loss was computed from has been assigned to since; take the gradient before, or compute the loss again");
    add(g, n, epoch, {n, Role::leaf, 0, 0, n->leaf_index, 0});
    note(g, *n, {});
  }

  // In the graph itself: what the node computes, and whether that is there already.
  void note(const Graph& g, Node& n, std::span<const uint32_t> operands) {
    if (&g != &w_.graph) return;
    below_.clear();
    for (uint32_t a : operands) below_.push_back(w_.structures[a]);
    w_.structures.push_back(operands.empty() && (n.realized() || is_movement(n.kind)) ? memory_structure(n) : structure_of(n, below_));
    if (n.realized() || is_free(n.kind) || known_values().empty()) return;
    const NodePtr same = known_values().find(w_.structures.back());
    if (!same || same.get() == &n || same->shape != n.shape) return;
    n.kind = Kind::reshape;
    n.args = {same};
    n.params.clear();
    n.program.reset();
    w_.reused = true;
  }

  // The operands that have to be there before a node can be added.
  static std::span<const NodePtr> below(const Node& n) {
    return n.kind == Kind::grad ? std::span<const NodePtr>(n.args).subspan(1) : std::span<const NodePtr>(n.args);
  }

  // In a derivative, realized values that depend on what it is by are computed again from their origin.
  void visit(Graph& g, Node* root, uint64_t epoch, bool in_derivative) {
    auto open = [&](Node* n) {
      if (n->mark == epoch) return;
      const bool again = in_derivative && n->realized() && n->need_mark == need_epoch_ && n->need && n->origin;
      const bool needed = in_derivative && n->need_mark == need_epoch_ && n->need;
      if (again) again_.push_back(n);
      if (!in_derivative && n->kind == Kind::grad) through_kept_(*n);
      if ((is_leaf(*n) && !again) || (!needed && is_memory(*n)))
        leaf(g, n, epoch);
      else
        stack_.push_back({n, again ? n->origin.get() : n});
    };
    const size_t bottom = stack_.size();
    open(root);
    while (stack_.size() > bottom) {
      Visit& v = stack_.back();
      const auto operands = below(*v.as);
      if (v.next < operands.size()) {
        open(operands[v.next++].get());
        continue;
      }
      const Visit done = v;
      stack_.pop_back();
      if (done.node->mark == epoch) continue;
      Item item{done.as};
      item.again = done.as != done.node;
      if (done.as->kind == Kind::grad) {
        item.role = Role::grad;
        std::tie(item.number, item.which) = derivative_of(g, done.as);
      }
      item.first = static_cast<uint32_t>(g.args.size());
      item.count = static_cast<uint32_t>(operands.size());
      for (const NodePtr& a : operands) g.args.push_back(a->index);
      add(g, done.node, epoch, item);
      note(g, *done.node, g.args_of(item));
    }
  }

  std::pair<uint32_t, uint32_t> derivative_of(Graph& g, const Node* n) {
    Node *loss = n->args[0].get(), *by = n->args[1].get();
    const auto constants = std::span<const NodePtr>(n->args).subspan(2);
    auto fits = [&](const Derivative& d) {
      return d.loss == loss && std::ranges::equal(d.constants, constants, {}, {}, [](const NodePtr& c) { return c.get(); });
    };
    for (uint32_t i = 0; i < g.derivatives.size(); ++i) {
      Derivative& d = *g.derivatives[i];
      if (!fits(d)) continue;
      const auto at = static_cast<size_t>(std::ranges::find(d.wrt, by) - d.wrt.begin());
      if (at == d.wrt.size()) {
        if (std::ranges::any_of(d.wrt, [&](Node* other) { return depends(by, other, d) || depends(other, by, d); })) continue;
        d.wrt.push_back(by);
      }
      return {i, static_cast<uint32_t>(at)};
    }
    g.derivatives.push_back(std::make_unique<Derivative>());
    Derivative& d = *g.derivatives.back();
    d.loss = loss;
    for (const NodePtr& c : constants) d.constants.push_back(c.get());
    d.wrt.push_back(by);
    return {static_cast<uint32_t>(g.derivatives.size() - 1), 0};
  }

  // Is the one computed from the other? What a derivative is by is cut off from what it was computed from.
  static bool depends(Node* n, const Node* other, const Derivative& d) {
    if (n->realized() && !n->origin) return false;
    const uint64_t epoch = next_epoch();
    for (Node* c : d.constants) c->seen_mark = epoch;
    std::vector<Node*> stack = {n};
    while (!stack.empty()) {
      Node* next = stack.back();
      stack.pop_back();
      if (next->seen_mark == epoch) continue;
      next->seen_mark = epoch;
      if (next == other) return true;
      const Node& as = next->realized() && next->origin ? *next->origin : *next;
      for (const NodePtr& a : as.args) stack.push_back(a.get());
    }
    return false;
  }

  void derive(Derivative& d) {
    need_epoch_ = mark_dependents(d.loss, d.wrt, d.constants);
    again_.clear();
    const uint64_t epoch = next_epoch();
    for (Node* by : d.wrt) add(d.graph, by, epoch, {by, Role::cut, 0, 0, static_cast<uint32_t>(d.graph.items.size()), 0});
    visit(d.graph, d.loss, epoch, true);
    learn(again_, need_epoch_);
    d.graph.roots = {d.loss->index};
    for (auto& inner : d.graph.derivatives)
      for (Node* by : inner->wrt) inner->wrt_items.push_back(by->index);
    for (auto& inner : d.graph.derivatives) derive(*inner);
  }

  void describe(const Graph& g) {
    auto& k = w_.key;
    k.push_back(g.items.size());
    for (const Item& i : g.items) {
      const Node& n = *i.node;
      const uint64_t what = i.role == Role::value ? static_cast<uint64_t>(n.kind) | static_cast<uint64_t>(n.op) << 8 : 0;
      k.push_back(what | static_cast<uint64_t>(n.type) << 16 | static_cast<uint64_t>(i.role) << 24 | static_cast<uint64_t>(i.count) << 32 |
                  static_cast<uint64_t>(i.role == Role::value ? n.params.size() : 0) << 48);
      for (uint32_t a : g.args_of(i)) k.push_back(a);
      if (i.role != Role::value) {
        k.push_back(static_cast<uint64_t>(i.number) << 32 | i.which);
        if (i.role != Role::leaf) continue;
      }
      if (i.role == Role::value)
        for (int64_t v : n.params) k.push_back(static_cast<uint64_t>(v));
      k.push_back(n.shape.size());
      k.insert(k.end(), n.shape.begin(), n.shape.end());
      if (i.role != Role::value) continue;
      if (n.kind == Kind::constant) w_.numbers.push_back(i.node);
      if (n.kind == Kind::call) k.push_back(std::bit_cast<uint64_t>(n.program.get()));
      for (const ViewStep& s : n.views) {
        k.push_back(static_cast<uint64_t>(s.kind));
        for (int64_t v : s.params) k.push_back(static_cast<uint64_t>(v));
        k.insert(k.end(), s.shape.begin(), s.shape.end());
      }
    }
    k.insert(k.end(), g.roots.begin(), g.roots.end());
    for (const auto& d : g.derivatives) {
      k.insert(k.end(), d->wrt_items.begin(), d->wrt_items.end());
      describe(d->graph);
    }
  }

  Walk& w_;
  const uint64_t leaf_epoch_, assumed_;
  uint64_t need_epoch_ = 0;
  uint32_t derived_ = 0;
  std::vector<Visit> stack_;
  std::vector<Structure> below_;
  std::vector<Node*> again_;  // of the derivative that is looked at: realized, and computed once more
  ThroughKept through_kept_;
};

}  // namespace

uint64_t next_epoch() {
  static uint64_t epoch = 0;
  return ++epoch;
}

bool is_pending(const Node& n) {
  if (n.kind != Kind::assign && n.kind != Kind::update) return false;
  const auto v = n.variable.lock();
  return v && v->current.get() == &n;
}

Walk walk(std::span<const NodePtr> roots, uint64_t assumed) {
  constexpr size_t kExpected = 128;  // nodes of a step of a small model: no vector has to grow
  Walk w;
  w.leaves.reserve(kExpected);
  Walker(w, assumed).main(roots);
  return w;
}

}  // namespace xhat::lazy::detail
