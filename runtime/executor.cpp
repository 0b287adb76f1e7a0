// Per tile, a call gets the origins of the tile, the inputs whole, and each result as a view of the tile: the code
// counts from 0 in its results and adds the origin where it reads inputs.
#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <limits>

#include "HalideRuntime.h"
#include "runtime/lower.h"

namespace xhat::runtime {
namespace {

// runtime/emit.h says the same in Halide's compiler types.
halide_type_t halide_type(DType t) {
  if (t == DType::boolean) return halide_type_t(halide_type_uint, 8);
  auto code = t == DType::bf16                        ? halide_type_bfloat
              : is_float(t)                           ? halide_type_float
              : t == DType::u8 || t == DType::u32 ? halide_type_uint
                                                      : halide_type_int;
  return halide_type_t(code, static_cast<uint8_t>(8 * byte_size(t)));
}

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using Block = std::unique_ptr<void, AlignedFree>;

Block allocate(int64_t bytes) {
  // A vector's slack past the end, and never zero.
  size_t rounded = (static_cast<size_t>(std::max<int64_t>(bytes, 0)) + 191) / 64 * 64;
  void* p = std::aligned_alloc(64, rounded);
  if (!p) throw Error("out of memory: " + std::to_string(bytes) + " bytes for a temporary tensor");
  return Block(p);
}

// Are all results empty tensors? Then there is nothing to compile.
bool writes_nothing(const KernelSpec& spec) {
  return std::ranges::all_of(spec.tensors, [](const SpecTensor& t) {
    bool inside = t.use == SpecTensor::Use::input || t.use == SpecTensor::Use::temporary;
    return inside || std::ranges::find(t.shape, 0) != t.shape.end();
  });
}

TensorView dense_view(void* data, DType type, std::span<const int64_t> shape) {
  return TensorView(data, type, shape, {});
}

}  // namespace

// A result of a kernel, seen by the executor.
struct ResultInfo {
  uint32_t tensor;                        // of the spec
  const SpecMember* member;
  std::vector<size_t> dims;               // of the tile's buffer, slowest first: positions in member->left
  std::vector<std::pair<size_t, size_t>> moves;  // (position in shared, position in left): how a tile's origin shifts it
  std::vector<size_t> reduced;            // positions in shared that it reduces across: rows of partial results
  int64_t rows = 1;
  int64_t partial_bytes = 0;
};

// A size as a number, in the type that the kernel reads.
union SizeValue {
  double wide;
  float narrow;
};

struct DirectionKernels::Instance {
  const Kernel* kernel = nullptr;  // in the plan
  KernelSpec spec;
  std::shared_ptr<const CompiledKernel> code;
  std::vector<ResultInfo> results;
  struct Scalar {
    int shared;  // position in the outer loop; -1: the same in every tile
    bool count;
    int32_t value;
  };
  std::vector<Scalar> scalars;
  std::vector<SizeValue> sizes;  // by input
  std::vector<int64_t> counts;  // tiles per shared axis
  int64_t tiles = 1;
};

// What one run needs: memory for temporaries and the arguments of every kernel. Made once, used again.
struct DirectionKernels::State {
  struct Buffer {
    halide_buffer_t raw = {};
    std::vector<halide_dimension_t> dims;
  };
  struct Worker {
    std::vector<int32_t> scalars;
    std::vector<Buffer> results;
    std::vector<const void*> argv;
    std::vector<const void*> raw;  // what argv's buffer slots point to
  };
  struct Kernel {
    std::vector<Buffer> inputs;
    std::vector<Worker> workers;
    std::vector<Block> partials;  // per result; null if it leaves none
  };
  std::vector<Kernel> kernels;
  std::vector<Block> temporaries;      // per tensor of the program
  std::vector<TensorView> views;       // per tensor of the program
  int64_t allocations = 0;
};

DirectionKernels::DirectionKernels(Program program, DimValues sizes, std::vector<bool> dense, const FusionOptions& fusion,
                     std::shared_ptr<KernelCache> cache)
    : program_(std::move(program)), sizes_(std::move(sizes)) {
  auto start = std::chrono::steady_clock::now();
  plan_ = plan_kernels(program_, sizes_, fusion);
  for (const Kernel& k : plan_.kernels) {
    auto made = std::make_unique<Instance>();
    made->kernel = &k;
    made->spec = make_spec(program_, k, sizes_, dense);
    const KernelSpec& spec = made->spec;
    if (writes_nothing(spec)) continue;
    for (Id x : spec.shared) {
      const SpecAxis& axis = spec.axes.at(x);
      made->counts.push_back(axis.kind() == AxisKind::whole ? 1 : (axis.extent + axis.tile - 1) / axis.tile);
      made->tiles *= made->counts.back();
    }
    kernels_.push_back(std::move(made));
  }
  // Distinct pipelines compile in parallel; the first one of a process also builds Halide's runtime (0.4 s).
  std::vector<std::future<std::shared_ptr<const CompiledKernel>>> jobs;
  for (size_t i = 1; i < kernels_.size(); ++i)
    jobs.push_back(std::async(std::launch::async, [&, i] { return cache->get(kernels_[i]->spec); }));
  std::exception_ptr failed;
  for (size_t i = 0; i < kernels_.size(); ++i) try {
      kernels_[i]->code = i == 0 ? cache->get(kernels_[0]->spec) : jobs[i - 1].get();
    } catch (...) {
      failed = std::current_exception();
    }
  if (failed) std::rethrow_exception(failed);
  for (auto& k : kernels_) {
    const KernelSpec& spec = k->spec;
    for (uint32_t t : k->code->inputs) {
      SizeValue v = {spec.tensors[t].value};
      if (spec.tensors[t].type == DType::f32) v.narrow = static_cast<float>(spec.tensors[t].value);
      k->sizes.push_back(v);
    }
    for (const auto& [name, count] : k->code->scalars) {
      const SpecAxis& axis = spec.axes.at(spec.arena->axis(name));
      k->scalars.push_back({axis.kind() == AxisKind::whole ? -1 : axis.shared, count, static_cast<int32_t>(axis.extent)});
    }
    for (uint32_t t : k->code->results) {
      ResultInfo r;
      r.tensor = t;
      r.member = &*std::ranges::find_if(spec.members, [&](const SpecMember& m) { return m.tensor == t; });
      r.dims = tile_dimensions(spec, *r.member);
      for (size_t s = 0; s < spec.shared.size(); ++s) {
        if (spec.axes.at(spec.shared[s]).kind() == AxisKind::whole) continue;
        for (size_t l = 0; l < r.member->left.size(); ++l)
          if (r.member->left[l] == spec.shared[s]) r.moves.emplace_back(s, l);
        if (std::ranges::find(r.member->reduced, spec.shared[s]) != r.member->reduced.end()) {
          r.reduced.push_back(s);
          r.rows *= k->counts[s];
        }
      }
      // All of it in one tile: no partial result.
      if (r.rows == 1 && spec.tensors[t].dense && spec.tensors[t].type == program_.tensors[spec.tensors[t].original].type)
        r.reduced.clear();
      if (!r.reduced.empty()) {
        r.partial_bytes = r.rows * static_cast<int64_t>(byte_size(spec.tensors[t].type));
        for (int64_t n : spec.tensors[t].shape) r.partial_bytes *= n;
      }
      k->results.push_back(std::move(r));
    }
  }
  compile_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

DirectionKernels::~DirectionKernels() = default;

std::unique_ptr<DirectionKernels::State> DirectionKernels::new_state() const {
  auto state = std::make_unique<State>();
  state->temporaries.resize(program_.tensors.size());
  state->views.resize(program_.tensors.size());
  for (const Kernel& k : plan_.kernels)
    for (TensorId t : k.results) {
      if (std::ranges::find(program_.outputs, t) != program_.outputs.end()) continue;
      auto shape = shape_of(program_, t, sizes_);
      int64_t bytes = static_cast<int64_t>(byte_size(program_.tensors[t].type));
      for (int64_t n : shape) bytes *= n;
      state->temporaries[t] = allocate(bytes);
      ++state->allocations;
      state->views[t] = dense_view(state->temporaries[t].get(), program_.tensors[t].type, shape);
    }
  state->kernels.resize(kernels_.size());
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Instance& k = *kernels_[i];
    auto& s = state->kernels[i];
    s.inputs.resize(k.code->inputs.size());
    for (const ResultInfo& r : k.results) {
      s.partials.push_back(r.partial_bytes ? allocate(r.partial_bytes) : Block());
      state->allocations += r.partial_bytes != 0;
    }
  }
  return state;
}

RunCounts DirectionKernels::run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed) const {
  std::unique_ptr<State> state;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      state = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  RunCounts counts;
  if (!state) {
    state = new_state();
    counts.allocations = state->allocations;
  }
  for (TensorId t = 0; t < views.size(); ++t)
    if (!state->temporaries[t]) state->views[t] = views[t];
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Instance& k = *kernels_[i];
    counts.kernels += !k.kernel->follows;
    counts.tiles += k.tiles;
    auto start = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    run_kernel(k, i, *state, pool);
    if (timed) timed(*k.kernel, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    for (const ResultInfo& r : k.results) counts.finishes += !r.reduced.empty();
  }
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(state));
  return counts;
}

