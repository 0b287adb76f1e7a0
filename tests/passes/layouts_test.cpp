// The order of the dimensions of what nobody outside sees (cse/normalize/layouts.h).
#include <gtest/gtest.h>

#include "cse/normalize/layouts.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::layouts_test {
namespace {

using testing::expect_same_values;

// The axes of a definition as the program's text has them.
std::string axes_of(const Program& p, const std::string& tensor) {
  std::string names;
  for (const AxisRange& r : p.definition_of(*p.find(tensor))->axes) names += p.arena->name(r.axis);
  return names;
}

Program settled(const std::string& text) {
  Program p = parse_op(text), after = with_settled_layouts(p);
  verify(after);
  expect_same_values(p, after);
  return after;
}

TEST(Layouts, AreThoseOfWhatReadsAlongResults) {
  EXPECT_EQ(axes_of(settled("op f(x: f64[N,D]) -> (y) { t[d,n] = x[n,d]*2; y[n,d] = t[d,n] + 1 }"), "t"), "nd");
  EXPECT_EQ(axes_of(settled("op f(x: f64[N,D]) -> (y) { t[n,d] = x[n,d]*2; y[d,n] = t[n,d] + 1 }"), "t"), "dn");
  // Also by way of others, and where sums over columns read it, too.
  const Program p = settled(
      "op f(x: f64[N,D], w: f64[D,K]) -> (y) {\n z[k,n] = sum(d: x[n,d]*w[d,k])\n m[k] = sum(n: z[k,n])\n"
      " q[k,n] = (z[k,n] - m[k])^2\n v[k] = sum(n: q[k,n])\n y[n,k] = z[k,n]*v[k]\n}");
  EXPECT_EQ(axes_of(p, "z"), "nk");
}

TEST(Layouts, SummedAxesLieBehindThoseThatStay) {
  for (const char* axes : {"i,j,h", "j,i,h", "j,h,i", "h,j,i", "i,h,j", "h,i,j"}) {
    const std::string t = std::string("t[") + axes + "]";
    const Program p = settled("op f(q: f64[H,S,D], k: f64[H,T,D], v: f64[H,T,D]) -> (y) {\n " + t +
                              " = sum(d: q[h,i,d]*k[h,j,d])\n y[h,i,d] = sum(j: " + t + "*v[h,j,d])\n}");
    EXPECT_EQ(axes_of(p, "t"), "hij") << axes;
  }
}

TEST(Layouts, InputsDecideWhatReadersLeaveOpen) {
  EXPECT_EQ(axes_of(settled("op f(x: f64[N], w: f64[K]) -> (y) { t[k,n] = x[n]*w[k]; y = sum(n,k: t[k,n]) }"), "t"), "nk");
  EXPECT_EQ(axes_of(settled("op f(w: f64[K], x: f64[N]) -> (y) { t[n,k] = x[n]*w[k]; y = sum(n,k: t[n,k]) }"), "t"), "kn");
  EXPECT_EQ(axes_of(settled("op f(x: f64[N,D]) -> (y) { t[d,n] = exp(x[n,d]); y[d] = sum(n: t[d,n]) }"), "t"), "nd");
}

TEST(Layouts, OfOutputsAndCallsStay) {
  EXPECT_EQ(axes_of(settled("op f(x: f64[N,D]) -> (t, y) { t[d,n] = x[n,d]*2; y[n,d] = t[d,n] + 1 }"), "t"), "dn");
  const Program p = parse_op(
      "op g(a: f64[D,N]) -> (b) { b[d,n] = a[d,n] }\n"
      "op f(x: f64[N,D]) -> (y) { t[d,n] = x[n,d]*2; u = g(t); y[n,d] = u[d,n] + t[d,n] }");
  EXPECT_EQ(axes_of(with_settled_layouts(p), "t"), "dn");
}

}  // namespace
}  // namespace xhat::layouts_test
