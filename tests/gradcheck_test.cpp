// Right derivatives pass, planted wrong ones are found at the right place.
#include "ad/gradcheck.h"

#include <gtest/gtest.h>

namespace xhat {
namespace {

// y = body(x[n]) elementwise, grad_x = derivative.
Program elementwise(const std::string& body, const std::string& derivative) {
  return parse_op("op f(x: f32[N]) -> (y) { y[n] = " + body +
                  " }\nbackward (dy: f32[N]) -> (grad_x) { grad_x[n] = " + derivative + " }");
}

TEST(GradientCheck, AcceptsRightDerivatives) {
  const std::pair<const char*, const char*> rows[] = {
      {"x[n]^2", "2*x[n]*dy[n]"},
      {"exp(x[n])", "exp(x[n])*dy[n]"},
      {"sin(3*x[n])", "3*cos(3*x[n])*dy[n]"},
      {"log(x[n])", "dy[n]/x[n]"},                      // needs positive data
      {"sqrt(1 - x[n])", "-dy[n]/(2*sqrt(1 - x[n]))"},  // needs data below 1
      {"abs(x[n])", "sign(x[n])*dy[n]"},
      {"relu(x[n])", "if x[n] > 0 then dy[n] else 0"},
      {"floor(x[n])", "0*dy[n]"},
      {"1e6*x[n] + x[n]^3", "(1e6 + 3*x[n]^2)*dy[n]"},
      {"1e-8*x[n]", "1e-8*dy[n]"},
      {"2", "0*dy[n]"},
  };
  for (auto [body, derivative] : rows) {
    Program p = elementwise(std::string(body) + " + 0*x[n]", derivative);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      GradientCheckOptions options;
      options.seed = seed;
      GradientReport r = check_gradient(p, {{"N", 7}}, options);
      EXPECT_TRUE(r.passed) << body << "\n" << r.text();
      EXPECT_EQ(r.inputs.at(0).elements, 7);
      EXPECT_EQ(r.inputs.at(0).kinks, 0);
    }
  }
}

TEST(GradientCheck, FindsWrongDerivatives) {
  const std::pair<const char*, const char*> rows[] = {
      {"x[n]^2", "x[n]*dy[n]"},
      {"x[n]^2", "2*x[n]"},
      {"x[n]^2", "-2*x[n]*dy[n]"},
      {"exp(x[n])", "1.0001*exp(x[n])*dy[n]"},
      {"relu(x[n])", "dy[n]"},
      {"tanh(x[n])", "0*dy[n]"},
      {"x[n]", "dy[n]*(1/(x[n] - x[n]))"},  // not finite
      {"1e-8*x[n]", "2e-8*dy[n]"},
  };
  for (auto [body, derivative] : rows) {
    GradientReport r = check_gradient(elementwise(body, derivative), DimValues{{"N", 7}});
    EXPECT_FALSE(r.passed) << body << " " << derivative << "\n" << r.text();
    EXPECT_GT(r.inputs.at(0).error, r.tolerance);
  }
}

TEST(GradientCheck, NamesTheElement) {
  Program p = elementwise("x[n]^3", "if n == 5 then dy[n]*3*x[n]^2 + 1 else dy[n]*3*x[n]^2");
  GradientReport r = check_gradient(p, DimValues{{"N", 7}});
  ASSERT_FALSE(r.passed);
  const GradientComparison& c = r.inputs.at(0);
  EXPECT_EQ(c.input, "x");
  EXPECT_NEAR(c.derived - c.measured, 1, 1e-6);
  if (!c.direction) {
    EXPECT_EQ(c.position, std::vector<int64_t>{5});
  }
  EXPECT_NE(r.text().find("grad_x: WRONG"), std::string::npos) << r.text();
}

TEST(GradientCheck, DirectionsSeeElementsThatAreNotChecked) {
  Program p = elementwise("x[n]^3", "if n == 123 then 0 else dy[n]*3*x[n]^2");
  GradientCheckOptions options;
  options.elements = 2;
  EXPECT_FALSE(check_gradient(p, DimValues{{"N", 200}}, options).passed);
  options.directions = 0;
  EXPECT_TRUE(check_gradient(p, DimValues{{"N", 200}}, options).passed);
}

TEST(GradientCheck, ReductionsAndSeveralInputs) {
  std::string head = R"(op f(x: f32[N,K], w: f32[K], b: f32) -> (y, s) {
      y[n] = sum(k: x[n,k]*w[k]) + b
      s = sum(n: y[n]^2)
    } backward (dy: f32[N], ds: f32) -> (grad_x, grad_w, grad_b) {
      t[n] = dy[n] + 2*y[n]*ds
      grad_x[n,k] = t[n]*w[k]
      grad_w[k] = sum(n: t[n]*x[n,k])
)";
  GradientReport right = check_gradient(parse_op(head + " grad_b = sum(n: t[n]) }"), {{"N", 3}, {"K", 5}});
  EXPECT_TRUE(right.passed) << right.text();
  GradientReport wrong = check_gradient(parse_op(head + " grad_b = sum(n: dy[n]) }"), {{"N", 3}, {"K", 5}});
  EXPECT_FALSE(wrong.passed);
  EXPECT_TRUE(wrong.inputs.at(0).passed && wrong.inputs.at(1).passed);
  EXPECT_FALSE(wrong.inputs.at(2).passed);
}

