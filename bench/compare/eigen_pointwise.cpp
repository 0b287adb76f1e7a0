// Elementwise ops. Eigen vectorizes no select(): where there is a choice, min and max make it.
#include <cmath>

#include "bench/compare/eigen_op.h"

namespace xhat::bench::eigen {
namespace {

// y of x; backward reads what `saved` names.
struct Tanh {
  static constexpr const char* saved = "y";
  static void forward(Part y, Part x) { y = x.tanh(); }
  static void backward(Part dx, Part dy, Part y) { dx = dy * (1 - y.square()); }
};

struct Silu {
  static constexpr const char* saved = "x";
  static void forward(Part y, Part x) { y = x * x.logistic(); }
  static void backward(Part dx, Part dy, Part x) {
    Temporary s = x.logistic();
    dx = dy * s * (1 + x * (1 - s));
  }
};

struct Softplus {
  static constexpr const char* saved = "x";
  static void forward(Part y, Part x) { y = x.max(0.f) + (-x.abs()).exp().log1p(); }
  static void backward(Part dx, Part dy, Part x) { dx = dy * x.logistic(); }
};

// y = x tanh(softplus(x)) = x n/(n + 2) with n = e^x (e^x + 2); past 20 the quotient is 1,
// and n must not overflow.
struct Mish {
  static constexpr const char* saved = "x";
  static void forward(Part y, Part x) {
    Temporary e = x.min(20.f).exp();
    y = x * (e * (e + 2)) / (e * (e + 2) + 2);
  }
  static void backward(Part dx, Part dy, Part x) {
    Temporary e = x.min(20.f).exp();
    Temporary t = e * (e + 2) / (e * (e + 2) + 2);
    dx = dy * (t + x * (1 - t.square()) * e / (1 + e));
  }
};

template <class F>
void unary(Op& op) {
  Tensor x = op.input("x"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  op.saves({F::saved});
  Tensor kept = F::saved == std::string("x") ? x : y;
  op.forward = [=] { by_blocks(F::forward, y, x); };
  op.backward = [=] { by_blocks(F::backward, dx, dy, kept); };
}

// y of x and a target t.
struct Huber {
  static void forward(Part y, Part x, Part t) {
    auto a = (x - t).abs();
    y = a.min(1.f) * (a - 0.5f * a.min(1.f));
  }
  static void backward(Part dx, Part dy, Part x, Part t) { dx = dy * (x - t).max(-1.f).min(1.f); }
};

struct BceWithLogits {
  static void forward(Part y, Part x, Part t) { y = x.max(0.f) - x * t + (-x.abs()).exp().log1p(); }
  static void backward(Part dx, Part dy, Part x, Part t) { dx = dy * (x.logistic() - t); }
};

template <class F>
void loss(Op& op) {
  Tensor x = op.input("x"), t = op.input("t"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  op.saves({"x", "t"});
  op.forward = [=] { by_blocks(F::forward, y, x, t); };
  op.backward = [=] { by_blocks(F::backward, dx, dy, x, t); };
}

void swiglu_forward(Part y, Part a, Part b) { y = a * a.logistic() * b; }

void swiglu_backward(Part da, Part db, Part dy, Part a, Part b) {
  Temporary s = a.logistic();
  da = dy * b * s * (1 + a * (1 - s));
  db = dy * a * s;
}

void swiglu(Op& op) {
  Tensor a = op.input("a"), b = op.input("b"), y = op.output("y", a.shape);
  Tensor dy = op.cotangent("y"), da = op.gradient("a"), db = op.gradient("b");
  op.saves({"a", "b"});
  op.forward = [=] { by_blocks(swiglu_forward, y, a, b); };
  op.backward = [=] { by_blocks(swiglu_backward, da, db, dy, a, b); };
}

void adam(Part p1, Part m1, Part v1, Part p, Part g, Part m, Part v) {
  constexpr float b1 = 0.9f, b2 = 0.999f, rate = 1e-3f, eps = 1e-8f;
  const float bias1 = static_cast<float>(1 / (1 - std::pow(0.9, 10)));
  const float bias2 = static_cast<float>(1 / (1 - std::pow(0.999, 10)));
  m1 = b1 * m + 0.1f * g;
  v1 = b2 * v + 0.001f * g.square();
  p1 = p - rate * bias1 * m1 / ((bias2 * v1).sqrt() + eps);
}

void adam_step(Op& op) {
  Tensor p = op.over("p1", "p"), g = op.input("g"), m = op.over("m1", "m"), v = op.over("v1", "v");
  op.infer = [=] { by_blocks(adam, p, m, v, p, g, m, v); };
}

void gelu_tanh_bias(Op& op) {
  Tensor x = op.input("x"), b = op.input("b"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), db = op.gradient("b");
  op.saves({"x", "b"});
  op.forward = [=] {
    parallel(x.rows(), [&](Index i) {
      Temporary u = x.row(i) + b.flat();
      y.row(i) = 0.5f * u * (1 + gelu_tanh(u));
    });
  };
  op.backward = [=] {
    by_rows_with_sums(x.rows(), {db}, [&](Index i, ArrayXXf& sums) {
      Temporary u = x.row(i) + b.flat();
      Temporary t = gelu_tanh(u);
      dx.row(i) = dy.row(i) * gelu_slope(u, t);
      sums.col(0) += dx.row(i);
    });
  };
}

}  // namespace

Loaders pointwise_loaders() {
  return {{"tanh", unary<Tanh>}, {"silu", unary<Silu>},    {"softplus", unary<Softplus>},
          {"mish", unary<Mish>}, {"huber", loss<Huber>},   {"bce_with_logits", loss<BceWithLogits>},
          {"swiglu", swiglu},    {"adam_step", adam_step}, {"gelu_tanh_bias", gelu_tanh_bias}};
}

}  // namespace xhat::bench::eigen
