// Limits of the classic fusion policy (fusion/relay/relay.h), which plans are made with where it is asked for.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace xhat::fusion {

constexpr int kRelayPhases = 3;

struct RelayOptions {
  int opt_level = 1;             // 0: every node by itself; all levels above are alike
  size_t max_fuse_depth = 256;   // nodes in a group
  size_t max_arguments = 0;      // of a kernel, results included; 0: no limit. OpenCL 128, Metal 31
  bool link_constants = false;   // tensors of constants stand inside kernels, not among their parameters
  int phases = kRelayPhases;     // fewer: to see what each of them does
  std::vector<std::string> opaque = {};  // ops that are called, and definitions, that stay nodes that nothing is fused with
};

}  // namespace xhat::fusion
