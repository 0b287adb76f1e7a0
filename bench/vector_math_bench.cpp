// Nanoseconds per element of each vector math row: f32, in the L2 cache, one thread.
//
//     build/bench/xhat_bench --benchmark_filter=vector_math/tanh
//
// The time column is per call on 16384 elements; the counter ns_per_element is the figure in docs/numerics.md
// (printed with an s: Google Benchmark takes it for seconds).
#include "runtime/emit/vector_math.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cpu/ir/late_functions.h"

namespace vector_math_bench {
namespace {

constexpr int elements = 16 * 1024;  // 64 KB per array: out of L1, well inside L2

struct Kernel {
  Halide::Callable callable;
  std::vector<Halide::Runtime::Buffer<float, 1>> inputs;
  Halide::Runtime::Buffer<float, 1> output{elements};
};

// Arguments where the function does its ordinary work;
float argument(const xhat::vmath::Row& row, int index, int i) {
  double unit = double(uint32_t(i) * 2654435761u) * 0x1p-32;  // golden-ratio sequence in [0,1)
  double low = std::max(row.low, -10.0), high = std::min(row.high, 10.0);
  return float(index == 0 ? low + (high - low) * unit : 1 + 3 * unit);
}

std::shared_ptr<Kernel> compile(const xhat::vmath::Row& row) {
  using Halide::Target;
  auto kernel = std::make_shared<Kernel>();
  Halide::Var i("i"), inner("inner");
  std::vector<Halide::Expr> args;
  std::vector<Halide::Argument> arguments;
  for (int k = 0; k < row.arity; k++) {
    Halide::ImageParam in(Halide::Float(32), 1, "xh_in" + std::to_string(k));
    in.dim(0).set_bounds(0, elements);
    args.push_back(in(i));
    arguments.push_back(in);
    kernel->inputs.emplace_back(elements);
    for (int j = 0; j < elements; j++) kernel->inputs[size_t(k)](j) = argument(row, k, j);
  }
  Halide::Func f(std::string("xh_bench_") + row.name);
  f(i) = xhat::vmath::call_of(row, args);
  f.output_buffer().dim(0).set_bounds(0, elements);
  f.vectorize(i, 16, Halide::TailStrategy::RoundUp);
  Target target = Halide::get_host_target();
  for (Target::Feature feature : {Target::StrictFloat, Target::NoAsserts, Target::NoBoundsQuery})
    target.set_feature(feature);
  Halide::Pipeline pipeline(f);
  xhat::runtime::write_out_late_functions(pipeline, target);
  kernel->callable = pipeline.compile_to_callable(arguments, target);
  return kernel;
}

void run(benchmark::State& state, const xhat::vmath::Row& row) {
  std::shared_ptr<Kernel> kernel = compile(row);
  Halide::JITUserContext context, *pointer = &context;
  std::vector<const void*> argv{&pointer};
  for (auto& b : kernel->inputs) argv.push_back(b.raw_buffer());
  argv.push_back(kernel->output.raw_buffer());
  for (auto _ : state)
    if (kernel->callable.call_argv_fast(argv.size(), argv.data()) != 0) state.SkipWithError("kernel failed");
  using benchmark::Counter;
  state.counters["ns_per_element"] =
      Counter(double(state.iterations()) * elements * 1e-9, Counter::kIsRate | Counter::kInvert);
}

// Registered before main, which Google Benchmark brings. The compilation happens in run(), so a filter saves
// it.
[[maybe_unused]] const bool registered = [] {
  for (const xhat::vmath::Row& row : xhat::vmath::rows())
    benchmark::RegisterBenchmark((std::string("vector_math/") + row.name).c_str(),
                                 [&row](benchmark::State& state) { run(state, row); });
  return true;
}();

}  // namespace
}  // namespace vector_math_bench
