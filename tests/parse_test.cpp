// The text syntax: what the parser reads, what the printer writes, and that each is the other's inverse.
#include <gtest/gtest.h>

#include <vector>

#include "expr/ast.h"
#include "expr/syntax.h"

namespace xhat::ast {
namespace {

std::shared_ptr<File> parse_body(const std::string& expression) {
  return parse("op f(x: f32[N]) -> (y) { y = " + expression + " }");
}
Ref body_of(const File& file) { return file.ops[0].body.statements[0].body; }

// Every operation in parentheses, so that a test shows how the text was understood.
std::string grouped(const File& file, Ref ref) {
  const Node& n = file.nodes[ref];
  auto g = [&](size_t i) { return grouped(file, n.args[i]); };
  switch (n.kind) {
    case Kind::unary: return "(" + n.text + g(0) + ")";
    case Kind::binary: return "(" + g(0) + n.text + g(1) + ")";
    case Kind::choose: return "(if " + g(0) + " then " + g(1) + " else " + g(2) + ")";
    case Kind::let: return "(let " + n.text + "=" + g(0) + " in " + g(1) + ")";
    case Kind::reduce: {
      std::string axes;
      for (const Axis& axis : n.axes) {
        axes += axis.name;
        if (axis.begin != kAbsent) axes += "<" + grouped(file, axis.begin) + ".." + grouped(file, axis.end) + ">";
        axes += " ";
      }
      if (n.condition != kAbsent) axes += "if " + grouped(file, n.condition);
      return n.text + "{" + axes + "}" + g(0);
    }
    case Kind::read:
    case Kind::call: {
      std::string text = n.text + (n.kind == Kind::read ? "[" : "(");
      for (size_t i = 0; i < n.args.size(); ++i) text += (i ? "," : "") + g(i);
      if (n.otherwise != kAbsent) text += " else " + grouped(file, n.otherwise);
      return text + (n.kind == Kind::read ? "]" : ")");
    }
    case Kind::number:
    case Kind::boolean:
    case Kind::name: return n.text;
  }
  return "?";
}
std::string grouped(const std::string& expression) {
  auto file = parse_body(expression);
  return grouped(*file, body_of(*file));
}

// Equal apart from positions. Node by node: both files are parsed in the order of the text.
void expect_same_tree(const File& a, const File& b) {
  auto axes = [](const std::vector<Axis>& list) {
    std::string text;
    for (const Axis& x : list) text += x.name + ":" + std::to_string(x.begin) + ":" + std::to_string(x.end) + " ";
    return text;
  };
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &m = a.nodes[i], &n = b.nodes[i];
    ASSERT_TRUE(m.kind == n.kind && m.text == n.text && m.args == n.args && m.condition == n.condition &&
                m.otherwise == n.otherwise && axes(m.axes) == axes(n.axes))
        << print(a, static_cast<Ref>(i)) << " became " << print(b, static_cast<Ref>(i));
  }
  auto names = [](const std::vector<Name>& list) {
    std::string text;
    for (const Name& x : list) text += x.text + " ";
    return text;
  };
  auto expect_same_block = [&](const Block& p, const Block& q) {
    ASSERT_EQ(names(p.outputs), names(q.outputs));
    ASSERT_EQ(p.parameters.size(), q.parameters.size());
    for (size_t i = 0; i < p.parameters.size(); ++i) {
      const Parameter &u = p.parameters[i], &v = q.parameters[i];
      EXPECT_TRUE(u.name == v.name && u.type == v.type && u.extents == v.extents && u.constant == v.constant &&
                  u.typed == v.typed)
          << u.name;
    }
    ASSERT_EQ(p.statements.size(), q.statements.size());
    for (size_t i = 0; i < p.statements.size(); ++i) {
      const Statement &u = p.statements[i], &v = q.statements[i];
      EXPECT_TRUE(u.kind == v.kind && names(u.targets) == names(v.targets) && axes(u.axes) == axes(v.axes) &&
                  u.body == v.body)
          << u.targets[0].text;
    }
  };
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) {
    EXPECT_EQ(a.ops[i].kind, b.ops[i].kind);
    EXPECT_EQ(a.ops[i].name, b.ops[i].name);
    expect_same_block(a.ops[i].body, b.ops[i].body);
    ASSERT_EQ(a.ops[i].backward.has_value(), b.ops[i].backward.has_value());
    if (a.ops[i].backward) expect_same_block(*a.ops[i].backward, *b.ops[i].backward);
  }
}

