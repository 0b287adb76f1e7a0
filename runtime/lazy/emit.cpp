#include "runtime/lazy/emit.h"

#include <fmt/format.h>

#include "runtime/lazy/movement.h"

namespace xhat::lazy::detail {

namespace {

constexpr int kDepth = 100;  // nodes in one expression: the functions below call each other as deep

bool is_heavy(const Item& i) {
  switch (i.node->kind) {
    case Kind::reduce:
    case Kind::contract:
    case Kind::conv:
    case Kind::window:
    case Kind::call: return i.role == Role::value;
    default: return i.role == Role::loss || i.role == Role::grad;
  }
}

bool reads_again(Kind k) { return k == Kind::contract || k == Kind::conv || k == Kind::window || k == Kind::take || k == Kind::gather; }

}  // namespace

TensorId Emission::add(std::string name, DType type, Ids shape) {
  xhat::Tensor t;
  t.name = std::move(name);
  t.type = type;
  t.shape = std::move(shape);
  program.tensors.push_back(std::move(t));
  return static_cast<TensorId>(program.tensors.size() - 1);
}

void Emission::define(TensorId target, Id body) {
  Definition d;
  d.targets = {target};
  const Ids shape = program.tensors[target].shape;
  for (size_t i = 0; i < shape.size(); ++i) d.axes.push_back({axis("i", i), arena().integer(0), shape[i]});
  d.body = body;
  program.forward.definitions.push_back(std::move(d));
}

Emitter::Emitter(Emission& s, const Graph& g, const std::vector<Terms>& terms, std::vector<TensorId> cuts)
    : s_(s),
      g_(g),
      terms_(terms),
      cuts_(std::move(cuts)),
      tensors_(g.items.size(), kNone),
      defined_(g.items.size(), 0),
      number_of_(g.items.size(), 0),
      loss_(g.derivatives.size(), kNone),
      gradients_(g.derivatives.size()) {
  for (size_t i = 0; i < g.items.size(); ++i) {
    const Item& item = g.items[i];
    if (item.role == Role::leaf) tensors_[i] = s_.leaves[item.number];
    if (item.role == Role::cut) tensors_[i] = cuts_[item.number];
    if (item.role == Role::value && item.node->kind == Kind::constant) number_of_[i] = s_.next_number++;
  }
  choose_definitions();
}

// What is used more than once, or by something that reads each element often, is a definition; the planner inlines what is cheap.
void Emitter::choose_definitions() {
  std::vector<int> uses(g_.items.size(), 0), depth(g_.items.size(), 0);
  std::vector<char> repeated(g_.items.size(), 0);
  for (uint32_t r : g_.roots) defined_[r] = 1;
  for (const auto& d : g_.derivatives)
    for (uint32_t i : d->wrt_items) defined_[i] = 1;
  for (size_t i = g_.items.size(); i-- > 0;) {
    const Item& item = g_.items[i];
    const Kind kind = item.node->kind;
    const bool free = item.role == Role::value && is_free(kind);
    if (is_heavy(item) || (!free && (uses[i] > 1 || repeated[i]))) defined_[i] = 1;
    for (size_t k = 0; k < item.count; ++k) {
      const uint32_t a = g_.args_of(item)[k];
      const bool moved_here = free && !defined_[i];
      uses[a] += moved_here ? uses[i] : 1;
      bool again = kind == Kind::expand || reads_again(kind) || (moved_here && repeated[i]);
      if (kind == Kind::elementwise) again = g_.items[a].node->shape != item.node->shape;
      repeated[a] |= again;
      if (kind == Kind::call) defined_[a] = 1;
    }
  }
  // A reduction that is only used transposed is computed in that order.
  for (size_t i = 0; i < g_.items.size(); ++i) {
    const Item& item = g_.items[i];
    if (item.role != Role::value || item.node->kind != Kind::permute) continue;
    const uint32_t a = g_.args_of(item)[0];
    if (uses[a] != 1 || !is_heavy(g_.items[a]) || g_.items[a].role != Role::value || g_.items[a].node->kind == Kind::call) continue;
    if (std::ranges::find(g_.roots, a) != g_.roots.end() || is_wanted(a)) continue;
    defined_[a] = 0;
    defined_[i] = 1;
  }
  for (size_t i = 0; i < g_.items.size(); ++i) {
    const Item& item = g_.items[i];
    for (uint32_t a : g_.args_of(item)) depth[i] = std::max(depth[i], defined_[a] ? 1 : depth[a] + 1);
    if (depth[i] > kDepth && item.role == Role::value) defined_[i] = 1;
  }
}

bool Emitter::is_wanted(uint32_t i) const {
  return std::ranges::any_of(g_.derivatives, [&](const auto& d) { return std::ranges::find(d->wrt_items, i) != d->wrt_items.end(); });
}

void Emitter::derived(const Derivative& d, TensorId loss, std::vector<TensorId> gradients) {
  for (size_t i = 0; i < g_.derivatives.size(); ++i) {
    if (g_.derivatives[i].get() != &d) continue;
    loss_[i] = loss;
    gradients_[i] = std::move(gradients);
  }
}

TensorId Emitter::tensor(uint32_t root) {
  // Definitions below it come first, in the order of the items, so that no chain of them is a chain of calls.
  std::vector<uint32_t> wanted, stack = {root};
  std::unordered_set<uint32_t> seen;
  while (!stack.empty()) {
    const uint32_t i = stack.back();
    stack.pop_back();
    if (!seen.insert(i).second || tensors_[i] != kNone) continue;
    if (defined_[i]) wanted.push_back(i);
    for (uint32_t a : g_.args_of(g_.items[i])) stack.push_back(a);
  }
  std::ranges::sort(wanted);
  for (uint32_t i : wanted) need(i);
  return tensors_[root];
}

void Emitter::need(uint32_t i) {
  const Item& item = g_.items[i];
  if (tensors_[i] != kNone) return;
  if (item.role == Role::loss)
    tensors_[i] = loss_[item.number];
  else if (item.role == Role::grad)
    tensors_[i] = gradients_[item.number][item.which];
  else if (item.node->kind == Kind::call)
    call(item, i);
  if (tensors_[i] != kNone) return;
  Ids shape, indices;
  for (size_t d = 0; d < terms_[i].size(); ++d) {
    shape.push_back(extent(terms_[i][d]));
    indices.push_back(s_.axis("i", d));
  }
  const Id value = body(i, indices);
  const TensorId t = s_.add(fmt::format("v{}", s_.made++), item.node->type, shape);
  s_.define(t, value);
  tensors_[i] = t;
}

TensorId Emitter::part(uint32_t i) {
  tensor(i);  // what is below it
  const uint32_t value = g_.args_of(g_.items[i])[1];
  Ids shape, indices;
  for (size_t d = 0; d < terms_[value].size(); ++d) {
    shape.push_back(extent(terms_[value][d]));
    indices.push_back(s_.axis("i", d));
  }
  const Id body = at(value, indices);
  const TensorId t = s_.add(fmt::format("v{}", s_.made++), g_.items[value].node->type, shape);
  s_.define(t, body);
  return t;
}

Id Emitter::plus(Id a, int64_t b) {
  if (b == 0) return a;
  return b > 0 ? s_.arena().add(a, integer(b)) : s_.arena().sub(a, integer(-b));
}
Id Emitter::times(Id a, int64_t b) { return b == 1 ? a : s_.arena().mul(a, integer(b)); }

Id Emitter::at(uint32_t i, const Ids& indices) {
  if (tensors_[i] == kNone) return body(i, indices);
  return s_.arena().read(tensors_[i], g_.items[i].node->type, indices);
}

Id Emitter::operand(const Item& item, size_t k, const Ids& indices) {
  const uint32_t a = g_.args_of(item)[k];
  const size_t rank = terms_[a].size();
  Ids own(indices.end() - static_cast<std::ptrdiff_t>(rank), indices.end());
  const Terms& result = terms_[static_cast<size_t>(&item - g_.items.data())];
  for (size_t d = 0; d < rank; ++d)
    if (s_.extents.is_one(terms_[a][d]) && !s_.extents.is_one(result[result.size() - rank + d])) own[d] = integer(0);
  return at(a, own);
}

Id Emitter::constant(const Item& item) {
  const Node& n = *item.node;
  const TensorId input = s_.numbers[number_of_[static_cast<size_t>(&item - g_.items.data())]];
  if (input != kNone) return s_.arena().read(input, n.type, {});
  if (is_float(n.type)) return s_.arena().constant(n.type, n.value);
  return n.type == DType::boolean ? s_.arena().boolean(n.integer != 0) : s_.arena().integer(n.integer, n.type);
}

Id Emitter::elementwise(const Item& item, const Ids& indices) {
  const Node& n = *item.node;
  Ids args;
  for (size_t k = 0; k < item.count; ++k) args.push_back(operand(item, k, indices));
  if (n.op == Op::select) return s_.arena().select(args[0], args[1], args[2]);
  if (n.op == Op::cast) return s_.arena().to(n.type, args[0]);
  return s_.arena().apply(n.op, args);
}

Id Emitter::concat(const Item& item, const Ids& indices) {
  Arena& a = s_.arena();
  const auto axis = static_cast<size_t>(item.node->params[0]);
  const auto parts = g_.args_of(item);
  Ids begins = {integer(0)};
  for (size_t k = 0; k + 1 < parts.size(); ++k)
    begins.push_back(k == 0 ? extent(terms_[parts[0]][axis]) : a.add(begins[k], extent(terms_[parts[k]][axis])));
  Id value = kNone;
  for (size_t k = parts.size(); k-- > 0;) {
    Ids own = indices;
    if (k > 0) own[axis] = a.sub(indices[axis], begins[k]);
    const Id here = at(parts[k], own);
    value = value == kNone ? here : a.select(a.binary(Op::lt, indices[axis], begins[k + 1]), here, value);
  }
  return value;
}

// Indices of the result become those of the operand: within each group of dimensions by the number of the element.
Ids Emitter::reshaped(const Ids& indices, const Terms& from, const Terms& to) {
  Arena& a = s_.arena();
  Shape was, is;
  for (Extents::Term t : from) was.push_back(s_.extents.value(t));
  for (Extents::Term t : to) is.push_back(s_.extents.value(t));
  Ids own(from.size(), integer(0));
  for (const ReshapeGroup& group : reshape_groups(was, is)) {
    Id number = kNone;
    for (size_t d : group.to) number = number == kNone ? indices[d] : a.add(a.mul(number, extent(to[d])), indices[d]);
    for (size_t k = group.from.size(); k-- > 0;) {
      const Id size = extent(from[group.from[k]]);
      own[group.from[k]] = k == 0 ? number : a.binary(Op::mod, number, size);
      if (k > 0) number = a.div(number, size);
    }
  }
  return own;
}

Ids Emitter::stepped(Kind kind, const Ids& indices, const Params& params, const Terms& from, const Terms& to) {
  if (kind == Kind::reshape) return reshaped(indices, from, to);
  Ids own = indices;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (kind == Kind::permute) {
      own[static_cast<size_t>(params[d])] = indices[d];
    } else if (kind == Kind::expand) {
      if (s_.extents.is_one(from[d]) && !s_.extents.is_one(to[d])) own[d] = integer(0);
    } else {
      const SliceStep s = slice_step(params, d, s_.extents.value(from[d]));
      const Id begin = s.from_end ? plus(extent(from[d]), params[3 * d]) : integer(s.begin);
      const Id offset = times(indices[d], std::abs(s.step));
      if (s.step < 0)
        own[d] = s_.arena().sub(begin, offset);
      else
        own[d] = s.from_end ? s_.arena().add(begin, offset) : plus(offset, s.begin);
      if (s_.extents.is_one(to[d])) own[d] = begin;
    }
  }
  return own;
}

