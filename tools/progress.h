// What a command that takes its time is at, on standard error: one line, rewritten, where somebody looks on; a line per stage
// elsewhere.
#pragma once
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <mutex>
#include <string>

namespace xhat::tool {

// May be told from many threads.
class Progress {
 public:
  explicit Progress(std::string command) : head_("xhat " + std::move(command) + ": ") {}
  ~Progress() { show(""); }  // before what an error says
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // often: a step within a stage, shown if somebody has had the time to read the one before. An empty line ends it.
  void show(const std::string& what, bool often = false) {
    std::lock_guard lock(mutex_);
    if (what.empty() && !shown_at_all_) return;
    constexpr std::chrono::milliseconds kGlance(100);
    auto now = std::chrono::steady_clock::now();
    if (often && now - shown_ < kGlance) return;
    shown_ = now;
    shown_at_all_ = !what.empty();
    if (terminal_)
      std::cerr << "\r\033[K" << (what.empty() ? "" : head_ + what) << std::flush;
    else if (!what.empty() && !often)
      std::cerr << head_ << what << std::endl;
  }

 private:
  std::mutex mutex_;
  std::string head_;
  bool shown_at_all_ = false;
  std::chrono::steady_clock::time_point shown_ = {};
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

}  // namespace xhat::tool
