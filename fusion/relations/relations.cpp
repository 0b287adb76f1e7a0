#include "fusion/relations/relations.h"

#include <algorithm>
#include <map>
#include <ranges>

#include <fmt/format.h>

#include "expr/core/conditions.h"
#include "expr/core/node_table.h"
#include "expr/core/uses.h"
#include "expr/index/simplify_index.h"

namespace xhat::fusion {
namespace {

// A read that is reached on more paths than this counts as needed unconditionally.
constexpr size_t kMaxContexts = 16;

// The reductions and conditions around a node of a body.
struct Context {
  std::vector<AxisRange> ranges;  // of reductions
  std::vector<Id> conditions;
  bool operator==(const Context&) const = default;
};

void add_context(std::vector<Context>& known, Context c) {
  if (std::ranges::find(known, c) != known.end()) return;
  known.push_back(std::move(c));
  if (known.size() <= kMaxContexts) return;
  Context all;
  for (const Context& k : known)
    for (const AxisRange& r : k.ranges)
      if (std::ranges::find(all.ranges, r) == all.ranges.end()) all.ranges.push_back(r);
  known = {all};
}

Context with(Context c, const std::vector<Id>& conditions) {
  for (Id x : conditions)
    if (std::ranges::find(c.conditions, x) == c.conditions.end()) c.conditions.push_back(x);
  return c;
}

// The same relation with fresh names for its variables, so that it can be composed with another.
Relation renamed(Arena& a, const Relation& r, const std::string& prefix) {
  Replacements to;
  size_t n = 0;
  Relation result = r;
  result.ranges.clear();
  for (const AxisRange& range : r.ranges) {
    AxisRange moved{a.axis(prefix + std::to_string(n++)), substitute(a, range.begin, to), substitute(a, range.end, to)};
    to[range.axis] = moved.axis;
    result.ranges.push_back(moved);
  }
  for (Id& c : result.conditions) c = substitute(a, c, to);
  for (Id& i : result.indices) i = substitute(a, i, to);
  return result;
}

std::vector<AxisRange> all_axes_of(const Relation& r) {
  std::vector<AxisRange> all = r.axes;
  all.insert(all.end(), r.ranges.begin(), r.ranges.end());
  all.insert(all.end(), r.runtime.begin(), r.runtime.end());
  return all;
}

// Is the node linear in its operands, so that a number that data decide can be a term of its own below it?
bool is_linear_step(const Arena& a, const Node& n) {
  if (n.op == Op::add || n.op == Op::sub || n.op == Op::neg) return true;
  if (n.op == Op::mul) return a[n.arg(0)].op == Op::constant || a[n.arg(1)].op == Op::constant;
  return n.op == Op::cast && is_integer(a[n.arg(0)].type) && is_linear_step(a, a[n.arg(0)]);
}

// The canonical form of relations: names d, s, rt, simplified indices. Equal maps have equal canonical forms.
class Canonical {
 public:
  Canonical(const Program& p, Relation r) : p_(p), a_(*p.arena), r_(std::move(r)) {}

  Relation run() {
    for (size_t i = 0; i < r_.indices.size(); ++i) r_.indices[i] = without_data(r_.indices[i], p_.tensors[r_.input].shape[i]);
    simplify();
    // Range variables are ordered by their first use in the indices, but after variables that their range depends on. Unused ones are dropped.
    auto place = [&](const AxisRange& range) {
      for (size_t i = 0; i < r_.indices.size(); ++i)
        if (std::ranges::count(a_[r_.indices[i]].free_axes(), range.axis)) return i;
      return r_.indices.size();
    };
    std::vector<AxisRange> open, ranges;
    std::ranges::copy_if(r_.ranges, std::back_inserter(open), [&](const AxisRange& x) { return used(x); });
    std::ranges::stable_sort(open, {}, place);
    while (!open.empty()) {
      auto depends = [&](const AxisRange& x, const AxisRange& on) {
        return std::ranges::count(a_[x.begin].free_axes(), on.axis) + std::ranges::count(a_[x.end].free_axes(), on.axis) > 0;
      };
      auto next = std::ranges::find_if(open, [&](const AxisRange& x) {
        return std::ranges::none_of(open, [&](const AxisRange& y) { return depends(x, y); });
      });
      ranges.push_back(*next);
      open.erase(next);
    }
    r_.ranges = std::move(ranges);
    Replacements to;
    rename(r_.axes, "d", to);
    rename(r_.ranges, "s", to);
    rename(r_.runtime, "rt", to);
    for (Id& c : r_.conditions) c = substitute(a_, c, to);
    for (Id& i : r_.indices) i = substitute(a_, i, to);
    simplify();  // again, because the order of terms depends on names
    std::ranges::sort(r_.conditions);
    return std::move(r_);
  }

