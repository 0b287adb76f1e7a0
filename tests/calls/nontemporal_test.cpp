// Stores that are made non-temporal in the object file: found at every level of vectors, used where runs begin with a line and
// nowhere else (elsewhere they would trap), and the same bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "runtime/cpu/kernel_cache.h"
#include "runtime/host/thread_pool.h"
#include "runtime/host/tile_walk.h"
#include "runtime/store/nontemporal.h"
#include "tests/helpers/disk_cache_helper.h"
#include "tests/helpers/lowered_code.h"

namespace xhat::nontemporal_test {
namespace {

using namespace xhat::testing;

MachineModel streaming() {
  MachineModel o;
  o.serial_bytes = 0;
  o.tile_bytes = 8192;
  o.stream_bytes = 0;
  o.stream_ps_per_byte = std::numeric_limits<int32_t>::max();
  return o;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Op {
  const char* text;
  DimValues dims;
  int marked;  // stores in a step of its loops
  CpuLevel least = CpuLevel::sse41;  // below, a vector of the loop is more than a store
  bool fetches = false;              // rows ahead
};

std::vector<Op> ops() {
  return {{"op f(x: f32[N]) -> (y) { y[i] = x[i]*x[i] + 1 }", {{"N", 1 << 14}}, 1},
          {"op f(x: f64[N]) -> (y) { y[i] = sqrt(x[i]*x[i] + 2) }", {{"N", 1 << 14}}, 1},
          {"op f(x: f32[N], b: f32[N]) -> (y, z) { y[i] = x[i] + b[i]; z[i] = y[i]*b[i] }", {{"N", 1 << 14}}, 2},
          {"op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d] - mean(k: x[n,k]) }", {{"N", 30}, {"D", 1024}}, 1},
          {"op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d] - mean(k: x[n,k]) }", {{"N", 30}, {"D", 1000}}, 1},
          {"op f(x: f32[N,H,W]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0]) }",
           {{"N", 3}, {"H", 20}, {"W", 512}}, 1, CpuLevel::avx2, true}};
}

TEST_F(KernelsOnDisk, HaveNonTemporalStores) {
  fs::create_directories(cache_);
  const std::string path = cache_ + "/kernel.o";
  for (CpuLevel level : {CpuLevel::sse41, CpuLevel::avx2, CpuLevel::avx512})
    for (const Op& op : ops()) {
      if (level < op.least) continue;
      SCOPED_TRACE(op.text);
      const Program forward = infer_program(derive(parse_op(op.text), {}).program);
      const runtime::KernelSpec spec = only_spec(forward, op.dims, streaming());
      const Halide::Target target = runtime::target_of(level).with_feature(Halide::Target::NoRuntime);
      EXPECT_GE(times_in(lowered_code(spec, target), "prefetch("), op.marked);
      const std::string in_memory = lowered_code(spec, runtime::target_of(level).with_feature(Halide::Target::JIT));
      EXPECT_EQ(times_in(in_memory, "prefetch("), times_in(in_memory, "prefetch(xh_in")) << in_memory;  // but for the next row
      auto lowered = runtime::lower(spec, target);
      lowered.pipeline.compile_to_object(path, lowered.arguments, "tile", target);
      const std::string before = bytes_of(path);
      const runtime::CodeChanges changes = runtime::make_nontemporal(path);
      EXPECT_GE(changes.stores, op.marked) << "level " << static_cast<int>(level);
      EXPECT_EQ(changes.fetches > 0, op.fetches) << "level " << static_cast<int>(level);
      const std::string after = bytes_of(path);
      ASSERT_EQ(before.size(), after.size());
      int different = 0;
      for (size_t i = 0; i < before.size(); ++i) different += before[i] != after[i];
      EXPECT_EQ(different, 2 * (changes.stores + changes.fetches));  // a byte of either instruction
      EXPECT_EQ(runtime::make_nontemporal(path), runtime::CodeChanges{});
    }
}

TEST_F(KernelsOnDisk, WriteWholeLinesPastTheCacheWhereverTheyBegin) {
  for (const Op& c : ops())
    for (size_t offset : {size_t{0}, size_t{8}, size_t{32}}) {  // of all tensors, in bytes, from a line's beginning
      SCOPED_TRACE(c.text);
      const Program op = parse_op(c.text);
      Arrays data = random_data(op, c.dims, 11);
      auto run = [&](std::shared_ptr<runtime::DiskCache> disk, bool streams) {
        CompileOptions options;
        options.cache = std::make_shared<runtime::KernelCache>(disk);
        options.machine = streaming();
        if (!streams) options.machine.stream_bytes = std::numeric_limits<int64_t>::max();
        options.differentiate = false;
        const CompiledOp compiled = compile(op, options);
        const Program& p = compiled.program();
        std::vector<Argument> arguments;
        std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory;
        auto add = [&](TensorId t) {
          const auto shape = shape_of(p, t, c.dims);
          TensorView view(nullptr, p.tensors[t].type, shape, {});
          const auto bytes = static_cast<size_t>(view.bytes());
          memory.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + offset + 63) / 64 * 64)), std::free);
          view.data = memory.back().get() + offset;
          if (auto it = data.find(p.tensors[t].name); it != data.end())
            for (size_t i = 0; i < it->second.size(); ++i) {
              if (view.type == DType::f64) static_cast<double*>(view.data)[i] = it->second.reals[i];
              else static_cast<float*>(view.data)[i] = static_cast<float>(it->second.reals[i]);
            }
          arguments.push_back({p.tensors[t].name, view});
        };
        for (TensorId t : p.inputs) add(t);
        for (TensorId t : p.outputs) add(t);
        compiled.infer(arguments);
        std::string results;
        for (size_t i = p.inputs.size(); i < arguments.size(); ++i) {
          const TensorView& v = arguments[i].view;
          results.append(static_cast<const char*>(v.data), static_cast<size_t>(v.bytes()));
        }
        return results;
      };
      const std::string plain = run(nullptr, false);
      EXPECT_TRUE(run(nullptr, true) == plain) << "offset " << offset;
      EXPECT_TRUE(run(std::make_shared<runtime::DiskCache>(cache_), true) == plain) << "offset " << offset;
    }
}

