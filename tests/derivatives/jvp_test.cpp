// Forward mode: its text, names and errors, and the values that differences cannot see. Every read, reduction and
// function against differences and the reverse mode: gradient_test.cpp; random programs: property_test.cpp.
#include "ad/forward/jvp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/helpers/derivatives.h"

namespace xhat::jvp_test {
namespace {

using namespace xhat::testing;

// What jvp adds, a definition per line.
std::string tangents_of(const std::string& text, const JvpOptions& options = {}) {
  Program op = parse_op(text), p = jvp(op, options);
  std::string all;
  for (const Definition& d : p.definitions())
    if (!op.find(p.tensor(d.target()).name)) all += print(p, d) + "\n";
  return all;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

// ---- text ----

TEST(JvpText, IsAnOpOfItsOwn) {
  Program p =
      jvp(parse_op("op f(x: f32[N], k: i32[N], c: f32[N] const) -> (y, n) {\n"
                   "  y[i] = tanh(x[i]) * c[i]\n  n[i] = k[i] + 1\n}"));
  EXPECT_EQ(print(p),
            "op f_jvp(x: f32[N], k: i32[N], c: f32[N] const, t_x: f32[N]) -> (y, n, jvp_y) {\n"
            "  y[i] = tanh(x[i]) * c[i]\n"
            "  n[i] = k[i] + 1\n"
            "  jvp_y[i] = let t1 = tanh(x[i]) in t_x[i] * (1 - t1 * t1) * c[i]\n"
            "}\n");
}

TEST(JvpText, UsesTheOutputWhereItCan) {
  EXPECT_EQ(tangents_of("op f(x: f32[N]) -> (y) { y[i] = exp(x[i]) }"), "jvp_y[i] = t_x[i] * y[i]\n");
  EXPECT_EQ(tangents_of("op f(x: f32[N]) -> (y) { y[i] = relu(x[i]) }"),
            "jvp_y[i] = if 0 < y[i] then t_x[i] else 0\n");
}

TEST(JvpText, SumsStayWhereTheyStand) {
  EXPECT_EQ(tangents_of("op f(x: f32[N,K], w: f32[K]) -> (y) { y[n] = sum(k: x[n,k] * w[k]) }"),
            "jvp_y[n] = sum(k: t_x[n,k] * w[k] + t_w[k] * x[n,k])\n");
  EXPECT_EQ(tangents_of("op f(x: f32[N], i: i64[M]) -> (y) { y[m] = x[i[m]] - x[0] }"),
            "jvp_y[m] = t_x[i[m]] - t_x[0]\n");
}

TEST(JvpText, OnlyWhatMovesIsDerived) {
  const std::string text = "op f(x: f32[N], w: f32[N]) -> (y, z) { y[i] = x[i] * w[i]\n  z[i] = x[i]^2 }";
  EXPECT_EQ(tangents_of(text, {{"w"}}), "jvp_y[i] = t_w[i] * x[i]\njvp_z[n in 0..N] = 0\n");
  EXPECT_EQ(jvp(parse_op(text), {{"w"}}).inputs.size(), 3u);
}

TEST(JvpText, NamesThatAreTakenGetANumber) {
  Program p = jvp(
      parse_op("op f(x: f32[N], t_x: f32[N] const) -> (y, jvp_y) { y[i] = 2*x[i]\n  jvp_y[i] = t_x[i] }"));
  ASSERT_EQ(p.inputs.size(), 3u);
  ASSERT_EQ(p.outputs.size(), 4u);
  EXPECT_EQ(p.tensor(p.inputs[2]).name, "t_x_1");
  EXPECT_EQ(p.tensor(p.outputs[2]).name, "jvp_y_1");
  EXPECT_EQ(p.tensor(p.outputs[3]).name, "jvp_jvp_y");
}

TEST(JvpText, WrtIsChecked) {
  Program p = parse_op("op f(x: f32[N], c: f32[N] const, k: i32[N]) -> (y) { y[i] = x[i] * c[i] }");
  auto message = [&](const std::string& name) { return error_of([&] { jvp(p, {{name}}); }); };
  EXPECT_NE(message("k").find("it is i32, not a float"), std::string::npos);
  EXPECT_NE(message("c").find("is const"), std::string::npos);
  EXPECT_NE(message("z").find("no input z"), std::string::npos);
  EXPECT_NE(error_of([&] { hvp(p, {.wrt = {}, .along = {"k"}}); }).find("it is i32"), std::string::npos);
  EXPECT_NE(error_of([&] { hvp(p, {.wrt = {"c"}, .along = {}}); }).find("is const"), std::string::npos);
}

TEST(ProductText, VjpAndHvpAreOpsToo) {
  Program op = parse_op("op f(x: f32[N], w: f32[N]) -> (y) { y[i] = x[i]^2 * w[i] }");
  EXPECT_EQ(print(vjp(op, {{"x"}})),
            "op f_vjp(x: f32[N], w: f32[N], dy: f32[N]) -> (y, grad_x) {\n"
            "  y[i] = x[i]^2 * w[i]\n"
            "  grad_x[i] = dy[i] * w[i] * (2 * x[i])\n"
            "}\n");
  EXPECT_EQ(print(hvp(op, {.wrt = {"x"}, .along = {"w"}})),
            "op f_hvp(x: f32[N], w: f32[N], dy: f32[N], t_w: f32[N]) -> (hvp_x) {\n"
            "  hvp_x[i] = t_w[i] * dy[i] * (2 * x[i])\n"
            "}\n");
}

// vjp() of loops once made a program whose gradients nothing defines.
TEST(ProductText, LoopsAreRefusedByName) {
  Program p = parse_op("prog f(x: f32[T]) -> (h) { var h = 0.0\n for t in 0..T { h = tanh(h) + x[t] } }");
  EXPECT_NE(error_of([&] { vjp(p); }).find("f: the gradient of a program with loops or branches is no op of its own yet"), std::string::npos);
}

TEST(ProductText, ConvolutionsVisitOnlyTheTapsThatHit) {
  Program p = hvp(
      parse_op("op f(x: f32[H], w: f32[3]) -> (y) { y[i in 0..H/2] = sum(r: x[2*i+r-1 else 0] * w[r]) }"));
  EXPECT_EQ(print(p, *p.definition_of(p.outputs[0])),
            "hvp_x[h in 0..H] = sum(i in h/2..min((h+1)/2+1,H/2): t_w[h-2*i+1] * dy[i])");
}

TEST(ProductText, SizesWithADefinitionAreWrittenOutInParameters) {
  Program p = vjp(parse_op("op f(x: f32[H]) -> (y) { dim O = (H - 3)/2 + 1\n  y[i in 0..O] = x[2*i]^2 }"));
  EXPECT_NE(print(p).find("dy: f32[(H-3)/2+1]"), std::string::npos) << print(p);
  EXPECT_TRUE(equal(parse_op(print(p)), p));
}

// An output over a product of dims makes a parameter of such an extent: the dims are known from others.
TEST(ProductText, SizesThatAreProductsAreReadBack) {
  for (const char* text : {"op f(x: f32[H,W]) -> (y) { y[p in 0..H*W] = x[p/W,p%W]^2 }",
                           "op f(x: f32[N,H,W], w: f32[H]) -> (y, z) {\n  y[n, p in 0..H*W] = x[n,p/W,p%W]*w[p/W]\n"
                           "  z[q in 0..(H+1)*(H+1)] = w[q/(H+1) else 0]^2\n}",
                           "op f(x: f32[N]) -> (y) { y[i in 0..K*N] = sin(x[i/K])*x[i/K] }",
                           "op f(x: f32[H,W]) -> (y) { dim P = H*W\n  y[p in 0..P] = x[p/W,p%W]^2 }",
                           "op f(x: f32[N]) -> (y) { y[i in 0..N*N] = x[i/N]*x[i%N] }"}) {
    Program op = parse_op(text);
    for (const Program& p : {vjp(op), hvp(op), gradient(op), vjp(vjp(op)), jvp(vjp(op))}) {
      SCOPED_TRACE(print(p));
      Program again = parse_op(print(p));
      EXPECT_TRUE(equal(again, p)) << print(again);
      EXPECT_EQ(print(again), print(p));
    }
  }
  // What is given must fit.
  Program p = parse_op("op f(x: f32[H,W], d: f32[H*W]) -> (y) { y[i,j] = x[i,j] * d[i*W+j] }");
  EXPECT_EQ(solve_dims(p, {{"x", {2, 3}}, {"d", {6}}}), (DimValues{{"H", 2}, {"W", 3}}));
  EXPECT_THROW(solve_dims(p, {{"x", {2, 3}}, {"d", {7}}}), Error);
}

// ---- values that differences cannot see ----

double pushed(const Program& op, const Arrays& in, size_t output = 0) {
  Program p = jvp(op);
  return run(p, in).at(p.tensor(p.outputs.at(op.outputs.size() + output)).name).reals.at(0);
}

TEST(JvpValue, TiesGiveTheMeanOfTheirTangents) {
  Arrays in{{"x", vector({1, 5, 5})}, {"t_x", vector({100, 1, 2})}};
  EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y = max(i: x[i]) }"), in), 1.5);
  EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y = max(x[1], x[2]) }"), in), 1.5);
  EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y = min(i: -x[i]) + 2*max(i: x[i]) }"), in), 1.5);
}

