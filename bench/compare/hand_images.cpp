// Stencils and pooling: planes, a row at a time.
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

// Sums of three rows in a buffer with a zero at either end, then of three columns of that. Its transpose is itself.
void blur(const Tensor& x, const Tensor& y) {
  const int64_t width = x.columns(), height = x.shape[1], images = x.shape[0], band = 32;
  alignas(64) static constexpr float zeros[kMaxColumns] = {};
  const int64_t bands = (height + band - 1) / band;
  streamed(8 * x.size(), [&](auto stream) {
    tiles(images * bands, [&](int64_t tile) {
      alignas(64) float sums[kMaxColumns + 2 * kLanes];
      float* column = sums + kLanes;
      column[-1] = column[width] = 0;
      const float* image = x.data + tile / bands * height * width;
      float* out = y.data + tile / bands * height * width;
      for (int64_t r = tile % bands * band; r < std::min(height, (tile % bands + 1) * band); ++r) {
        const float *middle = image + r * width, *above = r > 0 ? middle - width : zeros, *below = r + 1 < height ? middle + width : zeros;
        for (int64_t i = 0; i < width; i += kStep) store(column + i, load(above + i) + load(middle + i) + load(below + i));
        for (int64_t i = 0; i < width; i += kStep)
          put<stream.value>(out + r * width + i,
                            (load_unaligned(column + i - 1) + load(column + i) + load_unaligned(column + i + 1)) * set(1.0f / 9));
      }
    });
  });
}

void box_blur3x3(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", x.shape), dy = op.cotangent("y"), dx = op.gradient("x");
  whole_vectors({x.columns()});
  if (x.columns() > kMaxColumns) throw Skip("rows longer than the stack's");
  op.forward = [=] { blur(x, y); };
  op.backward = [=] { blur(dy, dx); };
}

// Half a vector, as the columns of many images are: they need not fill whole ones.
using Half [[gnu::vector_size(sizeof(V) / 2)]] = float;
constexpr int64_t kHalf = kStep / 2;
Half half_at(const float* p) {
  Half v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A plane with zeros around it, its rows at multiples of a line: [row 0 is above it][column -1 .. width].
class Padded {
 public:
  Padded(int64_t height, int64_t width)
      : height_(height), width_(width), stride_((width + 2 + 15) / 16 * 16), data_(static_cast<size_t>((height + 2) * stride_ + 32)) {}

  void fill(const float* plane) {
    for (int64_t i = 0; i < height_; ++i)
      for (int64_t j = 0; j < width_; j += kHalf) std::memcpy(data_.data() + begin(i) + j, plane + i * width_ + j, sizeof(Half));
  }
  const float* row(int64_t i) const { return data_.data() + begin(i); }

 private:
  int64_t begin(int64_t i) const { return (i + 1) * stride_ + 16; }

  int64_t height_, width_, stride_;
  std::vector<float> data_;  // the last column of a row is followed by zeros, which the next row begins with
};

constexpr int64_t kBand = 4;  // rows that are made of the same ones

// f(q, k, v) for kBand rows i + q, half a vector of columns from j on: v is what tap k = 3r + s of a window reads there,
// x[i+q+r-1][j+s-1]. Each row of x is loaded once.
template <class F>
void taps(const Padded& x, int64_t i, int64_t j, F f) {
#pragma GCC unroll 8
  for (int64_t t = 0; t < kBand + 2; ++t) {
    const float* row = x.row(i + t - 1) + j;
    const Half at[3] = {half_at(row - 1), half_at(row), half_at(row + 1)};
#pragma GCC unroll 8
    for (int64_t q = 0; q < kBand; ++q)
      if (const int64_t r = t - q; r >= 0 && r < 3)
        for (int64_t s = 0; s < 3; ++s) f(q, r * 3 + s, at[s]);
  }
}

// to[i][j] = sum(r, s: from[i+r-1][j+s-1] * w[r][s]).
void correlate(const Padded& from, const float* w, float* to, int64_t height, int64_t width) {
  for (int64_t i = 0; i < height; i += kBand)
    for (int64_t j = 0; j < width; j += kHalf) {
      Half sums[kBand] = {};
      taps(from, i, j, [&](int64_t q, int64_t k, Half v) { sums[q] += v * w[k]; });
      for (int64_t q = 0; q < kBand; ++q) std::memcpy(to + (i + q) * width + j, &sums[q], sizeof(Half));
    }
}

// sums[r][s] = sum(i, j: d[i][j] * x[i+r-1][j+s-1]).
void correlations(const Padded& x, const Padded& d, float* sums, int64_t height, int64_t width) {
  Half s[9] = {};
  for (int64_t i = 0; i < height; i += kBand)
    for (int64_t j = 0; j < width; j += kHalf) {
      Half here[kBand];
      for (int64_t q = 0; q < kBand; ++q) here[q] = half_at(d.row(i + q) + j);
      taps(x, i, j, [&](int64_t q, int64_t k, Half v) { s[k] += v * here[q]; });
    }
  for (int64_t k = 0; k < 9; ++k) {
    sums[k] = 0;
    for (int64_t lane = 0; lane < kHalf; ++lane) sums[k] += s[k][lane];
  }
}

void depthwise_conv3x3(TensorOp& op) {
  Tensor x = op.input("x"), w = op.input("w"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dw = op.gradient("w");
  const int64_t images = x.shape[0], channels = x.shape[1], height = x.shape[2], width = x.shape[3];
  Tensor sums = op.scratch({images * channels, 9});
  if (width % kHalf != 0 || height % kBand != 0) throw Skip("not by hand at such images");
  op.saves({"x", "w"});
  // f(p, copies) for each plane p; the padded copies are made once for some of them.
  auto planes = [=](auto padded, auto f) {
    constexpr int64_t kPlanes = 16;
    tiles((images * channels + kPlanes - 1) / kPlanes, [&](int64_t tile) {
      auto copies = padded;
      for (int64_t p = tile * kPlanes; p < std::min(images * channels, (tile + 1) * kPlanes); ++p) f(p, copies);
    });
  };
  op.forward = [=] {
    planes(Padded(height, width), [&](int64_t p, Padded& padded) {
      padded.fill(x.data + p * height * width);
      correlate(padded, w.data + p % channels * 9, y.data + p * height * width, height, width);
    });
  };
  // What one phase reads fits into the first-level cache, what all read does not.
  op.backward = [=] {
    planes(std::array{Padded(height, width), Padded(height, width)}, [&](int64_t p, auto& copies) {
      auto& [input, from] = copies;
      float turned[9];
      for (int64_t k = 0; k < 9; ++k) turned[k] = w.data[p % channels * 9 + 8 - k];
      from.fill(dy.data + p * height * width);
      correlate(from, turned, dx.data + p * height * width, height, width);
      input.fill(x.data + p * height * width);
      correlations(input, from, sums.data + p * 9, height, width);
    });
    for (int64_t i = 0; i < channels * 9; ++i) {
      dw.data[i] = 0;
      for (int64_t image = 0; image < images; ++image) dw.data[i] += sums.data[image * channels * 9 + i];
    }
  };
}

// v with the lanes of each pair exchanged, the first ones of the pairs, and half a vector with every lane twice.
template <int... kLane>
V neighbours(V v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane ^ 1)...);
}
template <int... kLane>
Half firsts(V v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (2 * kLane)...);
}
template <int... kLane>
V twice(Half v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane / 2)...);
}
constexpr std::make_integer_sequence<int, kLanes> kAll;
constexpr std::make_integer_sequence<int, kLanes / 2> kFirst;

