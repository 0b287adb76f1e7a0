// Canonical text, and that printing and parsing are each other's inverse.
#include <gtest/gtest.h>

#include "expr/core/syntax.h"
#include "expr/text/ast.h"
#include "tests/helpers/ast_helpers.h"

namespace xhat::ast::ast_print_test {
namespace {

constexpr const char* kContractCanonical = R"(# BatchNorm, training mode
op batch_norm(x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]) -> (y) {
  mean[c] = sum(n,h,w: x[n,c,h,w]) / (N * H * W)
  var[c] = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N * H * W)
  y[n,c,h,w] = gamma[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-5) + beta[c]
}

op softmax(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d])
  e[n,d] = exp(x[n,d] - m[n])
  y[n,d] = e[n,d] / sum(k: e[n,k])
}

op conv2d(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
  y[n, k, i in 0..H, j in 0..W] = relu(b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))
}

op attention(q: f32[B,S,D], k: f32[B,T,D], v: f32[B,T,D]) -> (o) {
  s[b,i,j] = sum(d: q[b,i,d] * k[b,j,d]) / sqrt(f32(D))
  m[b,i] = max(j: s[b,i,j])
  p[b,i,j] = exp(s[b,i,j] - m[b,i])
  o[b,i,d] = sum(j: p[b,i,j] * v[b,j,d]) / sum(j: p[b,i,j])
}

op embedding_bag(table: f32[V,D], ids: i32[B,L]) -> (y) {
  y[b,d] = sum(l: table[ids[b,l],d])
}

op chained_matmul(A: f32[8,8], B: f32[8,8], D: f32[8,8]) -> (E) {
  C[i,j] = sum(k: A[i,k] * B[j,k])
  E[i,j] = sum(k: C[i,k] * D[j,k])
}
)";

TEST(PrintTest, ContractExamples) {
  EXPECT_EQ(print(*parse(kContract), true), kContractCanonical);
  expect_round_trip(kContract);
}

TEST(PrintTest, FewestParentheses) {
  // Canonical already: printing gives the same text, so every parenthesis here is needed and none is missing.
  const char* rows[] = {
      "a + b - c",
      "a - (b - c)",
      "a - (b + c)",
      "a * (b / c)",
      "a / b * c % d",
      "-x^2",
      "(-x)^2",
      "2^-1",
      "2^-x^2 * 3",
      "(2^-1)^3",
      "-(a * b) * -c",
      "--a",
      "!(a == b) && c || d",
      "(a || b) && c",
      "a || b || c",
      "a || (b || c)",
      "(a < b) == (c < d)",
      "(if a then b else c) + 1",
      "1 + (if a then b else c)",
      "if if a then b else c then let d = 1 in d else e",
      "(let a = 1 in a) * 2",
      "exp(if a then b else c)",
      "x[i+1,2*(i-1)/3,-i,ids[b,l] else 1+2]",
      "x[if i>0 then i-1 else 0]",
      "x[clamp(i,0,N-1)]",
      "sum(k, l in k+1..2*(N-1) if k <= l && a: x[k] + 1)",
      "max(a, min(b, c + 1))",
      "sum(k,l: x[k,l])",
  };
  for (const char* text : rows) {
    auto file = parse_body(text);
    EXPECT_EQ(print(*file, body_of(*file)), text);
    expect_round_trip(print(*file));
  }
}

TEST(PrintTest, NegativeNumberFromAPass) {
  File file;
  Ref minus = file.add({Kind::number, {}, "-2", {}, {}});
  Ref x = file.add({Kind::name, {}, "x", {}, {}});
  EXPECT_EQ(print(file, file.add({Kind::binary, {}, "^", {minus, x}, {}})), "(-2)^x");
  EXPECT_EQ(print(file, file.add({Kind::binary, {}, "-", {x, minus}, {}})), "x - -2");
}

