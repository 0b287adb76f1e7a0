// A pool of the states that runs need besides their arguments: memory for temporaries, argument lists. A state is made for a run and kept
// for later ones, so there are as many as ever ran at the same time.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

namespace xhat::runtime {

template <class State>
class IdleStates {
 public:
  // A state that an earlier run gave back; null if none is idle.
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
