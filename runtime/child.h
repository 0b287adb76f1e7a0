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
  bool fine() const { return failed == 0 && status == 0; }
};

// Runs it to its end, without input; what it says goes through the file `log`. A program without a slash is looked for in PATH.
// folder: where it works; "": here.
ChildEnd run_child(const std::vector<std::string>& command, const std::string& log, const std::string& folder = "");

}  // namespace xhat::runtime
