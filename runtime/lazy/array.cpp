// Arrays to begin with, and what an array can be asked.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iostream>

#include "runtime/lazy/assign.h"
#include "runtime/lazy/functions.h"
#include "runtime/lazy/memory.h"
#include "runtime/lazy/movement.h"
#include "runtime/lazy/options.h"
#include "runtime/lazy/realize.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy {

using namespace detail;

namespace {

Array variable(std::shared_ptr<Storage> storage) {
  auto state = pooled<State>();
  state->variable = std::make_shared<Variable>();
  state->variable->storage = storage;
  storage->claimed = true;
  state->variable->current = state->variable->memory = leaf(std::move(storage));
  return Array(std::move(state));
}

TensorView memory_of(const Array& realized) {
  const auto v = alias_of(*node_of(realized));
  if (!v) throw Bug("an array without memory after it was realized");
  return *v;
}

}  // namespace

Options& options() {
  static auto* held = new Options;
  return *held;
}

Array array(const TensorView& memory, std::shared_ptr<void> owner) {
  auto storage = pooled<Storage>();
  storage->view = memory;
  storage->owner = std::move(owner);
  storage->exposed = true;
  return variable(std::move(storage));
}

Array array_of(const TensorView& values, const Shape& shape, const Location& at) {
  if (values.elements() != shape.elements()) fail({"array", at}, fmt::format("{} numbers for shape {}", values.elements(), text(shape)));
  auto storage = new_storage(values.type, shape);
  TensorView flat = storage->view;
  flat.rank = values.rank;
  flat.shape = values.shape;
  int64_t step = 1;
  for (auto d = static_cast<size_t>(flat.rank); d-- > 0;) flat.strides[d] = step, step *= flat.shape[d];
  copy_elements(flat, values);
  return variable(std::move(storage));
}

namespace {

const Shape& checked(const char* call, const Shape& shape) {
  for (int64_t extent : shape)
    if (extent < 0) throw Error(fmt::format("{}: an extent of {} in shape {}; extents are 0 or more", call, extent, text(shape)));
  return shape;
}

}  // namespace

Array full(const Shape& shape, double value, DType type) { return of_node(constant(type, value, checked("full", shape))); }

Array arange(int64_t end, DType type) { return of_node(cast_node(iota({std::max<int64_t>(end, 0)}), type)); }

Array arange(double begin, double end, double step, DType type) {
  if (!std::isfinite(begin) || !std::isfinite(end) || !std::isfinite(step) || step == 0)
    throw Error(fmt::format("arange: from {} to {} by {}; all are finite, and the step is not 0", begin, end, step));
  const auto count = static_cast<int64_t>(std::max(0.0, std::ceil((end - begin) / step)));
  const Array steps = arange(count, type);
  return steps * full({}, step, type) + full({}, begin, type);
}

Array random(const Array& seed, const Shape& shape, DType type) {
  const Array operands[] = {cast(seed, DType::i64), of_node(iota(checked("random", shape)))};
  return cast(function("random", operands), type);
}

void detail::ragged_numbers(const Location& at) { fail({"array", at}, "the rows of the numbers given differ in length"); }

Array Array::of_float(double value) {
  NodePtr n = detail::constant(DType::f32, 0);
  n->value = value;  // not rounded until it meets an operand that has a type
  n->type = DType::f64;
  n->weak = true;
  return of_node(std::move(n));
}

Array Array::of_integer(int64_t value, bool is_bool) {
  NodePtr n = constant_integer(is_bool ? DType::boolean : DType::i64, value);
  n->weak = true;
  return of_node(std::move(n));
}

const Shape& Array::shape() const { return node_of(*this)->shape; }
int64_t Array::size(int dimension) const { return shape()[axis_of(dimension, shape().size(), {"size", Location::current()})]; }
DType Array::dtype() const {
  const NodePtr& n = node_of(*this);
  return n->weak && is_float(n->type) ? DType::f32 : n->type;
}
bool Array::is_realized() const { return alias_of(*node_of(*this)).has_value(); }

const Array& Array::realize() const {
  lazy::realize(std::span<const Array>(this, 1));
  return *this;
}

double Array::number_at(const Location& at) const {
  if (elements() != 1) fail({"item", at}, fmt::format("shape {} has more than one element", text(shape())));
  realize();
  double value = 0;
  copy_elements(TensorView(&value, std::span<const int64_t>()), scalar_view(memory_of(*this)));
  return value;
}

TensorView Array::view() const {
  realize();
  // Who has the address may write there: an expression whose value is another array's memory gets memory of its own.
  if (!state_->variable && !state_->base) {
    auto own = new_storage(dtype(), shape());
    copy_elements(own->view, memory_of(*this));
    own->claimed = true;
    state_->variable = std::make_shared<Variable>();
    state_->variable->storage = own;
    state_->variable->current = state_->variable->memory = leaf(std::move(own));
    state_->node = nullptr;
  }
  const Node* n = node_of(*this).get();
  while (!n->realized() && !n->args.empty()) n = n->args[0].get();
  if (n->storage) n->storage->exposed = true;
  return memory_of(*this);
}

