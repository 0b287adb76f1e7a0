// Right derivatives pass, planted wrong ones are found at the right place.
#include "ad/check/gradcheck.h"

#include <gtest/gtest.h>

#include "ad/check/tangent_check.h"
#include "ad/reverse/gradient.h"

namespace xhat::gradcheck_test {
namespace {

using Kind = DerivativeComparison::Kind;

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
      {"relu(1e4*x[n] % 1.5 - 1)", "if 1e4*x[n] % 1.5 > 1 then 1e4*dy[n] else 0"},
  };
  for (auto [body, derivative] : rows) {
    Program p = elementwise(std::string(body) + " + 0*x[n]", derivative);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      GradcheckOptions options;
      options.seed = seed;
      GradcheckReport r = check_gradient(p, {{"N", 7}}, options);
      EXPECT_TRUE(r.passed) << body << "\n" << r.text();
      EXPECT_EQ(r.comparisons.at(0).elements, 7);
      EXPECT_EQ(r.comparisons.at(0).kinks, 0);
    }
  }
}

// What is not measured: the last digit of 1 - 25*(1/25), and what is too small for a double on the way.
TEST(GradientCheck, RoundingIsNoDerivative) {
  for (const char* text : {"op f(x: f32) -> (y) { y = min(k in 0..25: x) - x }",
                           "op f(x: f64) -> (y) { y = 1 / exp(400 + (x - x)) / exp(2 * x) }"})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      GradcheckReport r = check_gradient(gradient(parse_op(text)), DimValues{}, {.seed = seed});
      EXPECT_TRUE(r.passed) << text << "\n" << r.text();
    }
}

// Finite differences must not move what is stopped, wherever it stands: they would measure 2x where the derivative is x.
TEST(GradientCheck, WhatIsStoppedStaysWhereItIs) {
  for (const char* text : {
           "op f(x: f32[N]) -> (y) { y[i] = x[i]*stop_gradient(x[i]) }",
           "op f(x: f64[N]) -> (y) { y = sum(i: x[i]*stop_gradient(x[i]^2)) * stop_gradient(max(i: x[i])) }",
           "op f(x: f64[N,M]) -> (y) { m[n] = stop_gradient(max(k: x[n,k]))\n e[n,k] = exp(x[n,k] - m[n])\n"
           "  y[n,k] = m[n] * e[n,k]/sum(l: e[n,l]) }",
           "op f(x: f64[N]) -> (y) { y[i] = (x[i] + stop_gradient(round(3*x[i]) - x[i]))^2 }",
           "op half(a: f64[N]) -> (b) { b[i] = stop_gradient(a[i])*a[i]^2 }\n"
           "op f(x: f64[N]) -> (y) { h = half(sin(x))\n y[i] = h[i] * stop_gradient(h[i]) + x[i] }",
           "op f(x: f64[N], w: f64[N]) -> (y, z) { s[i] = stop_gradient(x[i]*w[i]) * x[i]\n"
           "  y[i] = if stop_gradient(w[i]) > 0 then s[i]*w[i] else s[N-1-i]^2\n z = stop_gradient(sum(i: s[i])) }",
           "op f(x: f64[N], ids: i32[N]) -> (y) { t[i] = x[i]^3\n y[i] = t[ids[i]] * stop_gradient(t[ids[i]] * stop_gradient(x[i])) }",
           "op f(x: f64[N,M]) -> (y) { y[i] = prod(j: x[i,j] + stop_gradient(x[i,0 else 1])) }"}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      GradcheckReport r = gradcheck(parse_op(text), {{"N", 5}, {"M", 3}}, {.seed = seed});
      EXPECT_TRUE(r.passed) << text << "\n" << r.text();
    }
  }
  // The derivative without the stop is wrong then.
  EXPECT_FALSE(check_gradient(elementwise("x[n]*stop_gradient(x[n])", "2*x[n]*dy[n]"), {{"N", 7}}).passed);
  EXPECT_TRUE(check_gradient(elementwise("x[n]*stop_gradient(x[n])", "x[n]*dy[n]"), {{"N", 7}}).passed);
  EXPECT_FALSE(check_gradient(elementwise("stop_gradient(x[n]) + sin(x[n])", "dy[n]"), {{"N", 7}}).passed);
}

