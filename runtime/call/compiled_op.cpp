// Binding the caller's buffers to an op's directions, with every check before anything runs.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "expr/eval/evaluate.h"
#include "expr/index/size_limits.h"
#include "expr/text/import.h"
#include "fusion/plan/for_sizes.h"
#include "runtime/call/check_values.h"
#include "runtime/call/check_view.h"
#include "runtime/call/compile.h"
#include "runtime/call/data_checks.h"
#include "runtime/call/evaluated_calls.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"
#include "runtime/call/show_compiled.h"
#include "runtime/call/show_kernels.h"
#include "runtime/call/stash_memory.h"
#include "runtime/call/steps_op.h"
#include "runtime/call/watch_calls.h"
#include "runtime/device/host_copy.h"
#include "runtime/host/finish.h"

namespace xhat {
namespace {

using runtime::DeviceQueue;
using runtime::DirectionKernels;
using runtime::OpPlan;
using runtime::Ready;
using runtime::ReadyList;
using runtime::Side;
using runtime::ThreadPool;

// An output of the backward that is added to a tensor of the caller's, on the host.
struct HostSum {
  TensorView target;
  TensorId output;
};

}  // namespace

struct CompiledOp::Impl {
  CompileOptions options;
  const runtime::Debug debug = runtime::debug_options();
  std::unique_ptr<runtime::StepsOp> steps;  // of a program with loops or branches, instead of all that follows
  std::unique_ptr<runtime::WatchedOp> watched;  // XHAT_VIZ
  std::unique_ptr<runtime::OpPlans> plans;
  std::vector<TensorId> infer_bound;  // what every call of infer and forward binds: inputs, then outputs
  std::vector<TensorId> callers;  // what a caller may pass: inputs, outputs, cotangents, gradients
  ReadyList infer_calls;
  std::atomic<ThreadPool*> pool = nullptr;  // of the next call
  std::mutex pools_mutex;
  std::vector<std::shared_ptr<ThreadPool>> pools;  // and those before it, on which calls may still run
  mutable std::array<std::atomic<int>, 3> directions = {};  // that were made, by phase: XHAT=compiles asks
  std::shared_ptr<runtime::KernelCache> cache;
  runtime::ArgumentNames names;

  // Without what is kept, which depends on sizes.
  const Program& program() const { return steps ? steps->derivation().program : plans->op(); }
  runtime::LibraryChoice libraries() const { return {options.libraries, options.math}; }
  bool on_gpu() const { return options.target != Target::cpu; }
  const std::string& name(TensorId t) const { return program().tensors[t].name; }
  static const Side& side_of(const OpPlan& plan, Phase which) {
    return which == Phase::infer ? plan.infer : which == Phase::forward ? plan.forward : plan.backward;
  }
  ReadyList& calls_of(OpPlan& plan, Phase which) {
    return which == Phase::infer ? infer_calls : which == Phase::forward ? plan.forward_calls : plan.backward_calls;
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(program().name + ": " + what); }

  // Puts the arguments into views, by tensor; what a phase doesn't know is ignored if the op does. Of tensors that are nobody's argument, views
  // keep what an earlier call put there: only a GPU's direction looks at them.
  void collect(Arguments arguments, std::vector<TensorView>& views, std::vector<bool>& given) const {
    if (on_gpu()) views.clear();
    views.resize(program().tensors.size());
    given.assign(program().tensors.size(), false);
    size_t next = 0;  // arguments mostly come in the order of the declaration
    for (const Argument& a : arguments) {
      const bool in_order = next < callers.size() && a.name == name(callers[next]);
      const TensorId t = in_order ? callers[next] : runtime::argument_of(program(), names, a.name);
      next = in_order ? next + 1 : static_cast<size_t>(std::ranges::find(callers, t) - callers.begin()) + 1;
      if (given[t]) fail(fmt::format("'{}' is given twice", a.name));
      given[t] = true;
      views[t] = a.view;
    }
    for (TensorId t : callers)
      if (!given[t]) views[t] = TensorView();
  }

  void check_view(TensorId t, const TensorView& v, bool written, const DeviceQueue& queue) const {
    runtime::check_view(program(), t, v, written, queue);
  }

