// What a command that takes its time is at, on standard error: one line, rewritten, where somebody looks on; a line per stage
// elsewhere.
#pragma once
#include <unistd.h>

#include <iostream>
#include <string>

namespace xhat::tool {

class Progress {
 public:
  explicit Progress(std::string command) : head_("xhat " + std::move(command) + ": ") {}

  // often: a step within a stage. An empty line ends it.
  void show(const std::string& what, bool often = false) const {
    if (terminal_)
      std::cerr << "\r\033[K" << (what.empty() ? "" : head_ + what) << std::flush;
    else if (!what.empty() && !often)
      std::cerr << head_ << what << std::endl;
  }
  bool terminal() const { return terminal_; }

 private:
  std::string head_;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

}  // namespace xhat::tool
