// What a call costs beside its work: an op of 64 elements, one thread.
#include <benchmark/benchmark.h>

#include "xhat.h"

namespace xhat::call_bench {
namespace {

void call_64(benchmark::State& state) {
  CompileOptions options;
  options.threads = 1;
  CompiledOp op = compile(parse_op("op f(x: f32[N]) -> (y) { y[i] = x[i]*x[i] }"), options);
  float x[64] = {}, y[64] = {};
  const int64_t n[] = {64};
  Argument arguments[] = {{"x", TensorView(x, std::span(n))}, {"y", TensorView(y, std::span(n))}};
  op.infer(arguments);
  int64_t allocations = 0;
  for (auto _ : state) allocations += op.infer(arguments).allocations;
  state.counters["allocations"] = static_cast<double>(allocations);
}
BENCHMARK(call_64)->Name("call/64_elements");

}  // namespace
}  // namespace xhat::call_bench
