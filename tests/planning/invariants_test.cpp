// What is computed once for many points: what becomes a table, and that values stay.
#include "fusion/plan/invariants.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat::invariants_test {
namespace {

using namespace xhat::testing;

size_t tables(const std::string& body, const DimValues& sizes = {{"N", 2000}, {"K", 12}}) {
  const Program p = infer_program(parse_op("op f(x: f32[N,K], s: f32[K], m: f32[N]) -> (y) { " + body + " }"));
  const Program made = invariants_apart(p, sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 0), "") << print(made);
  return made.forward.definitions.size() - p.forward.definitions.size();
}

TEST(Invariants, AreComputedOnce) {
  EXPECT_EQ(tables("y[n,k] = x[n,k]*cos(0.5*f32(k))"), 1u);
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(-s[k])+sin(f32(k))"), 2u);
  EXPECT_EQ(tables("y[n] = sum(k: ((x[n,k]-m[n])*exp(-s[k]))^2)"), 1u);
  EXPECT_EQ(tables("y[n] = max(k if k <= n: x[n,k]*exp(s[k]))"), 1u) << "the condition stays";
  EXPECT_EQ(tables("y[n in 0..N] = sum(k in 0..min(n+1,K): x[n,k]*exp(s[k]))"), 1u) << "at all places that the range has anywhere";
  EXPECT_EQ(tables("y[n in 0..N] = sum(k in max(0,n/200-4)..min(n/200+4,K): x[n,k]*exp(s[k]))"), 1u) << "also of a window";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(s[k/2])"), 1u) << "places that are inside";
}

// What is cheap to compute is dear where its elements do not lie side by side, and many windows read it.
TEST(Invariants, OfWhatIsGathered) {
  const auto made = [](const std::string& at) {
    const Program p = infer_program(parse_op("op f(x: f32[N,M], t: f32[N,M], w: f32[16,9]) -> (y) {\n"
                                             "  y[n in 0..N, c in 0..16, i in 0..M] = sum(j in max(0,i-4)..min(M,i+5): "
                                             "(if t[n,j] > 0 then 0.5/x[n," + at + "] else 0)*w[c,i-j+4])\n}"));
    const DimValues sizes = {{"N", 40}, {"M", 60}};
    const Program tables = invariants_apart(p, sizes, {});
    const Arrays data = random_data(p, sizes, 4);
    EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(tables, data, sizes), 0), "") << print(tables);
    return print(tables);
  };
  EXPECT_NE(made("j/2").find("y_each[n, j in 0..60] = "), std::string::npos) << made("j/2");
  EXPECT_EQ(made("j").find("y_each"), std::string::npos) << made("j");
}

// By places, where these are fewer than the points of all axes: a distance, or what data name.
TEST(Invariants, OfFewPlaces) {
  const auto made = [](const std::string& body, const DimValues& sizes) {
    const Program p =
        infer_program(parse_op("op f(x: f32[N,K], w: f32[V,K], id: i32[N], t: f32[T], e: f32[H,W]) -> (y) {\n  " + body + "\n}"));
    const Program tables = invariants_apart(p, sizes, {});
    verify(tables);
    Arrays data = random_data(p, sizes, 4);
    for (size_t i = 0; i < data.at("id").integers.size(); ++i) data.at("id").integers[i] = static_cast<int64_t>(i % 7);
    EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(tables, data, sizes), 1e-6), "") << print(tables);
    return print(tables);
  };
  const DimValues sizes = {{"N", 3000}, {"K", 12}, {"V", 7}, {"T", 2000}, {"H", 60}, {"W", 70}};
  auto has = [&](const std::string& body, const std::string& table) {
    const std::string text = made(body, sizes);
    EXPECT_NE(text.find(table), std::string::npos) << text;
  };
  has("y[n,k] = x[n,k]*cos(w[id[n],k])", "= cos(w[n_1,k])");
  has("y[n,k] = x[n,k]*cos(w[id[n],k])", "y_each[i64(id[n]),k]");
  has("y[i in 0..T] = sum(j in 0..T: exp(-0.1*f32(abs(i-j)))*t[j])", "[i_1 in 0..2000] = exp(");
  has("y[i in 0..T] = sum(j in max(0,i-4)..min(T,i+5): cos(f32(i-j))*t[j])", "[i_1 in 0..9] = cos(f32(i_1 - 4))");
  has("y[h in 0..H, v in 0..W] = sum(p in max(0,h-2)..min(H,h+3), q in max(0,v-2)..min(W,v+3): "
      "exp(-f32(h-p)^2)*e[p,q]*cos(f32(v-q)*f32(h-p)))",
      "[h_1 in 0..5, v_1 in 0..5]");
  // A scatter's terms are as many as its updates.
  has("y[v in 0..V, k] = sum(n if id[n] == v: x[n,k]*cos(w[v,k]))", "y_each[v,k] = cos(w[v,k])");
  EXPECT_EQ(made("y[n,k] = x[n,i64(floor(3+3*sin(w[id[n],k])))]", sizes).find("y_each_1"), std::string::npos)
      << "what is dear is the place alone";
  auto stays = [&](const std::string& body, const DimValues& at, const char* why) {
    EXPECT_EQ(made(body, at).find("y_each"), std::string::npos) << why;
  };
  stays("y[n,k] = x[n,k]*cos(w[id[n],k])", {{"N", 30}, {"K", 12}, {"V", 7000}, {"T", 2}, {"H", 2}, {"W", 2}},
        "a large table, of which few rows are read");
  stays("y[n,k] = x[n,k]*(if id[n] < 3 then cos(w[id[n],k]*f32(id[n])) else 0)",
        {{"N", 30}, {"K", 12}, {"V", 7}, {"T", 2}, {"H", 2}, {"W", 2}}, "few uses");
}

