// Several mistakes in one run, lines that go on, and what is allowed but hardly meant.
#include <gtest/gtest.h>

#include "expr/text/errors.h"
#include "expr/text/warnings.h"
#include "tests/helpers/error_of.h"

namespace xhat::warnings_test {
namespace {

using testing::error_of;

std::vector<std::string> errors_of(const std::string& text) {
  std::vector<std::string> said;
  try {
    parse(text, "f.xh");
  } catch (const Error& e) {
    for (const Error& one : all_of(e)) said.push_back(place(one.pos()) + " " + one.message().substr(0, one.message().find(';')));
    EXPECT_EQ(e.message(), all_of(e)[0].message());
    for (const Error& one : all_of(e)) EXPECT_NE(std::string(e.what()).find(one.message()), std::string::npos) << e.what();
  }
  return said;
}

std::vector<std::string> warnings(const std::string& text) {
  const Module module = parse(text);
  std::vector<std::string> said;
  for (const Warning& w : warnings_of(*ast::parse(text), *module.ops.back())) said.push_back(place(w.pos) + " " + w.message);
  return said;
}

using Lines = std::vector<std::string>;

TEST(SeveralErrors, OfOneOp) {
  EXPECT_EQ(
      errors_of(
          "op f(x: f32[N], k: i32[N]) -> (d) {\n  a[i] = x[i+1]\n  b[i] = x[i] * k[i]\n  c[i] = a[i] + b[i] + z\n  d[i] = x[i] + q\n}"),
      (Lines{"2:5 axis i has no range: it stands alone in no index", "3:15 f32 beside i32 in *",
             "5:17 q is not a tensor, dim or axis in scope"}));
}

// What reads a definition that is wrong is not looked at, nor what calls an op that is.
TEST(SeveralErrors, OfSeveralOps) {
  EXPECT_EQ(errors_of("op f(x: f32[N]) -> (y) { y[i] = x[i+1] }\n"
                      "op g(x: f32[N]) -> (y) { y = f(x) }\n"
                      "op h(x: f32[N]) -> (y) { y[i] = x[i] + u }"),
            (Lines{"1:28 axis i has no range: it stands alone in no index", "3:40 u is not a tensor, dim or axis in scope"}));
}

TEST(SeveralErrors, AreNotWithoutEnd) {
  std::string text = "op f(x: f32[N]) -> (y) {\n";
  for (int k = 0; k < 20; ++k) text += "  t" + std::to_string(k) + "[i] = x[i+1]\n";
  EXPECT_EQ(errors_of(text + "  y = 1\n}").size(), kMaxErrors);
}

TEST(SeveralErrors, OneIsAsItWas) {
  try {
    parse("op f(x: f32[N]) -> (y) { y[i] = x[i+1] }", "f.xh");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(dynamic_cast<const Errors*>(&e), nullptr);
    EXPECT_EQ(std::string(e.what()).substr(0, 17), "f.xh:1:28: error:");
  }
}

TEST(SwappedIndices, AreNamed) {
  auto said = [](const std::string& body) {
    return error_of([&] { parse("op f(x: f32[N,D], z: f32[N,D], t: f32[K,N,D]) -> (y) { " + body + " }"); });
  };
  for (const auto& [body, advice] : {std::pair{"y[n,d] = x[n,d] + z[d,n]", "z[n,d]"}, std::pair{"y[n,d] = x[d,n] * 2 + z[n,d]", "x[n,d]"},
                                     std::pair{"y = sum(k, n, d: t[k,d,n] * x[n,d])", "t[k,n,d]"},
                                     std::pair{"y[i,j] = x[j,i] * 2 + z[i,j]", "z[j,i]"}})  // names say nothing
    EXPECT_TRUE(said(body).ends_with(std::string("did you mean ") + advice + "?")) << said(body);
  EXPECT_TRUE(said("y[n,d] = x[n,d] + z[n,n]").find("did you mean") == std::string::npos) << said("y[n,d] = x[n,d] + z[n,n]");
}

TEST(LinesGoOn, BesideSignsThenAndElse) {
  const std::string plain = "op f(x: f32[N]) -> (y, z) {\n  y[i] = if x[i] > 0 then x[i] else -x[i]\n  z[i] = let a = x[i] in a * a + 1\n}";
  const std::string broken =
      "op f(x: f32[N]) -> (y, z) {\n  y[i] =\n    if x[i] > 0\n    then x[i]\n\n    else  # else\n      -x[i]\n  z[i] = let a = x[i]\n    "
      "in\n a *\n a +\n 1\n}";
  EXPECT_TRUE(equal(parse_op(plain), parse_op(broken)));
  const std::string program = "prog p(x: f32) -> (y) {\n  var y = x\n  if x > 0 {\n    y = 1\n  }\n  else {\n    y = 2\n  }\n}";
  EXPECT_EQ(error_of([&] { parse_op(program); }), "no error");
  EXPECT_TRUE(equal(parse_op("op f(x: f32[N]) -> (y, z) {\n y[i] = x[i]\n\n   - 1  # less\n   + exp(x[i])\n z[i] = -x[i]\n}"),
                    parse_op("op f(x: f32[N]) -> (y, z) { y[i] = x[i] - 1 + exp(x[i]); z[i] = -x[i] }")));
  EXPECT_NE(error_of([&] { parse_op("op f(x: f32[N]) -> (y) {\n y[i] = x[i];\n + 1\n}"); }), "no error");
  EXPECT_NE(error_of([&] { parse_op("op f(x: f32[N]) -> (y) {\n + x[i]\n}"); }), "no error");
  EXPECT_NE(error_of([&] { parse_op("op f(x: f32[N]) -> (y) {\n y[i] = if x[i] > 0 then 1; else 2\n}"); }), "no error");
}

TEST(Warnings, InputsThatNothingReads) {
  EXPECT_EQ(warnings("op f(x: f32[N], w: f32[N]) -> (y) { y[i] = x[i] }"), Lines{"1:17 input w is never read"});
  EXPECT_EQ(warnings("op f(x: f32[N], w: f32[N]) -> (y) { y[i] = x[i] }\ngrad f(x, w, dy) -> (dx, dw) { dx[i] = dy[i]\n dw[i] = w[i] }"),
            Lines{});
  EXPECT_EQ(warnings("prog p(x: f32[N], n: i32) -> (y) { var y = x + 1 }"), Lines{"1:19 input n is never read"});
  EXPECT_EQ(warnings("prog p(x: inout f32[N]) -> (y) { var y = 2 }").size(), 0U);
}

TEST(Warnings, InoutParametersWhoseNameGoesToOtherStorage) {
  const std::string said = " u is bound to new storage here, and u_out is what the old one holds; to write that, assign to the view u[:]";
  auto in_body = [](const std::string& body) { return warnings("prog p(u: inout f32[N,M], x: f32[M]) -> () {\n  x1 = x\n" + body + "\n}"); };
  EXPECT_EQ(in_body("  u = 2 * u"), Lines{"3:3" + said});
  EXPECT_EQ(in_body("  for t in 0..3 { u[i,j] = u[i,j] * 2 }"), Lines{"3:19" + said});
  EXPECT_EQ(in_body("  u[:] = 2 * u"), Lines{});
  EXPECT_EQ(in_body("  u *= 2"), Lines{});
  EXPECT_EQ(in_body("  for i in 0..N { u[i] = x1 }"), Lines{});
  EXPECT_EQ(in_body("  for i in 0..N { u[i,j] = x[j] }"), Lines{});
  EXPECT_EQ(in_body("  for i in 0..N { for j in 0..M { u[i,j] = 1 } }"), Lines{});
}

TEST(Warnings, DefinitionsThatNoOutputNeeds) {
  EXPECT_EQ(warnings("op f(x: f32[N]) -> (y) {\n  a[i] = x[i] * 2\n  b[i] = a[i] + 1\n  y[i] = x[i]\n}"),
            Lines{"3:3 no output needs b; it is not computed"});
}

TEST(Warnings, QuotientsThatAreAlwaysZero) {
  const std::string head = "op f(x: f32[N,D]) -> (y) { ";
  auto of = [&](const std::string& body) { return warnings(head + body + " }"); };
  EXPECT_EQ(of("y[n,d] = x[n,d] * f32(n/N)"), Lines{"1:28 f32(n/N) is always 0, since integers divide with floor; write f32(n)/N"});
  EXPECT_EQ(of("y[n,d] = x[n,d] * f32((n*D + d)/(N*D))").size(), 1U);
  EXPECT_EQ(of("y[n] = sum(d: x[n,d] * f64(d/D))").size(), 1U);
  EXPECT_EQ(of("y[n,d] = x[n,d] * f32(n/2)").size(), 0U);
  EXPECT_EQ(of("y[n,d] = x[n,d] * f32((n+1)/N)").size(), 0U);
  EXPECT_EQ(of("y[n,d] = x[n,d] * f32(n)/N").size(), 0U);
  EXPECT_EQ(of("y[n in 0..N, d] = x[n/2,d]").size(), 0U);
}

}  // namespace
}  // namespace xhat::warnings_test
