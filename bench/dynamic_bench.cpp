// Kernels that serve every batch size beside kernels for one size alone (the size written into the op):
//
//     build/bench/xhat_bench --benchmark_filter=dynamic
//
// Calls alternate. shared_ms and alone_ms are the least times, ratio their quotient; compiled: kernels that other sizes,
// seen before, left this one to compile. The shared kernels come from a process that began with batches of 7 and 33.
#include <regex>
#include <string>
#include <vector>

#include "bench/in_turn.h"
#include "bench/peer_op.h"
#include "runtime/cpu/kernel_cache.h"

namespace dynamic_bench {
namespace {

using namespace xhat;
using Phase = CompiledOp::Phase;

constexpr int kThreads = 2;

struct Case {
  const char* op;  // bench/peer_ops/<op>.xh
  const char* batch;
  DimValues dims;  // but for the batch
  std::vector<int64_t> sizes;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"tanh", "N", {}, {1000, 4 << 20}},
      {"gelu_tanh_bias", "N", {{"C", 1024}}, {32, 2048}},
      {"softmax", "N", {{"D", 1024}}, {32, 4096}},
      {"layer_norm", "N", {{"D", 1024}}, {32, 4096}},
      {"rms_norm", "N", {{"D", 1024}}, {32, 4096}},
      {"batch_norm_train", "N", {{"C", 64}, {"H", 56}, {"W", 56}}, {8, 32}},
      {"depthwise_conv3x3", "N", {{"C", 64}, {"H", 56}, {"W", 56}}, {1, 8}},
      {"conv3x3_bias_relu", "N", {{"C", 16}, {"K", 16}, {"H", 28}, {"W", 28}}, {2, 32}},
      {"attention", "B", {{"H", 4}, {"S", 128}, {"T", 128}, {"D", 64}}, {1, 8}},
      {"dense_gelu", "N", {{"I", 512}, {"O", 512}}, {32, 512}},
  };
  return table;
}

CompiledOp compiled(const Case& c, std::shared_ptr<runtime::KernelCache> cache, int64_t written_size = 0) {
  std::string text = bench::peer_op(c.op);
  if (written_size > 0) text = std::regex_replace(text, std::regex(std::string("\\b") + c.batch + "\\b"), std::to_string(written_size));
  CompileOptions options;
  options.threads = kThreads;
  options.stash.nominal = c.dims;
  options.cache = std::move(cache);
  return compile(parse_op(text), options);
}

void run(benchmark::State& state, const Case& c, int64_t size, Phase phase) {
  try {
    auto cache = std::make_shared<runtime::KernelCache>();
    CompiledOp op = compiled(c, cache);
    DimValues dims = c.dims;
    auto prepare = [&](int64_t n) {
      dims[c.batch] = n;
      op.prepare(phase, dims);
      return cache->size();
    };
    prepare(7);
    size_t before = prepare(33), after = prepare(size);
    bench::InTurn shared(op, dims), alone(compiled(c, std::make_shared<runtime::KernelCache>(), size), c.dims);
    bench::InTurn::run(state, phase, "shared", shared, "alone", alone);
    state.counters["compiled"] = static_cast<double>(after - before);
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

[[maybe_unused]] const bool registered = [] {
  for (const Case& c : cases())
    for (int64_t size : c.sizes)
      for (auto [phase, name] : {std::pair{Phase::forward, "forward"}, {Phase::backward, "backward"}})
        benchmark::RegisterBenchmark(
            ("dynamic/" + std::string(c.op) + "/" + c.batch + "=" + std::to_string(size) + "/" + name).c_str(),
            [&c, size, phase = phase](benchmark::State& s) { run(s, c, size, phase); })
            ->UseRealTime()
            ->MinTime(0.3)
            ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace dynamic_bench
