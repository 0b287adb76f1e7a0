// Kernels by hand as a program of the protocol in protocol.h: vector intrinsics, one sweep per direction, for the ops of
// which xhat's kernels should be no slower (docs/performance.md).
#include "bench/compare/hand.h"

namespace xhat::bench::hand {

void whole_vectors(std::initializer_list<int64_t> sizes) {
  for (int64_t n : sizes)
    if (n % kStep != 0) throw Skip("not by hand at sizes that are no multiples of a vector");
}

}  // namespace xhat::bench::hand

int main() {
  using namespace xhat::bench;
  Loaders loaders = hand::pointwise_loaders();
  loaders.merge(hand::row_loaders());
  loaders.merge(hand::channel_loaders());
  loaders.merge(hand::image_loaders());
  return serve_ops(kIsa, loaders, "not written by hand here");
}