// Windows of two rows, two columns of each; the last vector of a row overlaps the one before.
void maxpool2x2(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", {x.shape[0], x.shape[1], x.shape[2] / 2, x.shape[3] / 2});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int64_t width = x.columns(), pairs = x.rows() / 2;
  if (width % 2 != 0 || x.shape[2] % 2 != 0 || width < kStep) throw Skip("not by hand at such images");
  op.saves({"x", "y"});
  // f(first column) for each vector of the windows' rows `r`, of many a tile.
  auto vectors = [=](auto f) {
    constexpr int64_t kRows = 64;
    tiles((pairs + kRows - 1) / kRows, [&](int64_t tile) {
      for (int64_t r = tile * kRows; r < std::min(pairs, (tile + 1) * kRows); ++r)
        for (int64_t i = 0; i < width; i += kStep) f(r, std::min(i, width - kStep));
    });
  };
  op.forward = [=] {
    vectors([&](int64_t r, int64_t i) {
      const float* in = x.data + 2 * r * width + i;
      V columns = max(load_unaligned(in), load_unaligned(in + width));
      Half most = firsts(max(columns, neighbours(columns, kAll)), kFirst);
      std::memcpy(y.data + (r * width + i) / 2, &most, sizeof most);
    });
  };
  // Ties share, as xhat has it.
  op.backward = [=] {
    vectors([&](int64_t r, int64_t i) {
      const float* in = x.data + 2 * r * width + i;
      const int64_t window = (r * width + i) / 2;
      const V most = twice(half_at(y.data + window), kAll), d = twice(half_at(dy.data + window), kAll), none = set(0), one = set(1);
      const Bits first = load_unaligned(in) == most, second = load_unaligned(in + width) == most;
      const V winners = (first ? one : none) + (second ? one : none);
      const V share = d / (winners + neighbours(winners, kAll));
      store_unaligned(dx.data + 2 * r * width + i, first ? share : none);
      store_unaligned(dx.data + (2 * r + 1) * width + i, second ? share : none);
    });
  };
}

}  // namespace

Loaders image_loaders() { return {{"box_blur3x3", box_blur3x3}, {"depthwise_conv3x3", depthwise_conv3x3}, {"maxpool2x2", maxpool2x2}}; }

}  // namespace xhat::bench::hand
