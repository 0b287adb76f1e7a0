// Results written past the cache, and as ever (docs/design.md, "Past the cache"); and tiles of four times the bytes, where a kernel is
// as large as that; and tensors that begin with a line of the cache, and 16 bytes behind, where the C library's large blocks do:
//
//     build/bench/xhat_bench --benchmark_filter='stream/|long_tiles/|lines/'
//
// Calls alternate. plain_ms, past_ms; short_ms, long_ms; lines_ms, behind_ms: the least times.
#include <cstdint>
#include <memory>

#include "bench/in_turn.h"
#include "bench/peer_op.h"
#include "runtime/cpu/kernel_cache.h"

namespace stream_bench {
namespace {

using namespace xhat;
using Phase = CompiledOp::Phase;

struct Case {
  const char* op;  // bench/peer_ops/<op>.xh
  DimValues dims;
  bool tiles = true;  // long ones too
};
const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"group_norm", {{"N", 16}, {"G", 8}, {"H", 32}, {"W", 32}}, false},
      {"swiglu", {{"N", 512}, {"D", 4096}}, false},
      {"layer_norm", {{"N", 2048}, {"D", 1024}}, false},
      {"rms_norm", {{"N", 4096}, {"D", 1024}}},
      {"softmax", {{"N", 4096}, {"D", 1024}}},
      {"huber", {{"N", 8 << 20}}},
      {"tanh", {{"N", 16 << 20}}},
  };
  return table;
}

CompiledOp compiled(const Case& c, const MachineModel& machine) {
  CompileOptions options;
  options.threads = 2;
  options.machine = machine;
  options.cache = std::make_shared<runtime::KernelCache>();
  return compile(parse_op(bench::peer_op(c.op)), options);
}

struct Options {
  const char* name;
  MachineModel machine;
  size_t behind = 0;  // a line, bytes
};

void run(benchmark::State& state, const Case& c, Phase phase, const Options& a, const Options& b) {
  try {
    bench::InTurn first(compiled(c, a.machine), c.dims, a.behind), second(compiled(c, b.machine), c.dims, b.behind);
    bench::InTurn::run(state, phase, a.name, first, b.name, second);
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

[[maybe_unused]] const bool registered = [] {
  MachineModel plain, past, short_tiles;
  plain.stream_bytes = INT64_MAX;
  past.stream_bytes = 1;
  // One thing at a time: long tiles go with what is past the cache.
  plain.long_tile_factor = past.long_tile_factor = short_tiles.long_tile_factor = 1;
  auto add = [](const char* family, const Case& c, const Options& a, const Options& b) {
    for (auto [phase, name] : {std::pair{Phase::forward, "forward"}, {Phase::backward, "backward"}})
      benchmark::RegisterBenchmark((std::string(family) + "/" + c.op + "/" + name).c_str(),
                                   [&c, a, b, phase = phase](benchmark::State& s) { run(s, c, phase, a, b); })
          ->UseRealTime()
          ->MinTime(0.3)
          ->Unit(benchmark::kMillisecond);
  };
  for (const Case& c : cases()) {
    add("stream", c, {"plain", plain}, {"past", past});
    if (c.tiles) add("long_tiles", c, {"short", short_tiles}, {"long", {}});
    add("lines", c, {"lines", past}, {"behind", past, 16});
  }
  return true;
}();

}  // namespace
}  // namespace stream_bench
