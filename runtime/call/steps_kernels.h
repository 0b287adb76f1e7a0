// The kernels of a program with loops and branches for one set of sizes, and memory of runs that are over, which later ones use again.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/call/steps_values.h"
#include "runtime/call/sums_over_runs.h"
#include "runtime/call/whole_loops.h"

namespace xhat::runtime {

struct CompiledBlock {
  CompiledOp op;
  std::vector<std::unique_ptr<Stash>> free;  // to be used again
  std::optional<SumsOverRuns> sums;
};

struct StepsKernels {
  DimValues dims;
  std::vector<std::vector<int64_t>> shapes;  // by tensor
  std::map<const Program*, CompiledBlock> compiled;
  WholeLoops whole;
  std::atomic<int> threads = 1;              // of these
  std::vector<std::unique_ptr<Pool>> pools;  // of runs that are over
  std::mutex mutex;                          // of what is free
};

// One of what is free, or a new one; goes back when nobody holds it any more, and keeps `of` until then.
template <class T>
std::shared_ptr<T> taken(const std::shared_ptr<StepsKernels>& of, std::vector<std::unique_ptr<T>>& free) {
  std::unique_ptr<T> one;
  {
    std::lock_guard lock(of->mutex);
    if (!free.empty()) {
      one = std::move(free.back());
      free.pop_back();
    }
  }
  if (!one) one = std::make_unique<T>();
  return {one.release(), [of, &free](T* back) {
            std::lock_guard lock(of->mutex);
            free.emplace_back(back);
          }};
}

// The memory of one run and of what it leaves.
inline std::shared_ptr<Pool> take_pool(const std::shared_ptr<StepsKernels>& of) { return taken(of, of->pools); }
inline std::shared_ptr<Stash> take_stash(const std::shared_ptr<StepsKernels>& of, CompiledBlock& block) { return taken(of, block.free); }

}  // namespace xhat::runtime
