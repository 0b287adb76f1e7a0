// Binding the caller's buffers to an op's directions, with every check before anything runs.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include "ad/derivation.h"
#include "expr/evaluate.h"
#include "fusion/moments.h"
#include "fusion/relay_kernels.h"
#include "runtime/check_view.h"
#include "runtime/compile.h"
#include "runtime/executor.h"
#include "runtime/finish.h"
#include "runtime/gpu_direction.h"
#include "runtime/host_copy.h"
#include "runtime/machine.h"
#include "runtime/run_time_checks.h"
#include "runtime/scratch.h"

namespace xhat {
namespace {

using runtime::DeviceQueue;
using runtime::DirectionKernels;
using runtime::ThreadPool;

// One pool per number of threads, shared by all ops of the process.
std::shared_ptr<ThreadPool> pool_of(int threads) {
  static std::mutex mutex;
  static std::unordered_map<int, std::weak_ptr<ThreadPool>> pools;
  threads = runtime::threads_or_all(threads);
  std::lock_guard lock(mutex);
  auto pool = pools[threads].lock();
  if (!pool) pools[threads] = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

// Memory that grows when it must and is used again otherwise.
struct Scratch {
  runtime::Block data;
  int64_t capacity = 0;

  // 64-byte aligned; true if it had to allocate.
  bool reserve(int64_t bytes) {
    if (bytes <= capacity && data) return false;
    size_t rounded = (static_cast<size_t>(bytes) + 191) / 64 * 64;
    data.reset(std::aligned_alloc(64, rounded));
    if (!data) throw Error(fmt::format("out of memory: {} bytes", bytes));
    capacity = static_cast<int64_t>(rounded);
    return true;
  }
};

}  // namespace

struct Stash::Impl {
  DimValues dims;
  std::vector<TensorId> tensors;
  std::vector<Scratch> memory;
  std::vector<std::unique_ptr<runtime::DeviceBuffer>> on_device;  // in its place, if the op runs on a GPU
  std::vector<TensorView> views;  // parallel to tensors
};
Stash::Stash() = default;
Stash::~Stash() = default;
Stash::Stash(Stash&&) noexcept = default;
Stash& Stash::operator=(Stash&&) noexcept = default;
int64_t Stash::bytes() const {
  int64_t n = 0;
  if (impl_)
    for (const TensorView& v : impl_->views) n += v.bytes();
  return n;
}

namespace {

// A direction at one set of sizes, with the checks that run before it.
struct Ready {
  std::vector<int64_t> signature;
  DimValues dims;
  std::unique_ptr<runtime::Direction> direction;
  std::unique_ptr<runtime::Direction> checks;  // on the CPU, where the data come from
  bool fails = false;  // at these sizes, whatever the data
  std::vector<std::vector<int64_t>> shapes;  // per tensor of the program
};

struct Side {
  Program program;
  FusionOptions fusion;
  runtime::Checks checks;
  std::vector<TensorId> bound;  // inputs, then outputs
  std::mutex mutex;
  std::vector<std::shared_ptr<Ready>> ready;
};

}  // namespace

struct CompiledOp::Impl {
  CompileOptions options;
  Derivation derivation;
  Side infer, forward, backward;
  std::vector<TensorId> stash;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<runtime::KernelCache> cache;
  std::unordered_map<std::string_view, TensorId> names;  // of everything a caller may pass

  const Program& program() const { return derivation.program; }
  runtime::LibraryChoice libraries() const { return {options.libraries, options.math}; }
  bool on_gpu() const { return options.target != Target::cpu; }
  const std::string& name(TensorId t) const { return program().tensors[t].name; }
  [[noreturn]] void fail(const std::string& what) const { throw Error(program().name + ": " + what); }

