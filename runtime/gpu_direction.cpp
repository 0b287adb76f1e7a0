#include "runtime/gpu_direction.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "expr/dims.h"

namespace xhat::runtime {

FusionOptions for_gpu(FusionOptions o) {
  // A tile is a block of some hundred threads: what it touches comes by way of L1, temporaries lie in 40 KB of shared memory.
  o.tile_bytes = 16 << 10;
  o.partial_tile_factor = 4;
  o.product_tile_factor = 1;
  // A launch costs about as much as one block takes for so much.
  o.serial_bytes = 16 << 10;
  o.least_tiles = 64;
  return o;
}

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

// Device memory of one run: of all tensors that lie on the host or nowhere else, and what kernels keep for themselves.
struct GpuDirection::State {
  std::vector<std::unique_ptr<DeviceBuffer>> tensors;              // per tensor of the program
  std::vector<std::vector<std::unique_ptr<DeviceBuffer>>> scratch;  // per kernel, per buffer; null: a tensor of the program
  std::unique_ptr<DeviceBuffer> for_libraries;  // they run one after the other
  int64_t allocations = 0;
};

namespace {

void upload(DeviceStream stream, const DeviceBuffer& to, const TensorView& v) {
  auto size = static_cast<int64_t>(byte_size(v.type));
  if (v.dense()) return to.driver().upload(stream, to.memory(), v.data, v.bytes());
  std::vector<uint8_t> packed(static_cast<size_t>(v.bytes()));
  auto* from = static_cast<const uint8_t*>(v.data);
  for_each_offset(v, [&](int64_t i, int64_t offset) { std::memcpy(packed.data() + i * size, from + offset * size, static_cast<size_t>(size)); });
  to.driver().upload(stream, to.memory(), packed.data(), v.bytes());
}

void download(DeviceStream stream, const DeviceBuffer& from, const TensorView& v) {
  auto size = static_cast<int64_t>(byte_size(v.type));
  if (v.dense()) return from.driver().download(stream, v.data, from.memory(), v.bytes());
  std::vector<uint8_t> packed(static_cast<size_t>(v.bytes()));
  from.driver().download(stream, packed.data(), from.memory(), v.bytes());
  auto* to = static_cast<uint8_t*>(v.data);
  for_each_offset(v, [&](int64_t i, int64_t offset) { std::memcpy(to + offset * size, packed.data() + i * size, static_cast<size_t>(size)); });
}

}  // namespace

GpuDirection::GpuDirection(Program program, DimValues sizes, const FusionOptions& fusion, Target target, const LibraryChoice& libraries)
    : Direction(std::move(program), std::move(sizes)), target_(target) {
  DeviceDriver& driver = driver_of(target);
  auto start = std::chrono::steady_clock::now();
  PlanWithLibraries made = plan_for_device(program_, sizes_, fusion, libraries, driver);
  program_ = std::move(made.planned.program);
  plan_ = std::move(made.planned.plan);
  std::vector<DType> stored = stored_types(program_);
  auto specs = gpu_specs(program_, plan_, sizes_, target);
  std::vector<std::future<void>> jobs;
  for (size_t i = 0; i < specs.size(); ++i) {
    auto k = std::make_shared<Instance>();
    k->kernel = &plan_.kernels[i];
    k->spec = std::move(specs[i]);
    k->library = made.kernels[i];
    kernels_.push_back(k);
    if (k->library) continue;
    jobs.push_back(std::async(std::launch::async, [&stored, &driver, target, k] {
      k->compiled = compiled_for(target, k->spec, stored);
      if (!k->code().launches.empty()) k->compiled->on(driver);
    }));
  }
  std::exception_ptr failed;
  for (auto& job : jobs) try {
      job.get();
    } catch (...) {
      failed = std::current_exception();
    }
  if (failed) std::rethrow_exception(failed);
  for (const auto& k : kernels_)
    for (uint32_t t : k->library ? std::vector<uint32_t>() : k->code().values) k->values.push_back(size_value(k->spec.tensors[t].type, k->spec.tensors[t].value));
  compile_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

GpuDirection::~GpuDirection() = default;

std::unique_ptr<GpuDirection::State> GpuDirection::new_state(DeviceDriver& driver) const {
  auto state = std::make_unique<State>();
  state->tensors.resize(program_.tensors.size());
  int64_t for_libraries = 0;
  for (const auto& k : kernels_) {
    auto& scratch = state->scratch.emplace_back();
    if (k->library) {
      for_libraries = std::max(for_libraries, k->library->on(driver).scratch_bytes());
      continue;
    }
    for (const GpuBuffer& b : k->code().buffers) {
      const SpecTensor& t = k->spec.tensors[b.tensor];
      bool own = b.partial || t.use == SpecTensor::Use::temporary;
      scratch.push_back(own ? std::make_unique<DeviceBuffer>(driver, b.bytes) : nullptr);
      state->allocations += own;
    }
  }
  if (for_libraries > 0) {
    state->for_libraries = std::make_unique<DeviceBuffer>(driver, for_libraries);
    ++state->allocations;
  }
  return state;
}

RunCounts GpuDirection::run(ThreadPool&, std::span<const TensorView> views, const Timed& timed) const {
  DeviceStream stream = nullptr;
  DeviceDriver& driver = driver_of(target_, stream);
  std::unique_ptr<State> state = idle_.take();
  RunCounts counts;
  if (!state) {
    state = new_state(driver);
    counts.allocations = state->allocations;
  }
  auto buffer = [&](TensorId t) -> const DeviceBuffer& {
    if (t < views.size() && views[t].device) return *views[t].device;
    auto& mine = state->tensors[t];
    if (!mine) {
      TensorView whole(nullptr, program_.tensors[t].type, shape_of(program_, t, sizes_), {});
      mine = std::make_unique<DeviceBuffer>(driver, whole.bytes());
      ++counts.allocations;
    }
    return *mine;
  };
  for (TensorId t : program_.inputs) {
    if (views[t].device || views[t].elements() == 0) continue;
    upload(stream, buffer(t), views[t]);
    ++counts.uploads;
  }
  std::vector<DeviceMemory> memory;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Instance& k = *kernels_[i];
    if (!k.library && k.code().launches.empty()) continue;
    auto start = std::chrono::steady_clock::now();
    memory.clear();
    if (k.library) {
      auto [a, b] = operands_of(k.library->call());
      const DeviceMemory scratch = state->for_libraries ? state->for_libraries->memory() : 0;
      k.library->on(driver).run(stream, buffer(a->tensor).memory(), buffer(b->tensor).memory(),
                                buffer(result_of(k.library->call()).tensor).memory(), scratch);
      ++counts.library_calls;
    } else {
      for (size_t b = 0; b < k.code().buffers.size(); ++b) {
        const DeviceBuffer* own = state->scratch[i][b].get();
        memory.push_back((own ? *own : buffer(k.spec.tensors[k.code().buffers[b].tensor].original)).memory());
      }
      k.compiled->on(driver).run(stream, memory, k.values);
      counts.launches += static_cast<int64_t>(k.code().launches.size());
      counts.finishes += std::ranges::count(k.code().launches, "finish", &GpuLaunch::what);
    }
    counts.kernels += !k.kernel->follows;
    if (timed) {
      driver.synchronize(stream);
      timed(*k.kernel, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
  }
  for (TensorId t : program_.outputs) {
    if (views[t].device || !views[t].data || views[t].elements() == 0) continue;
    download(stream, buffer(t), views[t]);
    ++counts.downloads;
  }
  idle_.give_back(std::move(state));
  return counts;
}

}  // namespace xhat::runtime
