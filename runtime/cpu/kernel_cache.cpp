#include "runtime/cpu/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "runtime/cpu/kernel_compile.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {
namespace {

// What is compiled as one module has at most so many characters (KernelSpec::key), so that long work shows progress.
constexpr size_t kTogether = 4000;

// As few as keep all threads busy, for LLVM and the linker start once for each; the longest kernels first, each where least is.
std::vector<std::vector<size_t>> groups_of(std::vector<size_t> kernels, const std::vector<std::string>& keys, size_t threads) {
  auto length = [&](size_t i) { return keys[i].size(); };
  size_t total = 0;
  for (size_t i : kernels) total += length(i);
  const size_t count = std::min(kernels.size(), std::max(threads, total / kTogether + 1));
  std::vector<std::vector<size_t>> groups(count);
  std::vector<size_t> lengths(count);
  std::ranges::stable_sort(kernels, std::ranges::greater{}, length);
  for (size_t i : kernels) {
    const auto least = std::ranges::min_element(lengths) - lengths.begin();
    groups[static_cast<size_t>(least)].push_back(i);
    lengths[static_cast<size_t>(least)] += length(i);
  }
  return groups;
}

}  // namespace

std::vector<KernelCache::Got> KernelCache::get(std::span<const KernelSpec> specs, int threads,
                                               const std::function<void(size_t)>& progress) {
  const size_t n = specs.size();
  std::vector<Got> got(n, {nullptr, Source::memory});
  std::vector<std::string> keys;
  std::vector<std::promise<Kernel>> promises(n);
  std::vector<std::shared_future<Kernel>> futures;
  std::vector<size_t> mine;
  for (const KernelSpec& spec : specs) {
    keys.push_back(spec.key());
    if (const char* level = std::getenv("XHAT_CPU_LEVEL"))
      keys.back() += std::string("\ncpu ") + level;  // the next process, or call, may ask for another
  }
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      auto [it, fresh] = entries_.try_emplace(keys[i]);
      if (fresh) it->second = promises[i].get_future().share();
      if (fresh) mine.push_back(i);
      futures.push_back(it->second);
    }
  }
  std::atomic<size_t> done = n - mine.size();
  auto have = [&](size_t i, Kernel kernel, Source source) {
    got[i] = {kernel, source};
    promises[i].set_value(std::move(kernel));
    if (progress) progress(++done);
  };
  try {
    std::vector<size_t> missing;
    for (size_t i : mine)
      if (Kernel kept = disk_ ? disk_->load(keys[i]) : nullptr)
        have(i, std::move(kept), Source::disk);
      else
        missing.push_back(i);
    const auto groups = groups_of(std::move(missing), keys, static_cast<size_t>(std::max(1, threads)));
    run_jobs(groups.size(), threads, [&](size_t g) {
      std::vector<KernelToCompile> together;
      for (size_t i : groups[g]) together.push_back({&specs[i], keys[i]});
      auto kernels = compile(together, disk_.get());
      for (size_t k = 0; k < kernels.size(); ++k) have(groups[g][k], std::move(kernels[k]), Source::compiler);
    });
  } catch (...) {
    std::lock_guard lock(mutex_);
    for (size_t i : mine) {
      if (got[i].kernel) continue;
      promises[i].set_exception(std::current_exception());
      entries_.erase(keys[i]);  // the next caller may try again
    }
    throw;
  }
  for (size_t i = 0; i < n; ++i)
    if (!got[i].kernel) got[i].kernel = futures[i].get();  // compiled before, or by another thread
  return got;
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
