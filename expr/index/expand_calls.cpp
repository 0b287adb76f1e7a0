#include "expr/index/expand_calls.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "expr/index/dims.h"

namespace xhat {
namespace {

// The values of op's dims in p, as expressions.
Replacements dims_of(Program& p, const Program& op, const Arena& from, const std::vector<TensorId>& tensors,
                     std::unordered_map<Id, Id>& memo) {
  Arena& a = *p.arena;
  Replacements dims;
  auto ours = [&](Id id) { return import(a, from, id, {}, memo); };
  auto is_defined = [&](Id dim) {
    return std::ranges::any_of(op.dims, [&](const Dim& d) { return d.dim == dim && d.definition != kNone; });
  };
  for (TensorId t : op.inputs) {
    const auto& extents = op.tensor(t).shape;
    for (size_t i = 0; i < extents.size(); ++i) {
      auto f = linear_form(from, extents[i]);
      if (!f || is_defined(f->dim) || dims.contains(ours(f->dim))) continue;
      Id value = p.tensor(tensors[t]).shape[i];
      if (f->offset != 0) value = a.sub(value, a.integer(f->offset));
      if (f->factor != 1) value = a.div(value, a.integer(f->factor));
      dims[ours(f->dim)] = value;
    }
  }
  std::set<Id> pending;
  for (const Dim& d : op.dims)
    if (d.definition != kNone) pending.insert(d.dim);
  while (!pending.empty()) {
    size_t before = pending.size();
    for (const Dim& d : op.dims) {
      if (!pending.contains(d.dim)) continue;
      auto used = reachable(from, d.definition);
      if (std::ranges::any_of(used, [&](Id id) { return pending.contains(id); })) continue;
      dims[ours(d.dim)] = substitute(a, ours(d.definition), dims);
      pending.erase(d.dim);
    }
    if (pending.size() == before) throw Bug("the dims of op " + op.name + " form a cycle");
  }
  // What nothing determines keeps its name, and the caller has it too.
  for (const Dim& d : op.dims) {
    Id dim = ours(d.dim);
    if (dims.contains(dim)) continue;
    if (std::ranges::none_of(p.dims, [&](const Dim& x) { return x.dim == dim; })) p.dims.push_back({dim, kNone, d.pos});
  }
  return dims;
}

// root with other dims and other tensors.
Id moved(Arena& a, Id root, const Replacements& dims, const std::vector<TensorId>& tensors, std::unordered_map<Id, Id>& done) {
  if (root == kNone) return kNone;
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    if (done.contains(id)) continue;
    const Node& n = a[id];
    args.clear();
    for (Id x : n.args()) args.push_back(done.at(x));
    std::span<const Id> indices(args.data(), args.size() - (n.op == Op::read_or));
    if (auto at = dims.find(id); at != dims.end())
      done[id] = at->second;
    else if (n.op == Op::read)
      done[id] = a.read(tensors.at(n.symbol), n.type, indices);
    else if (n.op == Op::read_or)
      done[id] = a.read_or(tensors.at(n.symbol), n.type, indices, args.back());
    else
      done[id] = a.with_args(id, args);
  }
  return done.at(root);
}

}  // namespace

std::vector<Definition> instantiate(Program& p, const Program& op, std::vector<TensorId>& tensors, const std::string& prefix) {
  Arena& a = *p.arena;
  std::unordered_map<Id, Id> memo, done;
  Replacements dims = dims_of(p, op, *op.arena, tensors, memo);
  std::unordered_map<Id, Id> shape_done;
  auto ours = [&](Id id) { return import(a, *op.arena, id, {}, memo); };
  for (TensorId t = 0; t < op.tensors.size(); ++t) {
    if (tensors[t] != kNoTensor) continue;
    const Tensor& old = op.tensor(t);
    std::vector<Id> shape;
    for (Id extent : old.shape) shape.push_back(moved(a, ours(extent), dims, {}, shape_done));
    tensors[t] = p.add_tensor(prefix + "_" + old.name, old.type, shape);
    p.tensors[tensors[t]].pos = old.pos;
  }
  auto ported = [&](Id id) { return moved(a, id == kNone ? kNone : ours(id), dims, tensors, done); };
  std::vector<Definition> made;
  for (const Definition& d : op.definitions()) {
    Definition copy = d;
    for (TensorId& t : copy.targets) t = tensors[t];
    for (TensorId& t : copy.arguments) t = tensors[t];
    for (AxisRange& r : copy.axes) r = {ported(r.axis), ported(r.begin), ported(r.end)};
    copy.body = ported(d.body);
    // A target of the caller's has its own way of writing the same extent.
    for (size_t i = 0; i < copy.axes.size(); ++i) copy.axes[i].end = p.tensor(copy.target()).shape[i];
    made.push_back(std::move(copy));
  }
  for (const Precondition& c : op.preconditions) {
    Id condition = ported(c.condition);
    if (std::ranges::none_of(p.preconditions, [&](const Precondition& x) { return x.condition == condition; }))
      p.preconditions.push_back({condition, "in " + op.name + ": " + c.reason, {}});
  }
  return made;
}