  void set_up(Side& phase, Program direction) {
    phase.fusion = on_gpu() ? runtime::for_gpu(options.fusion) : options.fusion;
    group_by_policy(direction, phase.fusion);
    phase.program = std::move(direction);
    phase.checks = runtime::run_time_checks(phase.program);
    phase.bound = phase.program.inputs;
    phase.bound.insert(phase.bound.end(), phase.program.outputs.begin(), phase.program.outputs.end());
  }

  // Puts the arguments into views, by tensor; what a phase doesn't know is ignored if the op does.
  void collect(Arguments arguments, std::vector<TensorView>& views, std::vector<bool>& given) const {
    views.assign(program().tensors.size(), TensorView());
    given.assign(program().tensors.size(), false);
    for (const Argument& a : arguments) {
      auto it = names.find(a.name);
      if (it == names.end()) {
        std::vector<std::string_view> known;
        for (auto& [n, t] : names) known.push_back(n);
        std::ranges::sort(known);
        fail(fmt::format("there is no tensor '{}'; known are {}", a.name, fmt::join(known, ", ")));
      }
      if (given[it->second]) fail(fmt::format("'{}' is given twice", a.name));
      given[it->second] = true;
      views[it->second] = a.view;
    }
  }

  void check_view(TensorId t, const TensorView& v, bool written, const DeviceQueue& queue) const {
    runtime::check_view(program(), t, v, written, queue);
  }

  void check_overlap(const Side& phase, const std::vector<TensorView>& views) const {
    const auto& inputs = phase.program.inputs;
    auto over_input = [&](TensorId out, TensorId t) {
      return !on_gpu() && runtime::lies_on(views[out], views[t]) && std::ranges::find(inputs, t) != inputs.end();
    };
    for (TensorId out : phase.program.outputs)
      for (TensorId t : phase.bound)
        if (t != out && runtime::overlap(views[out], views[t]) && !over_input(out, t))
          fail(fmt::format("{} overlaps {} in memory; outputs need memory of their own", name(out), name(t)));
  }

  // Shapes, gaps: what a compiled direction depends on. No allocation once warm.
  static void signature(const Side& phase, const std::vector<TensorView>& views, std::vector<int64_t>& s) {
    s.clear();
    for (TensorId t : phase.bound) {
      const TensorView& v = views[t];
      s.push_back(v.rank * 2 + v.dense());
      s.insert(s.end(), v.shape.begin(), v.shape.begin() + v.rank);
    }
    runtime::for_each_over(phase.program, views, [&](runtime::OutputOver o) {
      s.insert(s.end(), {-1, int64_t{o.output}, int64_t{o.input}});
    });
  }

  std::shared_ptr<Ready> make(Side& phase, const DimValues& dims, const std::vector<bool>& dense, const DeviceQueue& queue,
                              const std::vector<runtime::OutputOver>& over = {}) const {
    runtime::refuse_in_capture(queue, "compile kernels");
    auto made = std::make_shared<Ready>();
    made->dims = dims;
    for (TensorId t = 0; t < phase.program.tensors.size(); ++t) {
      bool bound = std::ranges::find(phase.bound, t) != phase.bound.end();
      made->shapes.push_back(bound ? shape_of(phase.program, t, dims) : std::vector<int64_t>{});
    }
    if (on_gpu())
      made->direction = std::make_unique<runtime::GpuDirection>(phase.program, dims, phase.fusion, queue, libraries(),
                                                                cache->disk().get());
    else made->direction = std::make_unique<DirectionKernels>(phase.program, dims, dense, phase.fusion, cache, over);
    for (Id test : phase.checks.of_sizes) made->fails |= evaluate_extent(*phase.program.arena, test, dims) != 0;
    if (phase.checks.of_data) {
      std::vector<bool> flags = dense;
      flags.resize(phase.checks.of_data->tensors.size(), true);
      made->checks = std::make_unique<DirectionKernels>(*phase.checks.of_data, dims, flags, options.fusion, cache);
    }
    return made;
  }

