// Per tile, a call gets the tile's origins, the whole inputs, and each result as a view of the tile. The code counts from 0 in its results, and
// adds the origin where it reads inputs.
#include "runtime/host/tile_walk.h"

#include <algorithm>
#include <chrono>

#include "runtime/host/element_type.h"
#include "runtime/host/finish.h"
#include "runtime/host/scratch.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
namespace {

char nothing[64];  // empty tensors may be null; Halide must not see a null pointer

struct Buffer {
  halide_buffer_t raw = {};
  std::vector<halide_dimension_t> dims;

  void set(void* data, DType type, size_t rank) {
    dims.resize(rank);
    raw.host = static_cast<uint8_t*>(data ? data : nothing);
    raw.type = element_type(type);
    raw.dimensions = static_cast<int32_t>(rank);
    raw.dim = dims.data();
  }
};

int64_t stride_of(const TensorView& v, const WalkDimension& d) { return d.step * v.strides[d.of]; }

}  // namespace

struct TileWalk::Prepared {
  std::vector<int64_t> counts;  // tiles per axis of the loop
  int64_t tiles = 1;
  int64_t sequential = 1;  // tiles that one thread runs in order
  bool one_row = false;  // all results are rows of elements of equal size, cut along the loop's only axis
  std::vector<SizeValue> sizes;  // per input
  struct Result {
    std::vector<size_t> reduced;  // empty: no partial results
    int64_t rows = 1;
    int64_t partial_bytes = 0;
  };
  std::vector<Result> results;
};

// The state of one run: memory for temporaries and the arguments of every kernel. Reused by later runs.
struct TileWalk::State {
  struct Worker {
    std::vector<int32_t> scalars;
    std::vector<Buffer> results;
    std::vector<const void*> argv;
  };
  struct Kernel {
    std::vector<Buffer> inputs;
    std::vector<Worker> workers;
    std::vector<OwnedMemory> partials;  // per result; null if it has no partial results
    // For this run. skipped: elements of the first tile that lie before the beginning of the loop's only axis. tasks: units of work for threads.
    int64_t skipped = 0, tasks = 0;
  };
  std::vector<Kernel> kernels;
  std::vector<OwnedMemory> temporaries;  // as WalkPlan::temporaries
  std::vector<TensorView> own;           // what lies there
  std::vector<const TensorView*> views;  // per tensor; of the caller's, those of this run
  int64_t allocations = 0;
};

std::vector<int64_t> tiles_by_rule(const WalkKernel& k) {
  std::vector<int64_t> planned, tiles;
  int64_t slower = 1;
  for (const PlannedAxis& p : k.planned) {
    int64_t full = std::max<int64_t>(1, p.extent);
    planned.push_back(tile_by(p.rule, full, slower));
    slower *= full;
  }
  for (const WalkAxis& axis : k.shared) {
    int64_t tile = 1;
    for (size_t p : axis.planned) tile *= planned[p];
    // The code was compiled for this kind, whatever tile the rule gives at these sizes.
    if (axis.kind == AxisKind::untiled) tile = axis.extent;
    else if (axis.kind == AxisKind::point) tile = 1;
    else if (axis.planned.empty()) tile = axis.tile;
    else tile = std::max<int64_t>(1, tile / axis.divisor);
    tiles.push_back(tile);
  }
  return tiles;
}

// Elements before the first 64-byte boundary that all results have in common; 0 if there is none. Tiles begin there, so that they write
// whole lines of memory however the caller's blocks are aligned: large ones of the C library begin 16 bytes after a boundary.
static int64_t before_lines(const WalkKernel& k, const std::vector<const TensorView*>& views) {
  uintptr_t before = 0;
  for (const WalkResult& r : k.results) {
    const TensorView& v = *views[static_cast<size_t>(r.tensor)];
    const uintptr_t bytes = byte_size(r.type), here = -reinterpret_cast<uintptr_t>(v.data) % kStreamLine;
    if (v.strides[r.dims[0].of] * r.dims[0].step != 1 || here % bytes != 0 || (&r != &k.results[0] && here != before)) return 0;
    before = here;
  }
  return static_cast<int64_t>(before / byte_size(k.results[0].type));
}

