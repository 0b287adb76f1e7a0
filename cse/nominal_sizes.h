// The sizes that a plan is priced for, of dims that nobody knows yet.
#pragma once
#include <map>
#include <span>
#include <string>

#include "expr/dims.h"
#include "expr/program.h"

namespace xhat {

class NominalSizes {
 public:
  // given: by dim; of the others, those with a definition follow, and the rest are `otherwise`.
  NominalSizes(const Program& p, const std::map<std::string, int64_t>& given, int64_t otherwise);

  int64_t extent(Id id) const;
  int64_t elements(std::span<const Id> shape) const;
  // Of these axes, those that have a size.
  static int64_t elements(std::span<const Id> axes, const std::map<Id, int64_t>& sizes);
  const DimValues& dims() const { return sizes_; }

 private:
  Arena& a_;
  int64_t otherwise_;
  DimValues sizes_;
};

}  // namespace xhat
