// A stencil.
#include <vector>

#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

// Sums of three rows in a buffer with a zero at either end, then of three columns of that. Its transpose is itself.
void blur(const Tensor& x, const Tensor& y) {
  const int64_t width = x.columns(), height = x.shape[1], images = x.shape[0], band = 32;
  const std::vector<float> nothing(static_cast<size_t>(width) + kLanes);
  const auto* zeros = reinterpret_cast<const float*>((reinterpret_cast<uintptr_t>(nothing.data()) + 63) / 64 * 64);
  const int64_t bands = (height + band - 1) / band;
  streamed(8 * x.size(), [&](auto stream) {
    tiles(images * bands, [&](int64_t tile) {
      alignas(64) float sums[kMostColumns + 2 * kLanes];
      float* column = sums + kLanes;
      column[-1] = column[width] = 0;
      const float* image = x.data + tile / bands * height * width;
      float* out = y.data + tile / bands * height * width;
      for (int64_t r = tile % bands * band; r < std::min(height, (tile % bands + 1) * band); ++r) {
        const float *middle = image + r * width, *above = r > 0 ? middle - width : zeros,
                    *below = r + 1 < height ? middle + width : zeros;
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
  if (x.columns() > kMostColumns) throw Skip("rows longer than the stack's");
  op.forward = [=] { blur(x, y); };
  op.backward = [=] { blur(dy, dx); };
}

}  // namespace

Loaders image_loaders() { return {{"box_blur3x3", box_blur3x3}}; }

}  // namespace xhat::bench::hand