TileWalk::TileWalk(WalkPlan plan, std::vector<const TileCode*> codes) : plan_(std::move(plan)), codes_(std::move(codes)) {
  for (const WalkKernel& k : plan_.kernels) {
    Prepared& p = prepared_.emplace_back();
    for (size_t s = 0; s < k.shared.size(); ++s) {
      const WalkAxis& axis = k.shared[s];
      const bool sequential = s + k.sequential >= k.shared.size();
      int64_t count = axis.kind == AxisKind::untiled ? 1 : (axis.extent + axis.tile - 1) / axis.tile;
      if (sequential) count = std::max<int64_t>(1, count);  // a sum over nothing must be written too
      p.counts.push_back(count);
      p.tiles *= count;
      if (sequential) p.sequential *= count;
    }
    for (const WalkInput& input : k.inputs) p.sizes.push_back(size_value(input.type, input.value));
    p.one_row = k.shared.size() == 1 && k.shared[0].kind == AxisKind::tiled && p.tiles > 1 && !k.results.empty() &&
                k.shared[0].tile >= static_cast<int64_t>(kStreamLine);  // the elements before the first line are fewer than a tile
    for (const WalkResult& r : k.results)
      p.one_row = p.one_row && r.reduced.empty() && r.dims.size() == 1 && r.moves.size() == 1 &&
                  byte_size(r.type) == byte_size(k.results[0].type);
    for (const WalkResult& r : k.results) {
      Prepared::Result& made = p.results.emplace_back();
      made.reduced = r.reduced;
      for (size_t s : r.reduced) made.rows *= p.counts[s];
      // One tile has all of the reduced axes, so there are no partial results.
      if (made.rows == 1 && r.dense && r.type == r.final_type) made.reduced.clear();
      if (made.reduced.empty()) continue;
      made.partial_bytes = made.rows * static_cast<int64_t>(byte_size(r.type));
      for (const WalkDimension& d : r.dims) made.partial_bytes *= d.extent;
    }
  }
  for (const WalkKernel& k : plan_.kernels) {
    for (const WalkInput& input : k.inputs)
      if (input.tensor >= 0) given_.push_back(static_cast<size_t>(input.tensor));
    for (const WalkResult& r : k.results) given_.push_back(static_cast<size_t>(r.tensor));
  }
  std::ranges::sort(given_);
  given_.erase(std::ranges::unique(given_).begin(), given_.end());
  std::erase_if(given_, [&](size_t t) {
    return std::ranges::any_of(plan_.temporaries, [&](const WalkTemporary& own) { return static_cast<size_t>(own.tensor) == t; });
  });
}

TileWalk::~TileWalk() = default;

std::unique_ptr<TileWalk::State> TileWalk::new_state() const {
  auto state = std::make_unique<State>();
  state->own.reserve(plan_.temporaries.size());
  state->views.resize(static_cast<size_t>(plan_.tensors));
  for (const WalkTemporary& t : plan_.temporaries) {
    TensorView& view = state->own.emplace_back(nullptr, t.type, t.shape, std::span<const int64_t>());
    view.data = state->temporaries.emplace_back(allocate(view.bytes())).get();
    ++state->allocations;
    state->views[static_cast<size_t>(t.tensor)] = &view;
  }
  state->kernels.resize(plan_.kernels.size());
  for (size_t i = 0; i < plan_.kernels.size(); ++i) {
    auto& s = state->kernels[i];
    s.inputs.resize(plan_.kernels[i].inputs.size());
    for (const Prepared::Result& r : prepared_[i].results) {
      s.partials.push_back(r.partial_bytes ? allocate(r.partial_bytes) : OwnedMemory());
      state->allocations += r.partial_bytes != 0;
    }
  }
  return state;
}

