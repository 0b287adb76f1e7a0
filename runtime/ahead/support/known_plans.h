// Plans of a library that calls have made, each for some sizes, so that the next call at these sizes finds it.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/host/variant.h"

namespace xhat::runtime {

// Used from many threads. Of more plans than are kept, the oldest goes; a call that runs it holds it.
template <class Plan>
class KnownPlans {
 public:
  static constexpr size_t kKept = 96;  // of all sides: 32 sizes, if infer, forward and backward are all called

  // make() is not called under the lock, so that known sizes do not wait for new ones.
  template <class Make>
  std::shared_ptr<const Plan> find(const std::vector<AheadVariant>& of, const std::vector<int64_t>& dims, Make&& make) {
    if (auto found = known(of, dims)) return found;
    std::shared_ptr<const Plan> made = make();
    std::lock_guard lock(mutex_);
    if (plans_.size() >= kKept) plans_.erase(plans_.begin());
    plans_.push_back({&of, dims, made});
    return made;
  }

 private:
  struct Known {
    const std::vector<AheadVariant>* of;
    std::vector<int64_t> dims;
    std::shared_ptr<const Plan> plan;
  };

  std::shared_ptr<const Plan> known(const std::vector<AheadVariant>& of, const std::vector<int64_t>& dims) {
    std::lock_guard lock(mutex_);
    for (const Known& k : plans_)
      if (k.of == &of && k.dims == dims) return k.plan;
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<Known> plans_;
};

}  // namespace xhat::runtime