void expect_round_trip(const std::string& text) {
  auto file = parse(text);
  std::string printed = print(*file);
  auto again = parse(printed);
  expect_same_tree(*file, *again);
  EXPECT_EQ(print(*again), printed);
}

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
      if (n.kind == kind && n.text == text) return std::to_string(n.pos.line) + ":" + std::to_string(n.pos.column);
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

constexpr const char* kContract = R"(
# BatchNorm, training mode
op batch_norm(x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]) -> (y) {
  mean[c] = sum(n,h,w: x[n,c,h,w]) / (N*H*W)
  var[c]  = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N*H*W)
  y[n,c,h,w] = gamma[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-5) + beta[c]
}
op softmax(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d])
  e[n,d] = exp(x[n,d] - m[n])
  y[n,d] = e[n,d] / sum(k: e[n,k])
}
op conv2d(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
  y[n,k, i in 0..H, j in 0..W] = relu(b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))
}
op attention(q: f32[B,S,D], k: f32[B,T,D], v: f32[B,T,D]) -> (o) {
  s[b,i,j] = sum(d: q[b,i,d] * k[b,j,d]) / sqrt(f32(D))
  m[b,i] = max(j: s[b,i,j])
  p[b,i,j] = exp(s[b,i,j] - m[b,i])
  o[b,i,d] = sum(j: p[b,i,j] * v[b,j,d]) / sum(j: p[b,i,j])
}
op embedding_bag(table: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: table[ids[b,l], d]) }
op chained_matmul(A: f32[8,8], B: f32[8,8], D: f32[8,8]) -> (E) {
  C[i,j] = sum(k: A[i,k] * B[j,k])
  E[i,j] = sum(k: C[i,k] * D[j,k])
}
)";

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
    for (int i = 0; i < 12; ++i) open.push_back(file.add({draw(2) ? Kind::name : Kind::number, {}, "", {}, {}}));
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
  EXPECT_EQ(formatted("op f(x: f32) -> (y) { y = x\n # a\n} # b\n # c\n backward (dy: f32) -> (grad_x) { # d\n"
                      "grad_x = dy # e\n}\n\n\n\n# g\ngrad f(x,y,dy)->(dx){dx=dy}\n"),
            "op f(x: f32) -> (y) {\n  y = x\n  # a\n} backward (dy: f32) -> (grad_x) {  # b  # d\n  # c\n"
            "  grad_x = dy  # e\n}\n\n# g\ngrad f(x, y, dy) -> (dx) {\n  dx = dy\n}\n");
}

// The message and place of the error that the text causes.
std::string error_of(const std::string& text) {
  try {
    parse(text, "t.xh");
  } catch (const Error& e) {
    return std::to_string(e.pos().line) + ":" + std::to_string(e.pos().column) + ": " + e.message();
  }
  return "no error";
}
std::string error_in(const std::string& statements) { return error_of("op f() -> (y) {\n" + statements + "\n}"); }

