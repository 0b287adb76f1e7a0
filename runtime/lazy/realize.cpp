// realize(): which nodes are computed by which program, and what happens to memory. Values kept for others, when memory that they read is
// about to be written, are in needs.cpp.
#include "runtime/lazy/realize.h"

#include <chrono>
#include <unordered_set>

#include "expr/eval/evaluate.h"
#include "expr/index/dims.h"
#include "runtime/lazy/assign.h"
#include "runtime/lazy/memory.h"
#include "runtime/lazy/movement.h"
#include "runtime/lazy/needs.h"
#include "runtime/lazy/options.h"
#include "runtime/lazy/pieces.h"
#include "runtime/lazy/plans.h"

namespace xhat::lazy {
namespace detail {
namespace {

// A realized node remembers what it was computed from; through so many realized nodes, so that a state that is carried along for ever
// does not hold all of its past.
constexpr int kGenerations = 8;

struct Totals {
  int64_t realizes = 0, kernels = 0, copies = 0, nanoseconds = 0;
};
Totals totals;

class Realizer {
 public:
  // planned: only asks what it would cost.
  explicit Realizer(Cost* planned = nullptr, std::function<void(const Plan&)> on_plan = {})
      : planned_(planned), on_plan_(std::move(on_plan)), assumed_(planned ? next_epoch() : 0) {}

  void compute(std::vector<NodePtr> roots) {
    std::erase_if(roots, [&](const NodePtr& n) { return is_there(*n) || without_kernel(n); });
    if (roots.empty()) return;
    Walk w = walk(roots, assumed_);
    if (w.reused) return compute(std::move(roots));
    if (loops_first(w, roots) || breakpoints_first(w, roots) || pieces_first(w, roots)) return compute(std::move(roots));
    run(w);
  }

 private:
  bool is_there(const Node& n) const { return alias_of(n).has_value() || (assumed_ != 0 && n.assumed_mark == assumed_); }

  // Constants are written by the host, and arrays without elements not at all.
  bool without_kernel(const NodePtr& n) {
    if (n->kind != Kind::constant && n->kind != Kind::iota && n->shape.elements() != 0) return false;
    if (is_pending(*n)) return false;
    if (planned_) return true;
    auto storage = new_storage(n->weak && is_float(n->type) ? DType::f32 : n->type, n->shape);
    if (n->shape.elements() != 0) fill(storage->view, *n);
    become_leaf(*n, std::move(storage), false, 0);
    return true;
  }

  // Calls of programs whose loops stay, and gradients of such calls, in the graph and in its derivatives; null where the item is another,
  // or is there already (which a derivative then goes through by its definition).
  static Node* loops_of(const Item& item) {
    return item.role == detail::Role::value && !item.again && has_loops(*item.node) ? item.node : nullptr;
  }
  static void for_each_item(const Graph& g, const std::function<void(const Item&)>& f) {
    std::ranges::for_each(g.items, f);
    for (const auto& d : g.derivatives) for_each_item(d->graph, f);
  }

  // They run by themselves, when what they are called with is there.
  bool loops_first(const Walk& w, const std::vector<NodePtr>& roots) {
    NodePtr first;
    for_each_item(w.graph, [&](const Item& item) {
      if (Node* n = loops_of(item); n && !first) first = n->shared_from_this();
    });
    if (!first) return false;
    std::vector<NodePtr> results;  // all of this call that somebody reads
    for_each_item(w.graph, [&](const Item& item) {
      Node* n = loops_of(item);
      if (n && n->program == first->program && n->params.size() == first->params.size() && std::ranges::equal(n->args, first->args) &&
          std::ranges::find(results, n->shared_from_this()) == results.end())
        results.push_back(n->shared_from_this());
    });
    std::vector<std::pair<size_t, NodePtr>> known;
    for (size_t i = 0; i < w.graph.items.size(); ++i)
      for (const NodePtr& n : results)
        if (loops_of(w.graph.items[i]) == n.get()) known.push_back({i, n});
    std::vector<NodePtr> operands(first->args.begin(), first->args.end());
    waiting_.push_back(roots);
    compute(operands);
    waiting_.pop_back();
    if (planned_) {
      ++planned_->programs;
      for (const NodePtr& n : results) n->assumed_mark = assumed_;
    } else if (is_undone(*first)) {
      undo_loops(results);
    } else {
      run_loops(results);
    }
    if (!planned_)
      for (const auto& [item, n] : known) known_values().add(w.structures[item], n);
    return true;
  }

