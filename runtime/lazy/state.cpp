#include "runtime/lazy/state.h"

namespace xhat::lazy::detail {
namespace {

std::mutex& list_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
State* first_state = nullptr;

}  // namespace

std::recursive_mutex& engine_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

State::State() {
  std::lock_guard lock(list_mutex());
  after = first_state;
  if (after) after->before = this;
  first_state = this;
}

State::~State() {
  std::lock_guard lock(list_mutex());
  if (before)
    before->after = after;
  else
    first_state = after;
  if (after) after->before = before;
}

void for_each_expression(const std::function<void(const NodePtr&)>& f) {
  std::lock_guard lock(list_mutex());
  for (State* s = first_state; s; s = s->after)
    if (!s->base && (s->variable || s->node)) f(s->variable ? s->variable->current : s->node);
}

Array of_node(NodePtr node) {
  auto state = pooled<State>();
  state->node = std::move(node);
  return Array(std::move(state));
}

NodePtr& node_of(State& s) {
  if (s.variable) return s.variable->current;
  if (!s.base) return s.node;
  const NodePtr& below = node_of(*s.base);
  if (s.viewed != below) {
    s.node = moved(below, s.step.kind, s.step.shape, s.step.params);
    s.viewed = below;
  }
  return s.node;
}

const NodePtr& node_of(const Array& x) {
  if (!x.state()) throw Error("an empty xhat::lazy::Array has no value; it was never set");
  return node_of(*x.state());
}

Array view_of(const Array& x, Kind kind, const Shape& shape, Params params) {
  const Shape from = node_of(x)->shape;
  auto state = pooled<State>();
  state->base = x.state();
  state->step = {kind, from, shape, std::move(params)};
  return Array(std::move(state));
}

}  // namespace xhat::lazy::detail
