#include "expr/core/watch.h"

#include <utility>

namespace xhat {

thread_local WatchSteps* WatchSteps::watching = nullptr;

WatchSteps::WatchSteps(Watcher watcher) : watcher_(std::move(watcher)), outer_(watching) { watching = this; }
WatchSteps::~WatchSteps() { watching = outer_; }

void step_done(const std::string& step, const Program& after) {
  WatchSteps* w = WatchSteps::watching;
  while (w && !w->watcher_) w = w->outer_;
  if (w) w->watcher_(step, after);
}

}  // namespace xhat
