// What the forward keeps for the backward.
//
//   StashPlan plan = plan_stash(inline_injective(gather(gradient(op))));   // stashes(plan.program) is kept
//
// - none: nothing beyond what the caller keeps; the backward computes the forward's values again
// - largest: the largest shared subexpressions; BatchNorm keeps x̂ = (x-mean)/sqrt(var+eps) and one row
// - cost: the cheapest choice by a table of prices, an exact minimum cut (stash_cut.h) over forward definitions,
//   outputs, inputs and shared subexpressions; BatchNorm keeps two sums per channel and reads x again
// - budget: the cheapest choice that keeps at most so many bytes
//
// A pure function of program, options, prices (of the machine model) and sizes. Needs: the normal form of auto_inliner. The result
// is in it, its backward simplified (reduction_algebra) and reading outputs where it can (cse_optimizer).
// A maximum or minimum, and a reduction that a comparison reads, is never recomputed under `cost` and `budget`: both
// passes must see the same bits.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cse/stash/stash_cut.h"
#include "expr/core/machine_model.h"
#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat {

struct PreparedStash;

struct StashOptions {
  enum class Policy : uint8_t { none, largest, cost, budget } policy = Policy::cost;
  int64_t budget = 0;  // bytes
  // Inputs and outputs that stay with the caller until the backward. Unset: all, but for dropped.
  std::optional<std::vector<std::string>> kept_by_caller = {};
  std::vector<std::string> dropped = {};
  // bf16 or f16: wider floats that are kept are rounded to it where they are stored, and computed with as before. Not what
  // a comparison depends on.
  std::optional<DType> store_as = {};
  // The sizes that prices are for, by dim, where they are not to be those of the call: so an op has one plan for all of them. Bytes,
  // which a budget counts, are always those of the call. Of a dim of which nothing is known: nominal_extent.
  std::map<std::string, int64_t> nominal = {};
  int64_t nominal_extent = 64;
};

struct StashCandidate {
  enum class Verdict : uint8_t { kept, recomputed, free } verdict;  // free: stays with the caller anyway
  TensorId tensor;
  std::string name;
  std::string expression;  // empty for inputs
  std::vector<Id> shape;
  int64_t bytes = 0;
  int uses = 0;       // backward definitions and recomputed values that read it
  double keep_ns = 0;
  double recompute_ns = 0;  // infinite: never
  std::string reason;
};

struct StashPlan {
  Program program;
  std::vector<StashCandidate> candidates;
  std::map<std::string, int64_t> nominal;  // the sizes that bytes are of, all dims
  int64_t stash_bytes = 0;
  double cost_ns = 0;         // of reading, writing and recomputing what the backward needs of the forward
  double lower_bound_ns = 0;  // no plan over these candidates (within the budget) costs less
  // The plan costs that much, and nothing that forward and backward share was left out of the candidates for a limit: the
  // largest 16 are candidates (cse_optimizer.h), of 10,000 products nested 1,000 deep at most.
  bool optimal = false;
  int64_t compared = 0;  // pairs of a forward and a backward product that the search for candidates looked at closely
};

// What a planner chose at some sizes.
struct StashChoice {
  DimValues sizes;  // all dims
  Cut cut;
  std::string key;           // equal keys of one planner: the same program
  bool over_budget = false;  // no choice takes so few bytes; this one takes the fewest possible
};

// Plans one op at any sizes. Choosing is quick (a tenth of a millisecond or so); what does not depend on sizes is done once, and
// programs are made for choices, of which few sizes make a new one.
class StashPlanner {
 public:
  // Throws Error for an unknown name among kept_by_caller or dropped, and for another store_as.
  explicit StashPlanner(const Program& p, StashOptions options = {}, MachineModel machine = {});
  ~StashPlanner();

  // sizes: by dim. Those that are missing: as in StashOptions::nominal. Throws Error where a tensor has more bytes than a number holds.
  StashChoice choose(const DimValues& sizes) const;
  // Throws Error if the choice is over budget.
  void require_budget(const StashChoice& choice) const;
  StashPlan plan(const StashChoice& choice) const;

 private:
  PreparedStash own_prepared() const;
  StashOptions options_;
  MachineModel machine_;
  std::unique_ptr<PreparedStash> prepared_;
};

// A plan for the nominal sizes. Throws Error as StashPlanner does, and for a budget that cannot be met.
StashPlan plan_stash(const Program& p, const StashOptions& options = {}, const MachineModel& machine = {});

// What a budget buys: from the cheapest choice of all to the one that keeps the fewest bytes. Along it, strictly fewer
// bytes mean strictly more time; plan_stash with policy budget and a point's bytes chooses that point. Exact where
// `optimal`, as in a plan, which is all but the largest graphs (stash_budget.h). The policy and the budget in options are not looked at.
struct ParetoPoint {
  int64_t bytes = 0;          // that the forward keeps beyond what the caller retains
  double cost_ns = 0;         // as StashPlan's
  double lower_bound_ns = 0;  // no choice within these bytes costs less
  bool optimal = false;
  std::vector<std::string> kept;
};
std::vector<ParetoPoint> pareto_front(const Program& p, const StashOptions& options = {}, const MachineModel& machine = {});

}  // namespace xhat
