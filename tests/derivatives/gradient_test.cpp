// Reverse mode: the printed form of small gradients, and every kind of read, reduction and guard against
// central differences, at orders 1 and 2, before and after gather; forward mode against both on the way.
#include "ad/reverse/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "ad/forward/jvp.h"
#include "ad/gather/gather.h"
#include "expr/eval/evaluate.h"
#include "expr/index/expand_calls.h"
#include "tests/helpers/derivatives.h"
#include "tests/helpers/error_of.h"

namespace xhat::gradient_test {
namespace {

using namespace xhat::testing;
using Case = DerivativeCase;

constexpr auto check = [](const std::string& text, const Case& setup = {}) { check_derivatives(text, setup); };
double at(const Arrays& arrays, const std::string& name, size_t i) { return arrays.at(name).at(i); }

// The backward of an op, a definition per line, without blanks.
std::string backward_of(const std::string& text, bool gathered = false) {
  Program g = gradient(parse_op(text));
  if (gathered) g = gather(g);
  std::string all;
  for (const Definition& d : g.backward.definitions) all += print(g, d) + "\n";
  return all;
}

// ---- printed forms ----

TEST(GradientText, UsesTheOutputWhereItCan) {
  EXPECT_EQ(backward_of("op f(x: f32[N]) -> (y) { y[i] = tanh(x[i]) }"), "grad_x[i] = dy[i] * (1 - y[i] * y[i])\n");
  EXPECT_EQ(backward_of("op f(x: f32[N]) -> (y) { y[i] = exp(x[i]) }"), "grad_x[i] = dy[i] * y[i]\n");
  EXPECT_EQ(backward_of("op f(x: f32[N]) -> (y) { y[i] = relu(x[i]) }"), "grad_x[i] = if 0 < y[i] then dy[i] else 0\n");
}

// One sum for what is multiplied with g, however it was written; the forward stays.
TEST(GradientText, WhatTermsShareIsInFront) {
  for (const char* body :
       {"g[c]*r[c]*(x[n,c] - m[c]) + b[c]", "g[c]*x[n,c]*r[c] - g[c]*m[c]*r[c] + b[c]", "b[c] + r[c]*x[n,c]*g[c] - m[c]*(g[c]*r[c])",
        "(x[n,c]*g[c] - m[c]*g[c])*r[c] + b[c]", "(g[c]*x[n,c] + -m[c]*g[c])*r[c] + b[c]"}) {
    const std::string text = std::string("op f(x: f64[N,C] const, g: f64[C], m: f64[C] const, r: f64[C] const, b: f64[C] const) -> (y) {\n") +
                             " y[n,c] = " + body + "\n}";
    const Program op = parse_op(text), p = gradient(op);
    int sums = 0;
    for (const Definition& d : p.backward.definitions)
      for (Id id : reachable(*p.arena, d.body)) sums += (*p.arena)[id].op == Op::sum;
    EXPECT_EQ(sums, 1) << print(p);
    EXPECT_EQ(print(p, *p.definition_of(p.outputs[0])), print(op, *op.definition_of(op.outputs[0])));
    check(text, {.dims = {{"N", 3}, {"C", 2}}});
  }
  // What an extreme compares is compared as it was written.
  EXPECT_EQ(backward_of("op f(x: f64[N], a: f64[N] const, b: f64[N] const) -> (y) { y[i] = x[i]*a[i] + x[i]*relu(2*x[i] - 2*b[i]) }"),
            "grad_x[i] = let t1 = relu(2 * x[i] - 2 * b[i]) in dy[i] * (a[i] + t1) + (if 0 < t1 then dy[i] * x[i] * 2 else 0)\n");
}

TEST(GradientText, OneMakesNoMultiplicationAndConstantsFold) {
  EXPECT_EQ(backward_of("op f(a: f32[N], b: f32[N]) -> (y) { y[i] = a[i] - b[i] }"), "grad_a[i] = dy[i]\ngrad_b[i] = -dy[i]\n");
  EXPECT_EQ(backward_of("op f(x: f32[N]) -> (y) { y[i] = x[i]^2 }"), "grad_x[i] = dy[i] * (2 * x[i])\n");
}

TEST(GradientText, BroadcastsBecomeSumsAndSumsBroadcasts) {
  EXPECT_EQ(backward_of("op f(a: f32[N], b: f32[M]) -> (y) { y[i,j] = a[i] * b[j] }"),
            "grad_a[i] = sum(j: dy[i,j] * b[j])\ngrad_b[j] = sum(i: dy[i,j] * a[i])\n");
  EXPECT_EQ(backward_of("op f(x: f32[N,M]) -> (y) { y[i] = sum(j: x[i,j]) }"), "grad_x[i, j in 0..M] = dy[i]\n");
}

TEST(GradientText, AnInnerFunctionIsDifferentiatedOncePerItsOwnPoint) {
  EXPECT_EQ(backward_of("op f(x: f32[N,M], m: f32[N]) -> (y) { y[i,j] = x[i,j] * exp(m[i]) }"),
            "grad_x[i,j] = dy[i,j] * exp(m[i])\ngrad_m[i] = sum(j: dy[i,j] * x[i,j]) * exp(m[i])\n");
}

TEST(GradientText, ADataDependentReadIsAScatter) {
  EXPECT_EQ(backward_of("op f(t: f32[V,D], ids: i64[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l], d]) }"),
            "grad_t[v in 0..V, d] = sum(b, l if ids[b,l] == v: dy[b,d])\n");
}

TEST(GradientText, UnusedInputsGetZerosAndOnlyWhatIsAskedForIsDerived) {
  Program p = parse_op("op f(x: f32[N], w: f32[N], u: f32[N]) -> (y) { y[i] = x[i] * w[i] }");
  Program g = gradient(p, {.wrt = {"u", "w"}});
  ASSERT_EQ(g.gradients.size(), 2u);
  EXPECT_EQ(print(g, *g.definition_of(g.gradients[0])), "grad_u[n in 0..N] = 0");
  EXPECT_EQ(print(g, *g.definition_of(g.gradients[1])), "grad_w[i] = dy[i] * x[i]");
  EXPECT_FALSE(g.find("grad_x"));
}

TEST(GradientText, WrtIsChecked) {
  Program p = parse_op("op f(x: f32[N], c: f32[N] const, k: i32[N]) -> (y) { y[i] = x[i] * c[i] }");
  auto message = [&](const std::string& name) -> std::string {
    try {
      gradient(p, {.wrt = {name}});
      return "";
    } catch (const Error& e) {
      return e.message();
    }
  };
  EXPECT_NE(message("k").find("input k of op f has no gradient: it is i32, not a float"), std::string::npos);
  EXPECT_NE(message("c").find("is const and is never differentiated"), std::string::npos);
  EXPECT_NE(message("z").find("no input z"), std::string::npos);
  EXPECT_EQ(gradient(p).gradients.size(), 1u);
}

TEST(GradientText, NamesStayUnique) {
  Program g = gradient(gradient(parse_op("op f(x: f32[N], dy: f32[N]) -> (y) { y[i] = x[i]^3 * dy[i] }")));
  std::set<std::string> names;
  for (const Tensor& t : g.tensors) EXPECT_TRUE(names.insert(t.name).second) << t.name;
  // An axis called like the cotangent gives way.
  check("op f(x: f32[N,M]) -> (y) { y[i] = sum(dy: x[i,dy]^2) }", {.dims = {{"N", 3}, {"M", 2}}});
}

// ---- against differences ----

TEST(GradientCheck, EveryFunctionOfOneOperand) {
  for (const char* f : {"-u",
                        "exp(u)",
                        "log(u)",
                        "log1p(u)",
                        "expm1(u)",
                        "sqrt(u)",
                        "rsqrt(u)",
                        "sin(u)",
                        "cos(u)",
                        "tan(u/4)",
                        "tanh(u)",
                        "sigmoid(u)",
                        "erf(u)",
                        "abs(u)",
                        "sign(u)*u",
                        "floor(u)+u",
                        "ceil(u)*u",
                        "round(u)*u",
                        "relu(u)",
                        "softplus(u)",
                        "u^2",
                        "u^3",
                        "u^0.5",
                        "2^u",
                        "u^u",
                        "1/u",
                        "u^-1",
                        "u^0",
                        "u^1",
                        "u % 0.7",
                        "exp2(u)",
                        "log2(u)",
                        "log10(u)",
                        "sinh(u)",
                        "cosh(u)",
                        "atan(u)",
                        "asinh(u)",
                        "acosh(1.1+u)",
                        "cbrt(u)",
                        "erfc(u)",
                        "lgamma(u)",
                        "digamma(u)",
                        "i0e(u)",
                        "i1e(u)",
                        "sinc(u)",
                        "sinc(u/9)",
                        "trunc(u)*u",
                        "asin(u/(1+u))",
                        "acos(u/(1+u))",
                        "atanh(u/(1+u))",
                        "erfinv(u/(1+u))",
                        "polygamma(1,u)",
                        "polygamma(2,u)",
                        "polygamma(3,u+1)",
                        "i1e(0.5-u)",
                        "lgamma(-0.3-u/9)",
                        "digamma(-0.3-u/9)",
                        "sinc(-u)"}) {
    std::string body = f;
    for (size_t i; (i = body.find('u')) != std::string::npos;) {
      bool word = (i > 0 && std::isalpha(body[i - 1])) || (i + 1 < body.size() && std::isalpha(body[i + 1]));
      body.replace(i, 1, word ? "\1" : "(x[i]*x[i]*w)");
    }
    std::replace(body.begin(), body.end(), '\1', 'u');
    check("op f(x: f64[N], w: f64) -> (y) { y[i] = " + body + " }", {.dims = {{"N", 3}}, .shift = 0.3});
  }
}

TEST(GradientCheck, EveryFunctionOfMoreOperands) {
  for (const char* f : {"a[i]+b[i]",
                        "a[i]-b[i]",
                        "a[i]*b[i]",
                        "a[i]/b[i]",
                        "a[i]^b[i]",
                        "min(a[i],b[i])*a[i]",
                        "max(a[i],b[i])*b[i]",
                        "clamp(a[i]*b[i],0.2,0.9)*a[i]",
                        "clamp(0.5*a[i],b[i],a[i]+b[i])",
                        "a[i] % b[i]",
                        "atan2(a[i],b[i])",
                        "atan2(a[i],-b[i])",
                        "hypot(a[i],b[i])",
                        "logaddexp(a[i],b[i])",
                        "logaddexp(a[i],a[i])",
                        "copysign(a[i]*a[i],b[i]-0.5)",
                        "fmod(a[i],b[i])*a[i]",
                        "remainder(a[i],b[i])*b[i]",
                        "if a[i] < b[i] then a[i]*b[i] else exp(a[i])",
                        "a[i]*random(3,i)",
                        "if a[i] < b[i] && a[i] > 0.1 || b[i] < 0.5 then sin(a[i]) else cos(b[i])*a[i]"})
    check("op f(a: f64[N], b: f64[N]) -> (y) { y[i] = " + std::string(f) + " }", {.dims = {{"N", 4}}, .shift = 0.2});
}

TEST(GradientCheck, TheExamplesOfTheLanguage) {
  check(R"(op batch_norm(x: f64[N,C,H,W], gamma: f64[C], beta: f64[C]) -> (y) {
      mean[c] = sum(n,h,w: x[n,c,h,w]) / (N*H*W)
      var[c]  = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N*H*W)
      y[n,c,h,w] = gamma[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-5) + beta[c]
    })",
        {.dims = {{"N", 2}, {"C", 2}, {"H", 3}, {"W", 2}}});
  check(R"(op softmax(x: f64[N,D]) -> (y) {
      m[n] = max(d: x[n,d])
      e[n,d] = exp(x[n,d] - m[n])
      y[n,d] = e[n,d] / sum(k: e[n,k])
    })",
        {.dims = {{"N", 2}, {"D", 4}}});
  check(R"(op conv2d(x: f64[N,C,H,W], w: f64[K,C,3,3], b: f64[K]) -> (y) {
      y[n,k, i in 0..H, j in 0..W] = relu(b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))
    })",
        {.dims = {{"N", 1}, {"C", 2}, {"H", 3}, {"W", 2}, {"K", 2}}});
  check(R"(op attention(q: f64[B,S,D], k: f64[B,T,D], v: f64[B,T,D]) -> (o) {
      s[b,i,j] = sum(d: q[b,i,d] * k[b,j,d]) / sqrt(f64(D))
      m[b,i] = max(j: s[b,i,j])
      p[b,i,j] = exp(s[b,i,j] - m[b,i])
      o[b,i,d] = sum(j: p[b,i,j] * v[b,j,d]) / sum(j: p[b,i,j])
    })",
        {.dims = {{"B", 1}, {"S", 2}, {"T", 3}, {"D", 2}}});
  check("op embedding_bag(table: f64[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: table[ids[b,l], d]^2) }",
        {.dims = {{"V", 3}, {"D", 2}, {"B", 3}, {"L", 2}}});
  check(R"(op chained_matmul(A: f64[3,3], B: f64[3,3], D: f64[3,3]) -> (E) {
      C[i,j] = sum(k: A[i,k] * B[j,k])
      E[i,j] = sum(k: C[i,k] * D[j,k])
    })");
  check(R"(op layer_norm(x: f64[N,D], g: f64[D], b: f64[D]) -> (y) {
      mu[n] = mean(d: x[n,d])
      v[n] = mean(d: (x[n,d] - mu[n])^2)
      y[n,d] = (x[n,d] - mu[n]) * rsqrt(v[n] + 1e-5) * g[d] + b[d]
    })",
        {.dims = {{"N", 2}, {"D", 3}}});
}