TEST(PrintTest, RandomExpressionsRoundTrip) {
  uint32_t state = 12345;
  auto draw = [&](uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
  };
  const char* signs[] = {"+", "-", "*", "/", "%", "^", "==", "<", ">=", "&&", "||"};
  for (int round = 0; round < 400; ++round) {
    File file;
    std::vector<Ref> open;
    for (int i = 0; i < 12; ++i)
      open.push_back(file.add({draw(2) ? Kind::name : Kind::number, {}, "", {}, {}}));
    for (Ref leaf : open) file.nodes[leaf].text = file.nodes[leaf].kind == Kind::name ? "v" : "7";
    auto pick = [&] {
      size_t at = draw(static_cast<uint32_t>(open.size()));
      Ref ref = open[at];
      open.erase(open.begin() + static_cast<long>(at));
      return ref;
    };
    while (open.size() > 1) {
      Node n{Kind::binary, {}, "", {}, {}};
      uint32_t kind = open.size() > 3 ? draw(14) : draw(8);
      if (kind < 8) n.text = signs[draw(11)], n.args = {pick(), pick()};
      if (kind == 8) n.kind = Kind::unary, n.text = draw(2) ? "-" : "!", n.args = {pick()};
      if (kind == 9) n.kind = Kind::choose, n.args = {pick(), pick(), pick()};
      if (kind == 10) n.kind = Kind::let, n.text = "t", n.args = {pick(), pick()};
      if (kind == 11) n.kind = Kind::read, n.text = "x", n.args = {pick(), pick()}, n.otherwise = pick();
      if (kind == 12) n.kind = Kind::call, n.text = "max", n.args = {pick(), pick()};
      if (kind == 13) {
        n.kind = Kind::reduce, n.text = "sum";
        n.axes = {{"k", pick(), pick(), {}}};
        if (draw(2)) n.condition = pick();
        n.args = {pick()};
      }
      open.push_back(file.add(std::move(n)));
    }
    std::string text = print(file, open[0]);
    auto again = parse_body(text);
    EXPECT_EQ(grouped(*again, body_of(*again)), grouped(file, open[0])) << text << " in round " << round;
  }
}

std::string formatted(const std::string& text) {
  std::string once = print(*parse(text), true);
  EXPECT_EQ(print(*parse(once), true), once) << "fmt is not idempotent";
  return once;
}

TEST(FmtTest, KeepsComments) {
  EXPECT_EQ(formatted("# file\n\n# before\n"
                      "op f(x: f32[N], # eol in head\n    # own in head\n    s: f32) -> (y) { # open\n\n"
                      "  # first\n\n\n"
                      "  a = 1; b = 2 # both\n\n"
                      "  # second   \n"
                      "  y[i] = (x[i] # part\n"
                      "    # inside\n"
                      "    + b) # end\n\n"
                      "  # last\n\n"
                      "} # closed\n"
                      "# between\n"
                      "op g() -> (y) { y = 1 } # one line\n"
                      "# the end"),
            "# file\n\n# before\n"
            "op f(x: f32[N], s: f32) -> (y) {  # eol in head  # open\n"
            "  # own in head\n\n"
            "  # first\n\n"
            "  a = 1\n"
            "  b = 2  # both\n\n"
            "  # second\n"
            "  y[i] = x[i] + b  # part  # end\n"
            "  # inside\n\n"
            "  # last\n"
            "}  # closed\n\n"
            "# between\n"
            "op g() -> (y) {\n  y = 1\n}  # one line\n\n"
            "# the end\n");
}

TEST(FmtTest, BackwardAndGrad) {
  EXPECT_EQ(
      formatted("op f(x: f32) -> (y) { y = x\n # a\n} # b\n # c\n backward (dy: f32) -> (grad_x) { # d\n"
                "grad_x = dy # e\n}\n\n\n\n# g\ngrad f(x,y,dy)->(dx){dx=dy}\n"),
      "op f(x: f32) -> (y) {\n  y = x\n  # a\n} backward (dy: f32) -> (grad_x) {  # b  # d\n  # c\n"
      "  grad_x = dy  # e\n}\n\n# g\ngrad f(x, y, dy) -> (dx) {\n  dx = dy\n}\n");
}

}  // namespace
}  // namespace xhat::ast::ast_print_test
