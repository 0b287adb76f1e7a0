#include "expr/imperative/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/affine.h"
#include "expr/index/dims.h"
#include "expr/index/hull.h"
#include "expr/index/linear.h"

namespace xhat::imperative {

bool is_straight(const Items& items) {
  return std::ranges::all_of(items,
                             [](const Item& i) { return std::holds_alternative<Definition>(i.is) || std::holds_alternative<Write>(i.is); });
}

bool reads_data(const Arena& a, Id expression) {
  return std::ranges::any_of(reachable(a, expression), [&](Id x) { return is_read(a[x].op); });
}

std::string shape_text(const OpScope& s, const Shape& shape) {
  std::string text;
  for (Id extent : shape) text += (text.empty() ? "" : ",") + text_of(s, extent);
  return "[" + text + "]";
}

Id Context::tidy(Id index) {
  Arena& a = arena();
  if (a[index].op == Op::constant || a[index].op == Op::dim || a[index].op == Op::axis) return index;
  const std::vector<Id> below = reachable(a, index);
  if (std::ranges::any_of(below, [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op); })) return index;
  if (std::ranges::none_of(below, [&](Id x) { return a[x].op == Op::dim || a[x].op == Op::axis; }))
    return a.integer(evaluate_extent(a, index, {}));
  return tidy_index(a, index);
}

std::vector<AxisRange> Context::element_axes(const Shape& shape) {
  std::vector<AxisRange> axes;
  for (size_t k = 0; k < shape.size(); ++k) axes.push_back({element_axis(k), arena().integer(0), shape[k]});
  return axes;
}

// Names need not be distinct before the end, when they are chosen anew.
TensorId Context::new_tensor(const std::string& base, DType type, Shape shape) {
  Tensor t;
  t.name = base;
  t.type = type;
  for (Id extent : shape) t.shape.push_back(largest(extent, base));
  program.tensors.push_back(std::move(t));
  return static_cast<TensorId>(program.tensors.size() - 1);
}

size_t Context::new_storage(const std::string& name, DType type, Shape shape, TensorId value) {
  Storage s;
  s.name = name;
  s.type = type;
  s.shape = std::move(shape);
  s.value = value;
  state.storages.push_back(std::move(s));
  return state.storages.size() - 1;
}

View Context::whole(size_t storage) {
  View v;
  v.storage = storage;
  v.axes = element_axes(state.storages[storage].shape);
  for (const AxisRange& r : v.axes) v.indices.push_back(r.axis);
  return v;
}

std::optional<TensorId> Context::whole_value(const View& v) {
  const Storage& s = state.storages[v.storage];
  if (v.axes.size() != s.shape.size() || !v.others.empty()) return std::nullopt;
  for (size_t d = 0; d < v.axes.size(); ++d)
    if (v.indices[d] != v.axes[d].axis || !scope.same_extent(v.axes[d].end, s.shape[d]) ||
        (varies(v.axes[d].end) && !scope.same_extent(largest(v.axes[d].end, s.name), program.tensors[s.value].shape[d])))
      return std::nullopt;
  return s.value;
}

Id Context::element(const View& v, std::span<const Id> positions) {
  Replacements to;
  for (size_t k = 0; k < positions.size(); ++k) to[v.axes[k].axis] = positions[k];
  std::vector<Id> indices;
  for (Id index : v.indices) indices.push_back(tidy(substitute(arena(), index, to)));
  const Storage& s = state.storages[v.storage];
  Id value = arena().read(s.value, s.type, indices);
  for (size_t k = v.others.size(); k-- > 0;) value = arena().select(v.unless[k], element(v.others[k], positions), value);
  return value;
}

// positions[k] = k, as a sum of one number, so that it stays a tensor whose reads are checked.
Id Context::looked_up(Id index, Id extent) {
  auto [it, fresh] = positions.emplace(extent, 0);
  if (fresh) {
    Arena& a = arena();
    const Id k = element_axis(0), j = element_axis(1);
    Definition d;
    it->second = new_tensor("positions", DType::i64, {extent});
    d.targets = {it->second};
    d.axes = {{k, a.integer(0), extent}};
    const AxisRange one{j, k, a.add(k, a.integer(1))};
    d.body = a.reduce(Op::sum, {&one, 1}, kNone, j);
    tables.push_back(std::move(d));
  }
  return arena().read(it->second, DType::i64, {{index}});
}

Id Context::guard() {
  Id all = kNone;
  for (Id c : state.guards) all = all == kNone ? c : arena().select(all, c, arena().boolean(false));
  return all;
}

Id Context::guarded(Id value) {
  Arena& a = arena();
  if (state.guards.empty()) return value;
  // Plain reads and what is computed of them can be looked at anywhere.
  const std::vector<Id> below = reachable(a, value);
  const bool harmless = std::ranges::all_of(below, [&](Id x) {
    const Node& n = a[x];
    if (is_reduction(n.op) || n.op == Op::div || n.op == Op::mod) return is_float(n.type);
    return n.op != Op::read || std::ranges::all_of(n.args(), [&](Id i) { return a[i].op == Op::axis; });
  });
  return harmless ? value : a.select(guard(), value, a[value].type == DType::boolean ? a.boolean(false) : a.constant(a[value].type, 0));
}

std::vector<AxisRange> Context::loop_ranges() const {
  std::vector<AxisRange> ranges;
  for (const LoopVariable& l : state.loops)
    if (!l.bounds_read) ranges.push_back(l.range);
  return ranges;
}

bool Context::varies(Id extent) const { return !(*program.arena)[extent].free_axes().empty(); }