TEST(GradientCheck, ConvolutionsOfEveryStrideDilationKernelAndPadding) {
  for (int stride = 1; stride <= 3; ++stride)
    for (int dilation = 1; dilation <= 3; ++dilation)
      for (int kernel = 1; kernel <= 3; ++kernel)
        for (int padding = 0; padding <= kernel - 1; ++padding) {
          int reach = dilation * (kernel - 1) + 1;
          auto t = [](int v) { return std::to_string(v); };
          std::string index = t(stride) + "*i+" + t(dilation) + "*r-" + t(padding);
          check("op conv(x: f64[H], w: f64[" + t(kernel) + "]) -> (y) {\n  dim O = (H+" + t(2 * padding - reach) + ")/" + t(stride) +
                    "+1\n  y[i in 0..O] = sum(r: x[" + index + (padding ? " else 0" : " else 0") + "]^2 * w[r]) }",
                {.dims = {{"H", 10}, {"O", (10 + 2 * padding - reach) / stride + 1}}, .orders = 1});
        }
  check(R"(op conv(x: f64[N,C,H,W], w: f64[K,C,2,3]) -> (y) {
      y[n,k,i in 0..(H+1)/2,j in 0..W/3] = sum(c,r,s: x[n,c,2*i+r,3*j+2*s-1 else 0] * w[k,c,r,s])
    })",
        {.dims = {{"N", 1}, {"C", 2}, {"H", 5}, {"W", 7}, {"K", 1}}});
}