// Inside of the part that `views` leads to, the new value; else the old one.
Id Emitter::update(const Item& item, const Ids& indices) {
  Arena& a = s_.arena();
  Ids own = indices;
  Id inside = a.boolean(true);
  auto demand = [&](Id c) { inside = is_true(a, inside) ? c : a.land(inside, c); };
  for (const ViewStep& v : item.node->views) {
    Terms from, to;
    for (int64_t e : v.from) from.push_back(s_.extents.number(e));
    for (int64_t e : v.shape) to.push_back(s_.extents.number(e));
    if (v.kind == Kind::reshape) {
      own = reshaped(own, to, from);
      continue;
    }
    const Ids before = own;
    for (size_t d = 0; d < before.size(); ++d) {
      if (v.kind == Kind::permute) {
        own[d] = before[static_cast<size_t>(v.params[d])];
        continue;
      }
      const SliceStep s = slice_step(v.params, d, v.from[d]);
      if (s.begin == 0 && s.step == 1 && v.shape[d] == v.from[d]) continue;
      const int64_t width = std::abs(s.step);
      const Id offset = s.step < 0 ? a.sub(integer(s.begin), before[d]) : plus(before[d], -s.begin);
      demand(a.land(a.binary(Op::le, integer(0), offset), a.binary(Op::lt, offset, integer(v.shape[d] * width))));
      if (width > 1) demand(a.eq(a.binary(Op::mod, offset, integer(width)), integer(0)));
      own[d] = width > 1 ? a.div(offset, integer(width)) : offset;
    }
  }
  const Id value = at(g_.args_of(item)[1], own);
  return is_true(a, inside) ? value : a.select(inside, value, at(g_.args_of(item)[0], indices));
}