// A tangent that is known to be zero where a sum over i terms is small, read at a place from data.
TEST(GradientCheck, KnowledgeAboutARangeIsNotTakenToAnElement) {
  const Program op = parse_op(
      "op f(x: f64[N], z: f64[N], ids: i64[N]) -> (y) {\n"
      "  t[i in 0..N] = let v = x[i]*max(k in 0..i: 1) in if v > 0.1 then v else 1\n"
      "  y[j] = t[ids[j]]*log(z[j])\n}");
  GradcheckReport r = gradcheck(op, {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
}

// t is x[0] but for the last digit, which decides anew at every point that is looked at.
TEST(GradientCheck, AComparisonThatRoundingDecidesIsAKink) {
  Program op = parse_op(
      "op f(x: f64[3]) -> (y) {\n  t = x[1] - (x[1] - x[0])\n  y[n in 0..3] = if t < x[n] then x[n] else t * x[n]\n}");
  int kinks = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    GradcheckReport r = check_gradient(gradient(op), DimValues{}, {.seed = seed});
    EXPECT_TRUE(r.passed) << "seed " << seed << "\n" << r.text();
    kinks += r.comparisons.at(0).kinks;
  }
  EXPECT_GT(kinks, 0);
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
    GradcheckReport r = check_gradient(elementwise(body, derivative), DimValues{{"N", 7}});
    EXPECT_FALSE(r.passed) << body << " " << derivative << "\n" << r.text();
    EXPECT_GT(r.comparisons.at(0).error, r.comparisons.at(0).tolerance);
  }
}

TEST(GradientCheck, NamesTheElement) {
  Program p = elementwise("x[n]^3", "if n == 5 then dy[n]*3*x[n]^2 + 1 else dy[n]*3*x[n]^2");
  GradcheckReport r = check_gradient(p, DimValues{{"N", 7}});
  ASSERT_FALSE(r.passed);
  const DerivativeComparison& c = r.comparisons.at(0);
  EXPECT_EQ(c.input, "x");
  EXPECT_NEAR(c.derived - c.measured, 1, 1e-6);
  if (!c.direction) {
    EXPECT_EQ(c.position, std::vector<int64_t>{5});
  }
  EXPECT_NE(r.text().find("grad_x: WRONG"), std::string::npos) << r.text();
}

TEST(GradientCheck, DirectionsSeeElementsThatAreNotChecked) {
  Program p = elementwise("x[n]^3", "if n == 123 then 0 else dy[n]*3*x[n]^2");
  GradcheckOptions options;
  options.elements = 2;
  EXPECT_FALSE(check_gradient(p, DimValues{{"N", 200}}, options).passed);
  options.directions = 0;
  GradcheckReport r = check_gradient(p, DimValues{{"N", 200}}, options);
  EXPECT_TRUE(r.comparisons.at(0).passed);
  // So does the inner product, without any step.
  ASSERT_EQ(r.comparisons.at(1).kind, Kind::inner_product);
  EXPECT_FALSE(r.comparisons.at(1).passed);
  EXPECT_FALSE(r.passed);
}

TEST(GradientCheck, TheInnerProductSeesWhatDifferencesCannot) {
  GradcheckReport r = check_gradient(elementwise("tanh(x[n])", "(1 + 1e-6)*(1 - y[n]^2)*dy[n]"), {{"N", 7}});
  EXPECT_TRUE(r.comparisons.at(0).passed);
  EXPECT_FALSE(r.comparisons.at(1).passed) << r.text();
  EXPECT_NE(r.text().find("inner product <dy, J v>: WRONG"), std::string::npos) << r.text();
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
  GradcheckReport right = check_gradient(parse_op(head + " grad_b = sum(n: t[n]) }"), {{"N", 3}, {"K", 5}});
  EXPECT_TRUE(right.passed) << right.text();
  GradcheckReport wrong = check_gradient(parse_op(head + " grad_b = sum(n: dy[n]) }"), {{"N", 3}, {"K", 5}});
  EXPECT_FALSE(wrong.passed);
  EXPECT_TRUE(wrong.comparisons.at(0).passed && wrong.comparisons.at(1).passed);
  EXPECT_FALSE(wrong.comparisons.at(2).passed);
}