TEST(GradientCheck, Pooling) {
  for (const char* s : {"1", "2", "3"}) {
    std::string index = "x[n," + std::string(s) + "*i+r,2*j+q]";
    Case setup{.dims = {{"N", 2}}};
    check("op f(x: f64[N,7,5]) -> (y) { y[n,i in 0..2,j in 0..2] = max(r in 0..2, q in 0..2: " + index + ") }", setup);
    check("op f(x: f64[N,7,5]) -> (y) { y[n,i in 0..2,j in 0..2] = mean(r in 0..2, q in 0..2: " + index + "^2) }", setup);
  }
}

TEST(GradientCheck, ReadsOfEveryShape) {
  Case square{.dims = {{"N", 4}}};
  check("op f(x: f64[N,N]) -> (y) { y[i] = x[i,i]^2 }", square);
  check("op f(x: f64[N,N,N]) -> (y) { y[i,j] = x[i,j,i]^2 }", square);
  check("op f(x: f64[N]) -> (y) { y[i] = x[N-1-i]*x[i]^2 }", square);
  check("op f(x: f64[N]) -> (y) { y[i in 0..2*N] = x[i/2]^2*x[N-1-i/2] }", square);
  check("op f(x: f64[4,N]) -> (y) { y[i in 0..4*N] = x[i%4,i/4]^2 }", square);
  check("op f(x: f64[N], b: f64) -> (y) { y[i,j in 0..3] = x[i]^2 * b }", square);
  check("op f(x: f64[N]) -> (y) { y = x[0]*x[1]*x[0] }", square);
  check("op f(x: f64[N,N]) -> (y) { y[i,j] = x[j,i]*x[i,j] }", square);
  check("op f(x: f64[N]) -> (y) { y[i in 0..N] = x[clamp(i-2,0,N-1)]^2 }", square);
  check("op f(x: f64[N], b: f64[N]) -> (y) { y[i in 0..2*N] = if i < N then x[i]^2 else b[i-N]^3 }", square);
  check("op f(x: f64[N], z: f64[N]) -> (y) { y[i in 0..N+2] = x[i-1 else z[clamp(i,0,N-1)]^2]^2 }", square);
  check("op f(x: f64[N], k: i64[3]) -> (y) { y[i] = x[k[i]]^2 * x[k[i]] }", square);
  check("op f(x: f64[N], k: i64[3]) -> (y) { y[i] = if k[i] > 0 then x[k[i]-1]^2 else 1 }", square);
  check("op f(x: f64[N]) -> (y) { y[i in 0..2*N] = (if i%2 == 1 then x[i/2] else 0)^2 }", square);
}

