#include "runtime/call/steps_op.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "ad/reverse/gradient.h"
#include "expr/core/array.h"
#include "expr/eval/run_steps.h"
#include "expr/index/steps_blocks.h"
#include "runtime/call/callers_memory.h"
#include "runtime/call/check_view.h"
#include "runtime/call/steps_machine.h"
#include "runtime/device/device.h"
#include "runtime/host/finish.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {

namespace {

// What a block does in that phase of the program: none, where it has no gradients.
std::optional<CompiledOp::Phase> phase_of(const Block& b, CompiledOp::Phase phase) {
  if (b.with_gradient) return phase;
  if (phase == CompiledOp::Phase::backward) return {};
  return CompiledOp::Phase::infer;
}

LoopPhase loop_phase(CompiledOp::Phase phase) {
  switch (phase) {
    case CompiledOp::Phase::infer: return LoopPhase::infer;
    case CompiledOp::Phase::forward: return LoopPhase::forward;
    case CompiledOp::Phase::backward: break;
  }
  return LoopPhase::backward;
}

// What a block or a loop saved: values, and memory of its own.
template <class F>
void for_each_value(const KernelMachine::Saved& saved, F f) {
  for (const auto& [name, operand] : saved.kept) f(operand.value);
}
template <class F>
void for_each_value(const KernelMachine::LoopSaved& saved, F f) {
  for (const auto& v : saved.outside) f(v);
  for (const auto& v : saved.left)
    if (v) f(v);
}
int64_t own_bytes(const KernelMachine::Saved& saved) { return saved.stash->bytes(); }
int64_t own_bytes(const KernelMachine::LoopSaved& saved) {
  int64_t sum = 0;
  for (const auto& v : saved.tapes) sum += v->bytes;
  return sum;
}

}  // namespace

class StepsTape {
 public:
  StepsTape(const Program& p, const Lifetimes& lifetimes, std::shared_ptr<StepsKernels> ops, std::shared_ptr<Pool> pool,
            std::optional<int64_t> budget)
      : machine(p, lifetimes, ops, std::move(pool)), run(p, lifetimes, ops->dims, machine, true, budget) {}
  KernelMachine machine;
  StepRun<KernelMachine> run;
  CallersMemory caller;
};

struct StepsOp::Impl {
  CompileOptions options;         // of blocks
  std::optional<int64_t> budget;  // of all that a forward keeps
  Derivation derivation;
  std::unique_ptr<Lifetimes> lifetimes;
  ArgumentNames names;
  std::mutex mutex;
  std::map<DimValues, std::shared_ptr<StepsKernels>> by_dims;

  const Program& program() const { return derivation.program; }
  [[noreturn]] void fail(const std::string& what) const { throw Error(program().name + ": " + what); }

  std::vector<std::optional<Argument>> collect(CompiledOp::Arguments arguments) const {
    std::vector<std::optional<Argument>> given(program().tensors.size());
    for (const Argument& a : arguments) {
      const TensorId t = argument_of(program(), names, a.name);
      if (given[t]) fail(fmt::format("'{}' is given twice", a.name));
      if (a.view.on_device())
        fail(fmt::format("'{}' lies on a device; programs with loops or branches take memory of the host as yet", a.name));
      given[t] = a;
    }
    return given;
  }

  void need(const std::vector<std::optional<Argument>>& given, const std::vector<TensorId>& tensors, bool written) const {
    const DeviceQueue queue = queue_of(Target::cpu, nullptr);
    for (TensorId t : tensors) {
      if (!given[t]) fail(fmt::format("'{}' is missing", program().tensors[t].name));
      check_view(program(), t, given[t]->view, written, queue);
    }
  }

  void check_shape(const StepsKernels& ops, TensorId t, const TensorView& v) const {
    if (!std::ranges::equal(ops.shapes[t], v.extents()))
      fail(fmt::format("{} must have shape {} ({}), but the buffer given has {}", program().tensors[t].name, shape_text(ops.shapes[t]),
                       dims_text(ops.dims), shape_text(v.extents())));
  }

