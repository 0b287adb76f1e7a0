// Runs another program: the linker, the compiler.
#pragma once
#include <string>
#include <vector>

namespace xhat::runtime {

struct ChildEnd {
  int failed = 0;   // errno, if the program could not be started
  // The status from wait(). 0 if other code of the process took it: code that ignores child processes, or waits for any of them.
  int status = 0;
  std::string said;  // its stdout and stderr
  bool stopped = false;  // it was killed, because it did not end in time
  bool fine() const { return failed == 0 && status == 0 && !stopped; }
};

// Runs a program to its end, without input. Its output is written to the file `log`. A program without a slash is looked up in PATH. folder: its
// working directory; "": the current one. After `seconds` it is killed, with its child processes; 0: never.
ChildEnd run_child(const std::vector<std::string>& command, const std::string& log, const std::string& folder = "", double seconds = 0);

}  // namespace xhat::runtime
