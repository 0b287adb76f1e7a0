// The table of a library compiled ahead of time, and the kernels that it refers to.
#pragma once
#include <optional>

#include "runtime/ahead/build/ahead.h"
#include "runtime/ahead/support/table.h"
#include "runtime/call/cpu_direction.h"

namespace xhat::runtime {

// The kernels to compile, without duplicates.
class AheadKernels {
 public:
  size_t add(KernelSpec spec);  // returns its number
  const KernelArguments& arguments(size_t kernel) const { return arguments_[kernel]; }
  const KernelSpec& spec(size_t kernel) const { return specs_[kernel]; }
  size_t size() const { return specs_.size(); }

 private:
  std::unordered_map<std::string, size_t> numbers_;  // by key
  std::vector<KernelSpec> specs_;
  std::vector<KernelArguments> arguments_;
};

struct AheadPlans {
  AheadTable table;
  std::vector<KernelSpec> kernels;  // indexed by code
  std::string open;                 // the open dims, joined by commas
  std::string stash_sizes;          // the sizes that the stash was chosen for, as text
};

// How a direction is planned at a size. The first way is the engine's; further ones give code that depends less on sizes.
struct PlanWay {
  bool for_sizes;  // what sizes decide comes first (fusion/plan/for_sizes.h)
  bool cut_small;  // FusionOptions::cut_small
  bool fused;      // what is fused with a sum over a batch has all of it in a tile
};
constexpr PlanWay kWaysToPlan[] = {{true, false, true}, {true, true, true}, {false, false, true}, {false, true, true}, {false, true, false}};
constexpr PlanWay kPlannedForAllSizes = {false, true, true};

struct DirectionPlan {
  Program program;
  KernelPlan plan;
};
DirectionPlan planned_so(const Program& direction, const DimValues& sizes, PlanRequest request, PlanWay way);
PlanRequest requested_so(PlanRequest request, PlanWay way);

// Throws Error naming the dims that must be given.
AheadPlans plan_ahead(const Derivation& derivation, const AheadOptions& options);

}  // namespace xhat::runtime
