// What the passes made of an op, for people and tools: texts, the stash with reasons, kernels with bytes and
// flops.
//
//   std::cout << xhat::to_text(xhat::explain(program));
//
// Nothing is compiled, so this works for every op, also where kernels for a dtype are missing.
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

// Something of the forward that the backward needs.
struct ExplainedValue {
  StashCandidate::Verdict verdict;
  std::string name;
  std::string expression;  // empty for inputs
  std::vector<std::string> shape;
  int64_t bytes = 0;
  int uses = 0;  // backward definitions and recomputed values that read it
  double keep_ns = 0;
  double recompute_ns = 0;  // infinite: never
  std::string reason;
};

// What the forward keeps beyond the inputs and outputs that stay with the caller.
struct ExplainedStash {
  std::string name;
  std::string expression;
  std::vector<std::string> shape;
  int64_t bytes = 0;
  std::string reason;
};

// One sweep, or (finish) a small step behind it, which adds up its per-tile partial results or takes what comes of them.
struct ExplainedKernel {
  std::string name;
  std::vector<std::string> computes;
  int64_t bytes_moved = 0;
  int64_t bytes_unavoidable = 0;
  int64_t flops = 0;
  bool finish = false;
  std::string reason;  // why it is not part of an earlier kernel; may be empty
  std::string key;     // what choices for it are kept by (runtime/explain/tuning.h); of several in one sweep, "key+key"
  KernelChoice choice;
  std::string library;  // what a library does in the kernel's place; empty: it is ours
  void join(const ExplainedKernel& other);  // in one sweep
};

// What is looked at in the data before a direction runs, in one pass (runtime/call/run_time_checks.h).
struct ExplainedCheck {
  std::string checked;             // "table[ids[b],d]"
  std::string definition;          // where it stands
  std::vector<std::string> reads;  // of the caller's tensors, and what is computed first
  int64_t bytes = 0;               // of these
};

struct ExplainedDirection {
  std::string text;  // an op of its own
  std::string ops;   // policy relay: the graph of its definitions with the kinds found (fusion/relations/forward_graph)
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
  DimValues sizes;    // that all figures are for
  DimValues nominal;  // those among them that were not given
  std::vector<std::string> open_reads;  // not proved in bounds for all sizes (expr/index/dims.h)
  std::vector<ExplainedValue> values;
  std::vector<ExplainedStash> stash;
  std::vector<std::string> kept_by_caller;  // inputs and outputs that the backward reads
  double cost_ns = 0, lower_bound_ns = 0;
  bool optimal = false;
  ExplainedDirection infer;    // without a stash
  ExplainedDirection forward;  // with it
  ExplainedDirection backward;
  int64_t stash_bytes() const {
    int64_t bytes = 0;
    for (const ExplainedStash& s : stash) bytes += s.bytes;
    return bytes;
  }
};

// given: the dims that are known; the others get nominal sizes (options.stash.nominal, else nominal_extent,
// more if
// the op's preconditions want it). Throws Error for an unknown dim, or sizes that break a precondition.
Explanation explain(const Program& op, const CompileOptions& options = {}, const DimValues& given = {});

std::string to_text(const Explanation& e);

// What a budget for the stash buys (pareto_front), at the sizes that explain would use.
struct ExplainedFront {
  std::string op;
  DimValues sizes, nominal;
  std::vector<ParetoPoint> points;
};
ExplainedFront explain_pareto(const Program& op, const CompileOptions& options = {}, const DimValues& given = {});

std::string to_text(const ExplainedFront& front);

// "figures are for N = 32, C = 64 (nominal: C; --dims sets it)", and an empty line; empty without dims.
std::string sizes_text(const DimValues& sizes, const DimValues& nominal);
// "1.5 MB", "340 B"; "12.1 Mflop"; "3.4 us".
std::string bytes_text(double bytes);
std::string flops_text(double flops);
std::string time_text(double ns);
// "tiles of 512 KiB, 2 vectors a step"; empty if there is none.
std::string choice_text(const KernelChoice& c);

// Aligned columns; the first row is the heading. Columns in right_aligned are.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right_aligned, const std::string& indent);

}  // namespace xhat
