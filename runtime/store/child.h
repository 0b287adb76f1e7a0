// Another program: the linker, the compiler.
#pragma once
#include <string>
#include <vector>

namespace xhat::runtime {

struct ChildEnd {
  int failed = 0;   // errno: it was not started
  // What wait() says; nothing if the status went to somebody else: a process that ignores its children, or waits for any of
  // them, may have taken it.
  int status = 0;
  std::string said;  // both of its streams
  bool stopped = false;  // it did not end in time
  bool fine() const { return failed == 0 && status == 0 && !stopped; }
};

// Runs it to its end, without input; what it says goes through the file `log`. A program without a slash is looked for in PATH.
// folder: where it works; "": here. seconds: after these it is killed, with all that it has started; 0: never.
ChildEnd run_child(const std::vector<std::string>& command, const std::string& log, const std::string& folder = "", double seconds = 0);

}  // namespace xhat::runtime