TEST(ParseErrorTest, Heads) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "1:1: there is no op here; write op NAME(parameters) -> (outputs) { definitions }"},
      {"# only\n", "1:1: there is no op here; write op NAME(parameters) -> (outputs) { definitions }"},
      {"prog f() -> (y) { }", "1:1: not yet: imperative programs (prog) come later"},
      {"op f() -> (y) { y = 1 }\n\nprog g() -> (y) { var y = x[:,0] }", "3:1: not yet: imperative programs (prog) come later"},
      {"y = 1", "1:1: expected op or grad, found y"},
      {"op (x) -> (y) { }", "1:4: expected a name after op, found ("},
      {"op if() -> (y) { }", "1:4: expected a name after op, found if, which is a reserved word; choose another name"},
      {"op max() -> (y) { y = 1 }", "1:4: max is built in; give the op another name"},
      {"op mean() -> (y) { y = 1 }", "1:4: mean is built in; give the op another name"},
      {"op f32() -> (y) { y = 1 }", "1:4: f32 is built in; give the op another name"},
      {"op pow() -> (y) { y = 1 }", "1:4: pow is built in; give the op another name"},
      {"grad exp(x) -> (y) { y = 1 }", "1:6: exp is built in; only ops of the file have a grad"},
      {"op f(x) -> (y) { }", "1:7: expected :, found ); a parameter is x: f32[N,C], a scalar one x: f32"},
      {"op f(x: float[N]) -> (y) { }", "1:9: expected a type, found float; types are f64 f32 f16 bf16 i64 i32 u32 u8 bool"},
      {"op f(x: inout f32) -> (y) { }",
       "1:9: inout belongs to imperative programs (prog); an op never writes its parameters"},
      {"op f(x: f32[]) -> (y) { }", "1:13: an extent is missing; a scalar is written without brackets, x: f32"},
      {"op f(x: f32[N) -> (y) { }", "1:14: expected , or ] to close the [ at 1:12, found )"},
      {"op f(x: f32[N] y: f32) -> (y) { }", "1:16: expected , or ) to close the ( at 1:5, found y"},
      {"op f() (y) { }", "1:8: expected ->, found (; an op's head is op NAME(parameters) -> (outputs)"},
      {"op f() -> y { }", "1:11: expected (, found y; outputs stand in parentheses, as in -> (y)"},
      {"op f() -> () { }", "1:12: expected the name of an output, found ); an op has at least one"},
      {"op f() -> (y: f32) { }",
       "1:13: only names stand here; types and shapes of outputs follow from their definitions"},
      {"op f() -> (y) y = 1", "1:15: expected {, found y"},
      {"op f() -> (y) { y = 1", "1:22: expected } to close the { at 1:15, found the end of the file"},
      {"op f() -> (y) {\n  y = 1\n\nop g() -> (z) { z = 1 }",
       "4:1: expected } to close the { at 1:15, found op; ops do not stand inside each other"},
      {"op f() -> (y) { y = 1 } }", "1:25: expected op or grad, found }"},
      {"op f() -> (y) { y = 1 } op g() -> (y) { y = 1 }", "1:25: expected the end of the op, found op; "
       "a newline or ; ends it; is a sign missing?"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(error_of(text), want) << text;
}

