// A program with loops and branches, by kernels: each block is an op that is compiled once, whatever the number of iterations.
#pragma once
#include <memory>

#include "runtime/call/compile.h"

namespace xhat::runtime {

// What a forward noted for its backward: which blocks ran, and their stashes.
class StepsTape;
int64_t bytes_of(const StepsTape& tape);

// May be used from many threads at once.
class StepsOp {
 public:
  StepsOp(const Program& p, const CompileOptions& options);
  ~StepsOp();

  CallCounts infer(CompiledOp::Arguments arguments, const CallOptions& call);
  // tape: made anew.
  CallCounts forward(CompiledOp::Arguments arguments, std::shared_ptr<StepsTape>& tape, const CallOptions& call);
  // Consumes the tape: a forward is good for one backward.
  CallCounts backward(CompiledOp::Arguments arguments, StepsTape& tape, const CallOptions& call);
  void set_threads(int threads);
  double prepare(CompiledOp::Phase phase, const DimValues& dims);
  // The kernels of all blocks, each once, as one run of it is; bytes moved and operations are of all runs.
  KernelPlan plan(CompiledOp::Phase phase, const DimValues& dims);
  std::vector<std::string> refused(CompiledOp::Phase phase, const DimValues& dims);  // CompiledOp::refused, of all blocks
  // The inputs that the backward needs from the caller.
  std::vector<std::string> kept(const StepsTape* tape) const;
  const Derivation& derivation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xhat::runtime
