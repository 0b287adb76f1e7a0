// The text syntax: how texts are understood.
#include <gtest/gtest.h>

#include "expr/core/syntax.h"
#include "expr/text/ast.h"
#include "tests/helpers/ast_helpers.h"

namespace xhat::ast::parse_test {
namespace {

TEST(ParseTest, Precedence) {
  const std::pair<const char*, const char*> rows[] = {
      {"a || b && c == d + e * -f^g", "(a||(b&&(c==(d+(e*(-(f^g)))))))"},
      {"a^b * c + d == e && f || g", "((((((a^b)*c)+d)==e)&&f)||g)"},
      {"-x^2", "(-(x^2))"},
      {"(-x)^2", "((-x)^2)"},
      {"2^-1", "(2^(-1))"},
      {"2^-x^2", "(2^(-(x^2)))"},
      {"2^-1*3", "((2^(-1))*3)"},
      {"a^b^c", "(a^(b^c))"},
      {"(a^b)^c", "((a^b)^c)"},
      {"a - b - c", "((a-b)-c)"},
      {"a - (b - c)", "(a-(b-c))"},
      {"a / b * c % d", "(((a/b)*c)%d)"},
      {"a && b && c", "((a&&b)&&c)"},
      {"!a == b", "((!a)==b)"},
      {"!!a && - -b < c", "((!(!a))&&((-(-b))<c))"},
      {"a - -b", "(a-(-b))"},
      {"(a < b) == c", "((a<b)==c)"},
      {"if a || b then c else d + e", "(if (a||b) then c else (d+e))"},
      {"if a then if b then c else d else e", "(if a then (if b then c else d) else e)"},
      {"if if a then b else c then d else e", "(if (if a then b else c) then d else e)"},
      {"if a then b else if c then d else e", "(if a then b else (if c then d else e))"},
      {"1 + (if a then b else c) * 2", "(1+((if a then b else c)*2))"},
      {"1 + if a then b else c * 2", "(1+(if a then b else (c*2)))"},
      {"let a = b + 1 in let c = a in a * c", "(let a=(b+1) in (let c=a in (a*c)))"},
      {"let a = let b = 1 in b in a", "(let a=(let b=1 in b) in a)"},
      {"let a = if b then c else d in a", "(let a=(if b then c else d) in a)"},
      {"1.5e-3 * inf + nan", "((1.5e-3*inf)+nan)"},
      {"true && false", "(true&&false)"},
      {"f32(i) + bool(x[i])", "(f32(i)+bool(x[i]))"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(grouped(text), want) << text;
}

TEST(ParseTest, ReductionsAndReads) {
  const std::pair<const char*, const char*> rows[] = {
      {"max(a, b)", "max(a,b)"},
      {"max(k: x[k])", "max{k }x[k]"},
      {"max(a, max(k: x[k]))", "max(a,max{k }x[k])"},
      {"max(max(k: x[k]), b)", "max(max{k }x[k],b)"},
      {"sum(k, l in 0..k+1 if k <= l && a: x[k] * 2)", "sum{k l<0..(k+1)> if ((k<=l)&&a)}(x[k]*2)"},
      {"sum(k if c: if d then 1 else 2)", "sum{k if c}(if d then 1 else 2)"},
      {"sum(k in 0..if c then 1 else 2 if d: 3)", "sum{k<0..(if c then 1 else 2)> if d}3"},
      {"sum(i in 2*a..N-1, j in 0..3: 1)", "sum{i<(2*a)..(N-1)> j<0..3> }1"},
      {"mean(k: x[k])", "mean{k }x[k]"},
      {"x[i+r-1,j else 0]", "x[((i+r)-1),j else 0]"},
      {"x[if c then i else j else 7]", "x[(if c then i else j) else 7]"},
      {"x[y[i else 1] else 2]", "x[y[i else 1] else 2]"},
      {"table[ids[b,l], d]", "table[ids[b,l],d]"},
      {"sum + max[i] + mean + exp", "(((sum+max[i])+mean)+exp)"},
      {"op[i] + grad + dim + backward + const + prog", "(((((op[i]+grad)+dim)+backward)+const)+prog)"},
      {"clamp(x[i], 0, N-1)", "clamp(x[i],0,(N-1))"},
      {"(\n a\n + b\n )", "(a+b)"},
      {"f(\n a, # one\n b # two\n )", "f(a,b)"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(grouped(text), want) << text;
}

TEST(ParseTest, StatementKinds) {
  auto file = parse(
      "op f(x: f32[N,2*C+1], ids: i32[B] const, s: f32) -> (y, z) {\n"
      "  dim OH = (H + 2 - 3)/2 + 1; a = exp(s)\n"
      "  b = softmax(x)\n"
      "  (c, d) = g(x, 2*z)\n"
      "  (e) = g(x)\n"
      "  y[i, j in 0..OH] = softmax(x)\n"
      "  dim = 3; op = 4; grad[i] = 5; backward = sum(i: x[i]); h = pow(a, b); z = f32(1)\n"
      "}");
  const Block& block = file->ops[0].body;
  ASSERT_EQ(block.parameters.size(), 3u);
  EXPECT_EQ(block.parameters[0].extents.size(), 2u);
  EXPECT_EQ(block.parameters[1].type, DType::i32);
  EXPECT_TRUE(block.parameters[1].constant);
  EXPECT_FALSE(block.parameters[2].constant);
  EXPECT_TRUE(block.parameters[2].extents.empty());
  std::string kinds;
  for (const Statement& s : block.statements) {
    kinds += s.kind == Statement::Kind::dim ? 'd' : s.kind == Statement::Kind::call ? 'c' : '=';
  }
  EXPECT_EQ(kinds, "d=ccc=======");
  EXPECT_EQ(block.statements[3].targets.size(), 2u);
  EXPECT_EQ(block.statements[5].axes.size(), 2u);
  EXPECT_EQ(block.statements[5].axes[1].name, "j");
  EXPECT_EQ(block.statements[0].pos.line, 2);
  EXPECT_EQ(block.statements[0].pos.column, 7);
  EXPECT_EQ(block.statements[1].pos.column, 31);
}

TEST(ParseTest, GradAndBackward) {
  auto file = parse(
      "op f(x: f32[N]) -> (y) { y[i] = x[i] }\n"
      "backward (dy: f32[N]) -> (grad_x) { grad_x[i] = dy[i] }\n"
      "grad f(x, y, dy: f32[N]) -> (dx) {\n  dx[i] = dy[i]\n}\n");
  ASSERT_EQ(file->ops.size(), 2u);
  ASSERT_TRUE(file->ops[0].backward.has_value());
  EXPECT_EQ(file->ops[0].backward->parameters[0].name, "dy");
  EXPECT_EQ(file->ops[1].kind, Op::Kind::grad);
  EXPECT_FALSE(file->ops[1].body.parameters[0].typed);
  EXPECT_TRUE(file->ops[1].body.parameters[2].typed);
  expect_round_trip(print(*file));
}

TEST(ParseTest, NodePositions) {
  auto file = parse("op f() -> (y) {\n\ty = a + x[i] * -b\n}");
  auto at = [&](Kind kind, const std::string& text) {
    for (const Node& n : file->nodes) {
      if (n.kind == kind && n.text == text)
        return std::to_string(n.pos.line) + ":" + std::to_string(n.pos.column);
    }
    return std::string("none");
  };
  EXPECT_EQ(at(Kind::name, "a"), "2:6");
  EXPECT_EQ(at(Kind::binary, "+"), "2:8");
  EXPECT_EQ(at(Kind::read, "x"), "2:10");
  EXPECT_EQ(at(Kind::binary, "*"), "2:15");
  EXPECT_EQ(at(Kind::unary, "-"), "2:17");
}

TEST(ParseTest, WindowsLinesAndByteOrderMark) {
  auto file = parse("\xEF\xBB\xBFop f() -> (y) {\r\n  # comment\r\n  y = 1\r\n}\r\n");
  EXPECT_EQ(file->ops[0].pos.column, 4);
  EXPECT_EQ(print(*file, true), "op f() -> (y) {\n  # comment\n  y = 1\n}\n");
}

TEST(SyntaxTest, BuiltInNames) {
  for (const char* name : {"exp", "clamp", "stop_gradient", "random", "max", "pow", "f32", "bool"}) {
    EXPECT_TRUE(is_function_name(name)) << name;
  }
  for (const char* name : {"sum", "mean", "softmax", "+", "", "x"})
    EXPECT_FALSE(is_function_name(name)) << name;
  for (const char* name : {"", "2a", "if", "a b", "a-b", "\xCE\xBB"})
    EXPECT_FALSE(is_valid_name(name)) << name;
  for (const char* name : {"a", "_", "x2", "op", "sum", "f32"}) EXPECT_TRUE(is_valid_name(name)) << name;
}

}  // namespace
}  // namespace xhat::ast::parse_test