void Array::to(const TensorView& memory, const Location& at) const {
  const Site site{"to", at};
  if (!std::ranges::equal(memory.extents(), shape()) || memory.type != dtype())
    fail(site, fmt::format("memory of {}{} for an array of {}{}", name_of(memory.type), text(Shape(memory.extents())), name_of(dtype()),
                           text(shape())));
  copy_to(memory);
}

void Array::copy_to(const TensorView& memory) const {
  realize();
  if (elements() > 0) copy_elements(memory, memory_of(*this));
}

const Array& Array::operator+=(const Array& other) const { return assign(*this + other); }
const Array& Array::operator-=(const Array& other) const { return assign(*this - other); }
const Array& Array::operator*=(const Array& other) const { return assign(*this * other); }
const Array& Array::operator/=(const Array& other) const { return assign(*this / other); }

Array Array::reshape(const Shape& s, const Location& at) const { return lazy::reshape(*this, s, at); }
Array Array::permute(const std::vector<int>& order, const Location& at) const { return lazy::permute(*this, order, at); }
Array Array::transpose(int i, int j, const Location& at) const { return lazy::transpose(*this, i, j, at); }
Array Array::expand(const Shape& s, const Location& at) const { return lazy::expand(*this, s, at); }
Array Array::squeeze(int axis, const Location& at) const { return lazy::squeeze(*this, axis, at); }
Array Array::unsqueeze(int axis, const Location& at) const { return lazy::unsqueeze(*this, axis, at); }
Array Array::sum(const Axes& axes, bool keep, const Location& at) const { return lazy::sum(*this, axes, keep, at); }
Array Array::mean(const Axes& axes, bool keep, const Location& at) const { return lazy::mean(*this, axes, keep, at); }
Array Array::max(const Axes& axes, bool keep, const Location& at) const { return lazy::max(*this, axes, keep, at); }
Array Array::min(const Axes& axes, bool keep, const Location& at) const { return lazy::min(*this, axes, keep, at); }
Array Array::prod(const Axes& axes, bool keep, const Location& at) const { return lazy::prod(*this, axes, keep, at); }
Array Array::any(const Axes& axes, bool keep, const Location& at) const { return lazy::any(*this, axes, keep, at); }
Array Array::all(const Axes& axes, bool keep, const Location& at) const { return lazy::all(*this, axes, keep, at); }
Array Array::argmax(const Axes& axes, bool keep, const Location& at) const { return lazy::argmax(*this, axes, keep, at); }
Array Array::argmin(const Axes& axes, bool keep, const Location& at) const { return lazy::argmin(*this, axes, keep, at); }
Array Array::cast(DType type) const { return lazy::cast(*this, type); }

Array Array::contiguous() const {
  const NodePtr& n = node_of(*this);
  const auto v = alias_of(*n);
  if ((v && v->dense()) || n->kind == Kind::contiguous) return *this;
  return of_node(make(Kind::contiguous, n->type, n->shape, {n}));
}

Array Array::detach() const {
  const NodePtr& n = node_of(*this);
  return n->kind == Kind::constant ? *this : lazy::stop_gradient(*this);
}

const Array& Array::assign(const Array& value, const Location& at) const {
  const Site site{"assign", at};
  const NodePtr& old = node_of(*this);
  NodePtr v = node_of(value);
  if (old->weak) fail(site, "a plain number cannot be assigned to");
  if (broadcast(old->shape, v->shape) != old->shape)
    fail(site, fmt::format("shape {} cannot be assigned to shape {}", text(v->shape), text(old->shape)));
  if (!v->weak && v->type != old->type && promote(v->type, old->type) != old->type)
    fail(site, fmt::format("{} cannot be assigned to {}; cast it", name_of(v->type), name_of(old->type)));
  v = expanded(cast_node(v, old->type), old->shape);
  if (v == old) return *this;
  assign_value(*state_, v, site);
  return *this;
}

std::string Array::describe(bool values) const {
  const NodePtr n = node_of(*this);
  std::string text = fmt::format("{}{} ", name_of(dtype()), lazy::text(shape()));
  if (values) realize();
  if (is_realized()) {
    text += "realized";
  } else {
    const Cost c = cost_of({n});
    text += fmt::format("lazy: {} kernel{}, {} bytes", c.kernels, c.kernels == 1 ? "" : "s", c.bytes);
    if (c.programs > 1) text += fmt::format(" in {} programs", c.programs);
  }
  if (!values) return text;
  constexpr size_t kShown = 64;
  const std::vector<double> all_of_them = vector<double>();
  text += ":";
  for (size_t i = 0; i < std::min(all_of_them.size(), kShown); ++i) text += fmt::format(" {:g}", all_of_them[i]);
  return all_of_them.size() > kShown ? text + " …" : text;
}

std::ostream& operator<<(std::ostream& out, const Array& x) { return out << x.describe(); }
void print(const Array& x, bool values) { std::cout << x.describe(values) << "\n"; }

}  // namespace xhat::lazy