void DirectionKernels::run_kernel(const Instance& k, size_t index, State& state, ThreadPool& pool) const {
  const KernelSpec& spec = k.spec;
  auto& ks = state.kernels[index];
  static char nothing[64];  // empty tensors may be null; Halide must not see a null pointer

  auto set = [](State::Buffer& b, void* data, DType type, size_t rank) {
    b.dims.resize(rank);
    b.raw.host = static_cast<uint8_t*>(data ? data : nothing);
    b.raw.type = halide_type(type);
    b.raw.dimensions = static_cast<int32_t>(rank);
    b.raw.dim = b.dims.data();
  };
  for (size_t i = 0; i < ks.inputs.size(); ++i) {
    const SpecTensor& t = spec.tensors[k.code->inputs[i]];
    State::Buffer& b = ks.inputs[i];
    if (t.is_size()) {
      set(b, const_cast<SizeValue*>(&k.sizes[i]), t.type, 0);
      continue;
    }
    const TensorView& v = state.views[t.original];
    set(b, v.data, t.type, t.shape.size());
    for (size_t d = 0; d < t.shape.size(); ++d) {
      size_t from = t.shape.size() - 1 - d;
      auto stride = t.steps[from] * v.strides[static_cast<size_t>(t.groups[from].second)];
      b.dims[d] = halide_dimension_t(0, static_cast<int32_t>(t.shape[from]), static_cast<int32_t>(stride));
    }
  }
  ks.workers.resize(std::max(ks.workers.size(), static_cast<size_t>(pool.threads())));
  for (auto& w : ks.workers) {
    w.scalars.resize(k.code->scalars.size());
    w.results.resize(k.results.size());
    w.argv.clear();
    w.raw.clear();
    w.argv.push_back(nullptr);  // the user context
    for (int32_t& o : w.scalars) w.argv.push_back(&o);
    for (auto& b : ks.inputs) w.argv.push_back(&b.raw);
    for (size_t i = 0; i < k.results.size(); ++i) {
      const ResultInfo& r = k.results[i];
      set(w.results[i], nullptr, spec.tensors[r.tensor].type, r.dims.size());
      w.argv.push_back(&w.results[i].raw);
    }
  }

  auto tile = [&](int worker, int64_t number) {
    auto& w = ks.workers[static_cast<size_t>(worker)];
    int64_t position[kMaxRank] = {}, origin[kMaxRank] = {}, extent[kMaxRank] = {};
    for (size_t s = spec.shared.size(); s-- > 0;) {
      const SpecAxis& axis = spec.axes.at(spec.shared[s]);
      position[s] = number % k.counts[s];
      number /= k.counts[s];
      origin[s] = position[s] * axis.tile;
      extent[s] = std::min(axis.tile, axis.extent - origin[s]);
    }
    for (size_t i = 0; i < w.scalars.size(); ++i) {
      auto [s, count, value] = k.scalars[i];
      w.scalars[i] = s < 0 ? value : static_cast<int32_t>(count ? extent[s] : origin[s]);
    }
    for (size_t i = 0; i < k.results.size(); ++i) {
      const ResultInfo& r = k.results[i];
      const SpecTensor& t = spec.tensors[r.tensor];
      State::Buffer& b = w.results[i];
      int64_t steps[kMaxRank];
      int64_t offset = 0;
      if (r.reduced.empty()) {
        const TensorView& v = state.views[t.original];
        b.raw.host = static_cast<uint8_t*>(v.data ? v.data : nothing);
        for (size_t d = 0; d < t.shape.size(); ++d) steps[d] = t.steps[d] * v.strides[static_cast<size_t>(t.groups[d].second)];
      } else {
        b.raw.host = static_cast<uint8_t*>(ks.partials[i].get());
        int64_t step = 1, row = 0;
        for (size_t d = t.shape.size(); d-- > 0;) {
          steps[d] = step;
          step *= t.shape[d];
        }
        for (size_t s : r.reduced) row = row * k.counts[s] + position[s];
        offset += row * step;
      }
      for (auto [s, l] : r.moves) offset += origin[s] * steps[l];
      b.raw.host += offset * static_cast<int64_t>(byte_size(t.type));
      for (size_t d = 0; d < r.dims.size(); ++d) {
        size_t l = r.dims[r.dims.size() - 1 - d];
        int64_t n = t.shape[l];
        for (auto [s, moved] : r.moves)
          if (moved == l) n = extent[s];
        b.dims[d] = halide_dimension_t(0, static_cast<int32_t>(n), static_cast<int32_t>(steps[l]));
      }
    }
    k.code->code->call(w.argv.size(), w.argv.data());
  };
  pool.run(k.tiles, tile);
  finish(k, index, state, pool);
}

void DirectionKernels::finish(const Instance& k, size_t index, State& state, ThreadPool& pool) const {
  constexpr int64_t kBlock = 512;       // elements a task adds up
  constexpr int64_t kSerial = 1 << 14;  // partial results below this are not worth a second thread
  for (size_t i = 0; i < k.results.size(); ++i) {
    const ResultInfo& r = k.results[i];
    if (r.reduced.empty()) continue;
    const SpecTensor& t = k.spec.tensors[r.tensor];
    const TensorView& out = state.views[t.original];
    const void* partial = state.kernels[index].partials[i].get();
    int64_t n = out.elements();
    auto block = [&](int, int64_t b) {
      combine_partials(r.member->op, partial, r.rows, out, b * kBlock, std::min(n, (b + 1) * kBlock));
    };
    if (n * r.rows < kSerial) combine_partials(r.member->op, partial, r.rows, out);
    else pool.run((n + kBlock - 1) / kBlock, block);
  }
}

}  // namespace xhat::runtime
