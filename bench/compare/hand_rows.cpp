// Reductions along rows that stay in the first-level cache, and along channels that stay in the second.
#include <cmath>

#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

constexpr float kEps = 1e-5f;
constexpr int64_t kRows = 16;  // of a tile

// f(row) for all rows, in tiles.
template <class F>
void rows(int64_t n, F f) {
  tiles((n + kRows - 1) / kRows, [&](int64_t tile) {
    for (int64_t r = tile * kRows, end = std::min(n, r + kRows); r < end; ++r) f(r);
  });
}

float most_of(const float* x, int64_t n) {
  V m[4] = {load_unaligned(x), load_unaligned(x), load_unaligned(x), load_unaligned(x)};
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep)
    for (int64_t k = 0; k < 4; ++k) m[k] = max(m[k], load_unaligned(x + i + k * kStep));
  for (; i + kStep <= n; i += kStep) m[0] = max(m[0], load_unaligned(x + i));
  float found = most(max(max(m[0], m[1]), max(m[2], m[3])));
  for (; i < n; ++i) found = std::max(found, x[i]);
  return found;
}

void softmax(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int64_t n = x.columns();
  whole_vectors({n});
  if (n > kMostColumns) throw Skip("rows longer than the stack's");
  op.saves({"y"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        alignas(64) float e[kMostColumns];
        const float* in = x.data + r * n;
        V m = set(most_of(in, n));
        V s = sum_of(n, [&](int64_t i) {
          V v = exp_of(load(in + i) - m);
          store(e + i, v);
          return v;
        });
        V scale = set(1 / sum(s));
        for (int64_t i = 0; i < n; i += kStep) put<stream.value>(y.data + r * n + i, load(e + i) * scale);
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        const float *out = y.data + r * n, *d = dy.data + r * n;
        V s = set(sum(sum_of(n, [&](int64_t i) { return load(out + i) * load(d + i); })));
        for (int64_t i = 0; i < n; i += kStep) put<stream.value>(dx.data + r * n + i, load(out + i) * (load(d + i) - s));
      });
    });
  };
}

// Rows of any length: where sums are made, the last vector is filled up; where a map is, it overlaps the one before.
void cross_entropy(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", {x.rows()}), logsumexp = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int32_t* labels = op.ids("labels").ints();
  const int64_t n = x.columns(), whole = n / kStep * kStep;
  if (n < kStep) throw Skip("rows shorter than a vector");
  op.saves({"x", "labels"});
  op.forward = [=] {
    rows(x.rows(), [&](int64_t r) {
      const float* in = x.data + r * n;
      const float m = most_of(in, n);
      V s = sum_of(whole, [&](int64_t i) { return exp_of(load_unaligned(in + i) - set(m)); });
      if (whole < n) {
        alignas(64) float last[kLanes];
        std::fill(last, last + kLanes, m - 100);  // e^-100 is nothing
        std::copy(in + whole, in + n, last);
        s += exp_of(load(last) - set(m));
      }
      logsumexp.data[r] = std::log(sum(s)) + m;
      y.data[r] = logsumexp.data[r] - in[labels[r]];
    });
  };
  op.backward = [=] {
    rows(x.rows(), [&](int64_t r) {
      float* out = dx.data + r * n;
      auto part = [&](int64_t i) {
        store_unaligned(out + i, set(dy.data[r]) * exp_of(load_unaligned(x.data + r * n + i) - set(logsumexp.data[r])));
      };
      for (int64_t i = 0; i < whole; i += kStep) part(i);
      if (whole < n) part(n - kStep);
      out[labels[r]] -= dy.data[r];
    });
  };
}

