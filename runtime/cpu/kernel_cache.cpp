#include "runtime/cpu/kernel_cache.h"

#include <cstdlib>
#include <mutex>

#include "runtime/cpu/kernel_compile.h"

namespace xhat::runtime {
namespace {

std::shared_ptr<const CompiledKernel> made(const KernelSpec& spec, const std::string& key, DiskCache* disk, KernelCache::Source* source) {
  std::unique_ptr<CompiledKernel> kernel;
  if (disk) kernel = disk->load(key);
  if (source) *source = kernel ? KernelCache::Source::disk : KernelCache::Source::compiler;
  return kernel ? std::move(kernel) : compile(spec, key, disk);
}

}  // namespace

std::shared_ptr<const CompiledKernel> KernelCache::get(const KernelSpec& spec, Source* source) {
  if (source) *source = Source::memory;
  std::string key = spec.key();
  if (const char* level = std::getenv("XHAT_CPU_LEVEL")) key += std::string("\ncpu ") + level;  // the next process, or call, may ask for another
  std::promise<std::shared_ptr<const CompiledKernel>> promise;
  Entry entry;
  bool mine = false;
  {
    std::lock_guard lock(mutex_);
    auto [it, fresh] = entries_.try_emplace(key);
    if (fresh) it->second = promise.get_future().share();
    entry = it->second;
    mine = fresh;
  }
  if (!mine) return entry.get();
  try {
    promise.set_value(made(spec, key, disk_.get(), source));
  } catch (...) {
    promise.set_exception(std::current_exception());
    std::lock_guard lock(mutex_);
    entries_.erase(key);  // the next caller may try again
  }
  return entry.get();
}

size_t KernelCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

std::shared_ptr<KernelCache> KernelCache::process(bool on_disk) {
  static auto in_memory = std::make_shared<KernelCache>();
  if (!on_disk || !DiskCache::of_environment()) return in_memory;
  static auto cache = std::make_shared<KernelCache>(DiskCache::of_environment());
  return cache;
}

}  // namespace xhat::runtime
