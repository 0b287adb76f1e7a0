#include "expr/text/import.h"

namespace xhat {

void import_all(Arena& to, const Arena& from, std::span<const Id> roots, const std::vector<TensorId>& tensors,
                std::unordered_map<Id, Id>& memo) {
  std::vector<Id> args;
  for (Id id : reachable(from, roots)) {
    if (memo.contains(id)) continue;
    const Node& n = from[id];
    args.clear();
    for (Id x : n.args()) args.push_back(memo.at(x));
    Id made = kNone;
    if (n.op == Op::constant) made = is_float(n.type) ? to.constant(n.type, n.value) : to.integer(n.integer, n.type);
    else if (n.op == Op::axis) made = to.axis(from.name(id));
    else if (n.op == Op::dim) made = to.dim(from.name(id));
    else if (is_read(n.op)) {
      TensorId t = tensors.empty() ? n.symbol : tensors.at(n.symbol);
      std::span<const Id> indices(args.data(), args.size() - (n.op == Op::read_or));
      made = n.op == Op::read ? to.read(t, n.type, indices) : to.read_or(t, n.type, indices, args.back());
    } else if (n.op == Op::select) made = to.select(args[0], args[1], args[2]);
    else if (n.op == Op::cast) made = to.cast(n.type, args[0]);
    else if (is_reduction(n.op)) {
      std::vector<AxisRange> axes;
      for (size_t i = 2; i < args.size(); i += 3) axes.push_back({args[i], args[i + 1], args[i + 2]});
      made = to.reduce(n.op, axes, args[1], args[0]);
    } else made = to.apply(n.op, args);
    memo[id] = made;
  }
}

Id import(Arena& to, const Arena& from, Id root, const std::vector<TensorId>& tensors, std::unordered_map<Id, Id>& memo) {
  if (root == kNone) return kNone;
  import_all(to, from, std::span<const Id>(&root, 1), tensors, memo);
  return memo.at(root);
}

Program copy_into(std::shared_ptr<Arena> arena, const Program& p) {
  Program copy = p;
  std::vector<Id*> places;
  for (Tensor& t : copy.tensors)
    for (Id& e : t.shape) places.push_back(&e);
  for (Dim& d : copy.dims) {
    places.push_back(&d.dim);
    places.push_back(&d.definition);
  }
  for (Precondition& c : copy.preconditions) places.push_back(&c.condition);
  for (Definition& d : copy.definitions()) {
    places.push_back(&d.body);
    for (AxisRange& r : d.axes)
      for (Id* id : {&r.axis, &r.begin, &r.end}) places.push_back(id);
  }
  std::erase_if(places, [](const Id* id) { return *id == kNone; });
  std::vector<Id> roots;
  for (const Id* id : places) roots.push_back(*id);
  copy.arena = std::move(arena);
  std::unordered_map<Id, Id> moved;
  import_all(*copy.arena, *p.arena, roots, {}, moved);
  for (Id* id : places) *id = moved.at(*id);
  return copy;
}

Program own_copy(const Program& p) { return copy_into(std::make_shared<Arena>(), p); }

}  // namespace xhat
