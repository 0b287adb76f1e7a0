// Planes: statistics of channels and of groups of channels, which stay in the second-level cache.
#include <cmath>

#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

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
          for (int64_t i = 0; i < plane; i += kStep) put<stream.value>(at(y, k, c) + i, fma(load(at(x, k, c) + i) - set(m), factor, level));
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

// Groups of 8 channels: 8 planes, one after another.
void group_norm(TensorOp& op) {
  constexpr int64_t kSize = 8;
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  const int64_t images = x.shape[0], channels = x.shape[1], plane = x.shape[2] * x.shape[3], groups = channels / kSize;
  Tensor mean = op.stash({images, groups}), scale = op.stash({images, groups});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"), dbeta = op.gradient("beta");
  Tensor sums = op.scratch({2, images, channels});
  const int64_t elements = kSize * plane;
  const float count = static_cast<float>(elements);
  whole_vectors({plane});
  op.saves({"x", "gamma"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      tiles(images * groups, [&](int64_t g) {
        const float* in = x.data + g * elements;
        const auto [m, s] = moments_of(in, elements);
        mean.data[g] = m;
        scale.data[g] = s;
        for (int64_t k = 0; k < kSize; ++k) {
          const int64_t c = g % groups * kSize + k;
          const V factor = set(s * gamma.data[c]), level = set(beta.data[c]);
          for (int64_t i = k * plane; i < (k + 1) * plane; i += kStep)
            put<stream.value>(y.data + g * elements + i, fma(load(in + i) - set(m), factor, level));
        }
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      tiles(images * groups, [&](int64_t g) {
        const float *in = x.data + g * elements, *d = dy.data + g * elements;
        const float s = scale.data[g];
        const V m = set(mean.data[g]);
        float level = 0, along = 0;
        for (int64_t k = 0; k < kSize; ++k) {
          const int64_t c = g % groups * kSize + k, at = g * kSize + k;
          V t[4] = {set(0), set(0), set(0), set(0)}, a[4] = {set(0), set(0), set(0), set(0)};
          int64_t i = k * plane;
          for (; i + 4 * kStep <= (k + 1) * plane; i += 4 * kStep)
            for (int64_t j = 0; j < 4; ++j) {
              t[j] += load(d + i + j * kStep);
              a[j] = fma(load(d + i + j * kStep), load(in + i + j * kStep) - m, a[j]);
            }
          for (; i < (k + 1) * plane; i += kStep) {
            t[0] += load(d + i);
            a[0] = fma(load(d + i), load(in + i) - m, a[0]);
          }
          const float total = sums.data[at] = sum((t[0] + t[1]) + (t[2] + t[3]));
          const float product = sums.data[images * channels + at] = sum((a[0] + a[1]) + (a[2] + a[3])) * s;
          level += gamma.data[c] * total / count;
          along += gamma.data[c] * product / count;
        }
        const V slope = set(s * along), below = set(level);
        for (int64_t k = 0; k < kSize; ++k) {
          const V factor = set(gamma.data[g % groups * kSize + k]);
          for (int64_t i = k * plane; i < (k + 1) * plane; i += kStep)
            put<stream.value>(dx.data + g * elements + i, set(s) * (factor * load(d + i) - below - (load(in + i) - m) * slope));
        }
      });
    });
    for (int64_t c = 0; c < channels; ++c) {
      dbeta.data[c] = dgamma.data[c] = 0;
      for (int64_t image = 0; image < images; ++image) {
        dbeta.data[c] += sums.data[image * channels + c];
        dgamma.data[c] += sums.data[(images + image) * channels + c];
      }
    }
  };
}

// Channels the other way round, less a mean, times a scale.
void normalize_bgr(TensorOp& op) {
  Tensor x = op.input("x"), mean = op.input("mean"), scale = op.input("scale"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int64_t channels = x.shape[1], plane = x.shape[2] * x.shape[3];
  whole_vectors({plane});
  op.saves({"scale"});
  // to(c) of from(C-1-c).
  auto planes = [=](const Tensor& to, const Tensor& from, auto f) {
    streamed(8 * x.size(), [&](auto stream) {
      tiles(x.shape[0] * channels, [&](int64_t p) {
        const int64_t c = p % channels, other = p - c + channels - 1 - c;
        for (int64_t i = 0; i < plane; i += kStep) put<stream.value>(to.data + p * plane + i, f(load(from.data + other * plane + i), c));
      });
    });
  };
  op.forward = [=] { planes(y, x, [&](V v, int64_t c) { return (v - set(mean.data[c])) * set(scale.data[c]); }); };
  op.backward = [=] { planes(dx, dy, [&](V v, int64_t c) { return v * set(scale.data[channels - 1 - c]); }); };
}

}  // namespace

Loaders channel_loaders() { return {{"batch_norm_train", batch_norm_train}, {"group_norm", group_norm}, {"normalize_bgr", normalize_bgr}}; }

}  // namespace xhat::bench::hand