  // A call's operands, from this one on, as these tensors of p.
  static void push_arguments(std::vector<Argument>& to, const Node& call, const Program& p, const std::vector<TensorId>& tensors,
                             size_t from) {
    for (size_t k = 0; k < tensors.size(); ++k) to.push_back({p.tensor(tensors[k]).name, *alias_of(*call.args[from + k])});
  }
  static std::vector<std::shared_ptr<Storage>> memory_for(std::vector<Argument>& to, const Program& p, const DimValues& dims) {
    std::vector<std::shared_ptr<Storage>> made;
    for (TensorId t : p.outputs) {
      made.push_back(new_storage(p.tensor(t).type, shape_of(p, t, dims)));
      to.push_back({p.tensor(t).name, made.back()->view});
    }
    return made;
  }
  static DimValues dims_of(const Node& call) {
    Shapes shapes;
    for (size_t k = 0; k < call.program->inputs.size(); ++k)
      shapes[call.program->tensor(call.program->inputs[k]).name] = call.args[k]->shape.vector();
    return solve_dims(*call.program, shapes);
  }

  void run_loops(const std::vector<NodePtr>& results) {
    const Node call(*results[0]);
    const Program& p = *call.program;
    std::vector<Argument> arguments;
    push_arguments(arguments, call, p, p.inputs, 0);
    const auto made = memory_for(arguments, p, dims_of(call));
    std::shared_ptr<Ran> ran;
    if (const std::vector<std::string> wrt = wanted_of_loops(*results[0]); !wrt.empty()) {
      ran = std::make_shared<Ran>(Ran{compiled(p, wrt), wrt, {}});
      count_run([&] { return ran->op.forward(arguments, ran->stash); });
    } else {
      run(compiled(p), arguments);
    }
    std::vector<Node*> by_output(p.outputs.size(), nullptr);
    const int generation = generation_of(call.args);
    for (const NodePtr& n : results) {
      const auto o = static_cast<size_t>(n->params[0]);
      by_output[o] = n.get();
      become_leaf(*n, made[o], true, generation + 1);
    }
    attach_loops(call, by_output, made, ran);
  }

  void undo_loops(const std::vector<NodePtr>& results) {
    const Node call(*results[0]);
    const Program& p = *call.program;
    std::shared_ptr<Ran> ran = results[0]->kept->ran;
    std::vector<std::string> wrt;
    for (const NodePtr& n : results) wrt.push_back(p.tensor(p.inputs[static_cast<size_t>(n->params[0])]).name);
    std::vector<Argument> arguments;
    push_arguments(arguments, call, p, p.inputs, 0);
    std::vector<std::shared_ptr<Storage>> again;
    if (!ran || !std::ranges::all_of(wrt, [&](const std::string& s) { return std::ranges::find(ran->wrt, s) != ran->wrt.end(); })) {
      ran = std::make_shared<Ran>(Ran{compiled(p, wrt), wrt, {}});
      again = memory_for(arguments, p, dims_of(call));
      count_run([&] { return ran->op.forward(arguments, ran->stash); });
    } else {
      push_arguments(arguments, call, p, p.outputs, p.inputs.size());
    }
    const Program& derived = ran->op.program();
    push_arguments(arguments, call, derived, derived.cotangents, p.inputs.size() + p.outputs.size());
    std::vector<std::shared_ptr<Storage>> made;
    for (const NodePtr& n : results) {
      made.push_back(new_storage(n->type, n->shape));
      const auto at = std::ranges::find(derived.gradient_of, p.inputs[static_cast<size_t>(n->params[0])]) - derived.gradient_of.begin();
      arguments.push_back({derived.tensor(derived.gradients[static_cast<size_t>(at)]).name, made.back()->view});
    }
    count_run([&] { return ran->op.backward(arguments, ran->stash); });
    const int generation = generation_of(call.args);
    for (size_t r = 0; r < results.size(); ++r) {
      results[r]->kept.reset();
      become_leaf(*results[r], made[r], true, generation + 1);
    }
  }