std::optional<Id> Context::known_largest(Id extent) {
  if (!varies(extent)) return extent;
  Arena& a = arena();
  Ranges ranges;
  for (const AxisRange& r : loop_ranges()) ranges[r.axis] = r;
  std::optional<AxisRange> box;
  if (std::ranges::all_of(a[extent].free_axes(), [&](Id axis) { return ranges.contains(axis); }))
    box = Hull(a, ranges).box({kNone, a.integer(0), extent});
  if (!box) return {};
  // Without an iteration it means nothing.
  if (prove_nonnegative(a, scope.expanded(box->end)).verdict == BoundsAnswer::Verdict::proved) return box->end;
  return a.binary(Op::maximum, box->end, a.integer(0));
}

Id Context::largest(Id extent, const std::string& of) {
  if (const std::optional<Id> found = known_largest(extent)) return *found;
  throw Error(fmt::format("not yet: the shape of {} depends on the iteration ({}), and its largest size is not known before the run", of,
                          text_of(scope, extent)));
}

TensorId Context::define(const std::string& base, const std::vector<AxisRange>& axes, Id body, Pos pos) {
  Arena& a = arena();
  Definition d;
  Shape shape;
  d.axes = axes;
  Id inside = kNone;
  for (AxisRange& r : d.axes) {
    shape.push_back(r.end);
    if (!varies(r.end)) continue;
    const Id part = a.binary(Op::lt, r.axis, r.end);
    inside = inside == kNone ? part : a.land(inside, part);
    r.end = largest(r.end, base);
  }
  if (inside != kNone) body = a.select(inside, body, a[body].type == DType::boolean ? a.boolean(false) : a.constant(a[body].type, 0));
  d.targets = {new_tensor(base, a[body].type, std::move(shape))};
  if (inside != kNone) padded.insert(d.target());
  program.tensors[d.target()].pos = pos;
  d.body = body;
  d.pos = pos;
  TensorId t = d.target();
  items->emplace_back().is = std::move(d);
  return t;
}

std::vector<Id> Context::needs() {
  std::vector<Id> found;
  for (const Precondition& p : program.preconditions)
    if (arena()[p.condition].op == Op::le) found.push_back(p.condition);
  return found;
}

bool Context::never(std::span<const AxisRange> axes, std::span<const Id> conditions) {
  Arena& a = arena();
  std::vector<AxisRange> ranges;
  std::vector<Id> known;
  for (const AxisRange& r : axes) ranges.push_back({r.axis, scope.expanded(r.begin), scope.expanded(r.end)});
  for (Id c : conditions) {
    if (is_false(a, c)) return true;
    if (!is_true(a, c) && is_about_positions(a, c)) known.push_back(scope.expanded(c));
  }
  return prove_bounds(a, {ranges, known, a.integer(-1), a.integer(1)}).verdict == BoundsAnswer::Verdict::proved;
}

bool Context::implied(std::span<const AxisRange> axes, std::span<const Id> conditions, Id fact) {
  Arena& a = arena();
  if (is_true(a, fact)) return true;
  std::vector<Id> all(conditions.begin(), conditions.end());
  std::vector<Id> known;
  for (Id c : conditions)
    for (Id part : conjuncts(a, c)) known.push_back(part);
  for (Id part : conjuncts(a, fact)) {
    if (is_true(a, part) || std::ranges::find(known, part) != known.end()) continue;
    if (reads_data(a, part)) return false;
    all.push_back(negation(a, part));
    if (!never(axes, all)) return false;
    all.pop_back();
  }
  return true;
}

bool Context::excluded(std::span<const AxisRange> axes, std::span<const Id> conditions, Id fact) {
  Arena& a = arena();
  if (is_false(a, fact)) return true;
  std::vector<Id> all(conditions.begin(), conditions.end());
  const Id opposite = negation(a, fact);
  for (Id c : conditions)
    for (Id part : conjuncts(a, c))
      if (part == opposite || negation(a, part) == fact) return true;
  for (Id part : conjuncts(a, fact)) all.push_back(part);
  return never(axes, all);
}

void Context::require_inside(Id index, Id extent, const std::string& what, const std::string& of, Pos pos,
                             std::span<const AxisRange> axes) {
  Arena& a = arena();
  if (reads_data(a, index)) return;
  std::vector<AxisRange> ranges = loop_ranges();
  ranges.insert(ranges.end(), axes.begin(), axes.end());
  std::vector<Id> known;
  for (AxisRange& r : ranges) r = {r.axis, scope.expanded(r.begin), scope.expanded(r.end)};
  for (Id c : state.conditions)
    for (Id part : conjuncts(a, c))
      if (is_about_positions(a, part)) known.push_back(scope.expanded(part));
  const BoundsQuestion q{ranges, known, scope.expanded(index), scope.expanded(extent)};
  const BoundsAnswer answer = prove_bounds(a, q);
  switch (answer.verdict) {
    case BoundsAnswer::Verdict::proved: return;
    case BoundsAnswer::Verdict::precondition:
      for (auto [dim, least] : answer.safe) scope.require(a.binary(Op::le, a.integer(least), dim), what + " is inside of " + of, pos);
      return;
    case BoundsAnswer::Verdict::violated:
      throw Error(fmt::format("{} can fall outside {}{}{}; write a condition around it, or a range that keeps it inside", what, of,
                              answer.example.empty() ? "" : ": ", answer.example),
                  pos);
    case BoundsAnswer::Verdict::unknown:
      if (!out_of_reach(a, q.index)) scope.require(open_question(a, q), what + " is inside of " + of, pos);
      return;
  }
}

}  // namespace xhat::imperative