// What is solved for is read only where the solution is a point of the loop.
TEST(GradientCheck, ReadsAtSolvedPositionsStayInside) {
  check(
      "op f(x: f64[4,2,3], k: i64[2]) -> (y) { y[i in 0..4] = prod(j in 0..2: x[abs(j-1),j/2,k[j] else 0]) "
      "}");
  check("op f(x: f64[5]) -> (y) { y[i in 0..3, j in 0..3] = max(k in 0..j+1: x[j+1 else 0.5]) }");
}

TEST(GradientCheck, RangesThatDependOnOuterAxes) {
  Case s{.dims = {{"N", 4}}};
  check("op cumsum(x: f64[N]) -> (y) { y[i in 0..N] = sum(k in 0..i+1: x[k]^2) }", s);
  check("op f(x: f64[N]) -> (y) { y[i] = sum(k in 0..i+1: exp(x[k]) * x[i]) }", s);
  check("op f(x: f64[N], w: f64[2*N]) -> (y) { y[i] = x[i]*prod(k in i..N: w[2*k]*x[k]) }", s);
  check("op f(x: f64[N]) -> (y) { y[i in 0..N] = max(k in 0..i+1: x[k]^2) }", s);
  check("op f(x: f64[N]) -> (y) { y[i in 0..N] = sum(k in 0..i+1, l in 0..k+1: x[k]*x[l]^2) }", s);
}

