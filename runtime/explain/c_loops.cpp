#include "runtime/explain/c_loops.h"

#include <algorithm>
#include <climits>

#include <fmt/format.h>

#include "expr/core/array.h"
#include "runtime/explain/c_expression.h"
#include "runtime/explain/explain_steps.h"

namespace xhat {
namespace {

// How an axis walks through memory, over all reads and the result: +1 for each tensor whose neighbours it visits, -1 for each that it
// strides through.
int contiguity(const Program& p, const Definition& d, Id axis) {
  const Arena& a = *p.arena;
  int score = 0;
  auto access = [&](std::span<const Id> indices) {
    for (size_t k = 0; k < indices.size(); ++k) {
      if (!a[indices[k]].depends_on(axis)) continue;
      if (k + 1 < indices.size()) return void(--score);
      Id at = indices[k];  // a sum with the axis as a term
      while (at != axis && (a[at].op == Op::add || a[at].op == Op::sub)) at = a[at].arg(a[a[at].arg(0)].depends_on(axis) ? 0 : 1);
      score += at == axis ? 1 : tensors_read(a, indices[k]).empty() ? 0 : -1;
    }
  };
  std::vector<Id> target;
  for (const AxisRange& r : d.axes) target.push_back(r.axis);
  access(target);
  for (Id id : reachable(a, d.body))
    if (is_read(a[id].op)) access(read_indices(a[id]));
  return score;
}

struct Loop {
  AxisRange range;
  bool reduced;  // else an axis of the result
  int score;
  int64_t extent;
  std::vector<Id> after = {};  // axes whose loops are outside of this one: its range, or an equation for it, has them
};

// The order in which memory lies, outermost first. together: the loops of the result may stand inside those of the reduction.
std::vector<Loop> in_memory_order(std::vector<Loop> loops, bool together) {
  if (loops.empty()) return loops;
  auto depends = [&](const Loop& l, Id axis) { return std::ranges::count(l.after, axis) > 0; };
  const bool any_reduced = std::ranges::any_of(loops, &Loop::reduced);
  auto inner_key = [](const Loop& l) { return std::pair(l.score, l.extent); };
  const Loop* inner = nullptr;  // vectors run along it
  for (const Loop& l : loops) {
    if (l.extent == 1 || (any_reduced && !together && !l.reduced)) continue;
    if (std::ranges::any_of(loops, [&](const Loop& other) { return depends(other, l.range.axis); })) continue;
    if (!inner || inner_key(l) >= inner_key(*inner)) inner = &l;
  }
  const Id innermost = inner ? inner->range.axis : kNone;
  const Loop* outer = nullptr;  // threads share it
  for (const Loop& l : loops)
    if (!l.reduced && l.extent > 1 && l.range.axis != innermost && (!outer || l.score < outer->score)) outer = &l;
  if (!outer && innermost != kNone && !inner->reduced && !any_reduced) outer = inner;
  const Id outermost = outer ? outer->range.axis : kNone;
  auto rank = [&](const Loop& l) {
    return std::tuple(l.range.axis != outermost, !together && l.reduced, l.range.axis == innermost, l.score, l.reduced);
  };
  std::vector<Loop> order, left = std::move(loops);
  std::ranges::stable_sort(left, {}, rank);
  while (!left.empty()) {
    auto ready = std::ranges::find_if(
        left, [&](const Loop& l) { return std::ranges::none_of(left, [&](const Loop& other) { return depends(l, other.range.axis); }); });
    if (ready == left.end()) ready = left.begin();  // equations that need each other: one stays a guard
    order.push_back(*ready);
    left.erase(ready);
  }
  return order;
}

class Function {
 public:
  Function(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes), w_(p, sizes) {}

  std::string body() {
    for (const Dim& d : p_.dims) {
      const std::string name = a_.name(d.dim);
      w_.line(fmt::format("constexpr int64_t {} = {};", name, sizes_.at(name)));
    }
    for (const Definition& d : p_.forward.definitions) {
      if (d.is_call()) throw Error("op " + p_.name + ": a call cannot be written as loops; calls are expanded when gradients are derived");
      if (std::ranges::count(p_.outputs, d.target())) continue;
      const Tensor& t = p_.tensor(d.target());
      w_.line(
          fmt::format("static {} {}[{}];", c_type(t.type), w_.tensor_name(d.target()), element_count(shape_of(p_, d.target(), sizes_))));
    }
    for (const Definition& d : p_.forward.definitions) definition(d);
    return w_.finish();
  }

 private:
  // A sum whose place in the result is said by a condition: `at == v`. The axis gets its value from the terms.
  struct Placed {
    AxisRange range;
    Id at, condition;
  };

  void definition(const Definition& d) {
    w_.line("");
    w_.line("// " + print(p_, d));
    w_.count_uses(d.body);
    const bool root = is_reduction(a_[d.body].op) && a_[d.body].op != Op::argmax && a_[d.body].op != Op::argmin;
    root ? reduced(d) : mapped(d);
  }