  CompileOptions loop_options() const {
    CompileOptions o = options;
    if (budget) o.stash.policy = StashOptions::Policy::budget;
    return o;
  }

  std::shared_ptr<StepsKernels> at(const DimValues& dims) {
    std::lock_guard lock(mutex);
    auto& ops = by_dims[dims];
    if (ops) return ops;
    auto made = std::make_shared<StepsKernels>();
    made->dims = dims;
    for (TensorId t = 0; t < program().tensors.size(); ++t) made->shapes.push_back(shape_of(program(), t, dims));
    for (auto& [block, op] : block_ops(program(), options, dims)) {
      CompiledBlock& compiled = made->compiled[block];
      compiled.op = compile(op.op, op.options);
      if (op.deferred) compiled.sums.emplace(op);
    }
    made->threads = threads_or_all(options.threads);
    made->whole = whole_loops(program(), loop_options(), made->dims, made->shapes);
    return ops = made;
  }

  std::shared_ptr<StepsKernels> ops_for(const std::vector<std::optional<Argument>>& given) {
    Shapes shapes;
    for (TensorId t : program().inputs)
      shapes[program().tensors[t].name] = {given[t]->view.extents().begin(), given[t]->view.extents().end()};
    auto ops = at(solve_dims(program(), shapes, options.dims));
    for (TensorId t : program().outputs) check_shape(*ops, t, given[t]->view);
    return ops;
  }

  // Runs forward and delivers the outputs.
  void run(KernelMachine& machine, StepRun<KernelMachine>& steps, const std::vector<std::optional<Argument>>& given,
           const CallOptions& call) {
    machine.call = call;
    for (TensorId t : program().inputs) {
      machine.give_input(t, given[t]->view);
      steps.set(t, machine.input(t));
    }
    steps.run();
    for (TensorId t : program().outputs) {
      copy_into(given[t]->view, machine.view(steps.value(t)));
    }
  }
};

StepsOp::StepsOp(const Program& p, const CompileOptions& options) : impl_(std::make_unique<Impl>()) {
  Impl& i = *impl_;
  i.options = options;
  if (options.stash.policy == StashOptions::Policy::budget) {
    i.budget = options.stash.budget;
    i.options.stash.policy = StashOptions::Policy::cost;
  }
  if (options.stash.kept_by_caller || !options.stash.dropped.empty())
    throw Error(p.name + ": which inputs and outputs stay with the caller cannot be chosen for programs with loops or branches yet");
  i.derivation.program = options.differentiate ? gradient(p, {options.wrt}) : p;
  i.derivation.steps.push_back({"parse", p, 0});
  i.lifetimes = std::make_unique<Lifetimes>(i.program());
  i.names = argument_names(i.program());
}
StepsOp::~StepsOp() = default;

const Derivation& StepsOp::derivation() const { return impl_->derivation; }

CallCounts StepsOp::infer(CompiledOp::Arguments arguments, const CallOptions& call) {
  const auto given = impl_->collect(arguments);
  impl_->need(given, impl_->program().inputs, false);
  impl_->need(given, impl_->program().outputs, true);
  const auto ops = impl_->ops_for(given);
  KernelMachine machine(impl_->program(), *impl_->lifetimes, ops, take_pool(ops));
  StepRun<KernelMachine> run(impl_->program(), *impl_->lifetimes, ops->dims, machine, false);
  impl_->run(machine, run, given, call);
  return machine.counts;
}

