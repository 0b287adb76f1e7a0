#include "runtime/ahead/support/machine.h"

#include <cstdlib>
#include <mutex>
#include <string>

#include "runtime/ahead/support/status.h"

namespace xhat::runtime {
namespace {

bool has(CpuLevel level) {
#if defined(__x86_64__)
  switch (level) {
    case CpuLevel::sse41: return __builtin_cpu_supports("sse4.1");
    case CpuLevel::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case CpuLevel::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && has(CpuLevel::avx2);
  }
#endif
  return false;
}

std::string names_of(const std::vector<CpuLevel>& levels) {
  std::string text;
  for (CpuLevel l : levels) text += (text.empty() ? "" : ", ") + std::string(name_of(l));
  return text;
}

std::mutex pool_mutex;
std::shared_ptr<ThreadPool> pool;

}  // namespace

size_t choose_level(const std::vector<CpuLevel>& levels) {
  if (const char* wanted = std::getenv("XHAT_CPU_LEVEL"); wanted && *wanted) {
    for (size_t i = 0; i < levels.size(); ++i)
      if (name_of(levels[i]) == wanted) {
        if (has(levels[i])) return i;
        throw Failure{AheadStatus::bad_cpu, "XHAT_CPU_LEVEL asks for " + std::string(wanted) + ", which this processor lacks"};
      }
    throw Failure{AheadStatus::bad_cpu, "XHAT_CPU_LEVEL asks for " + std::string(wanted) + ", but the library has code for " +
                                            names_of(levels) + "; choose one of these, or build it with --levels " + wanted};
  }
  for (size_t i = levels.size(); i-- > 0;)
    if (has(levels[i])) return i;
  throw Failure{AheadStatus::bad_cpu, "this processor has none of the levels that the library has code for: " + names_of(levels)};
}

void set_threads(int threads) {
  auto made = std::make_shared<ThreadPool>(threads_or_all(threads));
  std::lock_guard lock(pool_mutex);
  pool.swap(made);  // running calls keep the old pool until they end
}

std::shared_ptr<ThreadPool> thread_pool() {
  {
    std::lock_guard lock(pool_mutex);
    if (pool) return pool;
  }
  auto made = std::make_shared<ThreadPool>(threads_or_all());
  std::lock_guard lock(pool_mutex);
  if (!pool) pool = made;
  return pool;
}

}  // namespace xhat::runtime
