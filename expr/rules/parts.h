// Rows that stand in a part of a product or of a sum, in any order and grouping: (1 + tanh(a)) * 0.5 in 0.5 * k * (1 + tanh(x)).
//
// A product is its factors, each above or below, times a number; a sum its terms, each added or subtracted, and a number. A row that is a
// product (or a sum) stands in another one if each of its parts is one of its parts. What is left is multiplied with (added to) the
// replacement. Of a product the row's number is divided out, of a sum it must be the same.
#pragma once
#include <vector>

#include "expr/rules/rules.h"

namespace xhat {

// number * (product of the parts), or number + (sum of the parts).
struct Parts {
  struct Part {
    Id value;
    bool inverse;  // divided by, or subtracted
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;
  double number;
  bool all = true;  // there are no more
};
Parts factors_of(const Arena& a, Id product, const SeenAs& seen_as = {});
Parts terms_of(const Arena& a, Id sum);
// Left to right; the number last.
Id product_of(Arena& a, const Parts& p, DType type);
Id sum_of(Arena& a, const Parts& p, DType type);

class PartRows {
 public:
  PartRows(Arena& arena, const std::vector<Rule>& rows, SeenAs seen_as);
  // The product or sum with one row applied to some of its parts; kNone if none applies.
  Id applied(Id id) const;
  // a*b + a*c as a*(b + c), where a row applies to the sum: 0.5*x + 0.5*x*tanh(x/2) is x*sigmoid(x), 0.5*x + 0.5*abs(x) is max(x, 0).
  Id factored(Id sum) const;

 private:
  struct Row {
    const Rule* rule;
    struct Part {
      int node;
      bool inverse;
    };
    std::vector<Part> parts;  // bare variables last
    double number;
  };
  // Of terms times one number.
  Id scaled(Id sum) const;
  static std::optional<Row> row_of(const Rule& rule, bool product);
  Id applied(Id id, const Parts& whole, const std::vector<Row>& rows, bool product) const;

  Arena& a_;
  SeenAs seen_as_;
  std::vector<Row> products_, sums_;  // those of more parts first
};

}  // namespace xhat