  // The direction for these buffers; dims are solved and everything is checked when the shapes are new.
  std::shared_ptr<Ready> get(Side& phase, const std::vector<TensorView>& views, const DimValues* known, const DeviceQueue& queue) const {
    thread_local std::vector<int64_t> s;
    signature(phase, views, s);
    std::lock_guard lock(phase.mutex);
    for (auto& r : phase.ready)
      if (r->signature == s) return r;
    DimValues dims = known ? *known : DimValues();
    if (!known) {
      Shapes shapes;
      for (TensorId t : phase.program.inputs) {
        auto e = views[t].extents();
        shapes[name(t)] = {e.begin(), e.end()};
      }
      dims = solve_dims(program(), shapes, options.dims);
    }
    for (TensorId t : phase.bound) {
      auto want = shape_of(program(), t, dims);
      if (!std::ranges::equal(want, views[t].extents()))
        fail(fmt::format("{} must have shape {} ({}), but the buffer given has {}", name(t), shape_text(want),
                         dims_text(dims), shape_text(views[t].extents())));
    }
    std::vector<bool> dense(program().tensors.size(), true);
    for (TensorId t : phase.bound) dense[t] = views[t].dense();
    std::vector<runtime::OutputOver> over;
    if (!on_gpu()) runtime::for_each_over(phase.program, views, [&](runtime::OutputOver o) { over.push_back(o); });
    for (runtime::OutputOver o : over)
      if (&phase == &forward && std::ranges::find(backward.program.inputs, o.input) != backward.program.inputs.end())
        runtime::refuse_over(program(), o, "the backward needs " + name(o.input));
    auto made = make(phase, dims, dense, queue, over);
    made->signature = s;
    phase.ready.push_back(made);
    return made;
  }

  // Runs the reference evaluator to say which index of which tensor is out of range, or which argmax is over nothing, and
  // where: of the definitions as the user wrote them, if these are what runs.
  [[noreturn]] void explain_failure(const Side& phase, const Ready& ready, const std::vector<TensorView>& views,
                                    const DeviceQueue& queue) const {
    Arrays inputs;
    for (TensorId t : phase.program.inputs) {
      std::vector<uint8_t> fetched;
      inputs[name(t)] = runtime::array_of(runtime::on_host(views[t], fetched, queue));
    }
    if (&phase != &backward && !derivation.steps.empty()) {
      Program written = without_dead(without_backward(derivation.steps[0].program));
      if (std::ranges::all_of(written.inputs, [&](TensorId t) { return inputs.contains(written.tensors[t].name); })) {
        Arrays taken;
        for (TensorId t : written.inputs) taken[written.tensors[t].name] = inputs.at(written.tensors[t].name);
        evaluate(written, taken, ready.dims);
      }
    }
    evaluate(phase.program, inputs, ready.dims);
    fail("an index in the data is out of range, or an argmax runs over nothing");
  }

  // Looks at the data, which can be wrong at no other time.
  void check_data(const Side& phase, const std::vector<TensorView>& views, const Ready& ready, const DeviceQueue& queue) const {
    const Program& p = *phase.checks.of_data;
    if (queue.capturing)
      throw runtime::DeviceError(runtime::DeviceFailure::bad_stream,
                                 program().name + ": the stream is being captured into a graph, and indices in the data cannot be looked "
                                 "at then; set CallOptions::trust_data if all that the graph will ever see are in range");
    thread_local std::vector<TensorView> check_views;
    check_views.assign(p.tensors.size(), TensorView());
    std::copy(views.begin(), views.end(), check_views.begin());
    std::vector<std::vector<uint8_t>> fetched;  // what lies on a device
    for (TensorId t : p.inputs) check_views[t] = runtime::on_host(check_views[t], fetched.emplace_back(), queue);
    thread_local std::vector<uint8_t> failed;
    failed.assign(p.outputs.size(), 0);
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      check_views[p.outputs[i]] = TensorView(&failed[i], std::span<const int64_t>{});
      check_views[p.outputs[i]].type = DType::boolean;
    }
    ready.checks->run(*pool, check_views);
    if (std::ranges::find(failed, 1) != failed.end()) explain_failure(phase, ready, views, queue);
  }