TEST(GradientCheck, ReductionsWithConditionsAndNested) {
  Case s{.dims = {{"N", 3}, {"M", 4}}};
  check("op f(x: f64[N,M]) -> (y) { y[i] = sum(j if i <= j: x[i,j]^2) }", s);
  check("op f(x: f64[M]) -> (y) { y[i in 0..M] = sum(k if k <= i: exp(x[k])) }", s);
  check("op f(x: f64[M]) -> (y) { y[i in 0..M] = sum(k if k != i: x[k]*x[i]) }", s);
  check("op f(x: f64[N,M]) -> (y) { y[i] = sum(j: x[i,j] * sum(k: x[i,k]^2) / sum(k: x[i,k])) }", {s.dims, 0.5});
  check("op f(x: f64[N,M]) -> (y) { y[i] = max(j: x[i,j] * sum(k: x[i,k])) }", s);
  check("op f(x: f64[N,M]) -> (y) { y[i,j] = x[i,j] - max(k: x[i,k]) + min(k: x[i,k]^2) }", s);
  check("op f(x: f64[N,M]) -> (y) { y = sum(i: prod(j: x[i,j]) * max(j: x[i,j])) }", s);
  check("op f(x: f64[N,M]) -> (y) { y[i] = sum(j if x[i,j] > 0: x[i,j]^2) + prod(j if x[i,j] < 0: x[i,j]) }", s);
  check("op f(x: f64[M]) -> (y) { y[i] = let s = sum(l: x[l]^2) in sum(k: x[k]*s) * x[i] }", s);
  check("op f(x: f64[N,M]) -> (y) { y[i] = mean(j if j > i: x[i,j]^2) }", s);
  check("op f(x: f64[N,M]) -> (y) { k[i] = argmax(j: x[i,j])\n y[i] = x[i,k[i]]^2 }", s);
  check("op f(x: f64[N,M]) -> (y, z) { y[i] = sum(j: x[i,j])^2\n z = sum(i: y[i]*x[i,0]) }", s);
  check("op f(x: f64[5]) -> (y) { y = sum(k in 0..3: x[k]) * sum(k in 0..5: x[k]^2) }", s);
}