void Emitter::call(const Item& item, uint32_t number) {
  const Program& op = *item.node->program;
  if (op.steps)  // runs by itself, before (runtime/lazy/realize.cpp); its gradient does, too, but not the gradient of that
    throw Error(fmt::format("grad: not yet second derivatives through {}, a program whose loops or branches stay", op.name));
  Definition d;
  d.callee = item.node->program;
  for (uint32_t a : g_.args_of(item)) d.arguments.push_back(tensors_[a]);
  // Outputs of one call are items of their own; whoever comes first makes the call.
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    TensorId t = kNone;
    for (uint32_t j = 0; j < g_.items.size(); ++j) {
      const Node& other = *g_.items[j].node;
      if (g_.items[j].role != Role::value || other.kind != Kind::call || other.program != item.node->program ||
          other.params[0] != static_cast<int64_t>(i) || !std::ranges::equal(g_.args_of(g_.items[j]), g_.args_of(item)))
        continue;
      if (t == kNone) {
        Ids shape;
        for (Extents::Term term : terms_[j]) shape.push_back(extent(term));
        t = s_.add(fmt::format("v{}", s_.made++), other.type, shape);
      }
      tensors_[j] = t;
    }
    if (t == kNone) {  // nobody asked for it: as large as it comes
      Ids shape;
      std::unordered_map<Id, Id> dims;
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        const auto& wants = op.tensor(op.inputs[k]).shape;
        for (size_t x = 0; x < wants.size(); ++x) dims.try_emplace(wants[x], extent(terms_[g_.args_of(item)[k]][x]));
      }
      for (Id e : op.tensor(op.outputs[i]).shape) shape.push_back(import(s_.arena(), *op.arena, e, {}, dims));
      t = s_.add(fmt::format("v{}", s_.made++), op.tensor(op.outputs[i]).type, shape);
    }
    d.targets.push_back(t);
  }
  s_.program.forward.definitions.push_back(std::move(d));
  if (tensors_[number] == kNone) throw Bug("a call without its result");
}