TEST(GradientCheck, AtAKinkAnySlopeBetweenTheSidesIsRight) {
  GradcheckReport r =
      check_gradient(elementwise("relu(x[n]) - x[n]", "if x[n] > 0 then 0 else -dy[n]"), {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
  Arrays at_zero = {{"x", zeros(DType::f32, {5})}};
  r = check_gradient(elementwise("abs(x[n])", "0*dy[n]"), at_zero, {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
  r = check_gradient(elementwise("abs(x[n])", "2*dy[n]"), at_zero, {{"N", 5}});
  EXPECT_FALSE(r.passed) << r.text();
  r = check_gradient(elementwise("relu(x[n])", "0*dy[n]"), at_zero, {{"N", 5}});
  EXPECT_TRUE(r.passed) << r.text();
  EXPECT_GT(r.comparisons.at(0).kinks, 0);
}

// A gradient jumps at a tie, where it is the mean of those beside it: its differences are those of the jump, whatever is derived.
TEST(GradientCheck, AtAJumpNoDifferenceMeasuresTheSlope) {
  auto judged = [](double derived, auto&& f) {
    Slope measured;
    auto difference = [&](double h) { return Difference{f(h) - f(-h), std::fabs(f(h)) + std::fabs(f(-h))}; };
    for (double h : kSteps) measured.refine(h, difference(h), difference(h / 2));
    auto sides = [&](double h) { return std::pair((f(0.0) - f(-h)) / h, (f(h) - f(0.0)) / h); };
    return judge(derived, measured, 1, 1e-5, sides);
  };
  auto step = [](double x) { return 2 * x + (x > 0 ? 1 : x < 0 ? 0 : 0.5); };   // the same way at both sides
  auto apart = [](double x) { return 2 * x + (x > 0 ? 1 : x < 0 ? 3 : 2.5); };  // up, or down, by different heights
  auto at_left = [](double x) { return 2 * x + (x >= 0 ? 1 : 0); };             // continuous at the right
  for (double derived : {2.0, 0.0, -7.0}) {
    EXPECT_TRUE(judged(derived, step).good && judged(derived, step).kink) << derived;
    EXPECT_TRUE(judged(derived, apart).good && judged(derived, apart).kink) << derived;
  }
  EXPECT_TRUE(judged(2, at_left).good);
  EXPECT_FALSE(judged(-1e5, at_left).good);
  EXPECT_FALSE(judged(std::numeric_limits<double>::infinity(), step).good);
  // What only rounds is no jump.
  EXPECT_FALSE(judged(1, [](double x) { return 1e6 + 0 * x; }).good);
  EXPECT_TRUE(judged(1, [](double x) { return (1e6 + x) - 1e6; }).good);
  EXPECT_FALSE(judged(1, [](double x) { return ((1e6 + x) - 1e6) - x; }).good);
  EXPECT_FALSE(judged(3, [](double x) { return std::exp(x); }).good);
}

TEST(GradientCheck, EmptyInputsPass) {
  GradcheckReport r = check_gradient(elementwise("x[n]", "dy[n]"), DimValues{{"N", 0}});
  EXPECT_TRUE(r.passed);
  EXPECT_EQ(r.comparisons.at(0).elements, 0);
}

// ---- ops: both modes, both orders ----

const DerivativeComparison& row(const GradcheckReport& r, Kind kind) {
  for (const DerivativeComparison& c : r.comparisons)
    if (c.kind == kind) return c;
  throw Bug("no such row");
}

TEST(Gradcheck, AcceptsRightOpsInEveryWay) {
  Program op = parse_op(R"(op f(x: f32[N,D], g: f32[D], c: f32[D] const, i: i32[N]) -> (y, k, z) {
      m[n] = max(d: x[n,d])
      y[n,d] = exp(x[n,d] - m[n]) * g[d] / sum(j: exp(x[n,j] - m[n])) + c[d]
      k[n] = i[n] + 1
      z = sum(n, d: relu(x[n,d]))
    })");
  GradcheckReport r = gradcheck(op, {{"N", 3}, {"D", 4}});
  EXPECT_TRUE(r.passed) << r.text();
  std::vector<std::string> names;
  for (const DerivativeComparison& c : r.comparisons) names.push_back(c.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"grad_x", "grad_g", "<dy, J v>", "jvp_y", "jvp_z", "hvp_x", "hvp_g"}));
  EXPECT_EQ(row(r, Kind::jvp).elements, 2 * 12);  // all, along two directions
  r = gradcheck(op, {{"N", 3}, {"D", 4}}, {.orders = 1, .wrt = {"g"}});
  EXPECT_TRUE(r.passed) << r.text();
  EXPECT_EQ(r.comparisons.size(), 4u) << r.text();
}

TEST(Gradcheck, FindsAWrongStatedGradientAlsoWhereItIsCalled) {
  const std::string op = "op sq(x: f64[N]) -> (y) { y[i] = x[i]^2 }\ngrad sq(x, dy) -> (dx) { dx[i] = dy[i]*";
  const std::string call = " }\nop f(x: f64[N]) -> (z) { t[i] = 3*x[i]\n  y = sq(t)\n  z[i] = sin(y[i]) }";
  for (const char* name : {"sq", "f"}) {
    EXPECT_TRUE(gradcheck(parse_op(op + "2*x[i]" + call, name), {{"N", 7}}).passed);
    GradcheckReport r =
        gradcheck(parse_op(op + "(if i == 5 then 2.001 else 2)*x[i]" + call, name), {{"N", 7}});
    EXPECT_FALSE(r.passed);
    for (Kind kind : {Kind::gradient, Kind::inner_product, Kind::jvp})
      EXPECT_FALSE(row(r, kind).passed) << r.text();
    EXPECT_EQ(row(r, Kind::gradient).position, std::vector<int64_t>{5}) << r.text();
    EXPECT_EQ(row(r, Kind::jvp).position, std::vector<int64_t>{5}) << r.text();
  }
}

TEST(Gradcheck, AStatedGradientThatIsNotLinearFailsWithTheReason) {
  GradcheckReport r = gradcheck(parse_op("op f(x: f64[N]) -> (y) { y[n] = x[n] }\n"
                                         "grad f(x, dy) -> (dx) { dx[n] = clamp(dy[n], -100, 100) }"),
                                {{"N", 5}});
  EXPECT_TRUE(row(r, Kind::gradient).passed);  // the data is far from what it clips
  EXPECT_FALSE(r.passed);
  EXPECT_NE(row(r, Kind::jvp).note.find("not linear in the cotangent dy"), std::string::npos) << r.text();
  EXPECT_NE(r.text().find("jvp: WRONG, op f has no forward derivative"), std::string::npos) << r.text();
}

TEST(Gradcheck, FindsPlantedWrongTangentsOfBothOrders) {
  Program op = parse_op("op f(x: f64[N]) -> (y) { y[i] = x[i]^3 }");
  Arrays data = {{"x", random_normals(DType::f64, {9}, 3)}};
  auto check = [&](Kind kind, const Program& p, const std::string& result, const std::string& body) {
    Program tangents = parse_op("op g(x: f64[N], " + std::string(kind == Kind::hvp ? "dy: f64[N], " : "") +
                                "t_x: f64[N]) -> (t) { t[i] = " + body + " }");
    return check_tangents(kind, p, tangents, {{result, "t", "x"}}, {"x"}, data, {{"N", 9}}, {}).at(0);
  };
  DerivativeComparison right = check(Kind::jvp, op, "y", "3*x[i]^2*t_x[i]");
  EXPECT_TRUE(right.passed);
  EXPECT_LT(right.error, 1e-8);
  DerivativeComparison wrong = check(Kind::jvp, op, "y", "(if i == 4 then 3.0001 else 3)*x[i]^2*t_x[i]");
  EXPECT_FALSE(wrong.passed);
  EXPECT_EQ(wrong.position, std::vector<int64_t>{4});
  EXPECT_NEAR(wrong.derived / wrong.measured, 1.00003333, 1e-6);
  EXPECT_FALSE(check(Kind::jvp, op, "y", "1/(x[i] - x[i])*t_x[i]").passed);
  EXPECT_FALSE(check(Kind::jvp, op, "y", "0*t_x[i]").passed);

  data["dy"] = random_normals(DType::f64, {9}, 4);
  Program g = gradient(op);
  EXPECT_TRUE(check(Kind::hvp, g, "grad_x", "6*x[i]*t_x[i]*dy[i]").passed);
  wrong = check(Kind::hvp, g, "grad_x", "(if i == 8 then 5 else 6)*x[i]*t_x[i]*dy[i]");
  EXPECT_FALSE(wrong.passed);
  EXPECT_EQ(wrong.position, std::vector<int64_t>{8});
}

TEST(Gradcheck, WhatCancelsIsNoMistake) {
  // The gradients and their derivatives are zero but for rounding.
  for (const char* body :
       {"x[n,d] - x[n,d]*1", "exp(x[n,d] - 2) / exp(x[n,d])", "sin(x[n,d])^2 + cos(x[n,d])^2"}) {
    GradcheckReport r = gradcheck(parse_op("op f(x: f64[N,D]) -> (y) { y[n,d] = " + std::string(body) + " }"),
                                  {{"N", 3}, {"D", 2}});
    EXPECT_TRUE(r.passed) << body << "\n" << r.text();
  }
  GradcheckReport r =
      gradcheck(parse_op("op f(x: f64[N,D]) -> (y) { y[n,d] = exp(x[n,d]) / sum(k: exp(x[n,k])) }"),
                {{"N", 3}, {"D", 1}});
  EXPECT_TRUE(r.passed) << r.text();
}

TEST(Gradcheck, KinksCountAsRightInBothModes) {
  Arrays at_zero = {{"x", zeros(DType::f64, {5})}};
  for (const char* body : {"abs(x[n])", "relu(x[n])", "max(x[n], 0)*2", "clamp(x[n], 0, 1)"}) {
    GradcheckReport r = gradcheck(parse_op("op f(x: f64[N]) -> (y) { y[n] = " + std::string(body) + " }"),
                                  at_zero, {{"N", 5}}, {.orders = 1});
    EXPECT_TRUE(r.passed) << body << "\n" << r.text();
    bool central = std::string(body).find("relu") == std::string::npos &&
                   std::string(body).find("clamp") == std::string::npos;
    EXPECT_EQ(row(r, Kind::jvp).kinks > 0, !central) << r.text();  // else it is what central differences give
  }
  // Another choice at the kink than the engine's.
  GradcheckReport r = gradcheck(parse_op("op f(x: f64[N]) -> (y) { y[n] = relu(x[n]) }\n"
                                         "grad f(x, dy) -> (dx) { dx[n] = if x[n] >= 0 then dy[n] else 0 }"),
                                at_zero, {{"N", 5}}, {.orders = 1});
  EXPECT_TRUE(r.passed) << r.text();
}

// Equal values share the gradient of an extreme, and have all of it or nothing of it beside that point: no second derivative is right there,
// and none is wrong. Elsewhere there is one.
TEST(Gradcheck, SharedGradientsHaveNoSlope) {
  Arrays equal = {{"x", zeros(DType::f64, {5})}};
  for (const char* body : {"min(r in 0..2: x[i+r])", "max(r in 0..2: x[i+r]^3 + x[i])", "max(x[i], x[i+1])"}) {
    GradcheckReport r =
        gradcheck(parse_op("op f(x: f64[N]) -> (y) { y[i in 0..N-1] = " + std::string(body) + " }"), equal, {{"N", 5}});
    EXPECT_TRUE(r.passed) << body << "\n" << r.text();
  }
  GradcheckReport r = gradcheck(parse_op("op f(x: f64[N]) -> (y) { y[n] = if x[n] > 0 then x[n] else x[n]^2 }\n"
                                         "grad f(x, dy) -> (dx) { dx[n] = 0.5 * dy[n] * x[n] }"),
                                DimValues{{"N", 5}});
  EXPECT_FALSE(r.passed);
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
}  // namespace xhat::gradcheck_test
