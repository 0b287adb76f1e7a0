// Values between inputs and results lie as these do: whose axes are put in another order, and that values stay.
#include "cse/normalize/axis_order.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat::axis_order_test {
namespace {

using namespace xhat::testing;

// The axes of t[..] as the program has them.
std::string axes_of_t(const std::string& body) {
  const Program p = parse_op("op f(x: f32[N,K], q: f32[N,H,D], v: f32[H,N,D], w: f32[D,K], b: f32[K]) -> (y, z) { " + body + " }");
  const DimValues sizes = {{"N", 3}, {"H", 2}, {"D", 4}, {"K", 5}};
  const Program made = axes_in_one_order(p);
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  std::string axes;
  for (const AxisRange& r : made.definition_of(*made.find("t"))->axes) axes += made.arena->name(r.axis);
  return axes;
}

TEST(AxisOrder, AsInputsAndResultsHaveThem) {
  EXPECT_EQ(axes_of_t("t[k,n] = max(x[n,k], 1); y[n,k] = t[k,n]*2; z = sum(n,k: x[n,k])"), "nk");
  EXPECT_EQ(axes_of_t("t[k,n] = sum(d: q[n,1,d]*w[d,k]); y[n,k] = t[k,n]*b[k]; z = sum(n,k: x[n,k])"), "nk") << "a product, as the result";
  EXPECT_EQ(axes_of_t("t[h,n] = sum(d: q[n,h,d]); y[n,h] = t[h,n]; z[h,n] = t[h,n]"), "hn") << "as one of the results";
  EXPECT_EQ(axes_of_t("t[h,n] = sum(d: q[n,h,d]); y[n,h,d] = t[h,n]*q[n,h,d]; z = sum(n,k: x[n,k])"), "nh");
  EXPECT_EQ(axes_of_t("u[k,n] = x[n,k]+1; t[k,n] = sum(d: q[n,1,d]*w[d,k])*u[k,n]; y[n] = sum(k: t[k,n]); z = b[0]"), "nk") << "as one in between";
  EXPECT_EQ(axes_of_t("t[k,n] = x[n,k]+1; y[n in 0..N-1,k] = t[k,n+1]-t[k,n]; z = b[0]"), "nk") << "at places beside";
}

TEST(AxisOrder, OthersStay) {
  EXPECT_EQ(axes_of_t("t[n,k] = x[n,k]+1; y[k,n] = t[n,k]; z = b[0]"), "nk") << "the input says so";
  EXPECT_EQ(axes_of_t("t[k,n] = x[n,k]+1; y[k,n] = t[k,n]; z = b[0]"), "kn") << "the result says so";
  EXPECT_EQ(axes_of_t("t[h,d] = sum(n: q[n,h,d]); y[d,h] = t[h,d]; z = b[0]"), "hd") << "what is summed says so";
  EXPECT_EQ(axes_of_t("t[h,i,j] = sum(d: q[i,h,d]*v[h,j,d]); y[i,h,d] = sum(j: t[h,i,j]*v[h,j,d]); z = b[0]"), "hij") << "nobody has all axes";
  EXPECT_EQ(axes_of_t("t[k,n] = x[n,k]+1; y[n in 0..3] = t[n,n]; z = b[0]"), "nk") << "a diagonal has no say, x has";
}

}  // namespace
}  // namespace xhat::axis_order_test
