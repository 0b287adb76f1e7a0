// Binding the caller's buffers to an op's directions, with every check before anything runs.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <fmt/format.h>

#include "expr/evaluate.h"
#include "fusion/relay_kernels.h"
#include "runtime/compile.h"
#include "runtime/executor.h"
#include "runtime/finish.h"
#include "runtime/gpu_direction.h"
#include "runtime/run_time_checks.h"
#include "runtime/scratch.h"

namespace xhat {
namespace {

using runtime::DirectionKernels;
using runtime::ThreadPool;

constexpr int64_t kMost = INT32_MAX;  // kernels index with 32 bits

// One pool per number of threads, shared by all ops of the process.
std::shared_ptr<ThreadPool> pool_of(int threads) {
  static std::mutex mutex;
  static std::unordered_map<int, std::weak_ptr<ThreadPool>> pools;
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
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

// v, or what lies on a device, copied into `memory`.
TensorView on_host(TensorView v, std::vector<uint8_t>& memory) {
  if (!v.device) return v;
  memory.resize(static_cast<size_t>(v.bytes()) + 1);
  v.device->driver().download(nullptr, memory.data(), v.device->memory(), v.bytes());
  v.data = memory.data();
  v.device = nullptr;
  return v;
}

Array array_of(const TensorView& v) {
  Array a;
  a.type = v.type;
  a.shape.assign(v.extents().begin(), v.extents().end());
  runtime::for_each_offset(v, [&](int64_t, int64_t offset) {
    auto value = [&]<class T>(T) { return static_cast<const T*>(v.data)[offset]; };
    switch (v.type) {
      case DType::f64: a.reals.push_back(value(0.0)); break;
      case DType::f32: a.reals.push_back(static_cast<double>(value(0.0f))); break;
      case DType::i64: a.integers.push_back(value(int64_t{})); break;
      case DType::i32: a.integers.push_back(value(int32_t{})); break;
      case DType::u8:
      case DType::boolean: a.integers.push_back(value(uint8_t{})); break;
      case DType::f16: a.reals.push_back(f16_value(value(uint16_t{}))); break;
      case DType::bf16: a.reals.push_back(bf16_value(value(uint16_t{}))); break;
      case DType::u32: a.integers.push_back(value(uint32_t{})); break;
    }
  });
  return a;
}

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

  void check_view(TensorId t, const TensorView& v, bool written) const {
    const Tensor& x = program().tensors[t];
    if (v.type != x.type)
      fail(fmt::format("{} is {}, but the buffer given is {}", x.name, name_of(x.type), name_of(v.type)));
    if (v.rank != static_cast<int>(x.shape.size()))
      fail(fmt::format("{} has rank {}, but the buffer given has rank {}, shape {}", x.name, x.shape.size(), v.rank,
                       shape_text(v.extents())));
    for (int i = 0; i < v.rank; ++i) {
      auto d = static_cast<size_t>(i);
      if (v.shape[d] < 0) fail(fmt::format("{} has a negative extent: {}", x.name, shape_text(v.extents())));
      if (v.shape[d] > kMost)
        fail(fmt::format("{} has extent {} in dimension {}; kernels take up to 2^31-1 = {}. split it into pieces", x.name,
                         v.shape[d], i, kMost));
      if (v.strides[d] < 0) fail(fmt::format("{} has a negative stride in dimension {}", x.name, i));
      if (written && v.strides[d] == 0 && v.shape[d] > 1 && v.elements() > 0)
        fail(fmt::format("{} is written, but its buffer has stride 0 in dimension {}", x.name, i));
    }
    double elements = 1;
    for (int i = 0; i < v.rank; ++i) elements *= static_cast<double>(v.shape[static_cast<size_t>(i)]);
    double reach = 1;
    for (int i = 0; i < v.rank; ++i)
      reach += static_cast<double>(v.shape[static_cast<size_t>(i)]) * static_cast<double>(v.strides[static_cast<size_t>(i)]);
    if (elements > 0 && std::max(elements, reach) > static_cast<double>(kMost))
      fail(fmt::format("{} spans {:.0f} elements; kernels take up to 2^31-1. split it into pieces", x.name,
                       std::max(elements, reach)));
    if (!v.data && elements > 0) fail(fmt::format("{} has no memory: its buffer is null, its shape {}", x.name, shape_text(v.extents())));
    if (v.data && reinterpret_cast<uintptr_t>(v.data) % byte_size(v.type) != 0)
      fail(fmt::format("{} is not aligned to its element size, {} bytes", x.name, byte_size(v.type)));
    if (written && !v.writable) fail(fmt::format("{} is written, but its buffer is const", x.name));
  }

  void check_overlap(const Side& phase, const std::vector<TensorView>& views) const {
    for (TensorId out : phase.program.outputs) {
      const TensorView& v = views[out];
      if (v.elements() == 0) continue;
      for (TensorId t : phase.bound) {
        if (t == out || views[t].elements() == 0) continue;
        if (!v.data || !views[t].data) continue;  // on a device: nobody's but ours
        if (v.begin() < views[t].end() && views[t].begin() < v.end())
          fail(fmt::format("{} overlaps {} in memory; outputs need memory of their own", name(out), name(t)));
      }
    }
  }

  // Shapes, gaps: what a compiled direction depends on. No allocation once warm.
  static void signature(const Side& phase, const std::vector<TensorView>& views, std::vector<int64_t>& s) {
    s.clear();
    for (TensorId t : phase.bound) {
      const TensorView& v = views[t];
      s.push_back(v.rank * 2 + v.dense());
      s.insert(s.end(), v.shape.begin(), v.shape.begin() + v.rank);
    }
  }

  std::shared_ptr<Ready> make(Side& phase, const DimValues& dims, const std::vector<bool>& dense) const {
    auto made = std::make_shared<Ready>();
    made->dims = dims;
    for (TensorId t = 0; t < phase.program.tensors.size(); ++t) {
      bool bound = std::ranges::find(phase.bound, t) != phase.bound.end();
      made->shapes.push_back(bound ? shape_of(phase.program, t, dims) : std::vector<int64_t>{});
    }
    if (on_gpu()) made->direction = std::make_unique<runtime::GpuDirection>(phase.program, dims, phase.fusion, options.target, libraries());
    else made->direction = std::make_unique<DirectionKernels>(phase.program, dims, dense, phase.fusion, cache);
    for (Id test : phase.checks.of_sizes) made->fails |= evaluate_extent(*phase.program.arena, test, dims) != 0;
    if (phase.checks.of_data) {
      std::vector<bool> flags = dense;
      flags.resize(phase.checks.of_data->tensors.size(), true);
      made->checks = std::make_unique<DirectionKernels>(*phase.checks.of_data, dims, flags, options.fusion, cache);
    }
    return made;
  }

  // The direction for these buffers; dims are solved and everything is checked when the shapes are new.
  std::shared_ptr<Ready> get(Side& phase, const std::vector<TensorView>& views, const DimValues* known) const {
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
    auto made = make(phase, dims, dense);
    made->signature = s;
    phase.ready.push_back(made);
    return made;
  }

  // Runs the reference evaluator to say which index of which tensor is out of range, or which argmax is over nothing, and
  // where: of the definitions as the user wrote them, if these are what runs.
  [[noreturn]] void explain_failure(const Side& phase, const Ready& ready, const std::vector<TensorView>& views) const {
    Arrays inputs;
    for (TensorId t : phase.program.inputs) {
      std::vector<uint8_t> fetched;
      inputs[name(t)] = array_of(on_host(views[t], fetched));
    }
    if (&phase != &backward && !derivation.steps.empty()) {
      Program written = infer_program(derivation.steps[0].program);
      if (std::ranges::all_of(written.inputs, [&](TensorId t) { return inputs.contains(written.tensors[t].name); })) {
        Arrays taken;
        for (TensorId t : written.inputs) taken[written.tensors[t].name] = inputs.at(written.tensors[t].name);
        evaluate(written, taken, ready.dims);
      }
    }
    evaluate(phase.program, inputs, ready.dims);
    fail("an index in the data is out of range, or an argmax runs over nothing");
  }

  CallCounts run(Side& phase, const std::vector<TensorView>& views, const Ready& ready) const {
    check_overlap(phase, views);
    if (ready.fails) explain_failure(phase, ready, views);
    if (ready.checks) {
      thread_local std::vector<TensorView> check_views;
      const Program& p = *phase.checks.of_data;
      check_views.assign(p.tensors.size(), TensorView());
      std::copy(views.begin(), views.end(), check_views.begin());
      std::vector<std::vector<uint8_t>> fetched;  // what lies on a device and is looked at here
      for (TensorId t : p.inputs)
        if (check_views[t].device) check_views[t] = on_host(check_views[t], fetched.emplace_back());
      thread_local std::vector<uint8_t> failed;
      failed.assign(p.outputs.size(), 0);
      for (size_t i = 0; i < p.outputs.size(); ++i) {
        check_views[p.outputs[i]] = TensorView(&failed[i], std::span<const int64_t>{});
        check_views[p.outputs[i]].type = DType::boolean;
      }
      ready.checks->run(*pool, check_views);
      if (std::ranges::find(failed, 1) != failed.end()) explain_failure(phase, ready, views);
    }
    auto c = ready.direction->run(*pool, views, options.on_kernel);
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

CallCounts CompiledOp::infer(Arguments arguments) const {
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  Side& phase = impl_->infer;
  impl_->collect(arguments, views, given);
  impl_->need(phase, given, true);
  for (TensorId t : phase.bound) impl_->check_view(t, views[t], std::ranges::find(phase.program.outputs, t) != phase.program.outputs.end());
  auto ready = impl_->get(phase, views, nullptr);
  return impl_->run(phase, views, *ready);
}

CallCounts CompiledOp::forward(Arguments arguments, Stash& stash) const {
  thread_local std::vector<TensorView> views;
  thread_local std::vector<bool> given;
  if (!impl_->options.differentiate) impl_->fail("compiled without a backward (CompileOptions::differentiate)");
  Side& phase = impl_->forward;
  impl_->collect(arguments, views, given);
  impl_->need(phase, given, true);
  for (TensorId t : phase.bound)
    if (std::ranges::find(impl_->stash, t) == impl_->stash.end())
      impl_->check_view(t, views[t], std::ranges::find(phase.program.outputs, t) != phase.program.outputs.end());

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
    if (!same || !(kept.memory[i].data || kept.on_device[i])) {
      auto shape = shape_of(impl_->program(), t, kept.dims);
      TensorView v(nullptr, impl_->program().tensors[t].type, shape, {});
      if (impl_->on_gpu()) {
        if (!kept.on_device[i] || kept.on_device[i]->bytes() < v.bytes()) {
          kept.on_device[i] = std::make_unique<runtime::DeviceBuffer>(runtime::driver_of(impl_->options.target), v.bytes());
          ++counts.allocations;
        }
        v.device = kept.on_device[i].get();
      } else {
        counts.allocations += kept.memory[i].reserve(v.bytes());
        v.data = kept.memory[i].data.get();
      }
      kept.views[i] = v;
    }
    views[t] = kept.views[i];
  }
  auto ready = impl_->get(phase, views, &kept.dims);
  CallCounts ran = impl_->run(phase, views, *ready);
  ran.allocations += counts.allocations;
  return ran;
}

Stash CompiledOp::forward(Arguments arguments) const {
  Stash s;
  forward(arguments, s);
  return s;
}

CallCounts CompiledOp::backward(Arguments arguments, const Stash& stash) const {
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
  for (size_t i = 0; i < kept.tensors.size(); ++i) views[kept.tensors[i]] = kept.views[i];
  for (TensorId t : phase.program.inputs)
    if (given[t]) impl_->check_view(t, views[t], false);

  // Gradients nobody asked for, and those to be added, go to memory of ours first.
  CallCounts counts;
  struct Sum {
    TensorView target;
    TensorId gradient;
  };
  thread_local std::vector<Sum> sums;
  sums.clear();
  if (scratch.size() < phase.program.outputs.size()) scratch.resize(phase.program.outputs.size());
  for (size_t i = 0; i < phase.program.outputs.size(); ++i) {
    TensorId t = phase.program.outputs[i];
    bool add = false;
    for (const Argument& a : arguments) add |= a.accumulate && a.name == impl_->name(t);
    if (given[t]) impl_->check_view(t, views[t], true);
    if (given[t] && !add) continue;
    auto shape = shape_of(impl_->program(), t, kept.dims);
    if (given[t] && !std::ranges::equal(shape, views[t].extents()))
      impl_->fail(fmt::format("{} must have shape {}, but the buffer given has {}", impl_->name(t), shape_text(shape),
                              shape_text(views[t].extents())));
    if (add) sums.push_back({views[t], t});
    TensorView v(nullptr, impl_->program().tensors[t].type, shape, {});
    if (add || !impl_->on_gpu()) {  // else it stays on the device
      counts.allocations += scratch[i].reserve(v.bytes());
      v.data = scratch[i].data.get();
    }
    views[t] = v;
  }
  auto ready = impl_->get(phase, views, &kept.dims);
  CallCounts ran = impl_->run(phase, views, *ready);
  for (const Sum& s : sums) runtime::add_into(s.target, views[s.gradient]);
  ran.allocations += counts.allocations;
  return ran;
}

double CompiledOp::prepare(Phase which, const DimValues& dims) const {
  auto& phase = which == Phase::infer ? impl_->infer : which == Phase::forward ? impl_->forward : impl_->backward;
  std::lock_guard lock(phase.mutex);
  std::vector<int64_t> s;
  std::vector<TensorView> views(impl_->program().tensors.size());
  for (TensorId t : phase.bound) {
    auto shape = shape_of(phase.program, t, dims);
    views[t] = TensorView(nullptr, impl_->program().tensors[t].type, shape, {});
  }
  Impl::signature(phase, views, s);
  for (auto& r : phase.ready)
    if (r->signature == s) return 0;
  auto made = impl_->make(phase, dims, std::vector<bool>(impl_->program().tensors.size(), true));
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
  return plan_kernels(phase.program, dims, phase.fusion);
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
