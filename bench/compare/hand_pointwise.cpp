// Maps, with at most one exponential or quotient of polynomials and one division each.
#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

// y of x; backward takes dy and what `saved` names.
struct Tanh {
  static constexpr const char* saved = "y";
  static V forward(V x) { return tanh_of(x); }
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

// log(1+e), e in [0, 1], with the coefficients of runtime/emit/vector_math.cpp.
V softplus(V x) {
  V e = exp_of(min(x, -x)), p = set(0.00239166757f);
  for (float c :
       {-0.0152612254f, 0.0455313995f, -0.0873660147f, 0.127814591f, -0.162720814f, 0.199373826f, -0.249947965f, 0.333331734f, -0.5f})
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
  op.forward = [=] {
    map(
        y, x, [](V v, int64_t) { return F::forward(v); }, 8 * x.size());
  };
  op.backward = [=] {
    map(
        dx, dy, [&](V d, int64_t i) { return F::backward(d, load(kept.data + i)); }, 12 * x.size());
  };
}

// y of x and a target t.
struct Huber {
  static V forward(V x, V t) {
    V d = x - t, a = max(d, -d), b = min(a, set(1));
    return b * fma(b, set(-0.5f), a);
  }
  static V backward(V dy, V x, V t) { return dy * clamp(x - t, set(-1), set(1)); }
};

struct BceWithLogits {
  static V forward(V x, V t) { return softplus(x) - x * t; }
  static V backward(V dy, V x, V t) { return dy * (set(1) / (set(1) + exp_of(-x)) - t); }
};

template <class F>
void loss(TensorOp& op) {
  Tensor x = op.input("x"), t = op.input("t"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  whole_vectors({x.size()});
  op.saves({"x", "t"});
  op.forward = [=] {
    map(
        y, x, [&](V v, int64_t i) { return F::forward(v, load(t.data + i)); }, 12 * x.size());
  };
  op.backward = [=] {
    map(
        dx, dy, [&](V d, int64_t i) { return F::backward(d, load(x.data + i), load(t.data + i)); }, 16 * x.size());
  };
}

void swiglu(TensorOp& op) {
  Tensor a = op.input("a"), b = op.input("b"), y = op.output("y", a.shape);
  Tensor dy = op.cotangent("y"), da = op.gradient("a"), db = op.gradient("b");
  whole_vectors({a.size()});
  op.saves({"a", "b"});
  op.forward = [=] {
    map(
        y, a, [&](V v, int64_t i) { return Silu::forward(v) * load(b.data + i); }, 12 * a.size());
  };
  op.backward = [=] {
    streamed(20 * a.size(), [&](auto stream) {
      auto both = [&](V d, int64_t i) {
        V x = load(a.data + i), s = set(1) / (set(1) + exp_of(-x));
        put<stream.value>(db.data + i, d * x * s);
        return d * load(b.data + i) * s * fma(x, set(1) - s, set(1));
      };
      map(da, dy, both, 20 * a.size());
    });
  };
}

}  // namespace

Loaders pointwise_loaders() {
  return {{"tanh", unary<Tanh>},  {"silu", unary<Silu>}, {"softplus", unary<Softplus>},           {"mish", unary<Mish>},
          {"huber", loss<Huber>}, {"swiglu", swiglu},    {"bce_with_logits", loss<BceWithLogits>}};
}

}  // namespace xhat::bench::hand