TEST(GradientCheck, ProductsWithZeros) {
  for (std::vector<double> x : {std::vector<double>{1.5, -2, 0.5}, {1.5, 0, 0.5}, {0, 2, 0}})
    check("op f(x: f64[N]) -> (y) { y = prod(i: x[i]) }", {.dims = {{"N", 3}}, .fixed = {{"x", vector(x)}}});
}

TEST(GradientCheck, TheTvmCases) {
  Case s{.dims = {}, .orders = 1};
  for (const char* f : {"y[i] = sum(k: A[i,k]*A[k,i])", "y[i,j] = sum(k: A[i,k]*A[k,i] + 5) * A[i,j]", "y[i,j] = max(k: A[i,k]*A[k,j] + 5)",
                        "y[i,j] = sum(k: A[k,k] - A[min(j+k,4),j]*A[i,k])", "y[i] = prod(k: A[i,k] + A[k,i])",
                        "y[i,j] = log(0.1 + abs(A[i,j] + exp(A[j,i])))", "y[i,j] = abs(A[i,j])^A[j,i]", "y = sum(i: A[i,i])"})
    check("op f(A: f64[5,5]) -> (y) { " + std::string(f) + " }", s);
  check("op f(X: f64[10]) -> (y) { y = sum(i: (X[i] + X[9-i]) * (X[i]*X[9-i])) }", s);
  check("op f(x: f64[1,2,5,5]) -> (y) { y[a in 0..1,i in 0..50] = x[a,i/25,i/5%5,i%5]^2 }", s);
  check("op f(x: f64[1,2,6,5]) -> (y) { y[a,b,i in 0..3,j] = x[a,b,i+3,j]^2 }", s);
  check(
      "op f(X: f64[4,5], W: f64[5,5]) -> (y) { d[i,j] = sum(k: X[i,k]*W[k,j])\n e[i,j] = exp(d[i,j])\n"
      " y[i,j] = e[i,j]/sum(k: e[i,k]) }",
      s);
}

// ---- values that differences cannot see ----

TEST(GradientValue, TiesShareEqually) {
  Program g = gradient(parse_op("op f(x: f64[N]) -> (y) { y = max(i: x[i]) }"));
  Arrays out = run(g, {{"x", vector({1, 5, 5})}, {"dy", scalar_of(DType::f64, 3)}});
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{0, 1.5, 1.5}));
  g = gradient(parse_op("op f(a: f64[N], b: f64[N]) -> (y) { y[i] = max(a[i], b[i]) }"));
  out = run(g, {{"a", vector({1, 1, 2})}, {"b", vector({1, 3, 2})}, {"dy", vector({1, 1, 1})}});
  EXPECT_EQ(out.at("grad_a").reals, (std::vector<double>{0.5, 0, 0.5}));
  EXPECT_EQ(out.at("grad_b").reals, (std::vector<double>{0.5, 1, 0.5}));
}