 private:
  void simplify() {
    const std::vector<AxisRange> axes = all_axes_of(r_);
    for (Id& i : r_.indices) i = simplified_index(a_, i, axes);
  }

  bool used(const AxisRange& range) const {
    auto names = [&](Id e) { return std::ranges::count(a_[e].free_axes(), range.axis) > 0; };
    return std::ranges::any_of(r_.indices, names) || std::ranges::any_of(r_.conditions, names) ||
           std::ranges::any_of(r_.ranges, [&](const AxisRange& x) { return names(x.begin) || names(x.end); });
  }

  void rename(std::vector<AxisRange>& axes, const std::string& prefix, Replacements& to) {
    for (size_t i = 0; i < axes.size(); ++i) {
      const Id before = axes[i].axis;
      axes[i] = {a_.axis(prefix + std::to_string(i)), substitute(a_, axes[i].begin, to), substitute(a_, axes[i].end, to)};
      to[before] = axes[i].axis;
    }
  }

  // Terms that data decide become run-time variables, whose range is given by the known bounds.
  Id without_data(Id index, Id extent) {
    if (tensors_read(a_, index).empty()) return index;
    const Node n = a_[index];
    if (!is_linear_step(a_, n)) return runtime_variable(index, n, extent);
    std::vector<Id> args;
    for (Id x : n.args()) args.push_back(without_data(x, kNone));
    if (n.op == Op::cast) return a_.to(n.type, args[0]);
    return a_.with_args(index, args);
  }

  Id runtime_variable(Id term, const Node& n, Id extent) {
    auto [it, is_new] = known_.try_emplace(term, kNone);
    if (is_new) {
      Node inner = n;
      while (inner.op == Op::cast && is_integer(a_[inner.arg(0)].type)) inner = a_[inner.arg(0)];
      it->second = a_.axis("runtime " + std::to_string(r_.runtime.size()));
      AxisRange range{it->second, a_.integer(INT32_MIN), a_.integer(int64_t{INT32_MAX} + 1)};
      auto bound = [&](size_t i) { return a_.to(DType::i64, inner.arg(i)); };
      if (inner.op == Op::clamp) range = {it->second, bound(1), a_.add(bound(2), a_.integer(1))};
      else if (extent != kNone) range = {it->second, a_.integer(0), extent};  // the variable is the whole index, which is inside the tensor
      r_.runtime.push_back(range);
    }
    return a_.to(n.type, it->second);
  }

