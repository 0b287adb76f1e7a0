// What an op is at given sizes: its program with what is kept, split into directions. Sizes for which the same is kept share it.
#pragma once
#include <mutex>

#include "runtime/call/data_checks.h"
#include "runtime/call/cpu_direction.h"
#include "runtime/call/passes.h"
#include "runtime/call/run_time_checks.h"

namespace xhat::runtime {

// What a compiled direction depends on of the tensors that it is called with: shapes, gaps, which output lies on which input. Into s, which allocates
// nothing once it is large enough.
void signature_of(const Program& direction, const std::vector<TensorId>& bound, const std::vector<TensorView>& views,
                  std::vector<int64_t>& s);

// A direction at one set of sizes, with the checks that run before it.
struct Ready {
  std::vector<int64_t> signature;  // signature_of() of its calls
  DimValues dims;
  const struct OpPlan* plan = nullptr;  // OpPlans keeps it
  const struct Side* side = nullptr;    // of the plan
  std::unique_ptr<Direction> direction;
  std::unique_ptr<DataChecks> checks;
  bool fails = false;  // at these sizes, whatever the data
};

struct ReadyList {
  std::mutex mutex;
  std::vector<std::shared_ptr<Ready>> all;

  std::shared_ptr<Ready> find(const std::vector<int64_t>& signature) const {
    for (const auto& r : all)
      if (r->signature == signature) return r;
    return nullptr;
  }
  // One for these sizes, whatever else its calls differ in.
  std::shared_ptr<Ready> find(const DimValues& dims) {
    std::lock_guard lock(mutex);
    for (const auto& r : all)
      if (r->dims == dims) return r;
    return nullptr;
  }
};

struct Side {
  Program program;
  PlanRequest request;
  Checks checks;
  std::vector<TensorId> bound;  // inputs, then outputs
};

struct OpPlan {
  int64_t made_by = 0;  // OpPlans::id
  Derivation derivation;
  Side infer, forward, backward;
  std::vector<TensorId> stash;
  // A written range is empty at its sizes (expr/index/without_points.h): reads of what was derived give 0 outside of tensors, and where its
  // checks fail, what was written decides.
  bool without_points = false;
  ReadyList forward_calls, backward_calls;  // who infers does not know the plan yet

  const Program& program() const { return derivation.program; }
  std::vector<std::string> kept() const;  // inputs and outputs that the backward reads, by name
};

// Safe from many threads.
class OpPlans {
 public:
  OpPlans(const Program& op, const CompileOptions& options);

  // stash: for a forward or a backward; then it throws Error for a budget that cannot be met at these sizes.
  std::shared_ptr<OpPlan> at(const DimValues& sizes, bool stash);
  std::shared_ptr<OpPlan> nominal() { return at({}, false); }
  bool has(const OpPlan* plan) const { return plan && plan->made_by == id_; }
  // The op without what depends on sizes.
  const Program& op() const { return passes_.halfway(); }

 private:
  struct Sized {
    StashChoice choice;
    std::shared_ptr<OpPlan> plan;
  };
  std::shared_ptr<OpPlan> make(const StashChoice& choice, bool without_points) const;
  Side side_of(Program direction, Checks checks, const Derivation& derivation) const;

  const int64_t id_;  // another one's is another, also after this one is gone
  const CompileOptions options_;
  const Passes passes_;
  std::mutex mutex_;
  std::map<DimValues, Sized> by_sizes_;
  std::map<std::pair<std::string, bool>, std::shared_ptr<OpPlan>> by_key_;  // by choice, and without_points
};

}  // namespace xhat::runtime
