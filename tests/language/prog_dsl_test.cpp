// Programs in C++: what is done to the handles is the text that says the same, and that text is read back.
#include "expr/dsl/prog.h"

#include <gtest/gtest.h>

#include "expr/core/program.h"
#include "expr/text/ast.h"
#include "tests/helpers/error_of.h"

// Outside of namespace xhat, as a user is: there, Op, Tensor and Dim are also the engine's own types.
namespace prog_dsl_test {
namespace {

using namespace xhat::dsl;
namespace ast = xhat::ast;
using xhat::testing::error_of;

// The program's text is `text` in canonical form, and becomes what the text becomes.
void expect_is(const Prog& p, const std::string& text) {
  EXPECT_EQ(p.text(), ast::print(*ast::parse(text)));
  EXPECT_EQ(print(p.build()), print(xhat::parse_op(text, p.name())));
}

TEST(ProgDsl, LoopsAndNames) {
  Prog p("lstm");
  Dim T("T"), B("B"), I("I"), H("H");
  Axis t("t"), b("b"), i("i"), j("j"), k("k");
  Var x = p.input("x", f32, {T, B, I}), h0 = p.input("h0", f32, {B, H}), c0 = p.input("c0", f32, {B, H});
  Var wx = p.input("wx", f32, {4 * H, I}), wh = p.input("wh", f32, {4 * H, H}), bias = p.input("bias", f32, {4 * H});
  Var h = p.var("h", h0), c = p.var("c", c0), out = p.var("out", zeros(f32, {T, B, H})), z = p.local("z");
  p.For(t, 0, T, [&] {
    z(b, j) = bias(j) + sum({i}, x(t, b, i) * wx(j, i)) + sum({k}, h(b, k) * wh(j, k));
    c(b, j) = sigmoid(z(b, j + H)) * c(b, j) + sigmoid(z(b, j)) * tanh(z(b, j + 2 * H));
    h(b, j) = sigmoid(z(b, j + 3 * H)) * tanh(c(b, j));
    out(t) = h;
  });
  p.output(out);
  p.output(h);
  expect_is(p, R"(
    prog lstm(x: f32[T,B,I], h0: f32[B,H], c0: f32[B,H], wx: f32[4*H,I], wh: f32[4*H,H], bias: f32[4*H]) -> (out, h) {
      var h = h0
      var c = c0
      var out = zeros f32[T,B,H]
      for t in 0..T {
        z[b,j] = bias[j] + sum(i: x[t,b,i]*wx[j,i]) + sum(k: h[b,k]*wh[j,k])
        c[b,j] = sigmoid(z[b,j+H])*c[b,j] + sigmoid(z[b,j])*tanh(z[b,j+2*H])
        h[b,j] = sigmoid(z[b,j+3*H])*tanh(c[b,j])
        out[t] = h
      }
    })");
}

TEST(ProgDsl, ViewsOfAllKinds) {
  Prog p("views");
  Dim N("N");
  Axis i("i"), j("j");
  Var x = p.input("x", f32, {N, 4}), y = p.var("y", clone(x));
  y(slice(), 0) = x(slice(), 2);
  y(slice(1, -1), slice({}, {}, 2)) *= 3;
  y(slice(-2)) -= 1;
  y(slice({}, 2), -1) += 2;
  y.transpose(0, 1)(0) /= 2;
  Var r = p.var("r", y.reshape({N, 2, -1}));
  r.diagonal() = 7;
  r(slice(), 0).unsqueeze(1).squeeze(1) = full(2.5, f32, {N, 2});
  y(i, in(j, 0, 4)) = x(i, j) + x(i + 1, j).otherwise(0);
  Var w = p.var("w", concat(0, {flip(1, y), roll(0, 1, y)}) + x(0).expand({2 * N, -1}));
  w = view(w * 2).transpose(0, 1).transpose(0, 1);
  w = select(w > 0, w, -w);
  p.output(y);
  p.output(w);
  expect_is(p, R"(
    prog views(x: f32[N,4]) -> (y, w) {
      var y = clone(x)
      y[:,0] = x[:,2]
      y[1:-1,::2] *= 3
      y[-2:] -= 1
      y[:2,-1] += 2
      y.transpose(0,1)[0] /= 2
      var r = y.reshape[N,2,-1]
      r.diagonal() = 7
      r[:,0].unsqueeze(1).squeeze(1) = full(2.5) f32[N,2]
      y[i, j in 0..4] = x[i,j] + x[i+1,j else 0]
      var w = concat(0, flip(1, y), roll(0, 1, y)) + x[0].expand[2*N,-1]
      w = (w * 2).transpose(0,1).transpose(0,1)
      w = if w > 0 then w else -w
    })");
}

TEST(ProgDsl, BranchesWhileCallsAndParameters) {
  Prog act("act");
  Dim N("N");
  {
    Var x = act.input("x", f32, {N}), y = act.var("y", clone(x));
    Axis i("i");
    act.For(i, 1, N, [&] { y(i) = tanh(y(i) + y(i - 1)); });
    act.output(y);
  }
  Op two("two");
  {
    Axis i("i");
    Tensor x = two.input("x", f32, {N}), a("a"), b("b");
    a(i) = x(i) + 1;
    b() = sum({i}, x(i));
    two.output(a);
    two.output(b);
  }
  Prog p("all_of_it");
  Dim M("M", N / 2);
  Axis i("i"), k("k");
  Var state = p.inout("state", f32, {N}), x = p.input("x", f32, {N}), n = p.constant("n", i32), c = p.input("c", boolean);
  Var y = p.var("y", clone(x)), e = p.var("e", 10.0);
  Var a = p.local("a"), b = p.local("b");
  p.assign({a, b}, call(two, {x * 2}));
  y = call(act, {y}) + a * b;
  p.If(
      c, [&] { y(0) = 1; },
      [&] {
        p.If(
            n < 3, [&] { y *= 2; }, [&] { p.For(k, 0, M, [&] { y(2 * k) += f32(k); }); });
      });
  p.If(y(0) > 0, [&] { y -= 1; });
  p.While(e > 0.5 && sum({i}, y(i)) < 100, 8, [&] {
    e *= 0.5;
    state += y;
  });
  p.output(y);
  expect_is(p, R"(
    op two(x: f32[N]) -> (a, b) {
      a[i] = x[i] + 1
      b = sum(i: x[i])
    }
    prog act(x: f32[N]) -> (y) {
      var y = clone(x)
      for i in 1..N { y[i] = tanh(y[i] + y[i-1]) }
    }
    prog all_of_it(state: inout f32[N], x: f32[N], n: i32 const, c: bool) -> (y) {
      dim M = N/2
      var y = clone(x)
      var e = 10.0
      (a, b) = two(x * 2)
      y = act(y) + a*b
      if c { y[0] = 1 } else if n < 3 { y *= 2 } else { for k in 0..M { y[2*k] += f32(k) } }
      if y[0] > 0 { y -= 1 }
      while e > 0.5 && sum(i: y[i]) < 100 max 8 {
        e *= 0.5
        state += y
      }
    })");
}

TEST(ProgDsl, ExpressionsMeanWhatTheyMeanWhereTheyAreAssigned) {
  Prog p("late");
  Var x = p.input("x", f32), y = p.var("y", x);
  Expr doubled = y * 2;
  y = y + 1;
  y = doubled;
  p.output(y);
  expect_is(p, "prog late(x: f32) -> (y) { var y = x; y = y + 1; y = y * 2 }");
}

TEST(ProgDsl, Errors) {
  Dim N("N");
  Axis i("i");
  EXPECT_EQ(error_of([] { Prog("1x"); }).substr(0, 34), "a prog \"1x\" has no valid name; nam");
  EXPECT_EQ(error_of([] { Prog("tanh"); }), "tanh is built in; give the prog another name");
  Prog p("f");
  Var x = p.input("x", f32, {N});
  EXPECT_TRUE(error_of([&] { p.build(); }).ends_with("prog f has no output yet; name it with output(…)"));
  EXPECT_TRUE(error_of([&] {
                view(x * 2)(0) = 1;
              }).ends_with("a value is no place to assign to; what is assigned is a Var of a Prog, or a view of one"));
  EXPECT_EQ(error_of([&] { p.output(x(0)); }), "an output of prog f is a name, and this is a view of one");
  EXPECT_EQ(error_of([&] { x(slice()).transpose(0, 1).otherwise(0); }), "otherwise(…) belongs to an element, as in x(i + 1).otherwise(0)");
  Var y = p.var("y", x);
  const int line = __LINE__ + 1;
  y(0) = 1;
  p.output(y);
  try {
    p.build();
    ADD_FAILURE() << "a parameter is written";
  } catch (const xhat::Error& e) {  // with its place in this file, and in the text
    const std::string said = e.what(),
                      place = "prog_dsl_test.cpp:" + std::to_string(line) + ": f:3:3: error: y is a view of the parameter x, ";
    EXPECT_NE(said.find(place), std::string::npos) << said;
  }
  // Ops have no views, and programs no tensors of ops.
  Op op("g");
  Tensor z = op.input("z", f32, {N}), u("u");
  u(i) = Expr(view(z(i)).transpose(0, 1));
  op.output(u);
  EXPECT_EQ(error_of([&] { op.build(); }), "op g holds a view; only programs (Prog) have such");
  Prog q("q");
  Var v = q.var("v", z(i));
  q.output(v);
  EXPECT_EQ(error_of([&] { q.build(); }), "prog q reads z, a tensor of an op; what a program reads are its Vars");
}

// A body notes statements of its own program; another program may be written there as a whole.
TEST(ProgDsl, ABodyIsOfOneProgram) {
  Dim N("N");
  Axis i("i"), j("j");
  Prog outer("outer"), other("other");
  Var x = outer.input("x", f32, {N}), y = outer.var("y", clone(x)), z = other.var("z", zeros(f32, {N}));
  const std::string wrong =
      "this is a statement of prog other, and the body that runs is of another prog; what stands in a body is of the prog whose For, While or "
      "If it belongs to";
  int failed = 0;
  auto expect_wrong = [&](const std::function<void()>& statement) {
    ++failed;
    outer.For(i, 0, N, [&] { EXPECT_TRUE(error_of(statement).ends_with(wrong)) << error_of(statement); });
  };
  expect_wrong([&] { z(i) = 1; });
  expect_wrong([&] { z += 1; });
  expect_wrong([&] { other.var("w", z); });
  expect_wrong([&] { other.assign({z}, call(outer, {z})); });
  // A variable of another program is not what has the same name here.
  Var same = other.input("x", f32, {N});
  EXPECT_TRUE(error_of([&] {
                Prog p("p");
                Var a = p.input("x", f32, {N}), b = p.var("b", a + same(slice(0, 1)));
                p.output(b);
                p.build();
              }).ends_with("prog p uses x, a variable of prog other; what a program reads are its own, and what another computes is a call of it"));
  EXPECT_TRUE(error_of([&] { outer.output(same); }).ends_with("x is a variable of prog other, and not of prog outer"));
  EXPECT_TRUE(error_of([&] { outer.assign({same}, call(other, {x})); }).ends_with("x is a variable of prog other, and not of prog outer"));
  bool ran = false;
  expect_wrong([&] { other.For(j, 0, N, [&] { ran = true; }); });
  expect_wrong([&] { other.If(z(0) > 0, [&] { ran = true; }); });
  expect_wrong([&] { other.While(z(0) > 0, 3, [&] { ran = true; }); });
  EXPECT_FALSE(ran);
  EXPECT_EQ(failed, 7);
  // A body within a body is of the outer one's program, too.
  outer.If(y(0) > 0, [&] { outer.For(i, 0, N, [&] { EXPECT_TRUE(error_of([&] { z(i) = 1; }).ends_with(wrong)); }); });

  Prog caller("caller");
  Var u = caller.input("u", f32, {N}), v = caller.var("v", clone(u));
  caller.For(i, 0, 3, [&] {
    Prog half("half");
    Var a = half.input("a", f32, {N}), b = half.var("b", a * 0.5);
    half.For(j, 0, N, [&] { b(j) += 1; });
    half.output(b);
    v = call(half, {v});
  });
  caller.output(v);
  caller.build();
  // One whose body threw goes on.
  EXPECT_EQ(error_of([&] { caller.For(i, 0, 3, [&] { throw xhat::Error("out"); }); }), "out");
  v += 1;
  EXPECT_NE(caller.text().find("v += 1"), std::string::npos);
}

}  // namespace
}  // namespace prog_dsl_test