  const Program& p_;
  Arena& a_;
  Relation r_;
  std::map<Id, Id> known_;
};

// The set of index values under the relation's conditions, at these sizes.
ElementSet element_set(const Program& p, const Relation& r, const DimValues& sizes, std::vector<Id> indices) {
  Arena& a = *p.arena;
  Replacements dims;
  for (const Dim& d : p.dims)
    if (auto it = sizes.find(a.name(d.dim)); it != sizes.end()) dims[d.dim] = a.integer(it->second);
  auto put = [&](Id e) { return dims.empty() ? e : substitute(a, e, dims); };
  ElementSet e;
  for (const AxisRange& x : all_axes_of(r)) e.axes.push_back({x.axis, put(x.begin), put(x.end)});
  for (Id c : r.conditions) e.conditions.push_back(put(c));
  for (Id i : indices) e.indices.push_back(put(i));
  return e;
}

std::vector<ElementSet> element_sets(const Program& p, std::span<const Relation> relations, const DimValues& sizes) {
  Arena& a = *p.arena;
  std::vector<ElementSet> sets;
  for (const Relation& r : relations) {
    ElementSet e = element_set(p, r, sizes, r.indices);
    for (Id extent : p.tensors[r.input].shape) e.within.emplace_back(0, evaluate_extent(a, extent, sizes) - 1);
    sets.push_back(std::move(e));
  }
  return sets;
}

std::optional<Footprint> needed(Arena& a, const std::vector<ElementSet>& sets) {
  auto box = box_around(a, sets);
  auto elements = count_elements(a, sets);
  if (!box || !elements) return std::nullopt;
  return Footprint{*box, *elements};
}

}  // namespace

std::vector<Relation> direct_relations(const Program& p, const Definition& d) {
  Arena& a = *p.arena;
  std::vector<Relation> found;
  if (d.is_call()) return found;
  NodeTable<std::vector<Context>> contexts(reachable(a, d.body));
  contexts[d.body] = {Context{}};
  std::vector<Id> ids(contexts.ids().begin(), contexts.ids().end());
  for (Id id : ids | std::views::reverse) {  // parents before children
    const Node n = a[id];
    auto hand_on = [&](Id child, auto&& change) {
      for (const Context& c : contexts[id]) add_context(contexts[child], change(c));
    };
    auto same = [](const Context& c) { return c; };
    if (n.op == Op::select) {
      hand_on(n.arg(0), same);
      hand_on(n.arg(1), [&](const Context& c) { return with(c, conjuncts(a, n.arg(0))); });
      hand_on(n.arg(2), [&](const Context& c) { return with(c, negated_conjuncts(a, n.arg(0))); });
    } else if (is_reduction(n.op)) {
      auto inside = [&](const Context& c) {
        Context r = c;
        for (const AxisRange& x : reduce_axes(n)) r.ranges.push_back(x);
        return r;
      };
      hand_on(reduce_condition(n), inside);
      auto taken = is_true(a, reduce_condition(n)) ? std::vector<Id>() : conjuncts(a, reduce_condition(n));
      hand_on(reduce_body(n), [&](const Context& c) { return with(inside(c), taken); });
      for (size_t i = 2; i < n.arg_count; ++i) hand_on(n.arg(i), same);
    } else {
      for (Id x : n.args()) hand_on(x, same);
    }
    if (!is_read(n.op)) continue;
    for (const Context& c : contexts[id]) {
      Relation r{d.target(), n.symbol, d.axes, c.ranges, {}, c.conditions, {}};
      for (size_t i = 0; i < read_indices(n).size(); ++i) {
        Id index = a.to(DType::i64, read_indices(n)[i]);
        r.indices.push_back(index);
        if (n.op == Op::read) continue;
        r.conditions.push_back(a.binary(Op::le, a.integer(0), index));
        r.conditions.push_back(a.binary(Op::lt, index, p.tensors[n.symbol].shape[i]));
      }
      found.push_back(std::move(r));
    }
  }
  std::ranges::reverse(found);
  return found;
}

namespace {

// The relations from the output to every tensor that it depends on. They are not composed through `stop`, if it is defined.
std::map<TensorId, std::vector<Relation>> composed(const Program& p, TensorId output, TensorId stop) {
  Arena& a = *p.arena;
  // Filled from the output towards the inputs: all relations found to each tensor.
  std::map<TensorId, std::vector<Relation>> needs;
  auto add = [&](const Relation& r) {
    auto& known = needs[r.input];
    if (std::ranges::find(known, r) == known.end()) known.push_back(r);
  };
  for (const Definition& d : p.definitions() | std::views::reverse) {
    if (d.is_call()) continue;
    if (d.target() == output) {
      for (const Relation& r : direct_relations(p, d)) add(Canonical(p, r).run());
      continue;
    }
    if (d.target() == stop || !needs.contains(d.target())) continue;
    const std::vector<Relation> users = needs[d.target()];
    for (const Relation& inner : direct_relations(p, d))
      for (const Relation& outer : users) {
        Relation from = renamed(a, outer, "outer "), to = renamed(a, inner, "inner ");
        Replacements at;
        for (size_t k = 0; k < to.axes.size(); ++k) at[to.axes[k].axis] = from.indices[k];
        Relation r{output, to.input, from.axes, from.ranges, from.runtime, from.conditions, {}};
        for (const AxisRange& x : to.ranges)
          r.ranges.push_back({x.axis, substitute(a, x.begin, at), substitute(a, x.end, at)});
        for (Id c : to.conditions) r.conditions.push_back(substitute(a, c, at));
        for (Id x : to.indices) r.indices.push_back(substitute(a, x, at));
        add(Canonical(p, std::move(r)).run());
      }
  }
  return needs;
}

}  // namespace

std::vector<Relation> relations(const Program& p, TensorId output, TensorId input) { return composed(p, output, input)[input]; }
std::map<TensorId, std::vector<Relation>> relations_from(const Program& p, TensorId output) { return composed(p, output, kNone); }

std::string to_text(const Program& p, const Relation& r) {
  auto names = [&](const std::vector<AxisRange>& axes, const char* open, const char* close) {
    std::string text;
    for (const AxisRange& x : axes) text += (text.empty() ? "" : ", ") + p.arena->name(x.axis);
    return text.empty() && *open != '(' ? "" : open + text + close;
  };
  std::string indices;
  for (Id i : r.indices) indices += (indices.empty() ? "" : ", ") + print(p, i);
  return names(r.axes, "(", ")") + names(r.ranges, "[", "]") + names(r.runtime, "{", "}") + " -> (" + indices + ")";
}

std::string domain_text(const Program& p, const Relation& r, const DimValues& sizes) {
  std::vector<Id> variables;
  for (const AxisRange& x : all_axes_of(r)) variables.push_back(x.axis);
  const ElementSet e = element_set(p, r, sizes, variables);
  auto box = box_around(*p.arena, std::vector<ElementSet>{e});
  if (!box) return "nowhere";
  std::string text;
  for (size_t i = 0; i < variables.size(); ++i)
    text += fmt::format("{}{} in [{}, {}]", i ? ", " : "", p.arena->name(variables[i]), (*box)[i].first, (*box)[i].second);
  return text;
}

std::optional<Footprint> footprint(const Program& p, std::span<const Relation> relations, const Box& tile,
                                   const DimValues& sizes) {
  Arena& a = *p.arena;
  std::vector<ElementSet> sets = element_sets(p, relations, sizes);
  for (size_t k = 0; k < sets.size(); ++k)
    for (size_t i = 0; i < tile.size(); ++i) {
      const Id axis = relations[k].axes[i].axis;
      sets[k].conditions.push_back(a.binary(Op::le, a.integer(tile[i].first), axis));
      sets[k].conditions.push_back(a.binary(Op::le, axis, a.integer(tile[i].second)));
    }
  return needed(a, sets);
}

std::optional<double> recompute_factor(const Program& p, TensorId consumer, TensorId producer,
                                       std::span<const int64_t> tile, const DimValues& sizes) {
  const std::vector<Relation> all = relations(p, consumer, producer);
  const std::vector<int64_t> extents = shape_of(p, consumer, sizes);
  // Except at the edges, every tile needs as many elements as the middle one.
  Box middle, whole;
  double tiles = 1;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t n = std::max<int64_t>(1, extents[i] / tile[i]);
    middle.emplace_back(n / 2 * tile[i], std::min(extents[i], (n / 2 + 1) * tile[i]) - 1);
    whole.emplace_back(0, extents[i] - 1);
    tiles *= static_cast<double>(extents[i]) / static_cast<double>(tile[i]);
  }
  auto each = footprint(p, all, middle, sizes), together = footprint(p, all, whole, sizes);
  if (!each || !together) return std::nullopt;
  return tiles * static_cast<double>(each->elements) / static_cast<double>(together->elements);
}