  static void run(const CompiledOp& op, const std::vector<Argument>& arguments) {
    count_run([&] { return op.infer(arguments); });
  }
  static void count_run(const std::function<CallCounts()>& f) {
    const auto start = std::chrono::steady_clock::now();
    const CallCounts c = f();
    totals.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
    ++totals.realizes;
    totals.kernels += c.kernels;
  }

  // contiguous() nodes below the roots are computed by themselves, those that do not need each other together.
  bool breakpoints_first(const Walk& w, const std::vector<NodePtr>& roots) {
    std::vector<NodePtr> ready;
    std::vector<char> above(w.graph.items.size(), 0);
    for (size_t i = 0; i < w.graph.items.size(); ++i) {
      const Item& item = w.graph.items[i];
      for (uint32_t a : w.graph.args_of(item)) above[i] |= above[a];
      if (item.role != detail::Role::value || item.node->kind != Kind::contiguous) continue;
      const bool root = std::ranges::any_of(roots, [&](const NodePtr& n) { return n.get() == item.node; });
      if (!above[i] && (!root || has_user(w.graph, static_cast<uint32_t>(i)))) ready.push_back(item.node->shared_from_this());
      above[i] = 1;
    }
    if (ready.empty() || ready.size() == roots.size() + w.graph.items.size()) return false;
    if (std::ranges::all_of(ready, [&](const NodePtr& n) { return std::ranges::find(roots, n) != roots.end(); }) &&
        ready.size() == w.roots.size())
      return false;
    waiting_.push_back(roots);
    compute_together(ready);
    waiting_.pop_back();
    return true;
  }

  static bool has_user(const Graph& g, uint32_t item) { return std::ranges::find(g.args, item) != g.args.end(); }

  // A graph that is too large for one program is cut into pieces of the order in which it is listed. What later pieces read of one is
  // kept until the end.
  bool pieces_first(const Walk& w, const std::vector<NodePtr>& roots) {
    const size_t limit = options().nodes_per_program;
    const Graph& g = w.graph;
    if (limit == 0 || g.items.size() <= limit + limit / 4) return false;
    waiting_.push_back(roots);
    for (const auto& d : g.derivatives) {
      std::vector<NodePtr> gradients;
      for (const Item& item : g.items)
        if (item.role == detail::Role::grad && g.derivatives[item.number].get() == d.get())
          gradients.push_back(item.node->shared_from_this());
      compute_together(gradients);
    }
    bool any = !g.derivatives.empty();
    for (std::vector<NodePtr>& together : read_by_later_pieces(g, limit)) {
      std::erase_if(together, [&](const NodePtr& n) { return is_pending(*n); });
      any |= !together.empty();
      compute_together(together);
    }
    waiting_.pop_back();
    return any;
  }

  void compute_together(std::vector<NodePtr>& nodes) {
    std::erase_if(nodes, [&](const NodePtr& n) { return is_there(*n) || without_kernel(n); });
    if (nodes.empty()) return;
    Walk w = walk(nodes, assumed_);
    if (w.reused) return compute_together(nodes);
    run(w);
  }

