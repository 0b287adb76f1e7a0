#include "runtime/explain/explain.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "expr/core/uses.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/call/debug.h"
#include "runtime/call/passes.h"
#include "runtime/call/run_time_checks.h"
#include "runtime/call/show_kernels.h"
#include "runtime/explain/explain_steps.h"
#include "runtime/explain/planned.h"

namespace xhat {
namespace {

// An extent has no axes, so the printer's text of it needs no scope.
std::vector<std::string> shape_texts(const Program& p, const std::vector<Id>& shape) {
  std::vector<std::string> texts;
  for (Id extent : shape) texts.push_back(print(p, extent));
  return texts;
}

}  // namespace

std::vector<ExplainedTensor> tensors_of(const Program& p, const std::vector<TensorId>& list) {
  std::vector<ExplainedTensor> result;
  for (TensorId t : list)
    result.push_back({p.tensors[t].name, p.tensors[t].type, shape_texts(p, p.tensors[t].shape)});
  return result;
}

// The sizes to plan with: the given ones, else nominal ones. The nominal extent is doubled until the op's preconditions hold.
DimValues choose_sizes(const Program& p, const StashOptions& stash, const DimValues& given) {
  constexpr int64_t kLargestNominal = 1 << 14;
  DimValues all_given = stash.nominal;
  for (const auto& [name, value] : given) all_given[name] = value;
  bool complete = true;
  for (int64_t extent = std::max<int64_t>(1, stash.nominal_extent);; extent *= 2) {
    DimValues sizes = all_given;
    for (const Dim& d : p.dims) {
      if (d.definition != kNone) continue;
      complete &= !sizes.emplace(p.arena->name(d.dim), extent).second;
    }
    try {
      return solve_dims(p, {}, sizes);
    } catch (const Error&) {
      if (complete || extent >= kLargestNominal) throw;
    }
  }
}

namespace {

// Sizes for the dims of the derived program, whose preconditions may require more than the op's.
DimValues sizes_of(const Program& op, const Program& derived, StashOptions stash, const DimValues& given) {
  const DimValues first = choose_sizes(op, stash, given);
  stash.nominal.clear();
  for (const Dim& d : derived.dims)
    if (auto it = first.find(derived.arena->name(d.dim)); it != first.end()) stash.nominal.insert(*it);
  return choose_sizes(derived, stash, {});
}

class Explainer {
 public:
  Explainer(const Program& op, const CompileOptions& o, const DimValues& given) : options_(o) {
    e_.text = print(op);
    e_.open_reads = open_reads(op);
    const runtime::Passes passes(op, options_);
    e_.sizes = sizes_of(op, passes.halfway(), o.stash, given);
    const StashChoice choice = passes.choose(e_.sizes);
    passes.require_budget(choice);
    derivation_ = passes.derive(choice);
    p_ = &derivation_.program;
    for (const Dim& d : p_->dims) {
      const std::string& name = p_->arena->name(d.dim);
      if (d.definition == kNone && !given.contains(name)) e_.nominal[name] = e_.sizes.at(name);
    }
  }

  Explanation run(ExplainedParts* parts = nullptr) {
    parts_ = parts;
    Explanation made = report();
    if (parts_) parts_->derivation = std::move(derivation_);
    return made;
  }

 private:
  Explanation report() {
    const Program& p = *p_;
    e_.op = p.name;
    e_.inputs = tensors_of(p, p.inputs);
    e_.outputs = tensors_of(p, p.outputs);
    e_.gradients = tensors_of(p, p.gradients);
    e_.infer = direction(infer_program(p), p.name, parts_ && !options_.differentiate ? &parts_->forward : nullptr);
    if (!options_.differentiate) {
      e_.forward = e_.infer;
      e_.infer_only = true;
      return std::move(e_);
    }
    e_.forward = direction(forward_program(p), p.name + "_forward", parts_ ? &parts_->forward : nullptr);
    e_.backward = direction(backward_program(p), p.name + "_backward", parts_ ? &parts_->backward : nullptr);
    values();
    stash();
    e_.cost_ns = derivation_.stash.cost_ns;
    e_.lower_bound_ns = derivation_.stash.lower_bound_ns;
    e_.optimal = derivation_.stash.optimal;
    return std::move(e_);
  }