  Loop loop(const Definition& d, const AxisRange& r, bool reduced) const {
    const int64_t extent = w_.extent_of(r);
    const bool open = !a_[r.begin].free_axes().empty() || !a_[r.end].free_axes().empty();
    Loop l{r, reduced, contiguity(p_, d, r.axis), open ? INT_MAX : extent};
    for (Id bound : {r.begin, r.end}) l.after.insert(l.after.end(), a_[bound].free_axes().begin(), a_[bound].free_axes().end());
    return l;
  }

  static bool parallel(const std::vector<Loop>& loops, size_t k) { return k == 0 && !loops[0].reduced && loops[0].extent > 1; }

  std::string target(const Definition& d) const {
    std::vector<std::string> indices;
    for (const AxisRange& r : d.axes) indices.push_back(w_.axis_name(r.axis));
    return w_.place(d.target(), indices);
  }

  void mapped(const Definition& d) {
    std::vector<Loop> loops;
    for (const AxisRange& r : d.axes) loops.push_back(loop(d, r, false));
    loops = in_memory_order(loops, false);
    for (size_t k = 0; k < loops.size(); ++k) w_.open_loop(loops[k].range, {}, parallel(loops, k));
    const std::string v = w_.argument(d.body);
    w_.line(target(d) + " = " + v + ";");
    for (size_t k = 0; k < loops.size(); ++k) w_.close();
  }

  std::vector<Placed> placed_axes(const Definition& d, const std::vector<Id>& conditions, const std::vector<AxisRange>& over) const {
    std::vector<Placed> found;
    for (Id c : conditions) {
      if (a_[c].op != Op::eq) continue;
      for (size_t side : {0, 1})
        for (const AxisRange& r : d.axes) {
          const Id at = a_[c].arg(1 - side);
          auto known = [&](Id axis) { return std::ranges::any_of(found, [&](const Placed& f) { return f.range.axis == axis; }); };
          if (a_[c].arg(side) != r.axis || known(r.axis) || a_[at].depends_on(r.axis)) continue;
          if (std::ranges::any_of(a_[at].free_axes(), known)) continue;
          if (std::ranges::none_of(over, [&](const AxisRange& o) { return a_[at].depends_on(o.axis); })) continue;
          if (solved_axis(c, over) != kNone) continue;  // a term for each place is found without a search
          const bool range_depends = std::ranges::any_of(
              over, [&](const AxisRange& o) { return a_[o.begin].depends_on(r.axis) || a_[o.end].depends_on(r.axis); });
          if (!range_depends) found.push_back({r, at, c});
        }
    }
    return found;
  }

  // The axis, of these, that an equation gives: k of `k + r == h`. The last one that it can be solved for.
  Id solved_axis(Id condition, const std::vector<AxisRange>& over) const {
    for (size_t k = over.size(); k-- > 0;)
      if (place_by(a_, condition, over[k].axis) != kNone) return over[k].axis;
    return kNone;
  }

  void reduced(const Definition& d) {
    const Node& n = a_[d.body];
    const std::vector<AxisRange> over = reduce_axes(n);
    std::vector<Id> conditions = conjuncts_of(a_, reduce_condition(n));
    const bool in_place = p_.tensor(d.target()).type == w_.accumulator(n);
    const std::vector<Placed> placed = in_place ? placed_axes(d, conditions, over) : std::vector<Placed>{};
    std::vector<Loop> loops;
    for (const AxisRange& r : d.axes)
      if (std::ranges::none_of(placed, [&](const Placed& p) { return p.range.axis == r.axis; })) loops.push_back(loop(d, r, false));
    for (const AxisRange& r : over) loops.push_back(loop(d, r, true));
    for (Id c : conditions)
      for (Loop& l : loops)
        if (l.reduced && l.range.axis == solved_axis(c, over))
          for (Id axis : a_[c].free_axes())
            if (axis != l.range.axis) l.after.push_back(axis);
    loops = in_memory_order(loops, in_place);

    size_t outer = 0;
    for (; outer < loops.size() && !loops[outer].reduced; ++outer) w_.open_loop(loops[outer].range, {}, parallel(loops, outer));
    std::vector<AxisRange> rest, results;
    for (size_t k = outer; k < loops.size(); ++k) {
      rest.push_back(loops[k].range);
      if (!loops[k].reduced) results.push_back(loops[k].range);
    }
    for (const Placed& p : placed) results.push_back(p.range);
    std::ranges::sort(results, {}, [&](const AxisRange& r) { return std::ranges::find(d.axes, r) - d.axes.begin(); });

    std::string sum = target(d);
    if (results.empty()) {
      sum = w_.fresh("sum");
      w_.line(fmt::format("{} {} = {};", c_arithmetic(w_.accumulator(n)), sum, w_.start_of(n)));
    } else {
      for (const AxisRange& r : results) w_.open_loop(r, {});
      w_.line(sum + " = " + w_.start_of(n) + ";");
      for (size_t k = 0; k < results.size(); ++k) w_.close();
    }
    size_t opened = placed.empty() ? w_.open_loops(rest, conditions) : scatter_loops(rest, conditions, placed);
    const CText term = w_.value(reduce_body(n));
    w_.line(w_.step_of(n, sum, term));
    for (; opened > 0; --opened) w_.close();
    if (results.empty()) w_.line(fmt::format("{} = {};", target(d), sum));
    for (; outer > 0; --outer) w_.close();
  }