std::vector<std::optional<Alignment>> alignment(const Program& p, const Relation& r, const DimValues& sizes) {
  Arena& a = *p.arena;
  std::vector<std::optional<Alignment>> found;
  for (Id index : r.indices) {
    std::vector<size_t> axes;
    for (size_t i = 0; i < r.axes.size(); ++i)
      if (std::ranges::count(a[index].free_axes(), r.axes[i].axis)) axes.push_back(i);
    found.emplace_back();
    if (axes.size() != 1) continue;
    // The stride is the constant increase per step of the axis. The window is the extent of the rest, index - stride * axis.
    const Id axis = r.axes[axes[0]].axis;
    const std::vector<AxisRange> all = all_axes_of(r);
    const Id step = simplified_index(a, a.sub(substitute(a, index, {{axis, a.add(axis, a.integer(1))}}), index), all);
    if (a[step].op != Op::constant || a[step].integer == 0) continue;
    const Id left = simplified_index(a, a.sub(index, a.mul(step, axis)), all);
    auto box = box_around(a, std::vector<ElementSet>{element_set(p, r, sizes, {left})});
    if (box) found.back() = Alignment{axes[0], a[step].integer, (*box)[0].second - (*box)[0].first + 1};
  }
  return found;
}

std::optional<std::string> fusion_obstacle(const Program& p, std::span<const TensorId> definitions) {
  // Visits definitions in order. A definition outside of the set that depends on a member is recorded; a member that reads one is an obstacle.
  std::map<TensorId, TensorId> left_through;  // tensor outside -> the member that it depends on
  for (const Definition& d : p.definitions()) {
    const bool member = std::ranges::find(definitions, d.target()) != definitions.end();
    for (TensorId t : tensors_read(*p.arena, d)) {
      auto left = left_through.find(t);
      if (member && left != left_through.end())
        return fmt::format("{} needs {}, which is computed outside from {}", p.tensors[d.target()].name, p.tensors[t].name,
                           p.tensors[left->second].name);
      if (member) continue;
      if (left != left_through.end()) left_through[d.target()] = left->second;
      else if (std::ranges::find(definitions, t) != definitions.end()) left_through[d.target()] = t;
    }
  }
  return std::nullopt;
}

}  // namespace xhat::fusion