CallCounts StepsOp::forward(CompiledOp::Arguments arguments, std::shared_ptr<StepsTape>& tape, const CallOptions& call) {
  if (!impl_->options.differentiate) impl_->fail("compiled without a backward (CompileOptions::differentiate)");
  const auto given = impl_->collect(arguments);
  impl_->need(given, impl_->program().inputs, false);
  impl_->need(given, impl_->program().outputs, true);
  tape.reset();  // what it holds is used again
  const auto ops = impl_->ops_for(given);
  tape = std::make_shared<StepsTape>(impl_->program(), *impl_->lifetimes, ops, take_pool(ops), impl_->budget);
  impl_->run(tape->machine, tape->run, given, call);
  std::vector<TensorView> views(given.size());
  for (size_t t = 0; t < given.size(); ++t)
    if (given[t]) views[t] = given[t]->view;
  tape->caller.remember(impl_->program(), views);
  return tape->machine.counts;
}

CallCounts StepsOp::backward(CompiledOp::Arguments arguments, StepsTape& tape, const CallOptions& call) {
  const Program& p = impl_->program();
  auto given = impl_->collect(arguments);
  KernelMachine& machine = tape.machine;
  const StepsKernels& ops = machine.kernels();
  machine.counts = {};
  machine.call = call;
  auto supply = [&](TensorId t) {
    TensorView view;
    if (!given[t] && tape.caller.supply(p, t, view)) given[t] = Argument{p.tensors[t].name, view};
  };
  for (const std::string& name : kept(&tape)) {
    const TensorId t = impl_->names.at(name);
    supply(t);
    impl_->need(given, {t}, false);
    impl_->check_shape(ops, t, given[t]->view);
    machine.give_input(t, given[t]->view);
  }
  for (TensorId t : p.cotangents) supply(t);
  impl_->need(given, p.cotangents, false);
  tape.run.forget_adjoints();
  size_t next = 0;
  for (TensorId t : p.outputs) {
    if (!is_float(p.tensors[t].type)) continue;
    const TensorId cotangent = p.cotangents[next++];
    impl_->check_shape(ops, cotangent, given[cotangent]->view);
    tape.run.set_adjoint(t, machine.copy(given[cotangent]->view));
  }
  const int64_t replayed = tape.run.replayed();
  tape.run.run_back();
  machine.counts.replayed = tape.run.replayed() - replayed;
  for (size_t i = 0; i < p.gradients.size(); ++i) {
    const auto& wanted = given[p.gradients[i]];
    if (!wanted) continue;
    impl_->need(given, {p.gradients[i]}, true);
    impl_->check_shape(ops, p.gradients[i], wanted->view);
    auto found = tape.run.adjoint(p.gradient_of[i]);
    if (!found) found = machine.zeros(p.gradient_of[i]);
    const TensorView from = machine.view(found);
    if (wanted->accumulate)
      add_into(wanted->view, from);
    else
      copy_into(wanted->view, from);
  }
  tape.run.forget_adjoints();
  return machine.counts;
}

void StepsOp::set_threads(int threads) {
  std::lock_guard lock(impl_->mutex);
  impl_->options.threads = threads;
  for (auto& [dims, ops] : impl_->by_dims) {
    ops->threads = threads_or_all(threads);
    for (auto& [block, compiled] : ops->compiled) compiled.op.set_threads(threads);
  }
}

double StepsOp::prepare(CompiledOp::Phase phase, const DimValues& dims) {
  const auto ops = impl_->at(dims);
  double ms = 0;
  const auto in_whole = blocks_of(ops->whole);
  for (const auto& [loop, code] : ops->whole) {
    const double before = code->compile_ms();
    if (const LoopPhase own = loop_phase(phase); code->has(own)) code->ready(own);
    ms += code->compile_ms() - before;
  }
  for (const BlockAt& at : blocks_at(impl_->program(), dims)) {
    if (auto it = in_whole.find(at.block); it != in_whole.end() && ops->whole.at(it->second)->has(loop_phase(phase))) continue;
    const CompiledBlock& compiled = ops->compiled.at(key(*at.block));
    if (const auto own = phase_of(*at.block, phase)) ms += compiled.op.prepare(*own, at.dims);
    if (phase == CompiledOp::Phase::backward && compiled.sums)
      ms += compiled.sums->op.prepare(CompiledOp::Phase::infer, compiled.sums->full());
  }
  return ms;
}

