// Maps of one tensor, with one exponential or quotient of polynomials and one division each.
#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

// y of x; backward takes dy and what `saved` names.
struct Tanh {  // x P(x^2)/Q(x^2), as Eigen and XLA do, with coefficients of tools/fit_vector_math.py
  static constexpr const char* saved = "y";
  static V forward(V x) {
    V t = min(x * x, set(81.36f)), p = set(1.33837492e-8f), q = set(7.79003187e-7f);
    for (float c : {2.06354471e-5f, 0.00349743548f, 0.133826688f, 1.0f}) p = fma(p, t, set(c));
    for (float c : {0.000328848051f, 0.0258842781f, 0.467159897f, 1.0f}) q = fma(q, t, set(c));
    return max(min(x * (p / q), set(1)), set(-1));
  }
  static V backward(V dy, V y) { return dy * (set(1) - y * y); }
};

struct Silu {
  static constexpr const char* saved = "x";
  static V forward(V x) { return x / (set(1) + exp_of(-x)); }
  static V backward(V dy, V x) {
    V s = set(1) / (set(1) + exp_of(-x));
    return dy * s * fma(x, set(1) - s, set(1));
  }
};

// log(1+e), e in [0, 1], with the coefficients of runtime/vector_math.cpp.
V softplus(V x) {
  V e = exp_of(min(x, -x)), p = set(0.00239166757f);
  for (float c : {-0.0152612254f, 0.0455313995f, -0.0873660147f, 0.127814591f, -0.162720814f, 0.199373826f, -0.249947965f,
                  0.333331734f, -0.5f})
    p = fma(p, e, set(c));
  return max(x, set(0)) + fma(e * e, p, e);
}

struct Softplus {
  static constexpr const char* saved = "x";
  static V forward(V x) { return softplus(x); }
  static V backward(V dy, V x) { return dy / (set(1) + exp_of(-x)); }
};

// With u = e^x, w = u (u + 2): tanh(softplus(x)) = w/(w + 2), whose slope is 4 u (1 + u)/(w + 2)^2.
struct Mish {
  static constexpr const char* saved = "x";
  static V forward(V x) {
    V u = exp_of(min(x, set(20))), w = fma(u, u, u + u);
    return x * w / (w + set(2));
  }
  static V backward(V dy, V x) {
    V u = exp_of(min(x, set(20))), w = fma(u, u, u + u), r = set(1) / (w + set(2));
    return dy * r * fma(x * set(4) * fma(u, u, u), r, w);
  }
};

template <class F>
void map(Tensor to, const Tensor& a, F f, int64_t bytes) {
  streamed(bytes, [&](auto stream) {
    tiles((to.size() + kTile - 1) / kTile, [&](int64_t tile) {
      for (int64_t i = tile * kTile, end = std::min(to.size(), i + kTile); i < end; i += kStep)
        put<stream.value>(to.data + i, f(load(a.data + i), i));
    });
  });
}

template <class F>
void unary(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  whole_vectors({x.size()});
  op.saves({F::saved});
  Tensor kept = F::saved == std::string("x") ? x : y;
  op.forward = [=] { map(y, x, [](V v, int64_t) { return F::forward(v); }, 8 * x.size()); };
  op.backward = [=] { map(dx, dy, [&](V d, int64_t i) { return F::backward(d, load(kept.data + i)); }, 12 * x.size()); };
}

}  // namespace

Loaders pointwise_loaders() {
  return {{"tanh", unary<Tanh>}, {"silu", unary<Silu>}, {"softplus", unary<Softplus>}, {"mish", unary<Mish>}};
}

}  // namespace xhat::bench::hand
