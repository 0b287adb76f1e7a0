// A kernel's machine code, from memory or from disk, and a description of its arguments. Does not include Halide.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xhat::runtime {

// Calls the machine code of one tile. argv[1], …: pointers to the arguments, in the order of KernelArguments. argv[0] is the user context, which
// call() fills in.
class TileCode {
 public:
  virtual ~TileCode() = default;
  virtual int call(size_t argc, const void* const* argv) const = 0;
};

struct KernelArguments {
  struct Scalar {
    std::string axis;  // the axis's name in every spec with this key
    bool count;        // the argument is the tile's number of elements; else its origin
    bool operator==(const Scalar&) const = default;
  };
  std::vector<Scalar> scalars;     // the first arguments
  std::vector<uint32_t> inputs;    // tensors of the spec, in argument order
  std::vector<uint32_t> results;
  bool streams = false;            // uses non-temporal stores: the caller must call end_streaming() after a tile
  std::string refused;             // why the code is not the one that was planned but a slower one; empty: it is
  bool operator==(const KernelArguments&) const = default;
};

// One of the kernels whose code is in one file.
struct NamedKernel {
  std::string key;  // KernelSpec::key
  KernelArguments arguments;
  bool operator==(const NamedKernel&) const = default;
};

struct CompiledKernel {
  KernelArguments arguments;
  std::unique_ptr<TileCode> code;
};

}  // namespace xhat::runtime