  std::string direction_name(const OpPlan& plan, const Side& side) const {
    static constexpr const char* kNames[] = {"_infer", "_forward", "_backward"};
    return program().name + kNames[static_cast<size_t>(phase_of(plan, side))];
  }

  void use_threads(int threads) {
    auto wanted = runtime::shared_pool(threads);
    std::lock_guard lock(pools_mutex);
    if (std::ranges::find(pools, wanted) == pools.end()) pools.push_back(wanted);
    pool = wanted.get();
  }

  static Phase phase_of(const OpPlan& plan, const Side& side) {
    return &side == &plan.infer ? Phase::infer : &side == &plan.forward ? Phase::forward : Phase::backward;
  }

  // list: of the directions that are there already.
  std::shared_ptr<Ready> make(const ReadyList& list, const OpPlan& plan, const Side& side, const DimValues& dims,
                              const std::vector<bool>& dense, const DeviceQueue& queue,
                              const std::vector<runtime::OutputOver>& over = {}) const {
    runtime::refuse_in_capture(queue, "compile kernels");
    check_kernel_sizes(side.program, dims);
    auto made = std::make_shared<Ready>();
    made->dims = dims;
    made->plan = &plan;
    made->side = &side;
    if (on_gpu())
      made->direction = std::make_unique<runtime::GpuDirection>(side.program, dims, side.request, queue, libraries(), cache->disk().get());
    else made->direction = std::make_unique<DirectionKernels>(side.program, dims, dense, side.request, cache, over, options.on_compile);
    const bool again = directions[static_cast<size_t>(phase_of(plan, side))]++ > 0;
    if (debug.compiles) runtime::show_compiled(direction_name(plan, side), *made->direction, runtime::cause_of(list, dims, again));
    if (debug.devices) runtime::show_device(queue);
    runtime::show_kernels(debug, direction_name(plan, side), made->direction->program(), made->direction->plan(), dims, options.target);
    for (Id test : side.checks.of_sizes) made->fails |= evaluate_extent(*side.program.arena, test, dims) != 0;
    if (side.checks.of_data)
      made->checks = std::make_unique<runtime::DataChecks>(side.checks, dims, dense, runtime::request_of(options, Target::cpu), cache);
    return made;
  }

  // The direction for these buffers, made when their shapes are new. In its list, which the caller has locked.
  std::shared_ptr<Ready> add(ReadyList& list, const std::vector<int64_t>& signature, const OpPlan& plan, const Side& side,
                             const DimValues& dims, const std::vector<TensorView>& views, const DeviceQueue& queue) const {
    const Program& p = plan.program();
    for (TensorId t : side.bound) {
      auto want = shape_of(p, t, dims);
      if (!std::ranges::equal(want, views[t].extents()))
        fail(fmt::format("{} must have shape {} ({}), but the buffer given has {}", p.tensors[t].name, shape_text(want), dims_text(dims),
                         shape_text(views[t].extents())));
    }
    std::vector<bool> dense(p.tensors.size(), true);
    for (TensorId t : side.bound) dense[t] = views[t].dense();
    std::vector<runtime::OutputOver> over;
    if (!on_gpu()) runtime::for_each_over(side.program, views, [&](runtime::OutputOver o) { over.push_back(o); });
    for (runtime::OutputOver o : over)
      if (&side == &plan.forward && std::ranges::find(plan.backward.program.inputs, o.input) != plan.backward.program.inputs.end())
        runtime::refuse_over(p, o, "the backward needs " + name(o.input));
    auto made = make(list, plan, side, dims, dense, queue, over);
    made->signature = signature;
    list.all.push_back(made);
    return made;
  }

  // A forward's or a backward's, whose plan and sizes are known.
  std::shared_ptr<Ready> get(ReadyList& list, const OpPlan& plan, const Side& side, const DimValues& dims,
                             const std::vector<TensorView>& views, const DeviceQueue& queue) const {
    thread_local std::vector<int64_t> s;
    runtime::signature_of(side.program, side.bound, views, s);
    std::lock_guard lock(list.mutex);
    auto known = list.find(s);
    return known ? known : add(list, s, plan, side, dims, views, queue);
  }

