#include "runtime/call/gpu_direction.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "expr/index/dims.h"
#include "runtime/call/gpu_add.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {

std::vector<DType> stored_types(const Program& program) {
  std::vector<DType> types;
  for (const Tensor& t : program.tensors) types.push_back(t.type);
  return types;
}

std::vector<KernelSpec> gpu_specs(const Program& program, const KernelPlan& plan, const DimValues& sizes, Target target) {
  const bool atomics = target != Target::vulkan;  // Halide has none for it (v21)
  std::vector<KernelSpec> specs;
  for (const Kernel& k : plan.kernels) specs.push_back(make_gpu_spec(program, k, sizes, atomics));
  return specs;
}

struct GpuDirection::Instance {
  const Kernel* kernel = nullptr;
  KernelSpec spec;
  std::shared_ptr<const CompiledGpuKernel> compiled;
  std::vector<SizeValue> values;
  std::shared_ptr<const LibraryKernel> library;  // in the place of all that
  const DeviceCode& code() const { return compiled->code(); }
};

// Device memory of one run: of all tensors that lie on the host or nowhere else, and what kernels keep for themselves. Only runs on
// one stream use it, one after the other, as nobody waits for a run to end before it begins the next.
struct GpuDirection::State {
  DeviceQueue queue;
  bool in_graph = false;  // some graph has its addresses
  std::vector<std::unique_ptr<DeviceBuffer>> tensors;              // per tensor of the program
  std::vector<std::vector<std::unique_ptr<DeviceBuffer>>> scratch;  // per kernel, per buffer; null: a tensor of the program
  std::unique_ptr<DeviceBuffer> for_libraries;  // they run one after the other
  std::vector<DeviceMemory> arguments;
  int64_t allocations = 0;
};

namespace {

void upload(DeviceStream stream, const DeviceBuffer& to, const TensorView& v) {
  auto size = static_cast<int64_t>(byte_size(v.type));
  if (v.dense()) return to.driver().upload(stream, to.memory(), v.data, v.bytes());
  std::vector<uint8_t> packed(static_cast<size_t>(v.bytes()));
  auto* from = static_cast<const uint8_t*>(v.data);
  for_each_offset(v, [&](int64_t i, int64_t offset) {
    std::memcpy(packed.data() + i * size, from + offset * size, static_cast<size_t>(size));
  });
  to.driver().upload(stream, to.memory(), packed.data(), v.bytes());
}

void download(DeviceStream stream, const DeviceBuffer& from, const TensorView& v) {
  auto size = static_cast<int64_t>(byte_size(v.type));
  if (v.dense()) return from.driver().download(stream, v.data, from.memory(), v.bytes());
  std::vector<uint8_t> packed(static_cast<size_t>(v.bytes()));
  from.driver().download(stream, packed.data(), from.memory(), v.bytes());
  auto* to = static_cast<uint8_t*>(v.data);
  for_each_offset(v, [&](int64_t i, int64_t offset) {
    std::memcpy(to + offset * size, packed.data() + i * size, static_cast<size_t>(size));
  });
}

}  // namespace

GpuDirection::GpuDirection(Program program, DimValues sizes, const PlanRequest& request, const DeviceQueue& queue,
                           const LibraryChoice& libraries, DiskCache* disk)
    : Direction(std::move(program), std::move(sizes)) {
  const Target target = queue.driver->target();
  auto start = std::chrono::steady_clock::now();
  PlanWithLibraries made = plan_for_device(program_, sizes_, request, libraries, queue);
  program_ = std::move(made.planned.program);
  plan_ = std::move(made.planned.plan);
  std::vector<DType> stored = stored_types(program_);
  auto specs = gpu_specs(program_, plan_, sizes_, target);
  for (size_t i = 0; i < specs.size(); ++i) {
    auto k = std::make_shared<Instance>();
    k->kernel = &plan_.kernels[i];
    k->spec = std::move(specs[i]);
    k->library = made.kernels[i];
    kernels_.push_back(k);
  }
  run_jobs(kernels_.size(), threads_or_all(), [&](size_t i) {
    Instance& k = *kernels_[i];
    if (k.library) return;
    k.compiled = compiled_for(class_of(target, k.spec, stored), disk);
    if (!k.code().idle()) k.compiled->on(queue);
  });
  for (const auto& k : kernels_)
    if (!k->library) k->values = values_of(k->code(), k->spec);
  compile_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

GpuDirection::~GpuDirection() = default;

std::unique_ptr<GpuDirection::State> GpuDirection::new_state(const DeviceQueue& queue) const {
  refuse_in_capture(queue, "allocate memory for what its kernels hand on");
  auto state = std::make_unique<State>();
  state->queue = queue;
  state->tensors.resize(program_.tensors.size());
  int64_t for_libraries = 0;
  for (const auto& k : kernels_) {
    auto& scratch = state->scratch.emplace_back();
    if (k->library) {
      for_libraries = std::max(for_libraries, k->library->on(queue).scratch_bytes());
      continue;
    }
    for (const GpuBuffer& b : k->code().buffers) {
      const SpecTensor& t = k->spec.tensors[b.tensor];
      bool own = b.partial || t.use == SpecTensor::Use::temporary;
      scratch.push_back(own ? std::make_unique<DeviceBuffer>(*queue.driver, std::max<int64_t>(1, b.bytes.at(k->values))) : nullptr);
      state->allocations += own;
    }
  }
  if (for_libraries > 0) {
    state->for_libraries = std::make_unique<DeviceBuffer>(*queue.driver, for_libraries);
    ++state->allocations;
  }
  return state;
}

std::unique_ptr<GpuDirection::State> GpuDirection::idle_on(const DeviceQueue& queue) const {
  std::lock_guard lock(mutex_);
  auto last = std::ranges::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& s) { return s->queue.same_stream(queue); });
  if (last == idle_.rend()) return nullptr;
  auto state = std::move(*last);
  idle_.erase(std::next(last).base());
  return state;
}