// Notes where each tile's results begin, and their extents.
class Recorder : public runtime::TileCode {
 public:
  explicit Recorder(size_t results) : results_(results) {}
  int call(size_t argc, const void* const* argv) const override {
    for (size_t i = argc - results_; i < argc; ++i) {
      const auto& b = *static_cast<const halide_buffer_t*>(argv[i]);
      tiles.emplace_back(reinterpret_cast<uintptr_t>(b.host), b.dim[0].extent);
    }
    return 0;
  }
  mutable std::vector<std::pair<uintptr_t, int64_t>> tiles;

 private:
  size_t results_;
};

TEST(NonTemporal, TilesOfRowsBeginWithLines) {
  constexpr int64_t kElements = 1000;
  alignas(64) static float memory[2][1024];
  // Bytes from a line to the results; do all tiles but the first begin with lines?
  struct Case {
    std::vector<size_t> offsets;
    bool lines;
    int64_t tile = 128;
  };
  for (const Case& c : {Case{{0}, true}, {{4}, true}, {{16}, true}, {{60}, true}, {{16, 16}, true}, {{2}, false}, {{16, 32}, false}, {{0, 16}, false}, {{4}, false, 8}}) {
    SCOPED_TRACE(c.offsets[0]);
    runtime::WalkPlan plan;
    plan.tensors = static_cast<int64_t>(c.offsets.size());
    runtime::WalkKernel& k = plan.kernels.emplace_back();
    k.shared = {{kElements, c.tile, runtime::AxisKind::tiled}};
    k.scalars = {{0, false, 0}, {0, true, 0}};
    std::vector<TensorView> views;
    for (size_t i = 0; i < c.offsets.size(); ++i) {
      runtime::WalkResult& r = k.results.emplace_back();
      r.tensor = static_cast<int64_t>(i);
      r.dims = {{kElements, 1, 0}};
      r.left = {0};
      r.moves = {{0, 0}};
      views.emplace_back(reinterpret_cast<std::byte*>(memory[i]) + c.offsets[i], DType::f32, std::vector<int64_t>{kElements}, std::vector<int64_t>{});
    }
    Recorder code(c.offsets.size());
    runtime::ThreadPool pool(1);
    runtime::TileWalk(plan, {&code}).run(pool, views);
    for (size_t i = 0; i < c.offsets.size(); ++i) {
      auto next = reinterpret_cast<uintptr_t>(views[i].data);
      bool lines = true;
      for (size_t t = i; t < code.tiles.size(); t += c.offsets.size()) {
        auto [begin, extent] = code.tiles[t];
        EXPECT_EQ(begin, next);
        EXPECT_GT(extent, 0);
        EXPECT_LE(extent, c.tile);
        lines = lines && (t == i || begin % 64 == 0);
        next = begin + static_cast<uintptr_t>(extent) * sizeof(float);
      }
      EXPECT_EQ(next, reinterpret_cast<uintptr_t>(views[i].data) + kElements * sizeof(float));
      if (c.offsets.size() == 1) {
        EXPECT_EQ(lines, c.lines);
      }
    }
    const int64_t tiles = (kElements + c.tile - 1) / c.tile;
    EXPECT_EQ(static_cast<int64_t>(code.tiles.size() / c.offsets.size()), c.lines && c.offsets[0] > 0 ? tiles + 1 : tiles);
  }
}

TEST(NonTemporal, LeavesOtherFilesAlone) {
  std::string text = "no object file", elf("\x7f" "ELF", 4);
  for (std::string* s : {&text, &elf}) {
    const std::string before = *s;
    EXPECT_EQ(runtime::make_nontemporal_in(*s), runtime::CodeChanges{});
    EXPECT_EQ(*s, before);
  }
  EXPECT_THROW(runtime::make_nontemporal("/nothing/here.o"), Error);
}

}  // namespace
}  // namespace xhat::nontemporal_test
