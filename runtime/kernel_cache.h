// Compiled kernels, by key: the same kernel of any op, at any batch size, is compiled once per process.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/kernel_spec.h"

namespace xhat::runtime {

// Calls the machine code of one tile. argv: pointers to the arguments in the order of CompiledKernel, after the user
// context, which the executor supplies as the first one.
class TileCode {
 public:
  virtual ~TileCode() = default;
  virtual int call(size_t argc, const void* const* argv) const = 0;
};

struct CompiledKernel {
  std::unique_ptr<TileCode> code;
  struct Scalar {
    std::string axis;  // by name: of any spec with the same key
    bool count;        // how many elements of it the tile has; else its origin
  };
  std::vector<Scalar> scalars;     // the first arguments
  std::vector<uint32_t> inputs;    // tensors of the spec, in argument order
  std::vector<uint32_t> results;
  double compile_ms = 0;
};

class KernelCache {
 public:
  // The kernel for this spec; compiles it if it is new. Safe from many threads; each kernel is compiled once.
  std::shared_ptr<const CompiledKernel> get(const KernelSpec& spec);
  size_t size() const;
  static std::shared_ptr<KernelCache> process();  // the one that compile() uses unless told otherwise

 private:
  using Entry = std::shared_future<std::shared_ptr<const CompiledKernel>>;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace xhat::runtime