// A tensor is read at i32 as at i64; index arithmetic is i64.
Id Emitter::index_of(uint32_t table, Id index) {
  Arena& a = s_.arena();
  return tensors_[table] != kNone && a[index].type == DType::i32 ? index : a.to(DType::i64, index);
}

Id Emitter::body(uint32_t i, const Ids& indices) {
  const Item& item = g_.items[i];
  const Node& n = *item.node;
  Arena& a = s_.arena();
  const auto args = g_.args_of(item);
  switch (n.kind) {
    case Kind::constant: return constant(item);
    case Kind::iota: {
      Id number = integer(0);
      for (size_t d = 0; d < indices.size(); ++d) number = d == 0 ? indices[d] : a.add(a.mul(number, extent(terms_[i][d])), indices[d]);
      return number;
    }
    case Kind::elementwise: return elementwise(item, indices);
    case Kind::size_of: {
      Id product = integer(1);
      for (int64_t d : n.params) {
        const Id e = extent(terms_[args[0]][static_cast<size_t>(d)]);
        product = is_constant(a, product, 1) ? e : a.mul(product, e);
      }
      return a.to(n.type, product);
    }
    case Kind::reduce: return reduce(item, indices);
    case Kind::reshape:
    case Kind::permute:
    case Kind::expand:
    case Kind::slice: return at(args[0], stepped(n.kind, indices, n.params, terms_[args[0]], terms_[i]));
    case Kind::pad: {
      Ids own;
      std::vector<char> outside;
      for (size_t d = 0; d < indices.size(); ++d) {
        own.push_back(plus(indices[d], -n.params[2 * d]));
        outside.push_back(n.params[2 * d] + n.params[2 * d + 1] > 0);
      }
      return guarded(args[0], own, outside, at(args[1], {}));
    }
    case Kind::concat: return concat(item, indices);
    case Kind::take: {
      const auto axis = n.params[0];
      const auto rank = static_cast<std::ptrdiff_t>(terms_[args[1]].size());
      const Ids position(indices.begin() + axis, indices.begin() + axis + rank);
      const Id index = at(args[1], position);
      Ids own(indices.begin(), indices.begin() + axis);
      own.push_back(index_of(args[0], index));
      own.insert(own.end(), indices.begin() + axis + rank, indices.end());
      return at(args[0], own);
    }
    case Kind::gather: {
      const Id index = at(args[1], indices);
      Ids own = indices;
      own[static_cast<size_t>(n.params[0])] = index_of(args[0], index);
      return at(args[0], own);
    }
    case Kind::contract: return contract(item, indices);
    case Kind::conv: return conv(item, indices);
    case Kind::window: return window(item, indices);
    case Kind::contiguous: return at(args[0], indices);
    case Kind::assign: return at(args[1], indices);
    case Kind::update: return update(item, indices);
    case Kind::leaf:
    case Kind::call:
    case Kind::grad: break;
  }
  throw Bug("a node without a definition");
}

}  // namespace xhat::lazy::detail