  void run(Walk& w) {
    std::vector<Target> targets;
    std::vector<char> parts;
    for (Node* n : w.roots) {
      targets.push_back(target_of(*n));
      parts.push_back(targets.back().part);
    }
    Plan& plan = plan_of(w, parts);
    if (planned_) return count(w, plan);

    // Memory of ours whose address nobody knows need not be written over: the array gets other memory.
    bool direct = plan.in_place;
    std::vector<Node*> written;
    for (Target& t : targets) {
      if (!t.variable) continue;
      t.movable = !t.part && !t.variable->storage->exposed;
      written.push_back(t.variable->memory.get());
    }
    if (!written.empty()) {
      const std::vector<char> needed = find_needed(written, w.roots, waiting_);
      for (size_t r = 0, k = 0; r < targets.size(); ++r) {
        if (!targets[r].variable) continue;
        targets[r].needed = needed[k++];
        if (!targets[r].needed || targets[r].movable) continue;
        keep(*targets[r].variable->memory);
        ++totals.copies;
        targets[r].needed = false;
      }
    }

    std::vector<std::shared_ptr<Storage>> made(w.roots.size());
    std::vector<TensorView> outputs(plan.output_names.size());
    std::vector<char> given(outputs.size(), 0);
    auto bind = [&] {
      std::ranges::fill(given, 0);
      auto give = [&](size_t r, const TensorView& v) { outputs[plan.outputs[r]] = v, given[plan.outputs[r]] = 1; };
      for (size_t r = 0; r < w.roots.size(); ++r)
        if (targets[r].variable && direct && !targets[r].needed && !given[plan.outputs[r]]) give(r, targets[r].view);
      for (size_t r = 0; r < w.roots.size(); ++r) {
        if (given[plan.outputs[r]]) continue;
        const Shape shape = targets[r].part ? Shape(targets[r].view.extents()) : w.roots[r]->shape;
        made[r] = new_storage(w.roots[r]->type, shape);
        give(r, made[r]->view);
      }
    };
    std::vector<std::shared_ptr<Storage>> kept;
    if (plan.later) {
      const std::vector<Later::Value>& values = plan.later->kept;
      for (size_t i = 0; i < values.size(); ++i) {
        kept.push_back(new_storage(values[i].type, values[i].shape));
        outputs[outputs.size() - values.size() + i] = kept[i]->view;
      }
    }
    bind();
    if (direct && !written.empty()) {
      try {
        call(w, plan, outputs);
      } catch (const Error&) {
        // A result would be written over what is still to be read: aside first.
        direct = plan.in_place = false;
        bind();
        call(w, plan, outputs);
      }
    } else {
      call(w, plan, outputs);
    }

    const std::shared_ptr<const MadeHow> made_how = how_made(w, plan);
    const std::shared_ptr<Kept> for_later = what_was_kept(w, plan, kept);
    const int generation = generation_of(w.leaves);
    for (size_t r = 0; r < w.roots.size(); ++r) {
      Node& n = *w.roots[r];
      const TensorView& result = outputs[plan.outputs[r]];
      if (!targets[r].variable) {
        if (!made[r]) {  // the same value is another root as well
          made[r] = new_storage(n.type, n.shape);
          copy_elements(made[r]->view, result);
          ++totals.copies;
        }
        become_leaf(n, made[r], true, generation + 1);
        attach(for_later, made_how, w, plan, r);
        known_values().add(w.structures[w.graph.roots[r]], n.shared_from_this());
        continue;
      }
      Variable& v = *targets[r].variable;
      const NodePtr old = v.memory;
      if (made[r] && targets[r].movable) {
        made[r]->claimed = true;
        v.storage = made[r];
      } else if (result.data != targets[r].view.data) {
        copy_elements(targets[r].view, result);
        ++totals.copies;
      }
      if (old->storage == v.storage) old->expired = true;
      v.memory = v.current;
      become_leaf(n, v.storage, false, 0);
    }
  }

  void call(const Walk& w, const Plan& plan, const std::vector<TensorView>& outputs) {
    std::vector<Argument> arguments;
    arguments.reserve(plan.leaves.size() + plan.numbers.size() + outputs.size());
    for (size_t i = 0; i < plan.leaves.size(); ++i) arguments.push_back({plan.leaf_names[i], *alias_of(*w.leaves[plan.leaves[i]])});
    std::vector<uint64_t> numbers(plan.numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Node& n = *w.numbers[plan.numbers[i]];
      const TensorView v(&numbers[i], n.type, {}, {});
      fill(v, n);
      arguments.push_back({plan.number_names[i], v});
    }
    for (size_t o = 0; o < outputs.size(); ++o) arguments.push_back({plan.output_names[o], outputs[o]});
    if (plan.constant) return evaluate_constant(plan, outputs);
    run(plan.op, arguments);
  }

