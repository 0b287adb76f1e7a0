// A report of what the passes made of an op, for people and tools: programs as text, the stash with reasons, kernels with bytes and flops.
//
//   std::cout << xhat::to_text(xhat::explain(program));
//
// Nothing is compiled, so this works for every op, also if kernels for a dtype are missing.
#pragma once
#include <string>
#include <vector>

#include "runtime/call/compile.h"

namespace xhat {

struct ExplainedTensor {
  std::string name;
  DType type = DType::f32;
  std::vector<std::string> shape;  // "N", "2*C"
};

// A value of the forward that the backward needs.
struct ExplainedValue {
  StashCandidate::Verdict verdict;
  std::string name;
  std::string expression;  // empty for inputs
  std::vector<std::string> shape;
  int64_t bytes = 0;
  int uses = 0;  // backward definitions and recomputed values that read it
  double keep_ns = 0;
  double recompute_ns = 0;  // infinity: it cannot be recomputed
  std::string reason;
};

// A tensor that the forward keeps beyond the inputs and outputs that stay with the caller.
struct ExplainedStash {
  std::string name;
  std::string expression;
  std::vector<std::string> shape;
  int64_t bytes = 0;
  std::string reason;
};

// One sweep, or (finish) a small step after it, which adds up the partial results of its tiles or computes with the sums.
struct ExplainedKernel {
  std::string name;
  std::vector<std::string> computes;
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t flops = 0;
  bool finish = false;
  std::string reason;  // why it is not part of an earlier kernel; may be empty
  std::string key;     // key of its tuned choices (runtime/explain/tuning.h); for several kernels in one sweep "key+key"
  KernelChoice choice;
  std::string library;  // the library call that replaces the kernel; empty: none
  void join(const ExplainedKernel& other);  // adds a kernel to the same sweep
};

// A check of the data before a direction runs, in one pass (runtime/call/run_time_checks.h).
struct ExplainedCheck {
  std::string checked;             // "table[ids[b],d]"
  std::string definition;          // the definition with the checked read
  std::vector<std::string> reads;  // tensors of the caller, and definitions that are computed first
  int64_t bytes = 0;               // bytes of these
};

struct ExplainedDirection {
  std::string text;  // an op of its own
  std::string ops;   // policy relay: the graph of its definitions with their kinds (fusion/relations/forward_graph)
  std::vector<ExplainedCheck> checks;
  std::vector<ExplainedKernel> kernels;
  int kernel_count = 0;  // sweeps
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t flops = 0;
  int reductions = 0;
};

struct Explanation {
  std::string op;
  std::string text;  // as the user wrote it, canonical
  std::vector<ExplainedTensor> inputs, outputs, gradients;
  DimValues sizes;    // the sizes that all figures are for
  DimValues nominal;  // the sizes among them that were not given
  std::vector<std::string> open_reads;  // reads not proved in bounds for all sizes (expr/index/dims.h)
  std::vector<ExplainedValue> values;
  std::vector<ExplainedStash> stash;
  std::vector<std::string> kept_by_caller;  // inputs and outputs that the backward reads
  double cost_ns = 0, lower_bound_ns = 0;
  bool optimal = false;
  bool infer_only = false;     // CompileOptions::differentiate was off: forward is infer, and there is no backward
  ExplainedDirection infer;    // keeps no stash
  ExplainedDirection forward;  // keeps the stash
  ExplainedDirection backward;
  int64_t stash_bytes() const {
    int64_t bytes = 0;
    for (const ExplainedStash& s : stash) bytes += s.bytes;
    return bytes;
  }
};

// given: the dims that are known. The others get nominal sizes: options.stash.nominal, else nominal_extent, or more if the op's preconditions
// require it. Throws Error for an unknown dim, or sizes that break a precondition.
Explanation explain(const Program& op, const CompileOptions& options = {}, const DimValues& given = {});

std::string to_text(const Explanation& e);

// The exchange of stash bytes against time (pareto_front), at the sizes that explain would use.
struct ExplainedFront {
  std::string op;
  DimValues sizes, nominal;
  std::vector<ParetoPoint> points;
};
ExplainedFront explain_pareto(const Program& op, const CompileOptions& options = {}, const DimValues& given = {});

std::string to_text(const ExplainedFront& front);

// "figures are for N = 32, C = 64 (nominal: C; --dims sets it)" and an empty line. Empty if there are no dims.
std::string sizes_text(const DimValues& sizes, const DimValues& nominal);
// "1.5 MB", "340 B"; "12.1 Mflop"; "3.4 us".
std::string bytes_text(double bytes);
std::string flops_text(double flops);
std::string time_text(double ns);
// "tiles of 512 KiB, 2 vectors a step"; empty if there is none.
std::string choice_text(const KernelChoice& c);

// Aligns the columns of rows, the first of which is the heading. Columns in right_aligned are aligned to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right_aligned, const std::string& indent);

}  // namespace xhat
