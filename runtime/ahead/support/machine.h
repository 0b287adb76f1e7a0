// The processor and the threads that a library which was compiled ahead of time runs on.
#pragma once
#include <memory>
#include <vector>

#include "runtime/host/cpu_level.h"
#include "runtime/host/thread_pool.h"

namespace xhat::runtime {

// Position of the level to use: the best that this processor has, or what XHAT_CPU_LEVEL asks for. Throws Failure.
size_t choose_level(const std::vector<CpuLevel>& levels);

// One pool for all libraries of the process. Whoever holds one may use it on after another took its place.
void set_threads(int threads);  // 0: one per core
std::shared_ptr<ThreadPool> thread_pool();

}  // namespace xhat::runtime
