// The columns of products whose results stay within a direction: where another order of axes costs less.
#include "fusion/plan/product_columns.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat::product_columns_test {
namespace {

using namespace xhat::testing;

const DimValues kSizes = {{"N", 64}, {"D", 256}, {"K", 256}};
const DimValues kFew = {{"N", 3}, {"D", 4}, {"K", 9}};

struct Found {
  std::string axes;  // of t
  int kernels = 0;
};

Found found(const std::string& body, const DimValues& sizes = kSizes) {
  const Program p = infer_program(parse_op("op f(x: f32[N,D], w: f32[D,K], u: f32[N,K]) -> (y) { " + body + " }"));
  const Program made = columns_by_price(p, sizes, {});
  verify(made);
  const Arrays data = random_data(p, kFew, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, kFew), evaluate_on(made, data, kFew), 0), "") << print(made);
  Found f{"", plan_kernels(made, sizes).sweeps()};
  for (const AxisRange& r : made.definition_of(*made.find("t"))->axes) f.axes += made.arena->name(r.axis);
  return f;
}

// With rows as columns the maximum is in the tile, and the weight is not packed for each.
TEST(ProductColumns, OfASoftmax) {
  const std::string rest = "; m[n] = max(k: t[n,k]); s[n] = sum(k: exp(t[n,k]-m[n])); y[n,k] = exp(t[n,k]-m[n])/s[n]";
  const Found f = found("t[n,k] = sum(d: x[n,d]*w[d,k])" + rest);
  EXPECT_EQ(f.axes, "kn");
  EXPECT_EQ(f.kernels, 1);
}

TEST(ProductColumns, OthersStay) {
  EXPECT_EQ(found("t[n,k] = sum(d: x[n,d]*w[d,k]); y[n,k] = tanh(t[n,k])").axes, "nk") << "no cheaper";
  EXPECT_EQ(found("t[n,k] = sum(d: x[n,d]*w[d,k]); s[n] = sum(k: t[n,k]*u[n,k]); y[n,k] = t[n,k]*s[n]").axes, "nk")
      << "u lies as it does, and is summed with it";
  const std::string pooled = "t[n,k] = sum(d: x[n,d]*w[d,k]); p[n,k in 0..K-7] = max(r in 0..8: t[n,k+r]); "
                             "s[n] = sum(k in 0..K-7: p[n,k]); y[n] = tanh(s[n])";
  EXPECT_EQ(found(pooled).axes, "nk") << "windows along k would read it element by element";
}

}  // namespace
}  // namespace xhat::product_columns_test