Replacements dims_of_call(Program& p, const Program& op, const std::vector<TensorId>& arguments) {
  std::vector<TensorId> tensors(op.tensors.size(), kNoTensor);
  for (size_t k = 0; k < arguments.size(); ++k) tensors[op.inputs[k]] = arguments[k];
  std::unordered_map<Id, Id> memo;
  return dims_of(p, op, *op.arena, tensors, memo);
}

std::vector<Definition> expanded(Program& p, const Definition& call) {
  Program callee = expand_calls(*call.callee);
  callee.backward = {};
  std::vector<TensorId> tensors(callee.tensors.size(), kNoTensor);
  for (size_t i = 0; i < callee.inputs.size(); ++i) tensors[callee.inputs[i]] = call.arguments[i];
  for (size_t i = 0; i < callee.outputs.size(); ++i) tensors[callee.outputs[i]] = call.targets[i];
  return instantiate(p, callee, tensors, callee.name);
}

Program expand_calls(const Program& p, bool keep_custom, std::vector<ExpandedCall>* calls) {
  auto goes = [&](const Definition& d) { return d.is_call() && !(keep_custom && states_gradient(*d.callee)); };
  if (std::ranges::none_of(p.definitions(), goes)) return p;
  Program result = p;
  auto expand = [&](const Definition& d) {
    std::vector<ExpandedCall> inner;
    Program callee = expand_calls(*d.callee, keep_custom, &inner);
    callee.backward = {};  // a call computes the outputs
    std::vector<TensorId> tensors(callee.tensors.size(), kNoTensor);
    for (size_t i = 0; i < callee.inputs.size(); ++i) tensors[callee.inputs[i]] = d.arguments[i];
    for (size_t i = 0; i < callee.outputs.size(); ++i) tensors[callee.outputs[i]] = d.targets[i];
    ExpandedCall whole{callee.name, d.targets[0], {}};
    std::vector<Definition> made = instantiate(result, callee, tensors, callee.name);
    for (Definition& m : made) m.derived |= d.derived;
    if (!calls) return made;
    for (const Definition& m : made) whole.members.push_back(m.target());
    calls->push_back(std::move(whole));
    for (ExpandedCall& c : inner) {
      c.result = tensors[c.result];
      for (TensorId& t : c.members) t = tensors[t];
      calls->push_back(std::move(c));
    }
    return made;
  };
  map_regions(result, [&](const Region& r) {
    std::vector<Definition> all;
    for (const Definition& d : r.definitions)
      for (Definition& made : goes(d) ? expand(d) : std::vector{d}) all.push_back(std::move(made));
    return all;
  });
  return with_clear_axes(result);
}

Program with_clear_axes(const Program& p) {
  Arena& a = *p.arena;
  std::set<std::string> names;
  for (const Tensor& t : p.tensors) names.insert(t.name);
  for (const Dim& d : p.dims) names.insert(a.name(d.dim));
  Program result = p;
  for (Definition& d : result.definitions()) {
    if (d.is_call()) continue;
    std::vector<Id> roots{d.body};
    for (const AxisRange& r : d.axes) roots.push_back(r.axis);
    std::vector<Id> used = all_axes(a, roots);
    Replacements map;
    for (Id axis : std::vector<Id>(used)) {
      if (!names.contains(a.name(axis))) continue;
      Id other = axis;
      while (names.contains(a.name(other))) {
        other = a.fresh_axis(axis, used);
        used.push_back(other);
      }
      map[axis] = other;
    }
    if (map.empty()) continue;
    // The new names are new to the definition, so free and bound ones can be exchanged alike.
    auto exchanged = [&](Id root) { return rewrite(a, root, [&](Id id) { return map.contains(id) ? map.at(id) : id; }); };
    d.body = exchanged(d.body);
    for (AxisRange& r : d.axes) r.axis = exchanged(r.axis);
  }
  return result;
}

Program finished_op(Program p, const std::string& name) {
  p.name = name;
  p = with_clear_axes(without_dead(ordered(p)));
  verify(p);
  return p;
}

}  // namespace xhat
