// Compiled kernels, by key: the same kernel of any op, at any batch size, is compiled once per process; with a disk cache,
// once.
#pragma once
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runtime/host/compiled_kernel.h"
#include "runtime/kernel/kernel_spec.h"
#include "runtime/store/disk_cache.h"

namespace xhat::runtime {

class KernelCache {
 public:
  explicit KernelCache(std::shared_ptr<DiskCache> disk = nullptr) : disk_(std::move(disk)) {}
  enum class Source : uint8_t { memory, disk, compiler };
  // The kernel for this spec; compiles it if it is new, and says so. Safe from many threads; each kernel is compiled once.
  std::shared_ptr<const CompiledKernel> get(const KernelSpec& spec, Source* source = nullptr);
  size_t size() const;
  const std::shared_ptr<DiskCache>& disk() const { return disk_; }  // may be null
  // The one that compile() uses unless told otherwise; on_disk: with the disk cache that the environment names.
  static std::shared_ptr<KernelCache> process(bool on_disk = true);

 private:
  using Entry = std::shared_future<std::shared_ptr<const CompiledKernel>>;
  const std::shared_ptr<DiskCache> disk_;  // may be null
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace xhat::runtime
