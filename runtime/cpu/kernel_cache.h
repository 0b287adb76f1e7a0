// Compiled kernels, by key: the same kernel of any op, at any batch size, is compiled once per process; with a disk cache,
// once.
#pragma once
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/host/compiled_kernel.h"
#include "runtime/kernel/kernel_spec.h"
#include "runtime/store/disk_cache.h"

namespace xhat::runtime {

class KernelCache {
 public:
  explicit KernelCache(std::shared_ptr<DiskCache> disk = nullptr) : disk_(std::move(disk)) {}
  enum class Source : uint8_t { memory, disk, compiler };
  using Kernel = std::shared_ptr<const CompiledKernel>;
  struct Got {
    Kernel kernel;
    Source source;
  };
  // The kernels for these specs; compiles those that are new, by so many threads, and says how many are done. Safe from many threads; each
  // kernel is compiled once.
  std::vector<Got> get(std::span<const KernelSpec> specs, int threads, const std::function<void(size_t done)>& progress = {});
  size_t size() const;
  const std::shared_ptr<DiskCache>& disk() const { return disk_; }  // may be null
  // The one that compile() uses unless told otherwise; on_disk: with the disk cache that the environment names.
  static std::shared_ptr<KernelCache> process(bool on_disk = true);

 private:
  const std::shared_ptr<DiskCache> disk_;  // may be null
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_future<Kernel>> entries_;
};

}  // namespace xhat::runtime