TEST(GradientValue, TheBranchNotTakenContributesZero) {
  for (const char* f :
       {"y[i] = if x[i] > 0 then log(x[i]) else 0", "y[i] = if x[i] > 0 then sqrt(x[i]) + 1/x[i] else x[i]",
        "l[i] = log(x[i])\n y[i] = if x[i] > 0 then l[i] else 2", "y[i] = max(log(x[i]), -5)",
        "y[i] = relu(log(x[i])) + (if x[i] > 0 then 2*log(x[i]) else 0)", "y[i] = sum(k in 0..2: if x[i] > 0 then log(x[i])*f64(k) else 0)",
        "y[i in 0..3] = if x[i] > 0 then x[i]^0.5 else 0", "y[k in 0..2] = sum(i if x[i] > 0: sqrt(x[i]))",
        "r[i] = rsqrt(x[i])\n y[i] = if x[i] > 0 then r[i] else 0",
        "e[i] = exp(500*x[i])\n y[i] = if x[i] > 1 then x[i] else log(1 + e[i])", "y[i] = if i > 0 then x[i]/f64(i) else 0",
        "l[i] = x[i]/f64(i)\n y[i] = if i > 0 then l[i] else 0"}) {
    Program g = gradient(parse_op("op f(x: f64[3]) -> (y) { " + std::string(f) + " }"));
    for (Program p : {g, gather(g), gradient(g)}) {
      std::mt19937_64 random(3);
      Arrays inputs;
      for (TensorId t : p.inputs) inputs[p.tensor(t).name] = random_array(random, DType::f64, shape_of(p, t, {}), 0);
      for (TensorId t : p.cotangents) inputs[p.tensor(t).name] = random_array(random, DType::f64, shape_of(p, t, {}), 0);
      inputs["x"] = vector({0, 2, 0});
      Arrays out = run(p, inputs);
      for (TensorId t : p.gradients)
        for (double v : out.at(p.tensor(t).name).reals) EXPECT_TRUE(std::isfinite(v)) << print(p);
    }
  }
}

// The extreme and the reads below it are behind the condition, wherever they go.
TEST(GradientValue, AnExtremeBehindAConditionIsNotReadOutsideIt) {
  for (const char* f : {"if k[i] >= 0 then 2*max(j: x[k[i],j]) else 0", "if i > 0 then max(j: x[i-1,j])^2 else 1",
                        "if k[i] >= 0 then sum(l in 0..2: max(j: x[k[i],j]*f64(l+1))) else 0"}) {
    Program g = gradient(parse_op("op f(x: f64[N,M], k: i64[N]) -> (y) { y[i in 0..N] = " + std::string(f) + " }"));
    Array k = zeros(DType::i64, {3});
    k.integers = {-1, 2, 0};
    Arrays in{{"x", array_of(DType::f64, {3, 2}, {1, 2, 3, 4, 6, 5})}, {"k", k}, {"dy", vector({1, 1, 1})}};
    for (const Program& p : {g, gather(g)}) EXPECT_NO_THROW(run(p, in)) << print(p);
  }
}

TEST(GradientValue, StopGradientAndCastsBetweenKinds) {
  Program g = gradient(parse_op("op f(x: f64[N]) -> (y) { y[i] = stop_gradient(x[i])*x[i] + f64(i64(x[i]))*x[i] }"));
  Arrays out = run(g, {{"x", vector({3, 4.5})}, {"dy", vector({1, 1})}});
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{6, 8.5}));
  g = gradient(parse_op("op f(x: f64[N]) -> (y) { y[i] = f64(f32(x[i])*3) }"));
  out = run(g, {{"x", vector({3})}, {"dy", vector({2})}});
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{6}));
}

TEST(GradientValue, TheOuterRowsOfADiagonalGetZero) {
  Program g = gradient(parse_op("op f(x: f64[N,N]) -> (y) { y[i] = x[i,i] }"));
  Arrays out = run(g, {{"x", zeros(DType::f64, {2, 2})}, {"dy", vector({2, 3})}});
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{2, 0, 0, 3}));
}

TEST(GradientValue, EmptyTensorsAndLongChains) {
  Program g = gradient(parse_op("op f(x: f64[N,M]) -> (y) { y[i] = max(j: x[i,j])*sum(j: x[i,j]) }"));
  Arrays out = evaluate(g, {{"x", zeros(DType::f64, {0, 3})}, {"dy", zeros(DType::f64, {0})}});
  EXPECT_EQ(out.at("grad_x").size(), 0u);

  std::string sum = "x[i]";
  constexpr int kTerms = 20000;
  for (int i = 1; i < kTerms; ++i) sum += "+x[i]";
  g = gradient(parse_op("op f(x: f64[N]) -> (y) { y[i] = " + sum + " }"));
  out = run(g, {{"x", vector({1})}, {"dy", vector({2})}});
  EXPECT_EQ(at(out, "grad_x", 0), 2.0 * kTerms);
}

