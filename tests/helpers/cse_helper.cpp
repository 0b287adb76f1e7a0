#include "tests/helpers/cse_helper.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "ad/check/random_inputs.h"
#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"

namespace xhat::testing {

const std::vector<PlainOp>& plain_ops() {
  static const std::vector<PlainOp> ops = {
      {"tanh", "op f(x: f32[N,D]) -> (y) { y[n,d] = tanh(x[n,d]) }", 0},
      {"sigmoid", "op f(x: f32[N]) -> (y) { y[n] = 1/(1 + exp(-x[n])) }", 0},
      {"silu", "op f(x: f32[N]) -> (y) { y[n] = x[n]*sigmoid(x[n]) }", 0},
      {"softplus", "op f(x: f32[N]) -> (y) { y[n] = log(1 + exp(x[n])) }", 0},
      {"relu", "op f(x: f32[N]) -> (y) { y[n] = relu(x[n]) }", 0},
      {"gelu", "op f(x: f32[N]) -> (y) { y[n] = 0.5*x[n]*(1 + tanh(0.7978845608*(x[n] + 0.044715*x[n]^3))) }",
       0},
      {"softmax",
       "op f(x: f32[N,D]) -> (y) {\n m[n] = max(d: x[n,d])\n e[n,d] = exp(x[n,d] - m[n])\n"
       " y[n,d] = e[n,d] / sum(k: e[n,k]) }",
       1},
      {"log_softmax",
       "op f(x: f32[N,D]) -> (y) {\n m[n] = max(d: x[n,d])\n"
       " y[n,d] = x[n,d] - m[n] - log(sum(k: exp(x[n,k] - m[n]))) }",
       1},
      {"cross_entropy",
       "op f(x: f32[N,D], t: i32[N]) -> (loss) {\n m[n] = max(d: x[n,d])\n"
       " l[n] = m[n] + log(sum(k: exp(x[n,k] - m[n]))) - x[n,t[n]]\n loss = sum(n: l[n]) / N }",
       0},
      {"layer_norm",
       "op f(x: f32[N,D], gamma: f32[D], beta: f32[D]) -> (y) {\n mean[n] = sum(d: x[n,d]) / D\n"
       " var[n] = sum(d: (x[n,d] - mean[n])^2) / D\n"
       " y[n,d] = gamma[d] * (x[n,d] - mean[n]) / sqrt(var[n] + 1e-5) + beta[d] }",
       4},
      {"batch_norm",
       "op f(x: f32[N,C,H,W], gamma: f32[C], beta: f32[C]) -> (y) {\n"
       " mean[c] = sum(n,h,w: x[n,c,h,w]) / (N*H*W)\n"
       " var[c] = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N*H*W)\n"
       " y[n,c,h,w] = gamma[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-5) + beta[c] }",
       2},
      {"rms_norm",
       "op f(x: f32[N,D], gamma: f32[D]) -> (y) {\n ms[n] = sum(d: x[n,d]^2) / D\n"
       " y[n,d] = gamma[d] * x[n,d] / sqrt(ms[n] + 1e-5) }",
       2},
      // The row sum of p*(do·v) is do·o: no sum for the gradient of the softmax beyond it.
      {"attention",
       "op f(q: f32[B,S,D], k: f32[B,T,D], v: f32[B,T,D]) -> (o) {\n"
       " s[b,i,j] = sum(d: q[b,i,d] * k[b,j,d]) / sqrt(f32(D))\n m[b,i] = max(j: s[b,i,j])\n"
       " p[b,i,j] = exp(s[b,i,j] - m[b,i])\n"
       " o[b,i,d] = sum(j: p[b,i,j] * v[b,j,d]) / sum(j: p[b,i,j]) }",
       5},
      {"linear_sigmoid",
       "op f(x: f32[N,D], w: f32[K,D]) -> (y) {\n z[n,k] = sum(d: x[n,d]*w[k,d])\n y[n,k] = 1/(1 + "
       "exp(-z[n,k])) }",
       2},
      {"conv2d",
       "op f(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {\n y[n,k, i in 0..H, j in 0..W] ="
       " relu(b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s])) }",
       3},
      {"mlp",
       "op f(x: f32[N,D], w: f32[K,D], v: f32[M,K], b: f32[K]) -> (y) {\n"
       " h[n,k] = sum(d: x[n,d]*w[k,d]) + b[k]\n"
       " a[n,k] = 0.5*h[n,k]*(1 + tanh(0.79*(h[n,k] + 0.044*h[n,k]^3)))\n"
       " y[n,m] = sum(k: a[n,k]*v[m,k]) }",
       5},
      {"embedding",
       "op f(table: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: tanh(table[ids[b,l], d])) }", 1},
      {"cumulative", "op f(x: f32[N]) -> (y) { y[i in 0..N] = exp(sum(k in 0..i+1: x[k])) }", 1},
      {"product", "op f(x: f32[N,M]) -> (y) { y[i] = prod(k: sin(x[i,k])) }", 2},
      {"dropout",
       "op f(x: f32[N], seed: i64) -> (y) { y[i] = if random(seed, i) < 0.9 then tanh(x[i])/0.9 else 0 }", 0},
      {"reversed", "op f(x: f32[N,C], g: f32[C]) -> (y) { y[n,c] = g[c]*tanh(x[n,C-1-c]) }", 1},
  };
  return ops;
}

Program derived(const std::string& text) { return inline_injective(gather(gradient(parse_op(text)))); }

Program normal_form(const Program& p) { return inline_injective(p); }

const PlainOp& plain_op(const std::string& name) {
  for (const PlainOp& op : plain_ops())
    if (op.name == name) return op;
  throw std::logic_error("no such op: " + name);
}

Program derived_op(const std::string& name) { return derived(plain_op(name).text); }

int backward_nodes(const Program& p, Op op) {
  std::vector<Id> roots;
  for (const Definition& d : p.backward.definitions) roots.push_back(d.body);
  int count = 0;
  for (Id id : reachable(*p.arena, roots)) count += (*p.arena)[id].op == op;
  return count;
}

int backward_reductions(const Program& p) {
  int count = 0;
  for (int op = static_cast<int>(Op::sum); op <= static_cast<int>(Op::argmin); ++op)
    count += backward_nodes(p, static_cast<Op>(op));
  return count;
}

std::string body_of(const Program& p, const std::string& tensor) {
  auto t = p.find(tensor);
  const Definition* d = t ? p.definition_of(*t) : nullptr;
  return d ? print(p, d->body) : "none";
}

void expect_same_values(const Program& before, const Program& after) {
  DimValues dims = sample_dims(before, 3);
  Arrays in = random_inputs(before, dims, 5);
  for (auto& [name, dy] : random_cotangents(before, dims, 6)) in[name] = dy;
  Arrays expected = evaluate(before, in, dims, {.rounding = Rounding::exact});
  Arrays got = evaluate(after, in, dims, {.rounding = Rounding::exact});
  ASSERT_EQ(expected.size(), got.size());
  for (const auto& [name, x] : expected) {
    const Array& y = got.at(name);
    ASSERT_EQ(x.shape, y.shape) << name;
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x.at(i), y.at(i), 1e-9 * (1 + std::abs(x.at(i)))) << name << " at " << i << "\n"
                                                                    << print(after);
  }
}

}  // namespace xhat::testing
