// Eigen as a program of the protocol in protocol.h: ops written by hand, forward and backward, as one who
// knows Eigen would write them. Elementwise work goes by blocks or rows that stay in the cache, so that its
// passes touch memory once; OpenMP runs blocks, rows and Eigen's products on all threads.
#include "bench/compare/eigen_op.h"

int main() {
  using namespace xhat::bench;
  Eigen::setNbThreads(threads());
  Loaders loaders = eigen::pointwise_loaders();
  loaders.merge(eigen::row_loaders());
  loaders.merge(eigen::product_loaders());
  std::string version = std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) +
                        "." + std::to_string(EIGEN_MINOR_VERSION);
  return serve_ops(version, loaders, "not written in Eigen here");
}
