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

// Way 0 plans like the engine; further ways give code that depends less on sizes.
constexpr int kWaysToPlan = 3;
PlanRequest planned_so(PlanRequest request, int way);

// Throws Error naming the dims that must be given.
AheadPlans plan_ahead(const Derivation& derivation, const AheadOptions& options);

}  // namespace xhat::runtime