void layer_norm(TensorOp& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  Tensor mean = op.stash({x.rows()}), scale = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"), dbeta = op.gradient("beta");
  const int64_t n = x.columns(), parts = 4 * threads();
  Tensor partial = op.scratch({parts, 2, n});
  const float count = static_cast<float>(n);
  whole_vectors({n});
  op.saves({"x", "gamma"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        const float* in = x.data + r * n;
        const float m = mean.data[r] = sum(sum_of(n, [&](int64_t i) { return load(in + i); })) / count;
        V squares = sum_of(n, [&](int64_t i) {
          V d = load(in + i) - set(m);
          return d * d;
        });
        const float s = scale.data[r] = 1 / std::sqrt(sum(squares) / count + kEps);
        for (int64_t i = 0; i < n; i += kStep)
          put<stream.value>(y.data + r * n + i,
                            fma((load(in + i) - set(m)) * set(s), load(gamma.data + i), load(beta.data + i)));
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      tiles(parts, [&](int64_t part) {
        float *sum_gamma = partial.data + part * 2 * n, *sum_beta = sum_gamma + n;
        std::fill(sum_gamma, sum_gamma + 2 * n, 0.0f);
        for (int64_t r = x.rows() * part / parts; r < x.rows() * (part + 1) / parts; ++r) {
          const float *in = x.data + r * n, *d = dy.data + r * n;
          const V m = set(mean.data[r]), s = set(scale.data[r]);
          V level = set(0), along = set(0);
          for (int64_t i = 0; i < n; i += kStep) {
            V normal = (load(in + i) - m) * s, g = load(d + i), scaled = g * load(gamma.data + i);
            store(sum_gamma + i, fma(g, normal, load(sum_gamma + i)));
            store(sum_beta + i, load(sum_beta + i) + g);
            level += scaled;
            along = fma(scaled, normal, along);
          }
          const V a = set(sum(level) / count), b = set(sum(along) / count);
          for (int64_t i = 0; i < n; i += kStep) {
            V normal = (load(in + i) - m) * s;
            put<stream.value>(dx.data + r * n + i, s * (load(d + i) * load(gamma.data + i) - a - normal * b));
          }
        }
      });
    });
    for (int64_t i = 0; i < n; i += kStep) {
      V g = set(0), b = set(0);
      for (int64_t part = 0; part < parts; ++part) {
        g += load(partial.data + part * 2 * n + i);
        b += load(partial.data + part * 2 * n + n + i);
      }
      store(dgamma.data + i, g);
      store(dbeta.data + i, b);
    }
  };
}

void batch_norm_train(TensorOp& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  Tensor mean = op.stash(gamma.shape), scale = op.stash(gamma.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"), dbeta = op.gradient("beta");
  const int64_t images = x.shape[0], channels = x.shape[1], plane = x.shape[2] * x.shape[3];
  const float count = static_cast<float>(images * plane);
  whole_vectors({plane});
  op.saves({"x", "gamma"});
  auto at = [=](const Tensor& t, int64_t image, int64_t c) { return t.data + (image * channels + c) * plane; };
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      tiles(channels, [&](int64_t c) {
        V total = set(0), squares = set(0);
        for (int64_t k = 0; k < images; ++k) total += sum_of(plane, [&](int64_t i) { return load(at(x, k, c) + i); });
        const float m = mean.data[c] = sum(total) / count;
        for (int64_t k = 0; k < images; ++k)
          squares += sum_of(plane, [&](int64_t i) {
            V d = load(at(x, k, c) + i) - set(m);
            return d * d;
          });
        const float s = scale.data[c] = 1 / std::sqrt(sum(squares) / count + kEps);
        const V factor = set(s * gamma.data[c]), level = set(beta.data[c]);
        for (int64_t k = 0; k < images; ++k)
          for (int64_t i = 0; i < plane; i += kStep)
            put<stream.value>(at(y, k, c) + i, fma(load(at(x, k, c) + i) - set(m), factor, level));
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      tiles(channels, [&](int64_t c) {
        const float s = scale.data[c];
        const V m = set(mean.data[c]);
        V total = set(0), along = set(0);
        for (int64_t k = 0; k < images; ++k) {
          const float *d = at(dy, k, c), *in = at(x, k, c);
          total += sum_of(plane, [&](int64_t i) { return load(d + i); });
          along += sum_of(plane, [&](int64_t i) { return load(d + i) * (load(in + i) - m); });
        }
        dbeta.data[c] = sum(total);
        dgamma.data[c] = sum(along) * s;
        const V level = set(dbeta.data[c] / count), slope = set(dgamma.data[c] * s / count), factor = set(gamma.data[c] * s);
        for (int64_t k = 0; k < images; ++k)
          for (int64_t i = 0; i < plane; i += kStep)
            put<stream.value>(at(dx, k, c) + i, factor * (load(at(dy, k, c) + i) - level - (load(at(x, k, c) + i) - m) * slope));
      });
    });
  };
}

}  // namespace

Loaders row_loaders() {
  return {{"softmax", softmax}, {"cross_entropy", cross_entropy}, {"layer_norm", layer_norm}, {"batch_norm_train", batch_norm_train}};
}

}  // namespace xhat::bench::hand
