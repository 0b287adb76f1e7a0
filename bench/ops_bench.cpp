// Whole ops: forward, backward, inference and compilation, with what the stash and fusion are worth.
//
//     build/bench/xhat_bench --benchmark_filter=ops/layer_norm
//
// Names are ops/OP/PHASE/VARIANT. Variants: cost (the default), stash_none, stash_largest, fusion_off, as_derived (no
// algebra, nothing shared: the gradient as it comes from the rules). The
// counter bytes_per_second is by unavoidable bytes (every tensor that the variant's own plan needs, once), so it
// can be held against the machine's copy bandwidth. `compile` starts from text with an empty kernel cache:
// parsing, gradient, stash, planning, and every kernel. `plan/OP`, for every op of bench/peer_ops, is the part of it
// before any kernel: all passes; the counter stash_ms is the stash planner's share. plan/chain_500, plan/sin_mul_500 and
// plan/norms_500 are long programs, of about 500 nodes (bench/long_ops.h).
#include <benchmark/benchmark.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/long_ops.h"
#include "bench/op_setup.h"
#include "bench/peer_op.h"
#include "expr/index/dims.h"
#include "runtime/call/compile.h"
#include "runtime/cpu/kernel_cache.h"

namespace ops_bench {
namespace {

using namespace xhat;
using Phase = CompiledOp::Phase;
using Policy = StashOptions::Policy;

constexpr int kThreads = 2;

// Sizes that leave the caches of a core but not the patience of whoever waits; attention and conv are small.
struct Case {
  const char* op;  // bench/peer_ops/<op>.xh
  DimValues dims;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"tanh", {{"N", 4 << 20}}},
      {"gelu_tanh_bias", {{"N", 2048}, {"C", 1024}}},
      {"softmax", {{"N", 4096}, {"D", 1024}}},
      {"layer_norm", {{"N", 4096}, {"D", 1024}}},
      {"batch_norm_train", {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}}},
      {"conv3x3_bias_relu", {{"N", 2}, {"C", 16}, {"H", 28}, {"W", 28}, {"K", 16}}},
      {"attention", {{"B", 1}, {"H", 4}, {"S", 128}, {"T", 128}, {"D", 64}}},
  };
  return table;
}

struct Variant {
  const char* name;
  Policy stash;
  FusePolicy fusion;
  const char* passes = "";  // XHAT=…, see docs/passes.md
};
constexpr Variant kVariants[] = {
    {"cost", Policy::cost, FusePolicy::full},
    {"stash_none", Policy::none, FusePolicy::full},
    {"stash_largest", Policy::largest, FusePolicy::full},
    {"fusion_off", Policy::cost, FusePolicy::off},
    {"as_derived", Policy::cost, FusePolicy::full, "limit=5"},
};

CompiledOp compile_case(const Case& c, const Variant& v) {
  if (*v.passes) setenv("XHAT", v.passes, 1);
  CompileOptions options;
  options.threads = kThreads;
  options.stash.policy = v.stash;
  for (const auto& [name, value] : c.dims) options.stash.nominal[name] = value;
  options.fusion.policy = v.fusion;
  options.cache = std::make_shared<runtime::KernelCache>();
  CompiledOp op = compile(parse_op(bench::peer_op(c.op)), options);
  if (*v.passes) unsetenv("XHAT");
  return op;
}

const char* name_of_phase(Phase p) {
  switch (p) {
    case Phase::infer: return "infer";
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
  }
  throw Bug("unknown phase");
}

void run(benchmark::State& state, const Case& c, const Variant& v, Phase phase) {
  try {
    bench::OpSetup s(compile_case(c, v), c.dims);
    Stash stash = s.op.forward(s.outer);
    auto call = [&] {
      switch (phase) {
        case Phase::infer: s.op.infer(s.outer); break;
        case Phase::forward: s.op.forward(s.outer, stash); break;
        case Phase::backward: s.op.backward(s.inner, stash); break;
      }
    };
    call();  // compiles, and brings the data in
    for (auto _ : state) call();
    KernelPlan plan = s.op.plan(phase, c.dims);
    state.SetBytesProcessed(plan.bytes_unavoidable * state.iterations());
    state.counters["kernels"] = plan.sweeps();
    if (phase != Phase::infer) state.counters["stash_bytes"] = static_cast<double>(stash.bytes());
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

void run_compile(benchmark::State& state, const Case& c) {
  try {
    for (auto _ : state) {
      CompiledOp op = compile_case(c, kVariants[0]);
      for (Phase p : {Phase::infer, Phase::forward, Phase::backward}) op.prepare(p, c.dims);
    }
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

void run_plan(benchmark::State& state, const std::string& text) {
  try {
    double stash_ms = 0;
    for (auto _ : state)
      for (const PassStep& step : derive(parse_op(text)).steps)
        if (step.name == "stash") stash_ms += step.ms;
    state.counters["stash_ms"] = stash_ms / static_cast<double>(state.iterations());
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

void register_plan(const std::string& name, const std::string& text) {
  benchmark::RegisterBenchmark(("plan/" + name).c_str(), [text](benchmark::State& s) {
    run_plan(s, text);
  })->Unit(benchmark::kMillisecond);
}

[[maybe_unused]] const bool registered = [] {
  register_plan("chain_500", bench::chain_of_sines(500));
  register_plan("sin_mul_500", bench::chain_of_products(250));
  register_plan("norms_500", bench::row_of_norms(30));
  for (const auto& entry : std::filesystem::directory_iterator(XHAT_SOURCE_DIR "/bench/peer_ops")) {
    std::string op = entry.path().stem().string();
    if (entry.path().extension() == ".xh") register_plan(op, bench::peer_op(op));
  }
  for (const Case& c : cases()) {
    std::string prefix = std::string("ops/") + c.op + "/";
    for (Phase phase : {Phase::infer, Phase::forward, Phase::backward})
      for (const Variant& v : kVariants) {
        // Inference has no stash.
        if (phase == Phase::infer && v.stash != Policy::cost) continue;
        benchmark::RegisterBenchmark((prefix + name_of_phase(phase) + "/" + v.name).c_str(),
                                     [&c, &v, phase](benchmark::State& s) { run(s, c, v, phase); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    benchmark::RegisterBenchmark((prefix + "compile").c_str(),
                                 [&c](benchmark::State& s) { run_compile(s, c); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace ops_bench