void GpuDirection::give_back(std::unique_ptr<State> state) const {
  constexpr size_t kMaxIdle = 32;  // of streams long gone, some would stay for ever
  const bool capturing = state->queue.capturing;
  std::unique_ptr<State> dropped;
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(state));
  if (idle_.size() <= kMaxIdle || capturing) return;
  auto first = std::ranges::find(idle_, false, &State::in_graph);
  dropped = std::move(*first);
  idle_.erase(first);
}

// Also a run that fails gives it back: its kernels may be running.
class GpuDirection::Taken {
 public:
  Taken(const GpuDirection& from, const DeviceQueue& queue) : from_(from), state_(from.idle_on(queue)) {
    fresh_ = !state_;
    if (fresh_) state_ = from.new_state(queue);
    state_->queue = queue;
    state_->in_graph |= queue.capturing;
  }
  ~Taken() { from_.give_back(std::move(state_)); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  State* operator->() const { return state_.get(); }
  int64_t allocations() const { return fresh_ ? state_->allocations : 0; }

 private:
  const GpuDirection& from_;
  std::unique_ptr<State> state_;
  bool fresh_ = false;
};

RunCounts GpuDirection::run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed, const DeviceQueue& queue,
                            std::span<const DeviceSum> sums) const {
  if (timed) refuse_in_capture(queue, "wait for each kernel (CompileOptions::on_kernel)");
  Taken state(*this, queue);
  RunCounts counts;
  counts.allocations = state.allocations();
  auto own = [&](TensorId t) -> const DeviceBuffer& {
    auto& mine = state->tensors[t];
    if (!mine) {
      refuse_in_capture(queue, "allocate memory for " + program_.tensors[t].name);
      TensorView whole(nullptr, program_.tensors[t].type, shape_of(program_, t, sizes_), {});
      mine = std::make_unique<DeviceBuffer>(*queue.driver, whole.bytes());
      ++counts.allocations;
    }
    return *mine;
  };
  auto memory_of = [&](TensorId t) {
    // An empty tensor may have none.
    bool given = t < views.size() && views[t].on_device() && views[t].data;
    return given ? reinterpret_cast<DeviceMemory>(views[t].data) : own(t).memory();
  };
  for (TensorId t : program_.inputs) {
    if (views[t].on_device() || views[t].elements() == 0) continue;
    upload(queue.stream, own(t), views[t]);
    ++counts.uploads;
  }
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Instance& k = *kernels_[i];
    if (!k.library && k.code().idle()) continue;
    auto start = std::chrono::steady_clock::now();
    if (k.library) {
      auto [a, b] = operands_of(k.library->call());
      k.library->on(queue).run(queue.stream, memory_of(a->tensor), memory_of(b->tensor), memory_of(result_of(k.library->call()).tensor),
                               state->for_libraries ? state->for_libraries->memory() : 0);
      ++counts.library_calls;
    } else {
      std::vector<DeviceMemory>& arguments = state->arguments;
      arguments.clear();
      for (size_t b = 0; b < k.code().buffers.size(); ++b) {
        const DeviceBuffer* scratch = state->scratch[i][b].get();
        arguments.push_back(scratch ? scratch->memory() : memory_of(k.spec.tensors[k.code().buffers[b].tensor].original));
      }
      k.compiled->on(queue).run(queue.stream, arguments, k.values);
      const std::vector<DeviceLaunch>& launches = k.code().kernel.launches;
      counts.launches += static_cast<int64_t>(launches.size());
      counts.finishes += std::ranges::count(launches, "finish", &DeviceLaunch::what);
    }
    counts.kernels += !k.kernel->epilogue;
    if (timed) {
      queue.driver->synchronize(queue.stream);
      timed(*k.kernel, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
  }
  for (const DeviceSum& s : sums) {
    auto added = add_on_device(pool, s.target, own(s.output).view(s.target.type, s.target.extents()), queue);
    counts.launches += added.launches;
    counts.kernels += added.kernels;
    counts.allocations += added.allocations;
  }
  for (TensorId t : program_.outputs) {
    if (views[t].on_device() || !views[t].data || views[t].elements() == 0) continue;
    download(queue.stream, own(t), views[t]);
    ++counts.downloads;
  }
  return counts;
}

}  // namespace xhat::runtime

namespace xhat {

void synchronize(Target target, void* stream) {
  const DeviceQueue queue = runtime::queue_of(target, stream);
  runtime::refuse_in_capture(queue, "wait for it");
  if (queue.driver) queue.driver->synchronize(stream);
}

}  // namespace xhat
