// A cache of the plans that calls of a library have made, each for some sizes, for later calls at these sizes.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/host/variant.h"

namespace xhat::runtime {

// Safe from many threads. When it is full, the oldest plan is dropped; a call that runs it still owns it.
template <class Plan>
class KnownPlans {
 public:
  static constexpr size_t kKept = 96;  // plans of all sides: 32 sizes, if infer, forward and backward are all called

  // make() runs without the lock, so calls at known sizes do not wait for it.
  template <class Make>
  std::shared_ptr<const Plan> find(const std::vector<AheadVariant>& of, const std::vector<int64_t>& dims, AheadLayout layout, Make&& make) {
    if (auto found = known(of, dims, layout)) return found;
    std::shared_ptr<const Plan> made = make();
    std::lock_guard lock(mutex_);
    if (plans_.size() >= kKept) plans_.erase(plans_.begin());
    plans_.push_back({&of, dims, layout, made});
    return made;
  }

 private:
  struct Known {
    const std::vector<AheadVariant>* of;
    std::vector<int64_t> dims;
    AheadLayout layout;
    std::shared_ptr<const Plan> plan;
  };

  std::shared_ptr<const Plan> known(const std::vector<AheadVariant>& of, const std::vector<int64_t>& dims, AheadLayout layout) {
    std::lock_guard lock(mutex_);
    for (const Known& k : plans_)
      if (k.of == &of && k.layout == layout && k.dims == dims) return k.plan;
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<Known> plans_;
};

}  // namespace xhat::runtime
