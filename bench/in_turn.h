// Two ways to compile an op, or to lay out its tensors, called in turn: what the machine does meanwhile hits both.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "bench/op_setup.h"

namespace xhat::bench {

class InTurn {
 public:
  InTurn(CompiledOp op, const DimValues& dims, size_t behind = 0) : setup_(std::move(op), dims, behind), stash_(setup_.op.forward(setup_.outer)) {}

  // Least times of both as counters a_ms and b_ms, and `ratio`, the first over the second.
  static void run(benchmark::State& state, CompiledOp::Phase phase, const std::string& a, InTurn& first, const std::string& b,
                  InTurn& second) {
    double least[2] = {INFINITY, INFINITY};
    for (InTurn* side : {&first, &second}) side->call(phase);
    for (auto _ : state) {
      least[0] = std::min(least[0], first.call(phase));
      least[1] = std::min(least[1], second.call(phase));
    }
    state.counters[a + "_ms"] = least[0];
    state.counters[b + "_ms"] = least[1];
    state.counters["ratio"] = least[0] / least[1];
  }

 private:
  double call(CompiledOp::Phase phase) {  // ms
    auto start = std::chrono::steady_clock::now();
    if (phase == CompiledOp::Phase::forward) setup_.op.forward(setup_.outer, stash_);
    else setup_.op.backward(setup_.inner, stash_);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  OpSetup setup_;
  Stash stash_;
};

}  // namespace xhat::bench
