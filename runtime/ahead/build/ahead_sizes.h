// The sizes that a library serves: every choice of the given values, and all values of the open dim.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "expr/index/dims.h"
#include "runtime/ahead/build/plan_ranges.h"

namespace xhat::runtime {

// All choices of one value per dim.
std::vector<DimValues> all_choices(const std::map<std::string, std::vector<int64_t>>& given);

class AheadSizes {
 public:
  // given: values per dim. option: the name of the user's option for them, "--dims". Throws Error for unknown dims, and if more than one dim stays
  // open.
  AheadSizes(const Program& op, std::map<std::string, std::vector<int64_t>> given, std::string option);

  const std::vector<std::string>& dims() const { return dims_; }  // the arguments of calls come first
  size_t arguments() const { return arguments_; }                 // number of dims that are arguments of calls
  const std::string& open() const { return open_; }               // empty: none

  // Finds the plans of a direction for all sizes: calls `found` with each variant and the numbers of the plan at its first size. Throws Error naming
  // the dim that must be given, if there are too many plans.
  using SlotsAt = std::function<Slots(const DimValues& sizes, int way)>;
  using Found = std::function<void(AheadVariant, const Slots&)>;
  void find(const SlotsAt& at, int ways, const Found& found);

  std::string known() const;  // the served sizes as text, for messages; valid once all plans are found

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error("op " + p_.name + ": " + what); }
  std::optional<DimValues> sizes_of(const DimValues& given) const;
  AheadVariant variant(const DimValues& given, const PlanRange& r) const;
  void find_at(const DimValues& given, const SlotsAt& at, int ways, const Found& found);

  const Program& p_;
  std::map<std::string, std::vector<int64_t>> given_;
  std::string option_, open_;
  std::vector<std::string> dims_;
  size_t arguments_ = 0;
  int64_t most_served_ = INT64_MAX;  // largest served value of the open dim, if it is less than tensors allow
};

}  // namespace xhat::runtime
