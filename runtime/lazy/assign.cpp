#include "runtime/lazy/assign.h"

#include "runtime/lazy/graph.h"
#include "runtime/lazy/movement.h"

namespace xhat::lazy::detail {
namespace {

// From the memory of the whole to that of the part that an update writes; none if strides cannot say it.
std::optional<TensorView> part_of(const TensorView& whole, const std::vector<ViewStep>& views) {
  TensorView v = whole;
  for (const ViewStep& s : views)
    if (!step_view(v, s.kind, s.shape, s.params)) return std::nullopt;
  return v;
}

}  // namespace

void claim(State& s) {
  if (s.variable || s.base || !s.node || !s.node->realized() || s.node->storage->claimed || s.node->expired) return;
  s.node->storage->claimed = true;
  s.variable = std::make_shared<Variable>();
  s.variable->storage = s.node->storage;
  s.variable->current = s.variable->memory = std::move(s.node);
}

void assign_value(State& s, const NodePtr& value, const Site& site) {
  std::lock_guard lock(engine_mutex());
  State* root = &s;
  std::vector<ViewStep> views;
  for (; root->base; root = root->base.get()) {
    if (root->step.kind == Kind::expand) fail(site, "several elements of an expanded view are one element; assign to what it views");
    views.insert(views.begin(), root->step);
  }
  claim(*root);
  const NodePtr old = node_of(*root);
  NodePtr n = value;
  if (!views.empty()) {
    n = make(Kind::update, old->type, old->shape, {old, value});
    n->views = std::move(views);
  } else if (root->variable) {
    n = make(Kind::assign, old->type, old->shape, {root->variable->memory, value});
  }
  if (!root->variable) {
    root->node = n;
    return;
  }
  if (!root->variable->storage->view.writable) fail(site, "the memory of this array can only be read");
  n->variable = root->variable;
  root->variable->current = n;
}

Target target_of(const Node& n) {
  Target t;
  if (!is_pending(n)) return t;
  t.variable = n.variable.lock();
  t.view = t.variable->storage->view;
  if (n.kind != Kind::update || n.args[0] != t.variable->memory) return t;
  if (const auto part = part_of(t.view, n.views)) t.view = *part, t.part = true;
  return t;
}

}  // namespace xhat::lazy::detail
