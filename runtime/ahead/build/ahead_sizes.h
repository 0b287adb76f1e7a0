// The sizes that a library is made for: every choice of those that are given, and all values of the one that stays open.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "expr/index/dims.h"
#include "runtime/ahead/build/plan_ranges.h"

namespace xhat::runtime {

// Every choice of one value for each dim.
std::vector<DimValues> all_choices(const std::map<std::string, std::vector<int64_t>>& given);

class AheadSizes {
 public:
  // given: values by dim. option: where users give them, "--dims". Throws Error for names that are none of its dims, and where more
  // than one dim stays open.
  AheadSizes(const Program& op, std::map<std::string, std::vector<int64_t>> given, std::string option);

  const std::vector<std::string>& dims() const { return dims_; }  // those that calls name come first
  size_t arguments() const { return arguments_; }                 // how many they are
  const std::string& open() const { return open_; }               // empty: none

  // The plans of a direction, for all sizes: variant by variant, with the numbers of the plan at its first size. Throws Error naming
  // the dim that must be given, if plans are too many.
  using SlotsAt = std::function<Slots(const DimValues& sizes, int way)>;
  using Found = std::function<void(AheadVariant, const Slots&)>;
  void find(const SlotsAt& at, int ways, const Found& found);

  std::string known() const;  // for messages, once all plans are found

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
  int64_t most_served_ = INT64_MAX;  // of the open dim, if not all that tensors allow
};

}  // namespace xhat::runtime
