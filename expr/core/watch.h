// Steps inside of passes, for whoever watches: XHAT=dump writes them out (runtime/call/debug.h).
#pragma once
#include <functional>
#include <string>

#include "expr/core/program.h"

namespace xhat {

// While one lives, the steps of its thread are told to it. Of several the innermost hears them that has a watcher.
class WatchSteps {
 public:
  using Watcher = std::function<void(const std::string& step, const Program& after)>;
  explicit WatchSteps(Watcher watcher);
  ~WatchSteps();
  WatchSteps(const WatchSteps&) = delete;
  WatchSteps& operator=(const WatchSteps&) = delete;

 private:
  friend void step_done(const std::string& step, const Program& after);
  static thread_local WatchSteps* watching;
  Watcher watcher_;
  WatchSteps* outer_;
};

// A pass says so behind each of its steps. Costs nothing where nobody watches.
void step_done(const std::string& step, const Program& after);

}  // namespace xhat
