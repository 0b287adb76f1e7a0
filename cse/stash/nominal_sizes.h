// The sizes that a plan is priced for, of dims that nobody knows yet.
#pragma once
#include <map>
#include <span>
#include <string>

#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat {

// Of numbers that are not negative; INT64_MAX where the result is larger.
constexpr int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
constexpr int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

class NominalSizes {
 public:
  // given: by dim; of the others, those with a definition follow, and the rest are `otherwise`.
  NominalSizes(const Program& p, const std::map<std::string, int64_t>& given, int64_t otherwise);

  int64_t extent(Id id) const;
  int64_t elements(std::span<const Id> shape) const;  // saturating, as below
  // Of these axes, those that have a size.
  static int64_t elements(std::span<const Id> axes, const std::map<Id, int64_t>& sizes);
  const DimValues& dims() const { return sizes_; }

 private:
  Arena& a_;
  int64_t otherwise_;
  DimValues sizes_;
};

}  // namespace xhat
