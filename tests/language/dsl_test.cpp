// The C++ DSL: it builds what the text builds, and says what is wrong.
#include "expr/dsl/dsl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "expr/core/program.h"
#include "expr/text/ast.h"
#include "tests/helpers/error_of.h"

// Outside of namespace xhat, as a user is: there, Op, Tensor and Dim are also the engine's own types.
namespace dsl_test {
namespace {

using namespace xhat::dsl;
namespace ast = xhat::ast;
using xhat::Error;
// The message, without the place in this file with which it may begin.
template <class F>
std::string error_of(F&& f) {
  const std::string said = xhat::testing::error_of(std::forward<F>(f)), here = "dsl_test.cpp:";
  const size_t at = said.find(here);
  return at == std::string::npos ? said : said.substr(said.find(": ", at) + 2);
}

// The op's text is `text`, and its Program the one that the text gives.
void expect_is(const Op& op, const std::string& text) {
  EXPECT_EQ(ast::print(*op.tree()), text);
  EXPECT_TRUE(equal(op.build(), xhat::parse_op(text, op.name()))) << print(op.build());
}

// Only the text: of trees that use what is no complete op.
std::string body(const Expr& e) {
  Tensor y("y");
  y() = e;
  Op op("f");
  op.output(y);
  std::string text = ast::print(*op.tree());
  size_t begin = text.find("y = ") + 4;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(DslTest, BatchNorm) {
  Op op("batch_norm");
  Dim N("N"), C("C"), H("H"), W("W");
  Axis n("n"), c("c"), h("h"), w("w");
  Tensor x = op.input("x", f32, {N, C, H, W});
  Tensor gamma = op.input("gamma", f32, {C}), beta = op.input("beta", f32, {C});
  Tensor mean("mean"), var("var"), y("y");
  mean(c) = sum({n, h, w}, x(n, c, h, w)) / (N * H * W);
  var(c) = sum({n, h, w}, pow(x(n, c, h, w) - mean(c), 2)) / (N * H * W);
  y(n, c, h, w) = gamma(c) * (x(n, c, h, w) - mean(c)) / sqrt(var(c) + 1e-5) + beta(c);
  op.output(y);
  Program program = op.build();
  EXPECT_EQ(program.inputs.size(), 3u);
  expect_is(op,
            "op batch_norm(x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]) -> (y) {\n"
            "  mean[c] = sum(n,h,w: x[n,c,h,w]) / (N * H * W)\n"
            "  var[c] = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N * H * W)\n"
            "  y[n,c,h,w] = gamma[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-05) + beta[c]\n"
            "}\n");
}

TEST(DslTest, Conv2d) {
  Op op("conv2d");
  Dim N("N"), C("C"), H("H"), W("W"), K("K");
  Axis n("n"), k("k"), c("c"), i("i"), j("j"), r("r"), s("s");
  Tensor x = op.input("x", f32, {N, C, H, W}), w = op.input("w", f32, {K, C, 3, 3}),
         b = op.input("b", f32, {K});
  Tensor y("y");
  y(n, k, in(i, 0, H), in(j, 0, W)) =
      relu(b(k) + sum({c, r, s}, x(n, c, i + r - 1, j + s - 1).otherwise(0) * w(k, c, r, s)));
  op.output(y);
  expect_is(op,
            "op conv2d(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {\n"
            "  y[n, k, i in 0..H, j in 0..W] = relu(b[k] + "
            "sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))\n"
            "}\n");
}

TEST(DslTest, EverythingElse) {
  Op op("f");
  Dim N("N"), D("D"), V("V"), half("HALF", (N + 1) / 2);
  Axis i("i"), k("k"), l("l"), d("d");
  Tensor x = op.input("x", f32, {N, D}), table = op.constant("table", f32, {V, 2 * D + 3});
  Tensor ids = op.input("ids", i32, {N}), scale = op.input("scale", f32);
  Tensor lower("lower"), row("row"), best("best"), loss("loss");
  lower(i) = sum({k, in(l, 0, k + 1)}, when(k <= l && x(i, k) != 0.5), x(i, k) * x(i, l));
  row(in(i, 0, half)) = select(i > 0, x(i - 1, 0), table(ids(i), 2 * i % 3)) * f32(i) + scale;
  best(i) = argmax({d}, max(x(i, d), -scale));
  loss() = sum({i}, lower(i)) + max({in(i, 0, half)}, row(i)) + sum({i}, f32(best(i)));
  op.output(loss);
  op.output(best);
  expect_is(op,
            "op f(x: f32[N,D], table: f32[V,2*D+3] const, ids: i32[N], scale: f32) -> (loss, best) {\n"
            "  dim HALF = (N + 1) / 2\n"
            "  lower[i] = sum(k, l in 0..k+1 if k <= l && x[i,k] != 0.5: x[i,k] * x[i,l])\n"
            "  row[i in 0..HALF] = (if i > 0 then x[i-1,0] else table[ids[i],2*i%3]) * f32(i) + scale\n"
            "  best[i] = argmax(d: max(x[i,d], -scale))\n"
            "  loss = sum(i: lower[i]) + max(i in 0..HALF: row[i]) + sum(i: f32(best[i]))\n"
            "}\n");
}

TEST(DslTest, LiteralsAndSigns) {
  Tensor s("s");
  s() = 1;
  EXPECT_EQ(body(s + 2), "s + 2");
  EXPECT_EQ(body(s + 2.0), "s + 2.0");
  EXPECT_EQ(body(s * 0.1f), "s * 0.1");
  EXPECT_EQ(body(s * -1.5e-20), "s * -1.5e-20");
  EXPECT_EQ(body(s + int64_t{-9'000'000'000}), "s + -9000000000");
  EXPECT_EQ(body(s + INFINITY - NAN), "s + inf - nan");
  EXPECT_EQ(body(s - 1e300), "s - 1e+300");
  EXPECT_EQ(body(select(true, s(), 1u)), "if true then s else 1");
  EXPECT_EQ(body(!(s < 1) || (s >= 2 && s == 3)), "!(s < 1) || s >= 2 && s == 3");
  EXPECT_EQ(body(boolean(s) != false), "bool(s) != false");
  EXPECT_EQ(body(pow(-s, 2) % 3), "(-s)^2 % 3");
  EXPECT_EQ(body(clamp(s, 0, 1) + random(7, 1) + min(s, 2)), "clamp(s, 0, 1) + random(7, 1) + min(s, 2)");
  Expr e = s;
  e += 1;
  e *= 2;
  e -= s;
  e /= 3;
  EXPECT_EQ(body(e), "((s + 1) * 2 - s) / 3");
}

TEST(DslTest, EveryFunctionOfTheTable) {
  Tensor s("s");
  s() = 1;
  const std::pair<Expr, const char*> rows[] = {
      {exp(s), "exp(s)"},
      {log(s), "log(s)"},
      {log1p(s), "log1p(s)"},
      {expm1(s), "expm1(s)"},
      {sqrt(s), "sqrt(s)"},
      {rsqrt(s), "rsqrt(s)"},
      {sin(s), "sin(s)"},
      {cos(s), "cos(s)"},
      {tan(s), "tan(s)"},
      {tanh(s), "tanh(s)"},
      {sigmoid(s), "sigmoid(s)"},
      {erf(s), "erf(s)"},
      {exp2(s), "exp2(s)"},
      {log2(s), "log2(s)"},
      {log10(s), "log10(s)"},
      {sinh(s), "sinh(s)"},
      {cosh(s), "cosh(s)"},
      {asin(s), "asin(s)"},
      {acos(s), "acos(s)"},
      {atan(s), "atan(s)"},
      {asinh(s), "asinh(s)"},
      {acosh(s), "acosh(s)"},
      {atanh(s), "atanh(s)"},
      {cbrt(s), "cbrt(s)"},
      {erfc(s), "erfc(s)"},
      {erfinv(s), "erfinv(s)"},
      {lgamma(s), "lgamma(s)"},
      {digamma(s), "digamma(s)"},
      {i0e(s), "i0e(s)"},
      {i1e(s), "i1e(s)"},
      {sinc(s), "sinc(s)"},
      {trunc(s), "trunc(s)"},
      {bit_not(s), "bit_not(s)"},
      {atan2(s, s), "atan2(s, s)"},
      {hypot(s, s), "hypot(s, s)"},
      {polygamma(s, s), "polygamma(s, s)"},
      {logaddexp(s, s), "logaddexp(s, s)"},
      {fmod(s, s), "fmod(s, s)"},
      {remainder(s, s), "remainder(s, s)"},
      {copysign(s, s), "copysign(s, s)"},
      {bit_and(s, s), "bit_and(s, s)"},
      {bit_or(s, s), "bit_or(s, s)"},
      {bit_xor(s, s), "bit_xor(s, s)"},
      {shift_left(s, s), "shift_left(s, s)"},
      {shift_right(s, s), "shift_right(s, s)"},
      {abs(s), "abs(s)"},
      {sign(s), "sign(s)"},
      {floor(s), "floor(s)"},
      {ceil(s), "ceil(s)"},
      {round(s), "round(s)"},
      {relu(s), "relu(s)"},
      {softplus(s), "softplus(s)"},
      {isnan(s), "isnan(s)"},
      {isfinite(s), "isfinite(s)"},
      {stop_gradient(s), "stop_gradient(s)"},
      {min(s, s), "min(s, s)"},
      {max(s, s), "max(s, s)"},
      {clamp(s, s, s), "clamp(s, s, s)"},
      {random(s, s), "random(s, s)"},
  };
  std::string spelled;
  for (const auto& [e, text] : rows) {
    EXPECT_EQ(body(e), text);
    spelled += std::string(text).substr(0, std::string(text).find('(')) + " ";
  }
  for (int op = 0; op <= static_cast<int>(xhat::Op::random); ++op) {
    const xhat::OpInfo& row = xhat::info(static_cast<xhat::Op>(op));
    if (row.syntax != xhat::Syntax::function) continue;
    EXPECT_NE((" " + spelled).find(" " + std::string(row.text) + " "), std::string::npos) << row.text;
  }
}

TEST(DslTest, Calls) {
  Dim N("N"), D("D");
  Axis n("n"), d("d"), k("k");
  Op softmax("softmax");
  {
    Tensor x = softmax.input("x", f32, {N, D}), m("m"), e("e"), y("y");
    m(n) = max({d}, x(n, d));
    e(n, d) = exp(x(n, d) - m(n));
    y(n, d) = e(n, d) / sum({k}, e(n, k));
    softmax.output(y);
    softmax.output(m);
  }
  Op op("twice");
  Tensor x = op.input("x", f32, {N, D}), z("z");
  Call first = call(softmax, {2 * x});
  Tensor p = first.result("p"), m = first.result("m");
  Call second = call(softmax, {p});
  Tensor q = second.result("q"), r = second.result("r");
  z(n, d) = q(n, d) * m(n) + r(n);
  op.output(z);
  expect_is(op,
            "op softmax(x: f32[N,D]) -> (y, m) {\n"
            "  m[n] = max(d: x[n,d])\n"
            "  e[n,d] = exp(x[n,d] - m[n])\n"
            "  y[n,d] = e[n,d] / sum(k: e[n,k])\n"
            "}\n\n"
            "op twice(x: f32[N,D]) -> (z) {\n"
            "  (p, m) = softmax(2 * x)\n"
            "  (q, r) = softmax(p)\n"
            "  z[n,d] = q[n,d] * m[n] + r[n]\n"
            "}\n");
}

TEST(DslTest, CustomGradient) {
  Op op("square");
  Dim N("N");
  Axis i("i");
  Tensor x = op.input("x", f32, {N}), y("y"), twice("twice"), dx("dx");
  y(i) = x(i) * x(i);
  op.output(y);
  Tensor dy = op.cotangent(y);
  twice(i) = 2 * x(i);
  dx(i) = twice(i) * dy(i);
  op.gradient(x, dx);
  expect_is(op,
            "op square(x: f32[N]) -> (y) {\n  y[i] = x[i] * x[i]\n}\n\n"
            "grad square(x, y, dy) -> (dx) {\n  twice[i] = 2 * x[i]\n  dx[i] = twice[i] * dy[i]\n}\n");
}

TEST(DslTest, HandlesOutliveTheirMakers) {
  Op op("f");
  Axis i("i");
  {
    Dim N("N");
    Tensor x = op.input("x", f32, {N});
    Tensor t("t"), y("y");
    Expr shared = x(i) + 1;
    t(i) = shared * shared;
    y(i) = t(i) + shared;
    op.output(y);
  }
  Op copy = op;
  EXPECT_EQ(ast::print(*copy.tree()),
            "op f(x: f32[N]) -> (y) {\n  t[i] = (x[i] + 1) * (x[i] + 1)\n  y[i] = t[i] + (x[i] + 1)\n}\n");
}

TEST(DslTest, LongChains) {
  Op op("f");
  Dim N("N");
  Axis i("i");
  Tensor x = op.input("x", f32, {N}), y("y");
  Expr e = x(i);
  for (int k = 0; k < 100'000; ++k) e += x(i);
  y(i) = e;
  op.output(y);
  e = Expr(0);
  auto tree = op.tree();
  EXPECT_EQ(tree->nodes.size(), 300'003u);  // 100,001 reads with their index, 100,000 signs, 1 extent
}

TEST(DslTest, LongChainsOfTensors) {
  Op op("f");
  Dim N("N");
  Axis i("i");
  Tensor last = op.input("x", f32, {N});
  for (int k = 0; k < 500; ++k) {
    Tensor next("t" + std::to_string(k));
    next(i) = last(i) + 1;
    last = next;
  }
  op.output(last);
  EXPECT_EQ(op.tree()->ops[0].body.statements.size(), 500u);
}

TEST(DslErrorTest, Names) {
  EXPECT_EQ(
      error_of([] { Axis("2x"); }),
      "an axis \"2x\" has no valid name; names are made of letters, digits and _, do not start with a digit, "
      "and are not if then else let in inf nan true false");
  EXPECT_NE(error_of([] { Tensor("in"); }), "no error");
  EXPECT_NE(error_of([] { Dim(""); }), "no error");
  EXPECT_EQ(error_of([] { Op("exp"); }), "exp is built in; give the op another name");
  EXPECT_EQ(error_of([] { function("softmax", {1}); }),
            "softmax is no function of the language; ops are called by call()");
}

TEST(DslErrorTest, Definitions) {
  Op op("f"), other("g");
  Dim N("N");
  Axis i("i");
  Tensor x = op.input("x", f32, {N}), y("y"), z("z"), twin("y");
  EXPECT_EQ(error_of([&] { x(i) = 1; }),
            "x is an input already and cannot be defined (again); use a new tensor");
  EXPECT_EQ(error_of([&] { y(i) = 2 * y(i); }),
            "y is defined by itself: its definition reads y, or a tensor that does");
  EXPECT_EQ(error_of([&] { y(i + 1) = x(i); }),
            "the left side of the definition of y takes axes only, as in y(i, in(j, 0, N)) = …");
  EXPECT_EQ(error_of([&] { Expr e = x(in(i, 0, N)); }),
            "a range stands in a read of x; in(…) belongs to definitions and reductions");
  z(i) = y(i) + x(i);
  EXPECT_EQ(error_of([&] { y(in(i, 0, z())) = 1; }),
            "y is defined by itself: its definition reads y, or a tensor that does");
  EXPECT_EQ(error_of([&] { y(i) = z(i); }),
            "y is defined by itself: its definition reads y, or a tensor that does");
  EXPECT_EQ(error_of([&] { op.tree(); }), "op f has no output yet; name it with output(…)");
  op.output(z);
  EXPECT_EQ(error_of([&] { op.tree(); }), "op f needs y, which has no definition; write y(…) = …");
  y(i) = x(i);
  EXPECT_EQ(error_of([&] { op.tree(); }), "no error");
  EXPECT_EQ(error_of([&] { y(i) = x(i); }),
            "y is defined already and cannot be defined (again); use a new tensor");
  other.output(z);
  EXPECT_EQ(error_of([&] { other.tree(); }), "op g needs x, which is an input of another op");
  twin(i) = z(i);
  op.output(twin);
  EXPECT_EQ(error_of([&] { op.tree(); }), "op f has two tensors named y");
}

TEST(DslErrorTest, SharingThatExplodes) {
  Tensor s("s"), y("y");
  s() = 1;
  Expr e = s;
  for (int k = 0; k < 60; ++k) e = e * e;
  y() = e;
  Op op("f");
  op.output(y);
  EXPECT_EQ(error_of([&] { op.tree(); }),
            "an expression of op f is too large once its shared parts are written out; give these tensors of "
            "their own");
}

int line_of(const std::string& what, const char* file) {
  const size_t at = what.find(std::string(file) + ":");
  return at == std::string::npos ? 0 : std::atoi(what.c_str() + at + std::string(file).size() + 1);
}

// The definition as text with a caret, behind the line of this file where it stands.
TEST(DslTest, ErrorsNameTheLineOfTheSource) {
  Dim N("N");
  Axis i("i"), j("j");
  Op op("f");
  Tensor x = op.input("x", f32, {N}), good("good"), bad("bad"), sum_of("sum_of");
  good(i) = x(i) * 2;
  const int line = __LINE__ + 1;
  bad(i) = good(i + 1);
  sum_of() = sum({j}, bad(j));
  op.output(sum_of);
  try {
    op.build();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(line_of(e.what(), "dsl_test.cpp"), line) << e.what();
    EXPECT_NE(std::string(e.what()).find("  bad[i] = good[i+1]\n"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(": error: op f, definition of bad: axis i has no range"), std::string::npos) << e.what();
  }
  try {
    const int again = __LINE__ + 1;
    EXPECT_EQ(line_of(xhat::testing::error_of([&] { x(i) = good(i); }), "dsl_test.cpp"), again);
    Access named = x(i);
    EXPECT_EQ(line_of(xhat::testing::error_of([&] { named = good(i); }), "dsl_test.cpp"), 0);  // C++ says nothing of copies
  } catch (const Error& e) {
    FAIL() << e.what();
  }
}

TEST(DslTest, SeveralErrorsNameTheirLines) {
  Dim N("N");
  Axis i("i");
  Op op("f");
  Tensor x = op.input("x", f32, {N}), ids = op.input("ids", i32, {N}), a("a"), b("b");
  const int line = __LINE__ + 1;
  a(i) = x(i + 1);
  b(i) = x(i) * ids(i);
  op.output(a);
  op.output(b);
  try {
    op.build();
    FAIL();
  } catch (const Error& e) {
    const std::string said = e.what();
    EXPECT_EQ(line_of(said, "dsl_test.cpp"), line) << said;
    EXPECT_EQ(line_of(said.substr(said.rfind("dsl_test.cpp")), "dsl_test.cpp"), line + 1) << said;
  }
}

// A dim with a definition, and a gradient that is stated.
TEST(DslTest, ErrorsOfDimsAndGradientsNameTheirLines) {
  Dim N("N");
  Axis i("i");
  Op op("f");
  Tensor x = op.input("x", f32, {N}), y("y"), dx("dx");
  y(i) = x(i);
  op.output(y);
  Tensor dy = op.cotangent(y);
  const int line = __LINE__ + 1;
  dx(i) = dy(i + 1);
  op.gradient(x, dx);
  try {
    op.build();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(line_of(e.what(), "dsl_test.cpp"), line) << e.what();
  }
}

// An error says in which definition of which op it is.
TEST(DslTest, ErrorsNameTheDefinition) {
  Dim N("N"), M("M");
  Axis i("i"), j("j");
  auto op_with = [&](const std::function<void(Op&, Tensor&, Tensor&)>& statements) {
    return error_of([&] {
      Op op("f");
      Tensor x = op.input("x", f32, {N}), ids = op.input("ids", i32, {N});
      statements(op, x, ids);
      op.build();
    });
  };
  auto starts = [](const std::string& text, const std::string& with) { return text.substr(0, with.size()) == with; };
  std::string said = op_with([&](Op& op, Tensor& x, Tensor&) {
    Tensor good("good"), bad("bad");
    good(i) = x(i) * 2;
    bad(i) = good(i + 1);
    op.output(bad);
  });
  EXPECT_TRUE(starts(said, "op f, definition of bad: axis i has no range")) << said;
  said = op_with([&](Op& op, Tensor& x, Tensor& ids) {
    Tensor y("y"), z("z");
    y(i) = x(i) * ids(i);
    z(i) = y(i);
    op.output(z);
  });
  EXPECT_TRUE(starts(said, "op f, definition of y: f32 beside i32")) << said;
  said = op_with([&](Op& op, Tensor& x, Tensor&) {
    Tensor y("y");
    y(in(i, 0, N + 1)) = x(i);
    op.output(y);
  });
  EXPECT_TRUE(starts(said, "op f, definition of y: x[i] can fall outside")) << said;
  said = op_with([&](Op& op, Tensor& x, Tensor&) {
    Dim half("HALF", N * 0.5);
    Tensor y("y");
    y(in(i, 0, half)) = x(i);
    op.output(y);
  });
  EXPECT_TRUE(starts(said, "op f, dim HALF: ")) << said;
  said = op_with([&](Op& op, Tensor& x, Tensor&) {
    Tensor z = op.input("z", f32, {M * N}), y("y");
    y(i) = x(i);
    op.output(y);
  });
  EXPECT_TRUE(starts(said, "op f: extent M * N of z is not affine")) << said;
  said = op_with([&](Op& op, Tensor& x, Tensor&) {
    Tensor y("y"), dx("dx");
    y(i) = x(i) * x(i);
    Tensor dy = op.cotangent(y);
    dx(i) = dy(i + 1);
    op.output(y);
    op.gradient(x, dx);
  });
  EXPECT_TRUE(starts(said, "op f, its gradient: definition of dx: axis i has no range")) << said;
}

}  // namespace
}  // namespace dsl_test