  CompileOptions options_;
  ExplainedParts* parts_ = nullptr;
  Derivation derivation_;
  const Program* p_ = nullptr;
  Explanation e_;

  void values() {
    for (const StashCandidate& c : derivation_.stash.candidates)
      e_.values.push_back({c.verdict, c.name, c.expression, shape_texts(derivation_.stash.program, c.shape),
                           c.bytes, c.uses, c.keep_ns, c.recompute_ns, c.reason});
  }

  // The candidate that a stashed tensor holds: the tensor itself, or the tensor that it copies (an output that the caller drops).
  const StashCandidate* candidate(TensorId t) const {
    auto find = [&](TensorId wanted) -> const StashCandidate* {
      for (const StashCandidate& c : derivation_.stash.candidates)
        if (c.tensor == wanted) return &c;
      return nullptr;
    };
    if (auto* c = find(t)) return c;
    const Definition* d = p_->definition_of(t);
    auto read = tensors_read(*p_->arena, d->body);
    return read.size() == 1 ? find(read[0]) : nullptr;
  }

  void stash() {
    const Program& p = *p_;
    std::vector<TensorId> stashed = stashes(p);
    for (TensorId t : stashed) {
      const StashCandidate* c = candidate(t);
      e_.stash.push_back({p.tensors[t].name, print(p, p.definition_of(t)->body),
                          shape_texts(p, p.tensors[t].shape), bytes_of(p, t, e_.sizes),
                          c ? c->reason : "the backward reads it"});
    }
    for (TensorId t : backward_program(p).inputs) {
      bool caller = std::ranges::find(p.inputs, t) != p.inputs.end() ||
                    std::ranges::find(p.outputs, t) != p.outputs.end();
      if (caller) e_.kept_by_caller.push_back(p.tensors[t].name);
    }
  }

  ExplainedDirection direction(Program program, const std::string& name, PlannedDirection* kept) {
    program.name = name;
    ExplainedDirection d;
    // A direction may have nothing to compute: integers have no gradients.
    d.text = program.outputs.empty() ? "" : text_of(program);
    PlanRequest request = runtime::request_of(options_, options_.target);
    d.ops = group_by_policy(program, request, derivation_.opaque_nodes);
    d.checks = checks_of(program);
    PlannedDirection made = plan_direction(std::move(program), derivation_, options_, e_.sizes);
    const KernelPlan& plan = made.plan;
    program = std::move(made.program);
    const runtime::Debug debug = runtime::debug_options();
    const std::string file = name == e_.op ? name + "_infer" : name;
    if (made.rewritten && !debug.dump.empty()) runtime::write_dump(debug, file + ".for_sizes.xh", print(program));
    runtime::show_kernels(debug, file, program, plan, e_.sizes, options_.target);
    d.kernel_count = plan.sweeps();
    d.bytes_moved = plan.bytes_moved;
    d.bytes_unavoidable = plan.bytes_unavoidable;
    d.flops = plan.flops;
    d.reductions = made.reductions;
    size_t after = 0;  // index of the last sweep
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      const Kernel& k = plan.kernels[i];
      std::string sweep_name = k.epilogue ? k.name + "_finish" : k.name;
      ExplainedKernel sweep{sweep_name, {}, k.bytes_moved, k.bytes_unavoidable, k.flops, k.epilogue, k.reason, k.key, k.choice,
                            made.calls[i] ? to_text(*made.calls[i]) : ""};
      for (const Member& m : k.members) sweep.computes.push_back(program.tensors[program.forward.definitions[m.definition].target()].name);
      auto add = [&] {
        if (k.horizontal) return d.kernels[after].join(sweep);
        after = d.kernels.size();
        d.kernels.push_back(std::move(sweep));
      };
      if (!k.combines_partials) {
        add();
        continue;
      }
      // The planner counts both steps together. Here they are separate, and their sum is the same.
      ExplainedKernel second = finishing_step(program, k);
      sweep.bytes_moved = std::max<int64_t>(0, sweep.bytes_moved - second.bytes_moved);
      sweep.bytes_unavoidable = std::max<int64_t>(0, sweep.bytes_unavoidable - second.bytes_unavoidable);
      sweep.flops = std::max<int64_t>(0, sweep.flops - second.flops);
      add();
      d.kernels.push_back(std::move(second));
    }
    if (kept) {
      made.program = std::move(program);
      *kept = std::move(made);
    }
    return d;
  }