  // Loops over the terms, as far inwards as one needs to know its place; then the place; then the loops along it.
  size_t scatter_loops(std::vector<AxisRange> rest, const std::vector<Id>& conditions, const std::vector<Placed>& placed) {
    std::set<Id> needed;
    for (Id c : conditions) needed.insert(a_[c].free_axes().begin(), a_[c].free_axes().end());
    for (size_t k = rest.size(); k-- > 0;)  // a range depends on axes before it only
      if (needed.contains(rest[k].axis))
        for (Id bound : {rest[k].begin, rest[k].end}) needed.insert(a_[bound].free_axes().begin(), a_[bound].free_axes().end());
    const auto first_free = std::ranges::stable_partition(rest, [&](const AxisRange& r) { return needed.contains(r.axis); }).begin();
    const auto last = first_free - rest.begin();
    size_t opened = w_.open_loops({rest.begin(), rest.begin() + last}, {});
    // Places first, in the order of the conditions; a condition that asks for a place waits for it.
    std::vector<Id> waiting = conditions;
    std::set<Id> unplaced;
    for (const Placed& p : placed) unplaced.insert(p.range.axis);
    auto waits = [&](Id id) { return std::ranges::any_of(a_[id].free_axes(), [&](Id x) { return unplaced.contains(x); }); };
    while (!waiting.empty()) {
      auto it = std::ranges::find_if(waiting, [&](Id c) {
        auto p = std::ranges::find(placed, c, &Placed::condition);
        return !waits(p != placed.end() ? p->at : c);
      });
      const Id c = *it;
      waiting.erase(it);
      auto p = std::ranges::find(placed, c, &Placed::condition);
      if (p == placed.end()) {
        w_.open(fmt::format("if ({})", w_.argument(c)), {}, true);
        ++opened;
        continue;
      }
      unplaced.erase(p->range.axis);
      const std::string name = w_.axis_name(p->range.axis), at = w_.argument(p->at);
      w_.open("", {p->range.axis}, true);
      w_.line(fmt::format("const int64_t {} = {};", name, at));
      w_.open(fmt::format("if (0 <= {0} && {0} < {1})", name, evaluate_extent(a_, p->range.end, sizes_)), {}, true);
      opened += 2;
    }
    return opened + w_.open_loops({rest.begin() + last, rest.end()}, {});
  }

  const Program& p_;
  Arena& a_;
  const DimValues& sizes_;
  CWriter w_;
};

std::vector<TensorId> parameters_of(const Program& p) {
  std::vector<TensorId> list = p.inputs;
  list.insert(list.end(), p.outputs.begin(), p.outputs.end());
  return list;
}

std::string type_of(const Program& p, size_t k, const std::vector<TensorId>& list) {
  return fmt::format("{}{}*", k < p.inputs.size() ? "const " : "", c_type(p.tensor(list[k]).type));
}

}  // namespace

std::string c_function(const Program& p, const std::string& name, const DimValues& sizes) {
  const CWriter names(p, sizes);
  std::vector<std::string> parameters;
  const std::vector<TensorId> list = parameters_of(p);
  for (size_t k = 0; k < list.size(); ++k)
    parameters.push_back(fmt::format("{} __restrict__ {}", type_of(p, k, list), names.tensor_name(list[k])));
  return fmt::format("void {}({}) {{\n{}}}\n", name, fmt::join(parameters, ", "), Function(p, sizes).body());
}

std::string c_entry(const Program& p, const std::string& name) {
  std::vector<std::string> arguments;
  const std::vector<TensorId> list = parameters_of(p);
  for (size_t k = 0; k < list.size(); ++k) arguments.push_back(fmt::format("static_cast<{}>(tensors[{}])", type_of(p, k, list), k));
  return fmt::format("extern \"C\" void {0}_call(void* const* tensors) {{ {0}({1}); }}\n", name, fmt::join(arguments, ", "));
}

std::string explain_c(const Program& op, const CompileOptions& options, const DimValues& given) {
  if (op.steps)
    throw Error("op " + op.name + ": a program with loops or branches that stay has no plain loops yet; write its blocks as ops");
  const Program derived = derive(op, options, choose_sizes(op, options.stash, given)).program;
  const DimValues sizes = choose_sizes(derived, options.stash, given);
  return c_with_prelude("\n" + c_function(forward_program(derived), op.name + "_forward", sizes) + "\n" +
                        c_function(backward_program(derived), op.name + "_backward", sizes));
}

}  // namespace xhat
