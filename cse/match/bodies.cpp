#include "cse/match/bodies.h"

#include <algorithm>
#include <ranges>

#include "cse/match/tensor_expr_tree.h"
#include "expr/index/affine.h"
#include "expr/index/linear.h"
#include "expr/index/plain_bounds.h"

namespace xhat {

Id inline_reads(Arena& a, Id root, const std::map<TensorId, PointValue>& values, std::span<const AxisRange> scope) {
  // A value may bind axes itself (a reduction that could not be lifted); those in scope give way.
  std::vector<Id> taken = all_axes(a, std::span<const Id>(&root, 1));
  for (const AxisRange& r : scope) taken.push_back(r.axis);
  return rewrite(a, root, [&](Id id) {
    const Node n = a[id];
    if (!is_read(n.op)) return id;
    auto it = values.find(n.symbol);
    if (it == values.end()) return id;
    if (n.op == Op::read_or) throw Bug("a read with an outside value of an inlined tensor");
    Replacements at;
    for (size_t i = 0; i < it->second.axes.size(); ++i) at[it->second.axes[i]] = a.to(DType::i64, n.arg(i));
    return substitute(a, it->second.value, at, taken);
  });
}

std::set<Id> Pattern::axes() const {
  std::set<Id> all;
  for (const AxisRange& r : free) all.insert(r.axis);
  for (const AxisRange& r : bound) all.insert(r.axis);
  return all;
}

Pattern pattern_of(Arena& a, const Definition& d) {
  Pattern p;
  Replacements renamed;
  auto rename = [&](Id axis) {
    // '$' is no letter of the language, so no program has such an axis.
    Id fresh = a.axis("$" + std::to_string(p.names.size()));
    p.names.push_back(axis);
    renamed[axis] = fresh;
    return fresh;
  };
  auto now = [&](Id id) { return substitute(a, id, renamed); };
  for (const AxisRange& r : d.axes) p.free.push_back({rename(r.axis), r.begin, r.end});
  p.body = d.body;
  const Node n = a[d.body];
  if (is_reduction(n.op)) {
    for (const AxisRange& r : reduce_axes(n)) {
      Id begin = now(r.begin), end = now(r.end);
      p.bound.push_back({rename(r.axis), begin, end});
    }
    p.condition = now(reduce_condition(n));
    p.body = reduce_body(n);
  }
  p.body = now(p.body);
  return p;
}

std::vector<Id> nameless_reduction(Arena& a, const Definition& d) {
  Pattern p = pattern_of(a, d);
  std::vector<Id> key = {a.reduce(a[d.body].op, p.bound, p.condition, p.body)};
  for (const AxisRange& r : p.free) key.push_back(r.end);
  return key;
}

struct RememberBounds::Answers {
  const Arena* arena;
  Answers* before;
  std::map<std::vector<Id>, bool> answers = {};
};
thread_local RememberBounds::Answers* RememberBounds::remembering = nullptr;

RememberBounds::RememberBounds(const Arena& a) : answers_(std::make_unique<Answers>(Answers{&a, remembering})) {
  remembering = answers_.get();
}
RememberBounds::~RememberBounds() { remembering = answers_->before; }

bool in_bounds(Arena& a, Id index, Id extent, std::span<const AxisRange> axes, std::span<const Id> conditions) {
  for (const AxisRange& r : axes)
    if (r.axis == index && is_constant(a, r.begin, 0) && r.end == extent) return true;
  std::vector<Id> key;
  auto* remembering = RememberBounds::remembering;
  if (remembering && remembering->arena == &a) {
    key = {index, extent};
    for (const AxisRange& r : axes) key.insert(key.end(), {r.axis, r.begin, r.end});
    key.push_back(kNone);
    key.insert(key.end(), conditions.begin(), conditions.end());
    auto it = remembering->answers.find(key);
    if (it != remembering->answers.end()) return it->second;
  }
  bool proved = surely_inside(a, index, extent, axes);
  bool open = !proved && !(conditions.empty() && surely_outside(a, index, extent, axes));
  if (open) proved = prove_bounds(a, {axes, conditions, index, extent}).verdict == BoundsAnswer::Verdict::proved;
  if (!key.empty()) remembering->answers.emplace(std::move(key), proved);
  return proved;
}

bool covers(Arena& a, std::span<const AxisRange> pattern, const Binding& binding, std::span<const AxisRange> scope) {
  Replacements at(binding.begin(), binding.end());
  for (const AxisRange& r : pattern) {
    auto it = binding.find(r.axis);
    if (it == binding.end() || !is_constant(a, r.begin, 0)) return false;
    if (!in_bounds(a, it->second, substitute(a, r.end, at), scope)) return false;
  }
  return true;
}

std::set<TensorId> feeds_control(const Program& p, Through through) {
  const Arena& a = *p.arena;
  std::set<TensorId> found;
  auto add = [&](Id root) {
    for (TensorId t : tensors_read(a, root)) found.insert(t);
  };
  for (const Definition& d : p.backward.definitions)
    for (Id id : reachable(a, d.body)) {
      const Node& n = a[id];
      bool extreme = n.op == Op::argmax || n.op == Op::argmin;
      bool cut = n.op == Op::cast && !is_float(n.type) && is_float(a[n.arg(0)].type);
      if (n.type == DType::boolean || extreme || cut || (is_float(n.type) && jumps(n.op))) add(id);
    }
  for (const Definition& d : p.definitions() | std::views::reverse)
    if (found.contains(d.target()) && (through == Through::everything || !is_reduction(a[d.body].op))) add(d.body);
  return found;
}

std::vector<Id> ranges_as_conditions(Arena& a, std::span<const AxisRange> ranges) {
  std::vector<Id> known;
  for (const AxisRange& r : ranges) {
    for (Id begin : operands_of(a, r.begin, Op::maximum)) known.push_back(a.binary(Op::le, begin, r.axis));
    for (Id end : operands_of(a, r.end, Op::minimum)) known.push_back(a.binary(Op::lt, r.axis, end));
  }
  return known;
}

bool is_known(const Arena& a, std::span<const Id> known, Id condition) {
  // What is not negative then.
  auto bound = [&](Id id) -> std::optional<Linear> {
    const Node& n = a[id];
    if ((n.op != Op::lt && n.op != Op::le) || a[n.arg(0)].type != DType::i64) return std::nullopt;
    Linear form = linear(a, n.arg(1));
    add_scaled(form, linear(a, n.arg(0)), -1);
    if (n.op == Op::lt) --form.constant;
    return form;
  };
  const auto wanted = bound(condition);
  return std::ranges::any_of(known, [&](Id k) { return k == condition || (wanted && bound(k) == wanted); });
}

bool backward_reads(const Program& p, TensorId t) {
  return std::ranges::any_of(p.backward.definitions, [&](const Definition& d) { return has_tensor(tensors_read(*p.arena, d.body), t); });
}

bool depends_on_any(const Arena& a, Id expression, std::span<const AxisRange> axes) {
  return std::ranges::any_of(axes, [&](const AxisRange& r) { return a[expression].depends_on(r.axis); });
}

Id read_at(Arena& a, const Program& p, TensorId t, const std::vector<Id>& indices) { return a.read(t, p.tensors[t].type, indices); }

std::vector<Id> axes_of(std::span<const AxisRange> ranges) {
  std::vector<Id> axes;
  for (const AxisRange& r : ranges) axes.push_back(r.axis);
  return axes;
}

std::vector<Definition> fewest_reads_first(const Arena& a, const Region& r) {
  std::map<TensorId, int> level;
  struct Place {
    int level;
    size_t size;
    const Definition* definition;
  };
  std::vector<Place> order;
  for (const Definition& d : r.definitions) {
    int own = 0;
    for (TensorId t : tensors_read(a, d.body))
      if (auto it = level.find(t); it != level.end()) own = std::max(own, it->second + 1);
    level[d.target()] = own;
    order.push_back({own, reachable(a, d.body).size(), &d});
  }
  std::ranges::stable_sort(order, {}, [](const Place& x) { return std::pair(x.level, x.size); });
  std::vector<Definition> sorted;
  for (const Place& x : order) sorted.push_back(*x.definition);
  return sorted;
}

void name_after_gradients(Program& p) {
  Arena& a = *p.arena;
  std::vector<Definition>& all = p.backward.definitions;
  for (size_t i = 0; i < all.size(); ++i) {
    const Definition& copy = all[i];
    const Node n = a[copy.body];
    if (!has_tensor(p.gradients, copy.target()) || n.op != Op::read || has_tensor(p.gradients, n.symbol)) continue;
    auto sum = std::ranges::find(all, n.symbol, &Definition::target);
    if (sum == all.end()) continue;
    bool same = p.tensors[n.symbol].type == p.tensors[copy.target()].type && std::ranges::equal(n.args(), axes_of(copy.axes)) &&
                p.tensors[n.symbol].shape == p.tensors[copy.target()].shape;
    if (!same) continue;
    TensorId from = n.symbol, to = copy.target();
    sum->targets = {to};
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(i--));
    for (Definition& d : all)
      d.body = rewrite(a, d.body, [&](Id id) {
        const Node r = a[id];
        if (!is_read(r.op) || r.symbol != from) return id;
        return r.op == Op::read ? a.read(to, r.type, r.args()) : a.read_or(to, r.type, read_indices(r), r.args().back());
      });
  }
}

}  // namespace xhat
