// Choices of the kernel planner with and without: axes tied to others, sums carried from tile to tile (docs/design.md, "Kernels"). Without:
// tiles in any order, as on a GPU.
//
//     build/bench/xhat_bench --benchmark_filter='ties/|sequential/'
//
// Calls alternate. without_ms, with_ms: the least times.
#include <memory>

#include "bench/in_turn.h"
#include "bench/peer_op.h"
#include "runtime/cpu/kernel_cache.h"

namespace fusion_bench {
namespace {

using namespace xhat;
using Phase = CompiledOp::Phase;

struct Case {
  const char* family;
  const char* op;  // bench/peer_ops/<op>.xh
  DimValues dims;
  std::vector<Phase> phases;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"ties", "group_norm", {{"N", 16}, {"G", 8}, {"H", 64}, {"W", 96}}, {Phase::forward, Phase::backward}},
      {"ties", "group_norm", {{"N", 8}, {"G", 32}, {"H", 64}, {"W", 64}}, {Phase::forward, Phase::backward}},
      {"sequential", "attention", {{"B", 4}, {"H", 8}, {"S", 256}, {"T", 256}, {"D", 64}}, {Phase::backward}},
      {"sequential", "attention", {{"B", 4}, {"H", 8}, {"S", 1024}, {"T", 1024}, {"D", 64}}, {Phase::backward}},
  };
  return table;
}

CompiledOp compiled(const Case& c, bool in_order) {
  CompileOptions options;
  options.threads = 2;
  options.machine.tiles_in_order = in_order;
  options.cache = std::make_shared<runtime::KernelCache>();
  return compile(parse_op(bench::peer_op(c.op)), options);
}

void run(benchmark::State& state, const Case& c, Phase phase) {
  try {
    bench::InTurn without(compiled(c, false), c.dims), with(compiled(c, true), c.dims);
    bench::InTurn::run(state, phase, "without", without, "with", with);
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

[[maybe_unused]] const bool registered = [] {
  for (const Case& c : cases())
    for (Phase phase : c.phases) {
      std::string name = std::string(c.family) + "/" + c.op;
      for (const auto& [dim, size] : c.dims) name += "/" + dim + ":" + std::to_string(size);
      benchmark::RegisterBenchmark((name + (phase == Phase::forward ? "/forward" : "/backward")).c_str(),
                                   [&c, phase](benchmark::State& s) { run(s, c, phase); })
          ->UseRealTime()
          ->MinTime(0.3)
          ->Unit(benchmark::kMillisecond);
    }
  return true;
}();

}  // namespace
}  // namespace fusion_bench
