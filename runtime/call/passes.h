// The list of passes as two halves: what does not depend on sizes is done once, the rest for each choice of what is kept.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "cse/stash/stash_planner.h"
#include "runtime/call/compile.h"

namespace xhat::runtime {

// What a direction is planned with on this target.
PlanRequest request_of(const CompileOptions& options, Target target);

// The first pass: the op and its gradients, as they are compiled.
Program with_gradients(const Program& op, const std::vector<std::string>& wrt);

// Of one op. One thread at a time.
class Passes {
 public:
  // Throws Error for an op that has no gradient, and for stash options that are wrong whatever the sizes.
  Passes(const Program& op, const CompileOptions& options);
  ~Passes();

  // The program between the halves. Its tensors have the same ids in every derivation.
  const Program& halfway() const;
  // What is kept at these sizes; of dims that are missing, as StashOptions::nominal says.
  StashChoice choose(const DimValues& sizes) const;
  // Is a range that was written empty at these sizes? Not if some dims are missing.
  bool without_points(const DimValues& sizes) const;
  // Throws Error if the choice is over the budget.
  void require_budget(const StashChoice& choice) const;
  Derivation derive(const StashChoice& choice) const;

 private:
  struct Pipeline;
  CompileOptions options_;
  Program source_;
  std::unique_ptr<Pipeline> first_half_;
  std::optional<StashPlanner> stash_;  // none: the op is not differentiated
  std::optional<Program> expanded_;    // where it has derivatives: with the ranges that they had before they were made simple
  Program written_;
  std::map<std::string, std::string> opaque_nodes_;  // of Derivation
};

}  // namespace xhat::runtime