// ---- calls and custom gradients ----

const char* kSoftmax = R"(op softmax(x: f64[N,D]) -> (y) {
  m[n] = max(d: x[n,d])
  y[n,d] = exp(x[n,d] - m[n]) / sum(k: exp(x[n,k] - m[n]))
}
)";

TEST(Calls, AreExpandedWithTheArgumentsShapes) {
  check(std::string(kSoftmax) + "op f(x: f64[B,3]) -> (y) { z[b,j] = x[b,j]^2\n  y = softmax(z) }", {.dims = {{"B", 2}}});
  Program p = expand_calls(parse_op(std::string(kSoftmax) + "op f(x: f64[B,3]) -> (y) { y = softmax(x) }"));
  ASSERT_TRUE(p.find("softmax_m"));
  EXPECT_EQ(print(p, p.tensor(*p.find("softmax_m")).shape[0]), "B");
  check(std::string(kSoftmax) + "op g(x: f64[N,D]) -> (z) { y = softmax(x)\n z = softmax(y) }\n" +
            "op f(x: f64[B,3], m: f64) -> (y) { a = g(x)\n y[i,j] = a[i,j]*m }",
        {.dims = {{"B", 2}}});
}

TEST(Calls, ADimOfTheCalleeIsSolvedFromTheArgument) {
  check(
      "op h(x: f64[2*C+1]) -> (y) { y[i in 0..C] = x[2*i]*x[2*i+1] }\n"
      "op f(x: f64[7]) -> (y) { y = h(x) }");
}

TEST(CustomGradient, IsUsedForTheOpAndInCalls) {
  const std::string op =
      "op sq(x: f64[N]) -> (y) { y[i] = x[i]^2 }\n"
      "grad sq(x, y, dy) -> (dx) { dx[i] = 10*dy[i]*x[i] }\n";
  Module m = parse(op + "op f(x: f64[N]) -> (y) { a[i] = 3*x[i]\n  b = sq(a)\n y[i] = b[i] + x[i] }");
  Arrays in{{"x", vector({2, 5})}, {"dy", vector({1, 1})}};
  Arrays out = run(gradient(*m.find("sq")), in);
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{20, 50}));
  Program g = gradient(*m.find("f"));
  out = run(g, in);
  EXPECT_EQ(out.at("y").reals, (std::vector<double>{38, 230}));
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{181, 451}));
  // The rule itself is what the second order differentiates.
  Program second = gradient(g, {.wrt = {"x"}});
  EXPECT_FALSE(second.custom_gradient);
}

TEST(CustomGradient, ABackwardBlockIsThatOfACall) {
  const std::string op =
      "op sq(x: f64[N], s: f64) -> (y) { y[i] = s*x[i]^2 }\n"
      "backward (dy: f64[N]) -> (grad_x) { t[i] = 10*x[i]\n grad_x[i] = s*dy[i]*t[i] }\n";
  const std::string caller = "op f(x: f64[N], s: f64) -> (y) { a[i] = 3*x[i]\n b = sq(a, s)\n y[i] = b[i] + x[i] }";
  const Program f = *parse(op + caller).find("f");
  const Arrays in{{"x", vector({2, 5})}, {"s", scalar_of(DType::f64, 1)}, {"dy", vector({1, 1})}};
  const Arrays out = run(gradient(f, {.wrt = {"x"}}), in);
  EXPECT_EQ(out.at("y").reals, (std::vector<double>{38, 230}));
  EXPECT_EQ(out.at("grad_x").reals, (std::vector<double>{181, 451}));
  for (const auto& derive : {std::function<void()>([&] { gradient(f); }), std::function<void()>([&] { jvp(f); })}) {
    const std::string message = error_of(derive);
    EXPECT_NE(message.find("the backward block of sq has no gradient of s, and a call of sq asks for one; add grad_s to it"), message.npos);
  }
}

}  // namespace
}  // namespace xhat::gradient_test