TEST(JvpValue, ProductsWithZeros) {
  Program op = parse_op("op f(x: f64[N]) -> (y) { y = prod(i: x[i]) }");
  EXPECT_EQ(pushed(op, {{"x", vector({2, 0, 3})}, {"t_x", vector({10, 1, 10})}}), 6);
  EXPECT_EQ(pushed(op, {{"x", vector({0, 0, 3})}, {"t_x", vector({10, 1, 10})}}), 0);
}

TEST(JvpValue, KinksAreThoseOfTheReverseMode) {
  Arrays in{{"x", vector({0})}, {"t_x", vector({3})}};
  for (const char* f : {"relu(x[0])", "abs(x[0])", "sign(x[0])", "floor(x[0])"})
    EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y = " + std::string(f) + " }"), in), 0) << f;
  EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y = clamp(x[0], 0, 1) }"), in), 3);
  EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y = max(x[0], 0) }"), in), 1.5);
}

// <dy, J v> = <J^T dy, v>, both finite, where an infinite derivative meets what is not taken.
TEST(JvpValue, TheBranchNotTakenContributesZero) {
  for (const char* f : {"y[i] = if x[i] > 0 then log(x[i]) else 0",
                        "l[i] = log(x[i])\n y[i] = if x[i] > 0 then l[i] else 2",
                        "y[i] = sqrt(if x[i] > 0 then x[i] else 0)",
                        "s[i] = if x[i] > 0 then x[i] else 0\n y[i] = sqrt(s[i])",
                        "s[i] = if x[i] > 0 then x[i] else 0\n t[i] = s[i]*s[i]\n y[i] = sqrt(t[i])",
                        "y[i] = sqrt(relu(x[i]))",
                        "y[i] = 1/relu(x[i] - 1) * (if x[i] > 1 then 1 else 0)",
                        "y[i in 0..4] = sqrt(x[i-3 else -1] + 1)",
                        "s[i in 0..5] = x[i-1 else 0]\n y[i] = if i > 0 && i < 4 then 1.0 else sqrt(s[i])",
                        "y[i in 0..5] = sqrt(x[i-1 else (if i > 6 then x[0] else -1)] + 1)",
                        "y = sqrt(sum(i: if x[i] > 3 then x[i] else 0))",
                        "y = sqrt(sum(i if x[i] > 3: x[i]))",
                        "y = sqrt(sum(i: relu(x[i] - 9)))",
                        "y = sqrt(max(i: if x[i] > 3 then x[i] else 0))",
                        "y[k in 0..2] = sqrt(sum(i if x[i] > 3: x[i]*f64(k)))",
                        "y = log(prod(i: if x[i] > 3 then x[i] else 0) + 0)",
                        "y[i] = (if x[i] > 0 then x[i] else 0)^0.5",
                        "y[i] = rsqrt(if x[i] > 0 then x[i] else 0)",
                        "e[i] = if x[i] > 1 then x[i] else 1000\n y[i] = exp(e[i])",
                        "y[i] = f64(f32(sqrt(if x[i] > 0 then x[i] else 0)))"}) {
    Program op = parse_op("op f(x: f64[3]) -> (y) { " + std::string(f) + " }"), g = gradient(op), j = jvp(op);
    SCOPED_TRACE(print(j));
    Arrays in{{"x", vector({0, 2, 0})}}, back = in, forward = in;
    std::mt19937_64 random(3);
    Array u = random_array(random, DType::f64, shape_of(op, op.outputs[0], {}), 0), v = vector({1, 2, 3});
    back["dy"] = u;
    forward["t_x"] = v;
    Array down = run(g, back).at("grad_x"), up = run(j, forward).at("jvp_y");
    for (double value : down.reals) EXPECT_TRUE(std::isfinite(value)) << print(g);
    for (double value : up.reals) EXPECT_TRUE(std::isfinite(value));
    EXPECT_NEAR(inner(u, up), inner(down, v), 1e-12);
  }
}

