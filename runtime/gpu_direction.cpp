#include "runtime/gpu_direction.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "expr/dims.h"
#include "runtime/element_type.h"

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
  std::shared_ptr<const CompiledGpuKernel> code;
  std::vector<SizeValue> values;
};

// Device memory of one run: of all tensors that lie on the host or nowhere else, and what kernels keep for themselves.
struct GpuDirection::State {
  std::vector<std::unique_ptr<DeviceBuffer>> tensors;              // per tensor of the program
  std::vector<std::vector<std::unique_ptr<DeviceBuffer>>> scratch;  // per kernel, per buffer; null: a tensor of the program
  int64_t allocations = 0;
};

namespace {

void upload(DeviceBuffer& to, const TensorView& v) {
  auto size = static_cast<int64_t>(byte_size(v.type));
  if (v.dense()) return to.upload(v.data, v.bytes());
  std::vector<uint8_t> packed(static_cast<size_t>(v.bytes()));
  auto* from = static_cast<const uint8_t*>(v.data);
  for_each_offset(v, [&](int64_t i, int64_t offset) { std::memcpy(packed.data() + i * size, from + offset * size, static_cast<size_t>(size)); });
  to.upload(packed.data(), static_cast<int64_t>(packed.size()));
}

void download(const DeviceBuffer& from, const TensorView& v) {
  auto size = static_cast<int64_t>(byte_size(v.type));
  if (v.dense()) return from.download(v.data, v.bytes());
  std::vector<uint8_t> packed(static_cast<size_t>(v.bytes()));
  from.download(packed.data(), static_cast<int64_t>(packed.size()));
  auto* to = static_cast<uint8_t*>(v.data);
  for_each_offset(v, [&](int64_t i, int64_t offset) { std::memcpy(to + offset * size, packed.data() + i * size, static_cast<size_t>(size)); });
}

}  // namespace

GpuDirection::GpuDirection(Program program, DimValues sizes, const FusionOptions& fusion, Target target)
    : Direction(std::move(program), std::move(sizes)), target_(target) {
  require_device(target);
  auto start = std::chrono::steady_clock::now();
  plan_ = plan_kernels(program_, sizes_, fusion);
  std::vector<DType> stored = stored_types(program_);
  auto specs = gpu_specs(program_, plan_, sizes_, target);
  std::vector<std::future<std::shared_ptr<const CompiledGpuKernel>>> jobs;
  for (size_t i = 0; i < specs.size(); ++i) {
    auto k = std::make_shared<Instance>();
    k->kernel = &plan_.kernels[i];
    k->spec = std::move(specs[i]);
    kernels_.push_back(k);
    jobs.push_back(std::async(std::launch::async, [&stored, target, k] { return compiled_for(target, k->spec, stored); }));
  }
  std::exception_ptr failed;
  for (size_t i = 0; i < jobs.size(); ++i) try {
      kernels_[i]->code = jobs[i].get();
      for (uint32_t t : kernels_[i]->code->values) {
        const SpecTensor& x = kernels_[i]->spec.tensors[t];
        kernels_[i]->values.push_back(size_value(x.type, x.value));
      }
    } catch (...) {
      failed = std::current_exception();
    }
  if (failed) std::rethrow_exception(failed);
  compile_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

GpuDirection::~GpuDirection() = default;

std::unique_ptr<GpuDirection::State> GpuDirection::new_state() const {
  auto state = std::make_unique<State>();
  state->tensors.resize(program_.tensors.size());
  for (const auto& k : kernels_) {
    auto& scratch = state->scratch.emplace_back();
    for (const GpuBuffer& b : k->code->buffers) {
      const SpecTensor& t = k->spec.tensors[b.tensor];
      bool own = b.partial || t.use == SpecTensor::Use::temporary;
      scratch.push_back(own ? std::make_unique<DeviceBuffer>(target_, b.bytes) : nullptr);
      state->allocations += own;
    }
  }
  return state;
}

RunCounts GpuDirection::run(ThreadPool&, std::span<const TensorView> views, const Timed& timed) const {
  std::unique_ptr<State> state = idle_.take();
  RunCounts counts;
  if (!state) {
    state = new_state();
    counts.allocations = state->allocations;
  }
  auto buffer = [&](TensorId t) -> DeviceBuffer* {
    if (t < views.size() && views[t].device) return views[t].device;
    auto& mine = state->tensors[t];
    if (!mine) {
      TensorView whole(nullptr, program_.tensors[t].type, shape_of(program_, t, sizes_), {});
      mine = std::make_unique<DeviceBuffer>(target_, whole.bytes());
      ++counts.allocations;
    }
    return mine.get();
  };
  for (TensorId t : program_.inputs) {
    if (views[t].device || views[t].elements() == 0) continue;
    upload(*buffer(t), views[t]);
    ++counts.uploads;
  }
  int32_t nothing = 0;
  halide_buffer_t unused = {};
  unused.host = reinterpret_cast<uint8_t*>(&nothing);
  unused.type = element_type(DType::i32);
  std::vector<halide_buffer_t> raw;
  std::vector<const void*> argv;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Instance& k = *kernels_[i];
    if (k.code->launches.empty()) continue;
    auto start = std::chrono::steady_clock::now();
    DeviceCall call;
    Halide::JITUserContext* context = call.context();
    raw.clear();
    argv.assign(1, &context);
    for (const SizeValue& v : k.values) argv.push_back(&v);
    for (size_t b = 0; b < k.code->buffers.size(); ++b) {
      const GpuBuffer& x = k.code->buffers[b];
      DeviceBuffer* from = state->scratch[i][b] ? state->scratch[i][b].get() : buffer(k.spec.tensors[x.tensor].original);
      raw.push_back(*from->raw());
    }
    for (halide_buffer_t& b : raw) argv.push_back(&b);
    argv.push_back(&unused);
    call.ok(k.code->code.call_argv_fast(argv.size(), argv.data()), target_, "kernel " + k.spec.name);
    counts.launches += static_cast<int64_t>(k.code->launches.size());
    counts.kernels += !k.kernel->follows;
    counts.finishes += std::ranges::count(k.code->launches, "finish", &GpuLaunch::what);
    if (timed) {
      wait_for(target_);
      timed(*k.kernel, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
  }
  for (TensorId t : program_.outputs) {
    if (views[t].device || !views[t].data || views[t].elements() == 0) continue;
    download(*buffer(t), views[t]);
    ++counts.downloads;
  }
  idle_.give_back(std::move(state));
  return counts;
}

}  // namespace xhat::runtime