  static void evaluate_constant(const Plan& plan, const std::vector<TensorView>& outputs) {
    const Program& p = *plan.constant;
    Arrays inputs;
    for (TensorId t : p.inputs) inputs[p.tensor(t).name] = xhat::zeros(p.tensor(t).type, shape_of(p, t, plan.dims));
    const Arrays results = evaluate(p, inputs, plan.dims);
    for (size_t o = 0; o < outputs.size(); ++o) write_array(outputs[o], results.at(plan.output_names[o]));
  }

  void count(const Walk& w, const Plan& plan) {
    for (Node* n : w.roots) n->assumed_mark = assumed_;
    if (on_plan_) on_plan_(plan);
    if (plan.constant) return;
    const KernelPlan k = plan.op.plan(CompiledOp::Phase::infer, plan.dims);
    ++planned_->programs;
    planned_->kernels += static_cast<int64_t>(k.kernels.size());
    planned_->bytes += k.bytes_moved;
  }

  // How many realizes stand behind these values, before this one.
  int generation_of(const auto& nodes) const {
    int generation = 0;
    for (const auto& n : nodes) generation = std::max(generation, n->generation - (made_.contains(&*n) ? 1 : 0));
    return generation;
  }

  void become_leaf(Node& n, std::shared_ptr<Storage> storage, bool with_origin, int generation) {
    made_.insert(&n);
    if (with_origin && generation <= kGenerations) {
      n.origin = pooled<Node>(n);
      n.generation = generation;
    } else {
      n.forgotten = with_origin;
      n.generation = 0;
    }
    n.kind = Kind::leaf;
    n.type = storage->view.type;
    n.weak = false;
    n.storage = std::move(storage);
    n.args.clear();
    n.params.clear();
    n.views.clear();
    n.program.reset();
  }

  Cost* planned_;
  const std::function<void(const Plan&)> on_plan_;
  const uint64_t assumed_;
  std::vector<std::vector<NodePtr>> waiting_;
  std::unordered_set<const Node*> made_;  // became memory in this realize
};

// What has to be computed so that the array has memory: movement of what is not there yet is that, and no copy.
NodePtr computed_root(NodePtr n) {
  while (n->kind == Kind::reshape) {
    const Node* base = n.get();
    while (is_movement(base->kind)) base = base->args[0].get();
    if (base->realized()) break;
    n = n->args[0];
  }
  return n;
}

}  // namespace

Cost cost_of(const std::vector<NodePtr>& wanted, std::function<void(const Plan&)> on_plan) {
  std::lock_guard lock(engine_mutex());
  std::vector<NodePtr> roots;
  for (const NodePtr& n : wanted)
    if (!alias_of(*n)) roots.push_back(computed_root(n));
  Cost cost;
  Realizer(&cost, std::move(on_plan)).compute(roots);
  return cost;
}

}  // namespace detail

using namespace detail;

void realize(std::span<const Array> arrays) {
  std::lock_guard lock(engine_mutex());
  std::vector<NodePtr> roots;
  for (const Array& x : arrays) {
    const NodePtr& n = node_of(x);
    if (alias_of(*n)) continue;
    NodePtr root = computed_root(n);
    if (std::ranges::find(roots, root) == roots.end()) roots.push_back(std::move(root));
  }
  Realizer().compute(std::move(roots));
  for (const Array& x : arrays) claim(*x.state());
}

Counts counts() {
  std::lock_guard lock(engine_mutex());
  const PlanCounts p = plan_counts();
  return {totals.realizes, totals.kernels, totals.copies, p.compiles, p.plans, storage_bytes(), living_nodes(), totals.nanoseconds};
}

}  // namespace xhat::lazy