TEST(GradientCheck, AtAKinkAnySlopeBetweenTheSidesIsRight) {
  GradientReport r =
      check_gradient(elementwise("relu(x[n]) - x[n]", "if x[n] > 0 then 0 else -dy[n]"), {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
  Arrays at_zero = {{"x", zeros(DType::f32, {5})}};
  r = check_gradient(elementwise("abs(x[n])", "0*dy[n]"), at_zero, {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
  r = check_gradient(elementwise("abs(x[n])", "2*dy[n]"), at_zero, {{"N", 5}});
  EXPECT_FALSE(r.passed) << r.text();
  r = check_gradient(elementwise("relu(x[n])", "0*dy[n]"), at_zero, {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
  EXPECT_GT(r.inputs.at(0).kinks, 0);
}

TEST(GradientCheck, EmptyInputsPass) {
  GradientReport r = check_gradient(elementwise("x[n]", "dy[n]"), DimValues{{"N", 0}});
  EXPECT_TRUE(r.passed);
  EXPECT_EQ(r.inputs.at(0).elements, 0);
}

TEST(RandomInputs, IndicesStayInside) {
  Program p = parse_op(R"(op bag(table: f32[V,D], ids: i32[B,L], w: f32[B]) -> (y, hot) {
      y[b,d] = sum(l: table[ids[b,l], d]) * w[b]
      hot[b,v in 0..V] = if ids[b,0] == v then 1 else w[b]
    })");
  DimValues dims = {{"V", 3}, {"D", 2}, {"B", 20}, {"L", 4}};
  Arrays in = random_inputs(p, dims, 5);
  bool seen[3] = {};
  for (int64_t v : in.at("ids").integers) {
    ASSERT_GE(v, 0);
    ASSERT_LT(v, 3);
    seen[v] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
  EXPECT_EQ(in, random_inputs(p, dims, 5));
  EXPECT_NE(in, random_inputs(p, dims, 6));
  EXPECT_EQ(in.at("table"), rounded(in.at("table")));  // exactly representable
}

TEST(RandomInputs, IndicesThroughTemporariesAndCalls) {
  Program p = parse_op(R"(
    op look(table: f32[V], ids: i32[B]) -> (y) { y[b] = table[ids[b]] }
    op f(table: f32[V], ids: i32[B], more: i32[B]) -> (y, z) {
      copy[b] = ids[b]
      y[b] = table[copy[b]]
      z = look(table, more)
    })",
                       "f");
  DimValues dims = {{"V", 2}, {"B", 30}};
  Arrays in = random_inputs(p, dims, 1);
  for (const char* name : {"ids", "more"})
    for (int64_t v : in.at(name).integers) EXPECT_TRUE(v == 0 || v == 1) << name;
}

TEST(RandomInputs, RedrawnUntilOutputsAreFinite) {
  Program positive = parse_op("op f(x: f32[N]) -> (y) { y[n] = log(x[n]) }");
  Arrays in = random_inputs(positive, {{"N", 30}}, 1);
  for (double v : in.at("x").reals) EXPECT_GT(v, 0);
  Program below_one = parse_op("op f(x: f32[N]) -> (y) { y[n] = log(x[n]) + log(1 - x[n]) }");
  in = random_inputs(below_one, {{"N", 30}}, 1);
  for (double v : in.at("x").reals) EXPECT_TRUE(v > 0 && v < 1);
  Program never = parse_op("op f(x: f32[N]) -> (y) { y[n] = x[n] / 0 }");
  EXPECT_THROW(random_inputs(never, {{"N", 3}}, 1), Error);
  EXPECT_EQ(random_inputs(never, {{"N", 3}}, 1, {.finite = false}).size(), 1u);
}

}  // namespace
}  // namespace xhat