TEST(JvpValue, ReadsBehindAConditionStayBehindIt) {
  Array k = zeros(DType::i64, {3});
  k.integers = {-1, 2, 0};
  Arrays in{
      {"x", array_of(DType::f64, {3, 2}, {1, 2, 3, 4, 6, 5})}, {"k", k}, {"t_x", zeros(DType::f64, {3, 2})}};
  for (const char* f :
       {"if k[i] >= 0 then 2*max(j: x[k[i],j]) else 0", "if i > 0 then max(j: x[i-1,j])^2 else 1",
        "sum(j if k[i] >= 0: if x[k[i],j] > 0 then log(x[k[i],j]) else 0)",
        "sqrt(if k[i] >= 0 then x[k[i],0] else 0)"}) {
    Program j =
        jvp(parse_op("op f(x: f64[N,M], k: i64[N]) -> (y) { y[i in 0..N] = " + std::string(f) + " }"));
    EXPECT_NO_THROW(run(j, in)) << print(j);
  }
}

TEST(JvpValue, EmptyTensorsScalarsAndLongChains) {
  Program p = jvp(parse_op("op f(x: f64[N,M], s: f64) -> (y) { y[i] = s*max(j: x[i,j])*sum(j: x[i,j]) }"));
  Arrays out = evaluate(p, {{"x", zeros(DType::f64, {3, 0})},
                            {"s", scalar_of(DType::f64, 2)},
                            {"t_x", zeros(DType::f64, {3, 0})},
                            {"t_s", scalar_of(DType::f64, 1)}});
  EXPECT_EQ(out.at("jvp_y").size(), 3u);
  std::string sum = "x[i]";
  constexpr int kTerms = 20000;
  for (int i = 1; i < kTerms; ++i) sum += "+x[i]";
  EXPECT_EQ(pushed(parse_op("op f(x: f64[N]) -> (y) { y[i] = " + sum + " }"),
                   {{"x", vector({1})}, {"t_x", vector({2})}}),
            2.0 * kTerms);
}

