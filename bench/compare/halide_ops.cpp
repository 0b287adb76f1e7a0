// The ops in Halide's front end. Halide counts dimensions from the innermost: x[r,k] of a .xh file is x(k, r) here.
#include "bench/compare/halide_ops.h"

#include <cmath>

namespace xhat::halide_peer {

namespace {

using Halide::Expr;
using Halide::RDom;

Var i("i"), j("j"), k("k"), r("r"), c("c"), n("n");

constexpr float kEpsilon = 1e-5F;

Expr sigmoid(const Expr& x) { return 1.0F / (1.0F + exp(-x)); }
Expr softplus(const Expr& x) { return max(x, 0.0F) + log(1.0F + exp(-abs(x))); }
Expr gelu(const Expr& x) { return 0.5F * x * (1.0F + tanh(0.7978845608028654F * (x + 0.044715F * x * x * x))); }

// The sum of an expression over the reduction variables in it.
Func total(const std::vector<Var>& over, const Expr& term) {
  Func sum;
  sum(over) = 0.0F;
  sum(over) += term;
  return sum;
}

Func result(const std::vector<Var>& over, const Expr& value) {
  Func y;
  y(over) = value;
  return y;
}

Outputs tanh_op(Inputs& in) { return {{"y", result({i}, tanh(in["x"](i)))}}; }
Outputs silu(Inputs& in) { return {{"y", result({i}, in["x"](i) * sigmoid(in["x"](i)))}}; }
Outputs mish(Inputs& in) { return {{"y", result({i}, in["x"](i) * tanh(softplus(in["x"](i))))}}; }
Outputs softplus_op(Inputs& in) { return {{"y", result({i}, softplus(in["x"](i)))}}; }
Outputs gelu_tanh_bias(Inputs& in) { return {{"y", result({c, n}, gelu(in["x"](c, n) + in["b"](c)))}}; }
Outputs swiglu(Inputs& in) {
  Expr a = in["a"](c, n);
  return {{"y", result({c, n}, a * sigmoid(a) * in["b"](c, n))}};
}

Outputs bce_with_logits(Inputs& in) {
  Expr x = in["x"](i);
  return {{"y", result({i}, softplus(x) - x * in["t"](i))}};
}

Outputs huber(Inputs& in) {
  Func d = result({i}, in["x"](i) - in["t"](i));
  Expr a = abs(d(i));
  return {{"y", result({i}, select(a < 1.0F, 0.5F * d(i) * d(i), a - 0.5F))}};
}

Outputs adam_step(Inputs& in) {
  Func m = result({i}, 0.9F * in["m"](i) + 0.1F * in["g"](i));
  Func v = result({i}, 0.999F * in["v"](i) + 0.001F * in["g"](i) * in["g"](i));
  const auto m_scale = static_cast<float>(1 / (1 - std::pow(0.9, 10)));
  const auto v_scale = static_cast<float>(1 / (1 - std::pow(0.999, 10)));
  Expr step = m(i) * m_scale / (sqrt(v(i) * v_scale) + 1e-8F);
  return {{"p1", result({i}, in["p"](i) - 1e-3F * step)}, {"m1", m}, {"v1", v}};
}

Outputs softmax(Inputs& in) {
  int columns = in.extent("x", 0);
  RDom q(0, columns);
  Func x = in["x"], greatest;
  greatest(r) = x(0, r);
  greatest(r) = max(greatest(r), x(q, r));
  Func m = in.keep("m", greatest, {in.extent("x", 1)});
  Func e = result({k, r}, exp(x(k, r) - m(r)));
  Func sum = total({r}, e(q, r));
  return {{"y", result({k, r}, e(k, r) / sum(r))}};
}

Outputs layer_norm(Inputs& in) {
  int columns = in.extent("x", 0);
  float share = 1.0F / static_cast<float>(columns);
  RDom q(0, columns);
  Func x = in["x"];
  Func mean = result({r}, total({r}, x(q, r))(r) * share);
  Func centered = result({k, r}, x(k, r) - mean(r));
  Func variance = result({r}, total({r}, centered(q, r) * centered(q, r))(r) * share);
  Func rstd = result({r}, 1.0F / sqrt(variance(r) + kEpsilon));
  return {{"y", result({k, r}, centered(k, r) * rstd(r) * in["gamma"](k) + in["beta"](k))}};
}

Outputs rms_norm(Inputs& in) {
  int columns = in.extent("x", 0);
  RDom q(0, columns);
  Func x = in["x"];
  Func squares = total({r}, x(q, r) * x(q, r));
  Func rrms = result({r}, 1.0F / sqrt(squares(r) * (1.0F / static_cast<float>(columns)) + kEpsilon));
  return {{"y", result({k, r}, x(k, r) * rrms(r) * in["gamma"](k))}};
}

Outputs batch_norm_train(Inputs& in) {
  int width = in.extent("x", 0), height = in.extent("x", 1), batch = in.extent("x", 3);
  float share = 1.0F / static_cast<float>(width * height * batch);
  RDom q(0, width, 0, height, 0, batch);
  Func x = in["x"];
  Func mean = result({c}, total({c}, x(q.x, q.y, c, q.z))(c) * share);
  Func centered = result({j, i, c, n}, x(j, i, c, n) - mean(c));
  Expr term = centered(q.x, q.y, c, q.z);
  Func variance = result({c}, total({c}, term * term)(c) * share);
  Func rstd = result({c}, 1.0F / sqrt(variance(c) + kEpsilon));
  return {{"y", result({j, i, c, n}, centered(j, i, c, n) * rstd(c) * in["gamma"](c) + in["beta"](c))}};
}

Outputs dense_gelu(Inputs& in) {
  RDom q(0, in.extent("x", 0));
  Func z = total({c, n}, in["x"](q, n) * in["w"](c, q));
  Func biased = result({c, n}, z(c, n) + in["b"](c));
  return {{"y", result({c, n}, gelu(biased(c, n)))}};
}

Outputs mlp2(Inputs& in) {
  RDom p(0, in.extent("x", 0)), q(0, in.extent("b1", 0));
  Func z = total({c, n}, in["x"](p, n) * in["w1"](c, p));
  Func biased = result({c, n}, z(c, n) + in["b1"](c));
  Func hidden = result({c, n}, gelu(biased(c, n)));
  Func product = total({c, n}, hidden(q, n) * in["w2"](c, q));
  return {{"y", result({c, n}, product(c, n) + in["b2"](c))}};
}

Outputs matmul_chain_512(Inputs& in) {
  RDom p(0, in.extent("a", 0)), q(0, in.extent("b", 1));
  Func product = total({j, i}, in["a"](p, i) * in["b"](p, j));
  return {{"y", total({j, i}, product(q, i) * in["d"](q, j))}};
}

Outputs conv3x3_bias_relu(Inputs& in) {
  Func x = in.padded("x");
  RDom q(0, 3, 0, 3, 0, in.extent("x", 2));
  Func z = total({j, i, k, n}, x(j + q.x - 1, i + q.y - 1, q.z, n) * in["w"](q.x, q.y, q.z, k));
  return {{"y", result({j, i, k, n}, max(z(j, i, k, n) + in["b"](k), 0.0F))}};
}

Outputs box_blur3x3(Inputs& in) {
  Func x = in.padded("x");
  Expr sum = 0.0F;
  for (int down = -1; down <= 1; ++down)
    for (int right = -1; right <= 1; ++right) sum += x(j + right, i + down, n);
  return {{"y", result({j, i, n}, sum * (1.0F / 9))}};
}

}  // namespace

const std::map<std::string, Definition> kOps = {
    {"tanh", {tanh_op, {"x"}}},
    {"silu", {silu, {"x"}}},
    {"mish", {mish, {"x"}}},
    {"softplus", {softplus_op, {"x"}}},
    {"gelu_tanh_bias", {gelu_tanh_bias, {"x", "b"}}},
    {"swiglu", {swiglu, {"a", "b"}}},
    {"bce_with_logits", {bce_with_logits, {"x"}}},
    {"huber", {huber, {"x"}}},
    {"adam_step", {adam_step, {}}},
    {"softmax", {softmax, {"x"}}},
    {"layer_norm", {layer_norm, {"x", "gamma", "beta"}}},
    {"rms_norm", {rms_norm, {"x", "gamma"}}},
    {"batch_norm_train", {batch_norm_train, {"x", "gamma", "beta"}}},
    {"dense_gelu", {dense_gelu, {"x", "w", "b"}}},
    {"mlp2", {mlp2, {"x", "w1", "b1", "w2", "b2"}}},
    {"matmul_chain_512", {matmul_chain_512, {"a", "b", "d"}}},
    {"conv3x3_bias_relu", {conv3x3_bias_relu, {"x", "w", "b"}}},
    {"box_blur3x3", {box_blur3x3, {"x"}}},
};

}  // namespace xhat::halide_peer
