// BatchNorm as one would write it by hand with Eigen, to compare with: channels shared among threads, and for
// each channel a few passes over data that then lies in the cache (401 KB for 32 x 56 x 56).
#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include <Eigen/Core>

namespace by_hand {

struct Sizes {
  int64_t batch, channels, plane;  // x is [batch, channels, plane], row-major
  double count() const { return static_cast<double>(batch * plane); }
};

// Calls work(channel) for every channel; a thread takes the next one when it is done with the last.
template <class Work>
void for_channels(int64_t channels, unsigned threads, const Work& work) {
  std::atomic<int64_t> next = 0;
  auto take = [&] {
    for (int64_t c; (c = next++) < channels;) work(c);
  };
  std::vector<std::jthread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back(take);
  take();
}

using Read = Eigen::Map<const Eigen::ArrayXf>;
using Write = Eigen::Map<Eigen::ArrayXf>;

class BatchNorm {
 public:
  BatchNorm(Sizes sizes, unsigned threads)
      : s_(sizes), threads_(threads), mean_(s_.channels), scale_(s_.channels) {}

  void forward(const float* x, const float* gamma, const float* beta, float* y) {
    for_channels(s_.channels, threads_, [&](int64_t c) {
      double sum = 0, squares = 0;
      for (int64_t n = 0; n < s_.batch; ++n) sum += static_cast<double>(plane(x, n, c).sum());
      const auto mean = static_cast<float>(sum / s_.count());
      for (int64_t n = 0; n < s_.batch; ++n)
        squares += static_cast<double>((plane(x, n, c) - mean).square().sum());
      const auto scale =
          static_cast<float>(1 / std::sqrt(squares / s_.count() + 1e-5));  // 1 / standard deviation
      const float factor = gamma[c] * scale;
      for (int64_t n = 0; n < s_.batch; ++n) plane(y, n, c) = (plane(x, n, c) - mean) * factor + beta[c];
      mean_[c] = mean;
      scale_[c] = scale;
    });
  }

  void backward(const float* x, const float* gamma, const float* dy, float* dx, float* dgamma,
                float* dbeta) const {
    for_channels(s_.channels, threads_, [&](int64_t c) {
      double sum_dy = 0, sum_dy_x = 0;
      const float mean = mean_[c], scale = scale_[c];
      for (int64_t n = 0; n < s_.batch; ++n) {
        sum_dy += static_cast<double>(plane(dy, n, c).sum());
        sum_dy_x += static_cast<double>((plane(dy, n, c) * (plane(x, n, c) - mean)).sum());
      }
      dbeta[c] = static_cast<float>(sum_dy);
      dgamma[c] = static_cast<float>(sum_dy_x) * scale;
      const auto mean_dy = static_cast<float>(sum_dy / s_.count());
      const auto slope = static_cast<float>(sum_dy_x / s_.count()) * scale * scale;
      const float factor = gamma[c] * scale;
      for (int64_t n = 0; n < s_.batch; ++n)
        plane(dx, n, c) = (plane(dy, n, c) - mean_dy - (plane(x, n, c) - mean) * slope) * factor;
    });
  }

 private:
  Read plane(const float* t, int64_t n, int64_t c) const {
    return {t + (n * s_.channels + c) * s_.plane, s_.plane};
  }
  Write plane(float* t, int64_t n, int64_t c) const {
    return {t + (n * s_.channels + c) * s_.plane, s_.plane};
  }

  Sizes s_;
  unsigned threads_;
  Eigen::ArrayXf mean_, scale_;  // what it keeps for the backward
};

// As little as any implementation can do: the forward's bytes (read x, write y) and the backward's (read x
// and dy, write dx), and nothing else.
inline void move_forward(Sizes s, unsigned threads, const float* x, float* y) {
  const int64_t each = s.batch * s.plane;
  for_channels(s.channels, threads, [&](int64_t c) { Write(y + c * each, each) = Read(x + c * each, each); });
}
inline void move_backward(Sizes s, unsigned threads, const float* x, const float* dy, float* dx) {
  const int64_t each = s.batch * s.plane;
  for_channels(s.channels, threads, [&](int64_t c) {
    Write(dx + c * each, each) = Read(x + c * each, each) + Read(dy + c * each, each);
  });
}

}  // namespace by_hand