TEST(JvpValue, StopGradientCastsAndIntegers) {
  Program op = parse_op(
      "op f(x: f64[N]) -> (y, k) { y[i] = stop_gradient(x[i])*x[i] + f64(i64(x[i]))*f64(f32(x[i])) \n"
      "  k[i] = i64(x[i]) }");
  EXPECT_EQ(pushed(op, {{"x", vector({4.5})}, {"t_x", vector({2})}}), 2 * 8.5);
  EXPECT_EQ(jvp(op).outputs.size(), 3u);
}

// ---- calls and stated gradients ----

const std::string kSquare =
    "op sq(x: f64[N]) -> (y) { y[i] = x[i]^2 }\n"
    "grad sq(x, y, dy) -> (dx) { dx[i] = 10*dy[i]*x[i] }\n";

TEST(JvpCustom, AStatedGradientIsTransposed) {
  Module m = parse(kSquare + "op f(x: f64[N]) -> (y) { a[i] = 3*x[i]\n  b = sq(a)\n y[i] = b[i] + x[i] }");
  Arrays in{{"x", vector({2, 5})}, {"t_x", vector({1, 10})}};
  EXPECT_EQ(run(jvp(*m.find("sq")), in).at("jvp_y").reals, (std::vector<double>{20, 500}));
  Arrays out = run(jvp(*m.find("f")), in);
  EXPECT_EQ(out.at("y").reals, (std::vector<double>{38, 230}));
  EXPECT_EQ(out.at("jvp_y").reals, (std::vector<double>{181, 4510}));
}

