#include "expr/text/import.h"

#include "expr/core/steps.h"

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

namespace {

// What programs have in an arena: of a program with steps also what these and the ops of their blocks have there.
class Places {
 public:
  Places(Program& p) : from_(p.arena) { add(p); }

  void move_to(const std::shared_ptr<Arena>& arena) {
    std::erase_if(places_, [](const Id* id) { return *id == kNone; });
    std::vector<Id> roots;
    for (const Id* id : places_) roots.push_back(*id);
    std::unordered_map<Id, Id> moved;
    import_all(*arena, *from_, roots, {}, moved);
    for (Id* id : places_) *id = moved.at(*id);
    for (Program* p : programs_) p->arena = arena;
  }

 private:
  void add(Program& p) {
    programs_.push_back(&p);
    for (Tensor& t : p.tensors)
      for (Id& e : t.shape) places_.push_back(&e);
    for (Dim& d : p.dims) {
      places_.push_back(&d.dim);
      places_.push_back(&d.definition);
    }
    for (Precondition& c : p.preconditions) places_.push_back(&c.condition);
    for (Definition& d : p.definitions()) {
      places_.push_back(&d.body);
      for (AxisRange& r : d.axes)
        for (Id* id : {&r.axis, &r.begin, &r.end}) places_.push_back(id);
    }
    if (!p.steps) return;
    const auto steps = std::make_shared<Steps>(map_blocks(*p.steps, [&](Block b) {
      for (std::shared_ptr<const Program>* op : {&b.op, &b.with_gradient})
        if (*op && (*op)->arena == from_) *op = copied(*op);
      return b;
    }));
    for_each_expression(*steps, [&](Id& id) { places_.push_back(&id); });
    p.steps = steps;
  }

  std::shared_ptr<const Program> copied(const std::shared_ptr<const Program>& op) {
    std::shared_ptr<Program>& copy = copies_[op.get()];
    if (!copy) add(*(copy = std::make_shared<Program>(*op)));
    return copy;
  }

  const std::shared_ptr<Arena> from_;
  std::vector<Id*> places_;
  std::vector<Program*> programs_;
  std::unordered_map<const Program*, std::shared_ptr<Program>> copies_;
};

}  // namespace

Program copy_into(std::shared_ptr<Arena> arena, const Program& p) {
  Program copy = p;
  Places(copy).move_to(arena);
  return copy;
}

Program own_copy(const Program& p) { return copy_into(std::make_shared<Arena>(), p); }

}  // namespace xhat