// Factors are put beside each other for a table, but not where a value decides something: it has the same bits in other kernels.
TEST(Invariants, WhatDecidesKeepsItsOrder) {
  const DimValues sizes = {{"N", 2000}, {"K", 12}};
  auto made = [&](const std::string& body) {
    const Program p = infer_program(parse_op("op f(x: f32[N,K], s: f32[K], m: f32[N]) -> (y) { y[n,k] = " + body + " }"));
    return print(invariants_apart(p, sizes, {}));
  };
  const std::string product = "exp(s[k]) * x[n,k] * cos(s[k])";
  EXPECT_NE(made(product).find("exp(s[k]) * cos(s[k])"), std::string::npos) << made(product);
  const std::string decides = made("(if stop_gradient(" + product + ") > m[n] then sin(s[k]) else x[n,k])");
  EXPECT_NE(decides.find("y_each"), std::string::npos) << decides;
  EXPECT_NE(decides.find("stop_gradient(" + product + ")"), std::string::npos) << decides;
}

// Two definitions that use the same have one table, as the tensor lies that it is made of.
TEST(Invariants, AreShared) {
  const Program p = infer_program(parse_op("op f(x: f32[N,K], s: f32[L,K], u: f32[N,L]) -> (y, z) {\n"
                                           "  y[k,n] = sum(l: x[n,k]*exp(s[l,k]))\n"
                                           "  z[n,l] = sum(k: u[n,l]*exp(s[l,k]))\n}"));
  const DimValues sizes = {{"N", 2000}, {"K", 30}, {"L", 20}};
  const std::string made = print(invariants_apart(p, sizes, {}));
  EXPECT_NE(made.find("y_each[l,k] = exp(s[l,k])\n  y[k,n] = sum(l: x[n,k] * y_each[l,k])\n  z[n,l] = sum(k: u[n,l] * y_each[l,k])"), std::string::npos) << made;
}

TEST(Invariants, OthersStay) {
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(m[n])"), 0u) << "once per row anyhow";
  EXPECT_EQ(tables("y[k] = sum(n: x[n,k]*exp(m[n]))"), 0u) << "once per row anyhow, where columns are summed";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*(s[k]+1)"), 0u) << "cheap";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(s[k])", {{"N", 3}, {"K", 12}}), 0u) << "few uses";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(s[k])", {{"N", 20}, {"K", 12}}), 0u) << "not worth a sweep";
  EXPECT_EQ(tables("y[n,k in 0..K+1] = if k < K then exp(s[k])+m[n] else 0"), 0u) << "not there at all points";
  EXPECT_EQ(tables("y[n in 0..N] = sum(k in n-3..min(n+1,K): x[n,clamp(k,0,K-1)]*exp(s[clamp(k,0,K-1)]*f32(k)))"), 0u)
      << "a range that begins below 0";
  EXPECT_EQ(tables("y[n,k] = x[n,k]*exp(s[(k+5)/2 else 0])", {{"N", 2000}, {"K", 12}}), 1u) << "with a value for what is outside";
}

}  // namespace
}  // namespace xhat::invariants_test
