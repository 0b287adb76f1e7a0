// The processor level and the threads that a library compiled ahead of time runs on.
#pragma once
#include <memory>
#include <vector>

#include "runtime/host/cpu_level.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {

// The position of the level to use: that of XHAT_CPU_LEVEL, else the best that this processor supports. Throws Failure if there is none.
size_t choose_level(const std::vector<CpuLevel>& levels);

// One pool for all libraries of the process. A caller may keep using a pool after set_threads() has replaced it.
void set_threads(int threads);  // 0: one per core
std::shared_ptr<ThreadPool> thread_pool();

}  // namespace xhat::runtime