  std::vector<ExplainedCheck> checks_of(const Program& program) const {
    std::vector<ExplainedCheck> list;
    const runtime::Checks checks = runtime::run_time_checks(program);
    if (checks.checks.empty()) return list;
    const Program& p = checks.first();
    const Uses uses(p);
    for (const runtime::DataCheck& c : checks.checks) {
      ExplainedCheck& made = list.emplace_back();
      made.checked = c.checked;
      made.definition = program.tensors[program.forward.definitions[c.definition].target()].name;
      std::vector<TensorId> open = {c.fails};
      std::set<TensorId> met;
      while (!open.empty()) {
        const Definition* d = uses.definition(open.back());
        open.pop_back();
        for (TensorId t : tensors_read(*p.arena, d->body)) {
          if (!met.insert(t).second) continue;
          if (uses.definition(t))
            open.push_back(t);
          else {
            made.reads.push_back(p.tensors[t].name);
            made.bytes += bytes_of(p, t, e_.sizes);
          }
        }
      }
    }
    return list;
  }

  // A dim that the op defines may be an extent of a cotangent. In the backward, which has that as an input, the dim is solved from it.
  static std::string text_of(Program program) {
    for (Dim& d : program.dims)
      for (TensorId t : program.inputs)
        for (Id extent : program.tensors[t].shape)
          if (std::ranges::count(reachable(*program.arena, extent), d.dim)) d.definition = kNone;
    return print(program);
  }

  // The second step of k: reads one partial result per tile for each reduction across tiles, writes the results.
  ExplainedKernel finishing_step(const Program& program, const Kernel& k) const {
    ExplainedKernel step;
    step.name = k.name + "_finish";
    step.finish = true;
    auto tiles_of = [&](int c) {
      const KernelAxis& axis = k.axes[static_cast<size_t>(c)];
      return std::max<int64_t>(1, (axis.extent + axis.tile - 1) / std::max<int64_t>(1, axis.tile));
    };
    for (const Member& m : k.members) {
      int64_t partials = 1;
      for (int c : m.reduced)
        if (k.leaves_partials(c)) partials *= tiles_of(c);
      if (partials == 1) continue;
      TensorId t = program.forward.definitions[m.definition].target();
      int64_t size = bytes_of(program, t, e_.sizes);
      step.computes.push_back(program.tensors[t].name);
      step.bytes_moved += (partials + 1) * size;
      step.bytes_unavoidable += size;
      step.flops += partials * size / static_cast<int64_t>(byte_size(program.tensors[t].type));
    }
    return step;
  }
};

}  // namespace

void ExplainedKernel::join(const ExplainedKernel& other) {
  name += "_" + other.name;
  computes.insert(computes.end(), other.computes.begin(), other.computes.end());
  bytes_moved += other.bytes_moved;
  bytes_unavoidable += other.bytes_unavoidable;
  flops += other.flops;
  key += "+" + other.key;
}

Explanation explain(const Program& op, const CompileOptions& options, const DimValues& given) {
  return op.steps ? explain_steps(op, options, given) : Explainer(op, options, given).run();
}

Explanation explain(const Program& op, const CompileOptions& options, const DimValues& given, ExplainedParts& parts) {
  return Explainer(op, options, given).run(&parts);
}

ExplainedFront explain_pareto(const Program& op, const CompileOptions& options, const DimValues& given) {
  ExplainedFront front;
  front.op = op.name;
  front.sizes = choose_sizes(op, options.stash, given);
  for (const Dim& d : op.dims) {
    const std::string& name = op.arena->name(d.dim);
    if (d.definition == kNone && !given.contains(name)) front.nominal[name] = front.sizes.at(name);
  }
  StashOptions at_sizes = options.stash;
  at_sizes.nominal = front.sizes;
  front.points = pareto_front(runtime::Passes(op, options).halfway(), at_sizes, options.machine);
  return front;
}

}  // namespace xhat