  std::shared_ptr<Ready> get_infer(const std::vector<TensorView>& views, const DeviceQueue& queue) {
    thread_local std::vector<int64_t> s;
    runtime::signature_of(program(), infer_bound, views, s);
    std::lock_guard lock(infer_calls.mutex);
    if (auto known = infer_calls.find(s)) return known;
    const DimValues dims = solved(views);
    const auto plan = plans->at(dims, false);
    return add(infer_calls, s, *plan, plan->infer, dims, views, queue);
  }

  DimValues solved(const std::vector<TensorView>& views) const {
    Shapes shapes;
    for (TensorId t : program().inputs) shapes[name(t)] = {views[t].extents().begin(), views[t].extents().end()};
    return solve_dims(program(), shapes, options.dims);
  }

  // Looks at the data, which can be wrong at no other time.
  void check_data(ThreadPool& threads, const std::vector<TensorView>& views, const Ready& ready, const DeviceQueue& queue) const {
    if (queue.capturing)
      throw runtime::DeviceError(runtime::DeviceFailure::bad_stream,
                                 program().name + ": the stream is being captured into a graph, and indices in the data cannot be looked "
                                 "at then; set CallOptions::trust_data if all that the graph will ever see are in range");
    const auto start = std::chrono::steady_clock::now();
    const bool fails = ready.checks->fail(threads, views, queue);
    if (options.on_checks) options.on_checks(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    if (fails) runtime::explain_failure(ready, views, queue);
  }

  CallCounts run(const std::vector<TensorView>& views, const Ready& ready, const CallOptions& call,
                 const DeviceQueue& queue, std::span<const runtime::DeviceSum> sums = {}) const {
    runtime::check_overlap(program().name, ready.side->program, ready.side->bound, views, !on_gpu());
    if (ready.fails) runtime::explain_failure(ready, views, queue);
    ThreadPool& threads = *pool.load();
    if (ready.checks && !call.trust_data) check_data(threads, views, ready, queue);
    runtime::Direction::Timed shown;  // only if asked for: kernels that are timed run apart
    if ((debug.kernels || watched) && !queue.capturing)
      shown = [&](const Kernel& k, double ns) {
        if (debug.kernels) runtime::show_run(direction_name(*ready.plan, *ready.side), k, ns);
        if (watched) watched->kernel(k, ns);
        if (options.on_kernel) options.on_kernel(k, ns);
      };
    auto c = ready.direction->run(threads, views, shown ? shown : options.on_kernel, queue, sums);
    if (watched && !queue.capturing)
      watched->ran(ready.side == &ready.plan->infer ? "infer" : ready.side == &ready.plan->forward ? "forward" : "backward", ready.dims);
    return {c.kernels, c.tiles, c.finishes, c.allocations, c.launches, c.uploads, c.downloads, 0, c.library_calls};
  }

  void need(const std::vector<TensorId>& tensors, const std::vector<bool>& given) const {
    for (TensorId t : tensors)
      if (!given[t]) fail(fmt::format("'{}' is missing", name(t)));
  }

  // The plan that a stash was made by. A stash of another CompiledOp of the same op and options will do, too.
  std::shared_ptr<OpPlan> plan_of(const Stash::Impl& kept) const {
    if (plans->has(kept.plan.get())) return kept.plan;
    const Program& made = kept.plan->program();
    const bool same_op = made.inputs == program().inputs && made.outputs == program().outputs;
    std::shared_ptr<OpPlan> own = same_op ? plans->at(kept.dims, true) : nullptr;
    auto stash_names = [](const OpPlan& plan) {
      std::vector<std::string> found;
      for (TensorId t : plan.stash) found.push_back(plan.program().tensors[t].name);
      return found;
    };
    if (!own || own->stash != kept.plan->stash || stash_names(*own) != stash_names(*kept.plan)) fail("this stash was made by another op");
    return own;
  }

  static void show(const Stash::Impl& kept, const OpPlan& plan, std::vector<TensorView>& views) {
    views.resize(plan.program().tensors.size());
    for (size_t i = 0; i < plan.stash.size(); ++i) views[plan.stash[i]] = kept.views[i];
  }

  // Gradients that nobody asked for, and those to be added, go to memory of ours first. How much had to be allocated.
  int64_t place_gradients(const OpPlan& plan, const DimValues& dims, Arguments arguments, const std::vector<bool>& given,
                          std::vector<TensorView>& views, std::vector<HostSum>& sums, std::vector<runtime::DeviceSum>& device_sums,
                          const DeviceQueue& queue) const {
    thread_local std::vector<runtime::Scratch> scratch;
    const Program& p = plan.backward.program;
    int64_t allocations = 0;
    if (scratch.size() < p.outputs.size()) scratch.resize(p.outputs.size());
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      TensorId t = p.outputs[i];
      bool add = false;
      for (const Argument& a : arguments) add |= a.accumulate && a.name == name(t);
      if (given[t]) check_view(t, views[t], true, queue);
      if (given[t] && !add) continue;
      auto shape = shape_of(p, t, dims);
      if (given[t] && !std::ranges::equal(shape, views[t].extents()))
        fail(fmt::format("{} must have shape {}, but the buffer given has {}", name(t), shape_text(shape), shape_text(views[t].extents())));
      const bool add_there = add && views[t].on_device(), add_here = add && !add_there;
      if (add_there) device_sums.push_back({t, views[t]});
      if (add_here) sums.push_back({views[t], t});
      TensorView v(nullptr, p.tensors[t].type, shape, {});
      if (add_here || !on_gpu()) {  // else it stays on the device
        allocations += scratch[i].reserve(v.bytes());
        v.data = scratch[i].data.get();
      }
      views[t] = v;
    }
    return allocations;
  }
};

CallCounts& CallCounts::operator+=(const CallCounts& other) {
  for (auto count : {&CallCounts::kernels, &CallCounts::tiles, &CallCounts::finishes, &CallCounts::allocations, &CallCounts::launches,
                     &CallCounts::uploads, &CallCounts::downloads, &CallCounts::replayed, &CallCounts::library_calls})
    this->*count += other.*count;
  return *this;
}

void CompiledOp::set_threads(int threads) {
  runtime::check_threads(threads);
  if (impl_->steps) return impl_->steps->set_threads(threads);
  impl_->use_threads(threads);
}

CallCounts CompiledOp::infer(Arguments arguments, const CallOptions& call) const {
  if (impl_->steps) return impl_->steps->infer(arguments, call);
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  Impl& op = *impl_;
  op.collect(arguments, views, given);
  op.need(op.infer_bound, given);
  const DeviceQueue queue = runtime::queue_of(op.options.target, call.stream);
  for (TensorId t : op.program().inputs) op.check_view(t, views[t], false, queue);
  for (TensorId t : op.program().outputs) op.check_view(t, views[t], true, queue);
  auto ready = op.get_infer(views, queue);
  views.resize(ready->side->program.tensors.size());
  if (!op.options.check_values) return op.run(views, *ready, call, queue);
  const Arrays inputs = runtime::arrays_of(op.program(), op.program().inputs, views, queue);
  const CallCounts ran = op.run(views, *ready, call, queue);
  runtime::check_results(*ready, inputs, inputs, views, queue);
  return ran;
}

CallCounts CompiledOp::forward(Arguments arguments, Stash& stash, const CallOptions& call) const {
  if (impl_->steps) {
    if (!stash.impl_) stash.impl_ = std::make_unique<Stash::Impl>();
    return impl_->steps->forward(arguments, stash.impl_->tape, call);
  }
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  Impl& op = *impl_;
  if (!op.options.differentiate) op.fail("compiled without a backward (CompileOptions::differentiate)");
  op.collect(arguments, views, given);
  op.need(op.infer_bound, given);
  const DeviceQueue queue = runtime::queue_of(op.options.target, call.stream);
  for (TensorId t : op.program().inputs) op.check_view(t, views[t], false, queue);
  for (TensorId t : op.program().outputs) op.check_view(t, views[t], true, queue);

  // The stash belongs to the sizes of this call; these are solved again, and what is kept is chosen anew, only if they changed.
  if (!stash.impl_) stash.impl_ = std::make_unique<Stash::Impl>();
  Stash::Impl& kept = *stash.impl_;
  if (kept.plan && !op.plans->has(kept.plan.get())) kept.plan = op.plan_of(kept);
  int64_t allocations = 0;
  if (!kept.plan || !kept.is_for(op.program(), views)) {
    const DimValues dims = op.solved(views);
    allocations = kept.resize(op.plans->at(dims, true), dims, queue);
  } else if (!kept.in_place(queue)) {
    allocations = kept.resize(kept.plan, DimValues(kept.dims), queue);
  }
  OpPlan& plan = *kept.plan;
  Impl::show(kept, plan, views);
  auto ready = op.get(plan.forward_calls, plan, plan.forward, kept.dims, views, queue);
  if (op.options.check_values) kept.inputs = runtime::arrays_of(op.program(), op.program().inputs, views, queue);
  kept.caller.forget();
  CallCounts ran = op.run(views, *ready, call, queue);
  kept.caller.remember(op.program(), views);
  if (op.options.check_values) runtime::check_results(*ready, kept.inputs, kept.inputs, views, queue);
  ran.allocations += allocations;
  return ran;
}

Stash CompiledOp::forward(Arguments arguments, const CallOptions& call) const {
  Stash s;
  forward(arguments, s, call);
  return s;
}

CallCounts CompiledOp::backward(Arguments arguments, const Stash& stash, const CallOptions& call) const {
  if (impl_->steps) {
    if (!stash.impl_ || !stash.impl_->tape) impl_->fail("backward needs the stash that forward gave; this one is empty");
    return impl_->steps->backward(arguments, *stash.impl_->tape, call);
  }
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  thread_local std::vector<HostSum> sums;
  thread_local std::vector<runtime::DeviceSum> device_sums;
  Impl& op = *impl_;
  if (!op.options.differentiate) op.fail("compiled without a backward (CompileOptions::differentiate)");
  if (!stash.impl_ || !stash.impl_->plan) op.fail("backward needs the stash that forward gave; this one is empty");
  op.collect(arguments, views, given);
  const Stash::Impl& kept = *stash.impl_;
  const std::shared_ptr<OpPlan> plan = op.plan_of(kept);
  const Side& side = plan->backward;
  given.resize(plan->program().tensors.size());
  views.resize(plan->program().tensors.size());
  for (TensorId t : plan->stash) given[t] = true;
  for (TensorId t : side.program.inputs)
    if (!given[t]) given[t] = kept.caller.supply(op.program(), t, views[t]);
  op.need(side.program.inputs, given);
  for (TensorId t : plan->stash) given[t] = false;
  const DeviceQueue queue = runtime::queue_of(op.options.target, call.stream);
  if (!kept.in_place(queue))
    throw runtime::DeviceError(runtime::DeviceFailure::bad_pointer,
                               op.program().name + ": the stash lies in another context than the one that this call runs in; pass a "
                               "stream of the context that forward ran in (CallOptions::stream)");
  Impl::show(kept, *plan, views);
  for (TensorId t : side.program.inputs)
    if (given[t]) op.check_view(t, views[t], false, queue);
  sums.clear();
  device_sums.clear();
  const int64_t allocations = op.place_gradients(*plan, kept.dims, arguments, given, views, sums, device_sums, queue);
  auto ready = op.get(plan->backward_calls, *plan, side, kept.dims, views, queue);
  Arrays inputs, written;
  if (op.options.check_values) {
    inputs = runtime::arrays_of(side.program, side.program.inputs, views, queue);
    // All cotangents, also those that no gradient depends on.
    std::vector<TensorId> cotangents = op.program().cotangents;
    std::erase_if(cotangents, [&](TensorId t) { return !given[t]; });
    written = runtime::arrays_of(op.program(), cotangents, views, queue);
    if (kept.inputs.empty() || cotangents.size() < op.program().cotangents.size()) written.clear();
    else written.insert(kept.inputs.begin(), kept.inputs.end());
  }
  CallCounts ran = op.run(views, *ready, call, queue, device_sums);
  if (op.options.check_values) runtime::check_results(*ready, inputs, written, views, queue);
  for (const HostSum& s : sums) runtime::add_into(s.target, views[s.output], *op.pool.load());
  ran.allocations += allocations;
  return ran;
}

double CompiledOp::prepare(Phase which, const DimValues& dims) const {
  Impl& op = *impl_;
  if (op.steps) return op.steps->prepare(which, dims);
  const DeviceQueue queue = runtime::queue_of(op.options.target, nullptr);
  const auto plan = op.plans->at(dims, which != Phase::infer);
  const Side& side = Impl::side_of(*plan, which);
  ReadyList& list = op.calls_of(*plan, which);
  std::vector<int64_t> s;
  std::vector<TensorView> views(plan->program().tensors.size());
  for (TensorId t : side.bound) views[t] = TensorView(nullptr, side.program.tensors[t].type, shape_of(side.program, t, dims), {});
  runtime::signature_of(side.program, side.bound, views, s);
  std::lock_guard lock(list.mutex);
  if (list.find(s)) return 0;
  auto made = op.make(list, *plan, side, dims, std::vector<bool>(plan->program().tensors.size(), true), queue);
  made->signature = s;
  list.all.push_back(made);
  return made->direction->compile_ms();
}

std::vector<std::string> CompiledOp::refused(Phase which, const DimValues& dims) const {
  Impl& op = *impl_;
  if (op.steps) return op.steps->refused(which, dims);
  const auto plan = op.plans->at(dims, which != Phase::infer);
  const auto ready = op.calls_of(*plan, which).find(dims);
  return ready ? ready->direction->refused() : std::vector<std::string>{};
}

KernelPlan CompiledOp::plan(Phase which, const DimValues& dims) const {
  Impl& op = *impl_;
  if (op.steps) return op.steps->plan(which, dims);
  const auto plan = op.plans->at(dims, which != Phase::infer);
  const Side& side = Impl::side_of(*plan, which);
  if (op.on_gpu())  // a library may compute some of it
    if (const auto ready = op.calls_of(*plan, which).find(dims)) return ready->direction->plan();
  check_kernel_sizes(side.program, dims);
  return plan_kernels(rewritten_for_sizes(side.program, dims, side.request), dims, side.request);
}

Target CompiledOp::target() const { return impl_->options.target; }
const Derivation& CompiledOp::derivation() const { return impl_->steps ? impl_->steps->derivation() : impl_->plans->nominal()->derivation; }
const Program& CompiledOp::program(const DimValues& dims) const {
  return impl_->steps ? impl_->steps->derivation().program : impl_->plans->at(dims, false)->program();
}

std::vector<std::string> CompiledOp::kept(const DimValues& dims) const {
  return impl_->steps ? impl_->steps->kept(nullptr) : impl_->plans->at(dims, true)->kept();
}
std::vector<std::string> CompiledOp::kept() const { return impl_->steps ? impl_->steps->kept(nullptr) : impl_->plans->nominal()->kept(); }
std::vector<std::string> CompiledOp::kept(const Stash& stash) const {
  if (impl_->steps) {
    if (!stash.impl_ || !stash.impl_->tape) impl_->fail("kept() wants a stash that forward gave; this one is empty");
    return impl_->steps->kept(stash.impl_->tape.get());
  }
  if (!stash.impl_ || !stash.impl_->plan) impl_->fail("kept() wants a stash that forward gave; this one is empty");
  return impl_->plan_of(*stash.impl_)->kept();
}

CompiledOp compile(const Program& op, const CompileOptions& options) {
  try {
    runtime::check_threads(options.threads);
  } catch (const Error& e) {
    throw Error(op.name + ": CompileOptions::threads: " + e.message());
  }
  CompiledOp made;
  made.impl_ = std::make_shared<CompiledOp::Impl>();
  CompiledOp::Impl& i = *made.impl_;
  i.options = options;
  if (i.options.target == Target::cpu) i.options.machine = for_this_machine(i.options.machine);
  if (op.steps) {
    i.steps = std::make_unique<runtime::StepsOp>(op, i.options);
    return made;
  }
  i.plans = std::make_unique<runtime::OpPlans>(op, i.options);
  if (!runtime::viz_folder().empty()) i.watched = std::make_unique<runtime::WatchedOp>(own_copy(op), i.options);
  i.use_threads(options.threads);
  i.cache = options.cache ? options.cache : runtime::KernelCache::process(options.disk_cache);
  const Program& p = i.plans->op();
  i.names = runtime::argument_names(p);
  i.infer_bound = p.inputs;
  i.infer_bound.insert(i.infer_bound.end(), p.outputs.begin(), p.outputs.end());
  for (auto* list : {&p.inputs, &p.outputs, &p.cotangents, &p.gradients}) i.callers.insert(i.callers.end(), list->begin(), list->end());
  return made;
}

}  // namespace xhat
