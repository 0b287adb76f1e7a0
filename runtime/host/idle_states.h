// What runs need besides their arguments (memory for temporaries, argument lists): made for a run, and kept for the next one.
// As many are there as ever ran at the same time.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

namespace xhat::runtime {

template <class State>
class IdleStates {
 public:
  // One that an earlier run gave back; null if none is idle.
  std::unique_ptr<State> take() {
    std::lock_guard lock(mutex_);
    if (states_.empty()) return nullptr;
    auto state = std::move(states_.back());
    states_.pop_back();
    return state;
  }
  void give_back(std::unique_ptr<State> state) {
    std::lock_guard lock(mutex_);
    states_.push_back(std::move(state));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<State>> states_;
};

}  // namespace xhat::runtime
