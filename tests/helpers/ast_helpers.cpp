#include "tests/helpers/ast_helpers.h"

#include <gtest/gtest.h>

namespace xhat::ast {

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
        if (axis.begin != kAbsent)
          axes += "<" + grouped(file, axis.begin) + ".." + grouped(file, axis.end) + ">";
        axes += " ";
      }
      if (n.condition != kAbsent) axes += "if " + grouped(file, n.condition);
      return n.text + "{" + axes + "}" + g(0);
    }
    case Kind::slice:
    case Kind::index:
    case Kind::method:
    case Kind::filled:
    case Kind::range: return print(file, ref);
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
    for (const Axis& x : list)
      text += x.name + ":" + std::to_string(x.begin) + ":" + std::to_string(x.end) + " ";
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
      EXPECT_TRUE(u.name == v.name && u.type == v.type && u.extents == v.extents &&
                  u.constant == v.constant && u.typed == v.typed)
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

std::string repeated(const std::string& text, size_t times) {
  std::string result;
  result.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

const char* const kContract = R"(
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

}  // namespace xhat::ast