std::vector<std::string> StepsOp::refused(CompiledOp::Phase phase, const DimValues& dims) {
  const auto ops = impl_->at(dims);
  std::vector<std::string> all;
  for (const BlockAt& at : blocks_at(impl_->program(), dims))
    if (const auto own = phase_of(*at.block, phase))
      std::ranges::copy(ops->compiled.at(key(*at.block)).op.refused(*own, at.dims), std::back_inserter(all));
  return all;
}

KernelPlan StepsOp::plan(CompiledOp::Phase phase, const DimValues& dims) {
  const auto ops = impl_->at(dims);
  const Program& p = impl_->program();
  KernelPlan all;
  const auto in_whole = blocks_of(ops->whole);
  std::map<const Loop*, size_t> whole;  // its kernel
  for (const auto& [loop, code] : ops->whole) {
    if (!code->has(loop_phase(phase))) continue;
    Kernel k;
    k.name = name_of(p, *loop, *code);
    k.bytes_moved = k.bytes_unavoidable = bytes_of(p, *loop, *code, ops->shapes);
    all.bytes_moved += k.bytes_moved;
    whole[loop] = all.kernels.size();
    all.kernels.push_back(std::move(k));
  }
  for (const BlockAt& at : blocks_at(p, dims)) {
    const auto own = phase_of(*at.block, phase);
    if (!own) continue;
    const CompiledBlock& compiled = ops->compiled.at(key(*at.block));
    if (auto it = in_whole.find(at.block); it != in_whole.end() && whole.contains(it->second)) {
      const int64_t flops = at.runs * compiled.op.plan(*own, at.dims).flops;
      all.kernels[whole.at(it->second)].flops += flops;
      all.flops += flops;
      continue;
    }
    auto add = [&](KernelPlan plan, int64_t runs) {
      all.bytes_moved += runs * plan.bytes_moved;
      all.flops += runs * plan.flops;
      all.reductions += plan.reductions;
      std::ranges::move(plan.kernels, std::back_inserter(all.kernels));
    };
    add(compiled.op.plan(*own, at.dims), at.runs);
    if (phase == CompiledOp::Phase::backward && compiled.sums)
      add(compiled.sums->op.plan(CompiledOp::Phase::infer, compiled.sums->full()), compiled.sums->times(at.runs));
  }
  auto add = [&](const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors) all.bytes_unavoidable += TensorView(nullptr, p.tensors[t].type, ops->shapes[t], {}).bytes();
  };
  add(p.inputs);
  add(phase == CompiledOp::Phase::backward ? p.cotangents : p.outputs);
  if (phase == CompiledOp::Phase::backward) add(p.gradients);
  return all;
}

std::vector<std::string> StepsOp::kept(const StepsTape* tape) const {
  std::set<TensorId> needed;
  if (tape)
    tape->run.for_each_saved([&](const auto& saved) {
      for_each_value(saved, [&](const KernelMachine::Value& v) {
        if (v->input) needed.insert(*v->input);
      });
    });
  else
    needed.insert(impl_->program().inputs.begin(), impl_->program().inputs.end());
  std::vector<TensorId> in_order;
  for (TensorId t : impl_->program().inputs)
    if (needed.contains(t)) in_order.push_back(t);
  return names_of(impl_->program(), in_order);
}

int64_t bytes_of(const StepsTape& tape) {
  int64_t bytes = tape.run.state_bytes();
  std::set<const Held*> seen;
  tape.run.for_each_saved([&](const auto& saved) {
    bytes += own_bytes(saved);
    for_each_value(saved, [&](const KernelMachine::Value& v) {
      if (seen.insert(v.get()).second) bytes += v->bytes;
    });
  });
  return bytes;
}

}  // namespace xhat::runtime