TEST(JvpCustom, SeveralInputsAndResultsWithSums) {
  Program op = parse_op(R"(
    op dot(x: f64[N,K], w: f64[K], s: f64[N] const, n: i32) -> (y, z, m) {
      y[i] = sum(k: x[i,k]*w[k]) * s[i]
      z = sum(i: y[i])
      m = n + 1
    }
    grad dot(x, w, s, n, dy, dz) -> (dx, dw) {
      t[i] = (dy[i] + dz) * s[i]
      dx[i,k] = t[i]*w[k]
      dw[k] = sum(i: t[i]*x[i,k])
    }
    op f(x: f64[3,2], w: f64[2], s: f64[3]) -> (y, z) {
      n = i32(3)
      v[k] = w[k]^2
      (y, z, m) = dot(x, v, s, n)
    })");
  Program plain = parse_op(R"(
    op f(x: f64[3,2], w: f64[2], s: f64[3]) -> (y, z) {
      y[i] = sum(k: x[i,k]*w[k]^2) * stop_gradient(s[i])
      z = sum(i: y[i])
    })");
  std::mt19937_64 random(5);
  for (const JvpOptions& o : {JvpOptions{}, JvpOptions{{"w"}}, JvpOptions{{"x"}}, JvpOptions{{"s"}}}) {
    Program p = jvp(op, o), q = jvp(plain, o);
    Arrays in;
    for (TensorId t : p.inputs)
      in[p.tensor(t).name] = random_array(random, DType::f64, shape_of(p, t, {}), 0);
    Arrays got = run(p, in), wanted = run(q, in);
    for (const char* name : {"jvp_y", "jvp_z"})
      for (size_t i = 0; i < wanted.at(name).size(); ++i)
        EXPECT_NEAR(got.at(name).reals[i], wanted.at(name).reals[i], 1e-12) << print(p);
  }
}

TEST(JvpCustom, ARuleThatIsNotLinearIsAnError) {
  const std::string op = "op f(x: f64[N]) -> (y) { y[i] = x[i] }\n";
  for (const char* rule : {"clamp(dy[i], -1, 1)", "dy[i]^2", "dy[i]*abs(dy[i])"}) {
    Program p = parse_op(op + "grad f(x, dy) -> (dx) { dx[i] = " + rule + " }");
    std::string message = error_of([&] { jvp(p); });
    EXPECT_NE(message.find("op f has no forward derivative"), std::string::npos) << rule << " " << message;
    EXPECT_NE(message.find("not linear in the cotangent dy"), std::string::npos) << message;
  }
}

// The Jacobian's product by two reverse passes: d/du <J^T u, v>. A way there that shares no tangent with jvp.
TEST(JvpOracle, ReverseOverReverseGivesTheSame) {
  for (const char* text :
       {"op f(x: f64[N,M]) -> (y) { m[i] = max(j: x[i,j])\n y[i,j] = exp(x[i,j] - m[i]) / sum(k: exp(x[i,k] "
        "- m[i])) }",
        "op f(x: f64[N,M]) -> (y) { y[i,j] = x[N-1-i,j] * prod(k: x[i,k]) + sqrt(sum(l: x[l,j]^2)) }",
        "op f(x: f64[N,M]) -> (y) { y[i in 0..2*N] = sum(j: x[i/2,j] * (if i%2 == 0 then x[i/2,j] else 1)) "
        "}"}) {
    Program op = parse_op(text), g = gradient(op);
    Program twice = gradient(g, {{g.tensor(g.cotangents[0]).name}});
    Program j = jvp(op);
    std::mt19937_64 random(11);
    DimValues dims{{"N", 3}, {"M", 2}};
    Arrays in{{"x", random_array(random, DType::f64, {3, 2}, 0.1)}}, back = in;
    in["t_x"] = random_array(random, DType::f64, {3, 2}, 0);
    back["dy"] = random_array(random, DType::f64, shape_of(op, op.outputs[0], dims), 0);
    for (TensorId t : twice.cotangents)
      back[twice.tensor(t).name] = zeros(DType::f64, shape_of(twice, t, dims));
    back["dgrad_x"] = in["t_x"];
    Array wanted = run(twice, back).at("grad_dy"), got = run(j, in).at("jvp_y");
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got.reals[i], wanted.reals[i], 1e-12) << print(j);
  }
}

}  // namespace
}  // namespace xhat::jvp_test
