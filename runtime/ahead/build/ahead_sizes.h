// The sizes that a library serves: every choice of the given values, and all values of the open dims.
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
  // given: values per dim. option: the name of the user's option for them, "--dims". Throws Error for unknown dims.
  AheadSizes(const Program& op, std::map<std::string, std::vector<int64_t>> given, std::string option);

  const std::vector<std::string>& dims() const { return dims_; }  // the arguments of calls come first
  size_t arguments() const { return arguments_; }                 // number of dims that are arguments of calls
  const std::vector<std::string>& open() const { return open_; }  // those without given values

  // Finds the plans of a direction for all sizes, where at most one dim is open: calls `found` with each variant and the numbers of the plan at its
  // first size. Throws TooManyPlans if the code depends on the open dim.
  using SlotsAt = std::function<Slots(const DimValues& sizes, int way)>;
  using Found = std::function<void(AheadVariant, const Slots&)>;
  void find(const SlotsAt& at, int ways, const Found& found);

  // The choices of given values at which there are sizes of the open dims that the op can have; its dims are then these and the open ones.
  std::vector<DimValues> choices() const { return all_choices(given_); }
  // The values of all dims; none if the op cannot run at these sizes, or needs tensors that are too large.
  std::optional<DimValues> sizes_of(const DimValues& given) const;
  // Notes that a variant serves values of open dims from `first` only.
  void serves_from(const std::string& dim, int64_t first);
  [[noreturn]] void fail_must_be_given(const std::string& why = {}) const;

  std::string known() const;  // the served sizes as text, for messages; valid once all plans are found

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error("op " + p_.name + ": " + what); }
  AheadVariant variant(const DimValues& given, const PlanRange& r) const;
  void find_at(const DimValues& given, const SlotsAt& at, int ways, const Found& found);

  const Program& p_;
  std::map<std::string, std::vector<int64_t>> given_;
  std::string option_;
  std::vector<std::string> open_;
  std::map<std::string, int64_t> least_served_;  // of open dims, where it is not 0
  std::vector<std::string> dims_;
  size_t arguments_ = 0;
  int64_t most_served_ = INT64_MAX;  // largest served value of the open dim, if it is less than tensors allow
};

}  // namespace xhat::runtime
