// The backward of a convolution to its input, stride 2 beside stride 1, by what one contributing multiply-add takes:
//
//     build/bench/xhat_bench --benchmark_filter=conv_stride
//
// ns_per_mac_1 and ns_per_mac_2 are medians of calls that alternate; ratio, their quotient, may be 1.5 at most. A backward
// that visits zeros between the elements has a ratio of 4.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "bench/op_setup.h"

namespace conv_stride_bench {
namespace {

using namespace xhat;

constexpr int kThreads = 2;
constexpr int64_t kBatch = 8, kChannels = 64, kSize = 56, kTaps = 3, kPad = 1;

bench::OpSetup convolution(int64_t stride) {
  std::string s = std::to_string(stride), out = std::to_string((kSize + 2 * kPad - kTaps) / stride + 1);
  std::string text = "op conv(x: f32[N,C,H,W], w: f32[K,C,3,3] const) -> (y) { y[n,k, i in 0.." + out + ", j in 0.." + out +
                     "] = sum(c,r,s: x[n,c," + s + "*i+r-1," + s + "*j+s-1 else 0] * w[k,c,r,s]) }";
  DimValues dims = {{"N", kBatch}, {"C", kChannels}, {"K", kChannels}, {"H", kSize}, {"W", kSize}};
  CompileOptions options;
  options.threads = kThreads;
  options.stash.nominal = {dims.begin(), dims.end()};
  return {compile(parse_op(text), options), dims};
}

// Outputs and taps that meet an element of the input.
double multiply_adds(int64_t stride) {
  int64_t along = 0;
  for (int64_t i = 0; i < (kSize + 2 * kPad - kTaps) / stride + 1; ++i)
    for (int64_t r = 0; r < kTaps; ++r) along += stride * i + r - kPad >= 0 && stride * i + r - kPad < kSize;
  return static_cast<double>(kBatch * kChannels * kChannels * along * along);
}

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(benchmark::State& state) {
  try {
    std::vector<bench::OpSetup> ops;
    std::vector<Stash> stashes;
    for (int64_t stride : {1, 2}) {
      ops.push_back(convolution(stride));
      stashes.push_back(ops.back().op.forward(ops.back().outer));
      ops.back().op.backward(ops.back().inner, stashes.back());  // compiles, and brings the data in
    }
    std::vector<double> ns[2];
    for (auto _ : state)
      for (size_t i : {0u, 1u}) {
        auto start = std::chrono::steady_clock::now();
        ops[i].op.backward(ops[i].inner, stashes[i]);
        std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
        ns[i].push_back(took.count() / multiply_adds(static_cast<int64_t>(i) + 1));
      }
    state.counters["ns_per_mac_1"] = median(ns[0]);
    state.counters["ns_per_mac_2"] = median(ns[1]);
    state.counters["ratio"] = median(ns[1]) / median(ns[0]);
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

BENCHMARK(run)->Name("conv_stride/backward_input")->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(7);

}  // namespace
}  // namespace conv_stride_bench