TEST(ParseErrorTest, Statements) {
  const std::pair<const char*, const char*> rows[] = {
      {"y[0] = 1",
       "2:3: expected the name of an axis, found 0; the left side has new, distinct axes only, as in y[i,j] = ...; "
       "an index stands on the right"},
      {"y[i+1] = 1", "2:4: expected , or ], found +; the left side has new, distinct axes only, as in y[i,j] = ..."},
      {"y[i in 0] = 3", "2:9: expected .. and the end of the range of i, found ]; as in i in 0..N"},
      {"y[in] = 1", "2:3: expected the name of an axis, found in, which is a reserved word; choose another name"},
      {"y[i", "3:1: expected , or ] to close the [ at 2:2, found }"},
      {"y == 1", "2:3: expected =, found ==; == compares, = defines"},
      {"y += 1", "2:3: += belongs to imperative programs (prog); an op defines each name once"},
      {"y[i] *= 1", "2:6: *= belongs to imperative programs (prog); an op defines each name once"},
      {"y", "2:2: expected = or [ after y, found the end of the line; a definition is NAME[axes] = expression"},
      {"3 = y", "2:1: expected a definition, found 3; as in y[i,j] = x[j,i]"},
      {"then = 3", "2:1: expected a definition, found then, which is a reserved word; choose another name"},
      {"var x = 3", "2:1: var belongs to imperative programs (prog); an op holds definitions only"},
      {"for i in 0..3 { }", "2:1: for belongs to imperative programs (prog); an op holds definitions only"},
      {"while x { }", "2:1: while belongs to imperative programs (prog); an op holds definitions only"},
      {"if x { }", "2:1: if as a statement belongs to imperative programs (prog); here it stands inside an expression"},
      {"v.transpose(0,1) = x", "2:2: views such as .transpose belong to imperative programs (prog)"},
      {"(a, b) = exp(x)",
       "2:10: names in parentheses take the results of an op's call, as in (a, b) = f(x); this is none"},
      {"(a, b[i]) = f(x)", "2:6: only names stand here; write (a, b) = f(x)"},
      {"(a, b = f(x)", "2:7: expected , or ) to close the ( at 2:1, found ="},
      {"dim N", "2:6: expected =, found the end of the line; as in dim OH = H/2"},
      {"y = a b", "2:7: expected the end of the statement, found b; a newline or ; ends it; is a sign missing?"},
      {"y = a = b", "2:7: expected the end of the statement, found =; equality is written =="},
      {"y = 0..H", "2:6: expected the end of the statement, found ..; a range stands after in, as in y[i in 0..N]"},
      {"y = a)", "2:6: expected the end of the statement, found ); it closes nothing"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(error_in(text), want) << text;
}

TEST(ParseErrorTest, Expressions) {
  const std::pair<const char*, const char*> rows[] = {
      {"y =", "2:4: expected an expression, found the end of the line; a line goes on only inside ( ) or [ ]"},
      {"y = ;", "2:4: expected an expression, found ;"},
      {"y = a +\n  b", "2:8: expected an expression, found the end of the line; a line goes on only inside ( ) or [ ]"},
      {"\ty = a *\t)", "2:10: expected an expression, found )"},
      {"y = a < b < c",
       "2:11: comparisons do not chain: this < follows the < at 2:7; write a < b && b < c, or parentheses"},
      {"y = a == b + 1 != c",
       "2:16: comparisons do not chain: this != follows the == at 2:7; write a < b && b < c, or parentheses"},
      {"y = a ** b", "2:8: expected an expression, found *; a power is written a^b"},
      {"y = a // b", "2:8: expected an expression, found /; a comment starts with #"},
      {"y = a <> b", "2:8: expected an expression, found >"},
      {"y = a => b", "2:7: expected the end of the statement, found =; equality is written =="},
      {"y = a & b", "2:7: & is no sign of the language; 'and' is written &&"},
      {"y = a | b", "2:7: | is no sign of the language; 'or' is written ||"},
      {"y = a $ b", "2:7: unexpected character $; names are made of letters, digits and _"},
      {"y = \xCE\xBB", "2:5: unexpected character \xCE\xBB; names are made of letters, digits and _"},
      {"y = \x01", "2:5: unexpected byte 1; names are made of letters, digits and _"},
      {"y = .5", "2:5: digits are missing before the point; write 0.5 for .5"},
      {"y = 1. + 2", "2:5: digits are missing after the point of 1.; write 1.0"},
      {"y = 2H", "2:5: 2H is neither a number nor a name; a product is written 2*H"},
      {"y = 1e", "2:5: 1e is neither a number nor a name; a product is written 1*e"},
      {"y = (a\nz = 3", "3:1: expected ) to close the ( at 2:5, found z"},
      {"y = f(a b)", "2:9: expected , or ) to close the ( at 2:6, found b"},
      {"y = x[a b]", "2:9: expected , or ] to close the [ at 2:6, found b"},
      {"y = x[a)", "2:8: expected , or ] to close the [ at 2:6, found )"},
      {"y = x[]", "2:7: an index is missing: write one index for each dimension, or x for a scalar"},
      {"y = x[:,c]", "2:7: slices such as x[:,c] belong to imperative programs (prog); name an axis"},
      {"y = x[1:2]", "2:8: slices such as x[:,c] belong to imperative programs (prog); name an axis"},
      {"y = if a then b", "2:16: expected else for the if at 2:5, found the end of the line; every if has an else; "
                          "a line goes on only inside ( ) or [ ]"},
      {"y = if a b", "2:10: expected then for the if at 2:5, found b"},
      {"y = if a else b", "2:10: expected then for the if at 2:5, found else"},
      {"y = let a = 3; b", "2:14: expected in for the let a at 2:5, found ;; a line goes on only inside ( ) or [ ]"},
      {"y = let 3 = a in a", "2:9: expected a name after let, found 3; as in let a = x[i] in a * a"},
      {"y = then", "2:5: expected an expression, found then"},
      {"y = sum(x[i])", "2:5: sum needs its axes and a colon before the body, as in sum(i: x[i])"},
      {"y = mean(x)", "2:5: mean needs its axes and a colon before the body, as in mean(i: x[i])"},
      {"y = sum(2: x)", "2:9: expected the name of an axis to reduce over, found 2"},
      {"y = sum(k l: x)", "2:11: expected , or if or : after the axes of sum, found l"},
      {"y = sum(k if a b: x)", "2:16: expected : after the condition of sum, found b"},
      {"y = sum(k in 0: x)", "2:15: expected .. and the end of the range of k, found :; as in k in 0..N"},
      {"y = sum(k: x", "3:1: expected ) to close the ( at 2:8, found }"},
      {"y = f(x)[i]",
       "2:9: a call's result cannot be indexed; give it a definition of its own and index its name"},
      {"y = (a + b)[i]", "2:12: an expression in parentheses cannot be indexed; give it a definition of its own and "
                         "index its name"},
      {"y = 2(a + b)", "2:6: a number cannot be called; a product is written a * b"},
      {"y = x.transpose(0,1)", "2:6: views such as .transpose belong to imperative programs (prog)"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(error_in(text), want) << text;
}

TEST(ParseErrorTest, ShowsLineAndCaret) {
  try {
    parse("op f() -> (y) {\r\n\ty =\ta < b < c\r\n}", "dir/t.xh");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "dir/t.xh:2:12: error: comparisons do not chain: this < follows the < at 2:8; write a < b && b < c, "
                 "or parentheses\n\ty =\ta < b < c\n\t   \t      ^");
  }
  EXPECT_STREQ(Error("no place").what(), "error: no place");
  EXPECT_STREQ(Error("no place").located("f", "text").what(), "error: no place");
  EXPECT_STREQ(Error("no name", {1, 2}).located("", "text").what(), "1:2: error: no name\ntext\n ^");
}

std::string repeated(const std::string& text, size_t times) {
  std::string result;
  result.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

TEST(ParseLimitTest, ChainsHaveNoLimit) {
  constexpr size_t kTerms = 100'000;
  const std::string chains[] = {
      "x" + repeated(" + x", kTerms),
      "x" + repeated("^x", kTerms),
      repeated("-", kTerms) + "x",
      repeated("!", kTerms) + "x",
      repeated("if a then b else ", kTerms) + "c",
      repeated("if a then ", kTerms) + "b" + repeated(" else c", kTerms),
      repeated("let a = b in ", kTerms) + "a",
      repeated("let a = ", kTerms) + "b" + repeated(" in a", kTerms),
      "x" + repeated(" * 2 + x", kTerms),
      "2" + repeated("^-x", kTerms),
  };
  for (const std::string& chain : chains) {
    auto file = parse_body(chain);
    EXPECT_EQ(print(*file, body_of(*file)), chain);
  }
}

TEST(ParseLimitTest, Nesting) {
  const std::string message = "brackets nest more than 256 levels deep; give inner parts names with let or definitions of their own";
  auto nested = [](const std::string& open, const std::string& close, size_t n) {
    return "y = " + repeated(open, n) + "a" + repeated(close, n);
  };
  const std::pair<std::string, std::string> brackets[] = {{"(", ")"}, {"x[", "]"}, {"exp(", ")"}, {"sum(k: ", ")"}};
  for (const auto& [open, close] : brackets) {
    EXPECT_EQ(error_in(nested(open, close, 256)), "no error") << open;
    size_t column = 4 + 256 * open.size() + open.find_first_of("([") + 1;
    EXPECT_EQ(error_in(nested(open, close, 257)), "2:" + std::to_string(column) + ": " + message) << open;
    EXPECT_EQ(error_in(nested(open, close, 100'000)), "2:" + std::to_string(column) + ": " + message) << open;
  }
  // Side by side is not nested.
  EXPECT_EQ(error_in("y = a" + repeated(" + (a)", 1000)), "no error");
}

TEST(ParseLimitTest, BrokenTextsFailCleanly) {
  // A prefix or the deletion of one character of the contract's examples parses or throws Error, nothing else.
  const std::string text = kContract;
  size_t errors = 0;
  for (size_t i = 0; i < text.size(); i += 5) {
    for (const std::string& broken : {text.substr(0, i), text.substr(0, i) + text.substr(i + 1)}) {
      try {
        auto file = parse(broken);
        expect_round_trip(print(*file));
      } catch (const Error& e) {
        EXPECT_TRUE(e.pos().known()) << e.what();
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, text.size() / 10);
}

TEST(SyntaxTest, BuiltInNames) {
  for (const char* name : {"exp", "clamp", "stop_gradient", "random", "max", "pow", "f32", "bool"}) {
    EXPECT_TRUE(is_function_name(name)) << name;
  }
  for (const char* name : {"sum", "mean", "softmax", "+", "", "x"}) EXPECT_FALSE(is_function_name(name)) << name;
  for (const char* name : {"", "2a", "if", "a b", "a-b", "\xCE\xBB"}) EXPECT_FALSE(is_valid_name(name)) << name;
  for (const char* name : {"a", "_", "x2", "op", "sum", "f32"}) EXPECT_TRUE(is_valid_name(name)) << name;
}

}  // namespace
}  // namespace xhat::ast