RunCounts TileWalk::run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed) const {
  const bool guarded = memory_source != nullptr;
  std::unique_ptr<State> state = guarded ? nullptr : idle_.take();
  RunCounts counts;
  if (!state) {
    state = new_state();
    counts.allocations = state->allocations;
  }
  for (size_t t : given_) state->views[t] = &views[t];
  for (size_t i = 0, end; i < plan_.kernels.size(); i = end) {
    end = i + 1;
    while (!timed && end < plan_.kernels.size() && plan_.kernels[end].horizontal) ++end;
    auto start = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    sweep(i, end, *state, pool);
    if (timed) timed(i, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    counts.kernels += !plan_.kernels[i].epilogue;
    for (size_t k = i; k < end; ++k) {
      counts.tiles += prepared_[k].tiles;
      for (const Prepared::Result& r : prepared_[k].results) counts.finishes += !r.reduced.empty();
    }
  }
  if (!guarded) idle_.give_back(std::move(state));
  return counts;
}

// Runs the kernels first to end - 1 as one sweep. None of them reads a result of another, so a thread goes from the tiles of one kernel to those
// of the next.
void TileWalk::sweep(size_t first, size_t end, State& state, ThreadPool& pool) const {
  int64_t tasks = 0;
  bool one_each = true;
  for (size_t k = first; k < end; ++k) {
    bind(k, state, pool);
    tasks += state.kernels[k].tasks;
    one_each = one_each && state.kernels[k].tasks <= 1;
  }
  auto task = [&](int worker, int64_t number) {
    size_t k = first;
    for (; number >= state.kernels[k].tasks; ++k) number -= state.kernels[k].tasks;
    const int64_t tiles = prepared_[k].sequential;
    for (int64_t i = 0; i < tiles; ++i) run_tile(k, state, worker, number * tiles + i);
  };
  if (one_each)  // small kernels: waking a second thread costs more than it saves
    for (int64_t i = 0; i < tasks; ++i) task(0, i);
  else
    pool.run(tasks, task);
  for (size_t k = first; k < end; ++k) finish(k, state, pool);
}

void TileWalk::bind(size_t index, State& state, ThreadPool& pool) const {
  const WalkKernel& k = plan_.kernels[index];
  const Prepared& p = prepared_[index];
  auto& ks = state.kernels[index];
  for (size_t i = 0; i < ks.inputs.size(); ++i) {
    const WalkInput& t = k.inputs[i];
    Buffer& b = ks.inputs[i];
    if (t.tensor < 0) {
      b.set(const_cast<SizeValue*>(&p.sizes[i]), t.type, 0);
      continue;
    }
    const TensorView& v = *state.views[static_cast<size_t>(t.tensor)];
    b.set(v.data, t.type, t.dims.size());
    for (size_t d = 0; d < t.dims.size(); ++d) {
      const WalkDimension& from = t.dims[t.dims.size() - 1 - d];
      b.dims[d] = halide_dimension_t(0, static_cast<int32_t>(from.extent), static_cast<int32_t>(stride_of(v, from)));
    }
  }
  ks.workers.resize(std::max(ks.workers.size(), static_cast<size_t>(pool.threads())));
  for (auto& w : ks.workers) {
    w.scalars.resize(k.scalars.size());
    w.results.resize(k.results.size());
    w.argv.clear();
    w.argv.push_back(nullptr);  // the user context
    for (int32_t& o : w.scalars) w.argv.push_back(&o);
    for (auto& b : ks.inputs) w.argv.push_back(&b.raw);
    for (size_t i = 0; i < k.results.size(); ++i) {
      w.results[i].set(nullptr, k.results[i].type, k.results[i].left.size());
      w.argv.push_back(&w.results[i].raw);
    }
  }

  // The first tile is shortened to the elements before the first line.
  const int64_t head = p.one_row ? before_lines(k, state.views) : 0;
  ks.skipped = head > 0 ? k.shared[0].tile - head : 0;
  const int64_t tiles = ks.skipped > 0 ? (k.shared[0].extent + ks.skipped + k.shared[0].tile - 1) / k.shared[0].tile : p.tiles;
  ks.tasks = tiles / p.sequential;
}

void TileWalk::run_tile(size_t index, State& state, int worker, int64_t number) const {
  const WalkKernel& k = plan_.kernels[index];
  const Prepared& p = prepared_[index];
  auto& ks = state.kernels[index];
  auto& w = ks.workers[static_cast<size_t>(worker)];
  int64_t position[kMaxRank] = {}, origin[kMaxRank] = {}, extent[kMaxRank] = {};
  for (size_t s = k.shared.size(); s-- > 0;) {
    const WalkAxis& axis = k.shared[s];
    position[s] = s == 0 ? number : number % p.counts[s];
    number /= p.counts[s];
    const int64_t begin = position[s] * axis.tile - ks.skipped;
    origin[s] = std::max<int64_t>(0, begin);
    extent[s] = std::min(begin + axis.tile, axis.extent) - origin[s];
  }
  for (size_t i = 0; i < w.scalars.size(); ++i) {
    auto [s, count, value] = k.scalars[i];
    w.scalars[i] = static_cast<int32_t>(s < 0 ? value : count ? extent[s] : origin[s]);
  }
  for (size_t i = 0; i < k.results.size(); ++i) {
    const WalkResult& r = k.results[i];
    const std::vector<size_t>& reduced = p.results[i].reduced;
    Buffer& b = w.results[i];
    int64_t steps[kMaxRank];
    int64_t offset = 0;
    if (reduced.empty()) {
      const TensorView& v = *state.views[static_cast<size_t>(r.tensor)];
      b.raw.host = static_cast<uint8_t*>(v.data ? v.data : nothing);
      for (size_t d = 0; d < r.dims.size(); ++d) steps[d] = stride_of(v, r.dims[d]);
    } else {
      b.raw.host = static_cast<uint8_t*>(ks.partials[i].get());
      int64_t step = 1, row = 0;
      for (size_t d = r.dims.size(); d-- > 0;) {
        steps[d] = step;
        step *= r.dims[d].extent;
      }
      for (size_t s : reduced) row = row * p.counts[s] + position[s];
      offset += row * step;
    }
    for (auto [s, l] : r.moves) offset += origin[s] * steps[l];
    b.raw.host += offset * static_cast<int64_t>(byte_size(r.type));
    for (size_t d = 0; d < r.left.size(); ++d) {
      size_t l = r.left[r.left.size() - 1 - d];
      int64_t n = r.dims[l].extent;
      for (auto [s, moved] : r.moves)
        if (moved == l) n = extent[s];
      b.dims[d] = halide_dimension_t(0, static_cast<int32_t>(n), static_cast<int32_t>(steps[l]));
    }
  }
  codes_[k.code]->call(w.argv.size(), w.argv.data());
}

void TileWalk::finish(size_t index, State& state, ThreadPool& pool) const {
  constexpr int64_t kBlock = 512;       // elements that one task adds up
  constexpr int64_t kSerial = 1 << 14;  // fewer partial results than this are not worth a second thread
  const WalkKernel& k = plan_.kernels[index];
  for (size_t i = 0; i < k.results.size(); ++i) {
    const Prepared::Result& p = prepared_[index].results[i];
    if (p.reduced.empty()) continue;
    const WalkResult& r = k.results[i];
    const TensorView& out = *state.views[static_cast<size_t>(r.tensor)];
    const void* partial = state.kernels[index].partials[i].get();
    int64_t n = out.elements();
    auto block = [&](int, int64_t b) {
      combine_partials(r.op, partial, p.rows, out, b * kBlock, std::min(n, (b + 1) * kBlock));
    };
    if (n * p.rows < kSerial) combine_partials(r.op, partial, p.rows, out);
    else pool.run((n + kBlock - 1) / kBlock, block);
  }
}

}  // namespace xhat::runtime