  CallCounts run(Side& phase, const std::vector<TensorView>& views, const Ready& ready, const CallOptions& call,
                 const DeviceQueue& queue, std::span<const runtime::DeviceSum> sums = {}) const {
    check_overlap(phase, views);
    if (ready.fails) explain_failure(phase, ready, views, queue);
    if (ready.checks && !call.trust_data) check_data(phase, views, ready, queue);
    auto c = ready.direction->run(*pool, views, options.on_kernel, queue, sums);
    return {c.kernels, c.tiles, c.finishes, c.allocations, c.launches, c.uploads, c.downloads, c.library_calls};
  }

  void need(const Side& phase, const std::vector<bool>& given, bool outputs_too) const {
    for (TensorId t : phase.bound) {
      bool is_stash = std::ranges::find(stash, t) != stash.end();
      bool is_output = std::ranges::find(phase.program.outputs, t) != phase.program.outputs.end();
      if (!given[t] && !is_stash && (outputs_too || !is_output)) fail(fmt::format("'{}' is missing", name(t)));
    }
  }
};

CallCounts CompiledOp::infer(Arguments arguments, const CallOptions& call) const {
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  Side& phase = impl_->infer;
  impl_->collect(arguments, views, given);
  impl_->need(phase, given, true);
  const DeviceQueue queue = runtime::queue_of(impl_->options.target, call.stream);
  for (TensorId t : phase.program.inputs) impl_->check_view(t, views[t], false, queue);
  for (TensorId t : phase.program.outputs) impl_->check_view(t, views[t], true, queue);
  auto ready = impl_->get(phase, views, nullptr, queue);
  return impl_->run(phase, views, *ready, call, queue);
}

CallCounts CompiledOp::forward(Arguments arguments, Stash& stash, const CallOptions& call) const {
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  if (!impl_->options.differentiate) impl_->fail("compiled without a backward (CompileOptions::differentiate)");
  Side& phase = impl_->forward;
  impl_->collect(arguments, views, given);
  impl_->need(phase, given, true);
  const DeviceQueue queue = runtime::queue_of(impl_->options.target, call.stream);
  for (TensorId t : phase.bound)
    if (std::ranges::find(impl_->stash, t) == impl_->stash.end())
      impl_->check_view(t, views[t], std::ranges::find(phase.program.outputs, t) != phase.program.outputs.end(), queue);

  // The stash belongs to the sizes of this call; they are solved again only if the inputs' shapes changed.
  if (!stash.impl_) {
    stash.impl_ = std::make_unique<Stash::Impl>();
    stash.impl_->tensors = impl_->stash;
  }
  Stash::Impl& kept = *stash.impl_;
  if (kept.tensors != impl_->stash) impl_->fail("this stash was made by another op");
  kept.memory.resize(kept.tensors.size());
  kept.on_device.resize(kept.tensors.size());
  kept.views.resize(kept.tensors.size());
  CallCounts counts;
  bool same = !kept.dims.empty() || impl_->program().dims.empty();
  for (TensorId t : impl_->program().inputs) {
    if (!same || !given[t]) continue;
    const auto& shape = impl_->program().tensors[t].shape;
    for (size_t d = 0; d < shape.size() && same; ++d)
      same = evaluate_extent(*impl_->program().arena, shape[d], kept.dims) == views[t].shape[d];
  }
  if (!same) {
    Shapes shapes;
    for (TensorId t : impl_->program().inputs)
      if (given[t]) shapes[impl_->name(t)] = {views[t].extents().begin(), views[t].extents().end()};
    kept.dims = solve_dims(impl_->program(), shapes, impl_->options.dims);
  }
  for (size_t i = 0; i < kept.tensors.size(); ++i) {
    TensorId t = kept.tensors[i];
    auto& there = kept.on_device[i];
    bool in_place = impl_->on_gpu() ? there && &there->driver() == queue.driver : static_cast<bool>(kept.memory[i].data);
    if (!same || !in_place) {
      auto shape = shape_of(impl_->program(), t, kept.dims);
      TensorView v(nullptr, impl_->program().tensors[t].type, shape, {});
      if (impl_->on_gpu()) {
        if (!in_place || there->bytes() < v.bytes()) {
          runtime::refuse_in_capture(queue, "allocate memory for the stash");
          there = std::make_unique<runtime::DeviceBuffer>(*queue.driver, v.bytes());
          ++counts.allocations;
        }
        v = there->view(v.type, shape);
      } else {
        counts.allocations += kept.memory[i].reserve(v.bytes());
        v.data = kept.memory[i].data.get();
      }
      kept.views[i] = v;
    }
    views[t] = kept.views[i];
  }
  auto ready = impl_->get(phase, views, &kept.dims, queue);
  CallCounts ran = impl_->run(phase, views, *ready, call, queue);
  ran.allocations += counts.allocations;
  return ran;
}

Stash CompiledOp::forward(Arguments arguments, const CallOptions& call) const {
  Stash s;
  forward(arguments, s, call);
  return s;
}

CallCounts CompiledOp::backward(Arguments arguments, const Stash& stash, const CallOptions& call) const {
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  thread_local std::vector<Scratch> scratch;
  if (!impl_->options.differentiate) impl_->fail("compiled without a backward (CompileOptions::differentiate)");
  if (!stash.impl_) impl_->fail("backward needs the stash that forward gave; this one is empty");
  Side& phase = impl_->backward;
  impl_->collect(arguments, views, given);
  impl_->need(phase, given, false);
  const Stash::Impl& kept = *stash.impl_;
  if (kept.tensors != impl_->stash) impl_->fail("this stash was made by another op");
  const DeviceQueue queue = runtime::queue_of(impl_->options.target, call.stream);
  for (size_t i = 0; i < kept.tensors.size(); ++i) {
    views[kept.tensors[i]] = kept.views[i];
    if (kept.on_device[i] && &kept.on_device[i]->driver() != queue.driver)
      throw runtime::DeviceError(runtime::DeviceFailure::bad_pointer,
                                 impl_->program().name + ": the stash lies in another context than the one that this call runs in; pass a "
                                 "stream of the context that forward ran in (CallOptions::stream)");
  }
  for (TensorId t : phase.program.inputs)
    if (given[t]) impl_->check_view(t, views[t], false, queue);

  // Gradients nobody asked for, and those to be added, go to memory of ours first.
  CallCounts counts;
  struct Sum {
    TensorView target;
    TensorId gradient;
  };
  thread_local std::vector<Sum> sums;
  thread_local std::vector<runtime::DeviceSum> device_sums;
  sums.clear();
  device_sums.clear();
  if (scratch.size() < phase.program.outputs.size()) scratch.resize(phase.program.outputs.size());
  for (size_t i = 0; i < phase.program.outputs.size(); ++i) {
    TensorId t = phase.program.outputs[i];
    bool add = false;
    for (const Argument& a : arguments) add |= a.accumulate && a.name == impl_->name(t);
    if (given[t]) impl_->check_view(t, views[t], true, queue);
    if (given[t] && !add) continue;
    auto shape = shape_of(impl_->program(), t, kept.dims);
    if (given[t] && !std::ranges::equal(shape, views[t].extents()))
      impl_->fail(fmt::format("{} must have shape {}, but the buffer given has {}", impl_->name(t), shape_text(shape),
                              shape_text(views[t].extents())));
    const bool add_there = add && views[t].on_device(), add_here = add && !add_there;
    if (add_there) device_sums.push_back({t, views[t]});
    if (add_here) sums.push_back({views[t], t});
    TensorView v(nullptr, impl_->program().tensors[t].type, shape, {});
    if (add_here || !impl_->on_gpu()) {  // else it stays on the device
      counts.allocations += scratch[i].reserve(v.bytes());
      v.data = scratch[i].data.get();
    }
    views[t] = v;
  }
  auto ready = impl_->get(phase, views, &kept.dims, queue);
  CallCounts ran = impl_->run(phase, views, *ready, call, queue, device_sums);
  for (const Sum& s : sums) runtime::add_into(s.target, views[s.gradient]);
  ran.allocations += counts.allocations;
  return ran;
}

void synchronize(Target target, void* stream) {
  const DeviceQueue queue = runtime::queue_of(target, stream);
  runtime::refuse_in_capture(queue, "wait for it");
  if (queue.driver) queue.driver->synchronize(stream);
}

double CompiledOp::prepare(Phase which, const DimValues& dims) const {
  auto& phase = which == Phase::infer ? impl_->infer : which == Phase::forward ? impl_->forward : impl_->backward;
  std::lock_guard lock(phase.mutex);
  const DeviceQueue queue = runtime::queue_of(impl_->options.target, nullptr);
  std::vector<int64_t> s;
  std::vector<TensorView> views(impl_->program().tensors.size());
  for (TensorId t : phase.bound) {
    auto shape = shape_of(phase.program, t, dims);
    views[t] = TensorView(nullptr, impl_->program().tensors[t].type, shape, {});
  }
  Impl::signature(phase, views, s);
  for (auto& r : phase.ready)
    if (r->signature == s) return 0;
  auto made = impl_->make(phase, dims, std::vector<bool>(impl_->program().tensors.size(), true), queue);
  made->signature = s;
  phase.ready.push_back(made);
  return made->direction->compile_ms();
}

KernelPlan CompiledOp::plan(Phase which, const DimValues& dims) const {
  auto& phase = which == Phase::infer ? impl_->infer : which == Phase::forward ? impl_->forward : impl_->backward;
  if (impl_->on_gpu()) {  // a library may compute some of it
    std::lock_guard lock(phase.mutex);
    for (auto& r : phase.ready)
      if (r->dims == dims) return r->direction->plan();
  }
  return plan_kernels(impl_->on_gpu() ? phase.program : split_moments(phase.program, dims, phase.fusion), dims, phase.fusion);
}

const Derivation& CompiledOp::derivation() const { return impl_->derivation; }

std::vector<std::string> CompiledOp::kept() const {
  std::vector<std::string> names;
  const Program& p = impl_->program();
  for (TensorId t : impl_->backward.program.inputs) {
    bool caller = std::ranges::find(p.inputs, t) != p.inputs.end() || std::ranges::find(p.outputs, t) != p.outputs.end();
    if (caller) names.push_back(p.tensors[t].name);
  }
  return names;
}

CompiledOp compile(const Program& op, const CompileOptions& options) {
  CompiledOp made;
  made.impl_ = std::make_shared<CompiledOp::Impl>();
  CompiledOp::Impl& i = *made.impl_;
  i.options = options;
  if (auto& from = i.options.fusion.stream_bytes; !from && !i.on_gpu()) from = stream_bytes_here();
  if (auto& tiles = i.options.fusion.scatter_tiles; !tiles && !i.on_gpu()) tiles = scatter_tiles_here();
  i.derivation = derive(op, options);
  i.pool = pool_of(options.threads);
  i.cache = options.cache ? options.cache : runtime::KernelCache::process(options.disk_cache);
  const Program& p = i.derivation.program;
  for (auto* list : {&p.inputs, &p.outputs, &p.cotangents, &p.gradients})
    for (TensorId t : *list) i.names[p.tensors[t].name] = t;
  i.set_up(i.infer, infer_program(p));
  if (options.differentiate) {
    i.stash = stashes(p);
    i.set_up(i.forward, forward_program(p));
    i.set_up(i.backward, backward_program(p));
  }
  return made;
}

}  // namespace xhat
