// XHAT_VIZ in the environment: pages (runtime/viz) of the ops that a process runs. Calls tell of what they ran; runtime/viz writes.
#pragma once
#include <memory>
#include <string>

#include "runtime/call/compile.h"

namespace xhat::runtime {

// The folder for pages that XHAT_VIZ asks for: "1" is xhat_viz, anything else names one; "" where it is not set, or "0".
const std::string& viz_folder();

// One op's calls. Safe from many threads.
class WatchedOp {
 public:
  WatchedOp(Program op, CompileOptions options);
  ~WatchedOp();
  // Of a call that runs now, in this thread: a kernel took so long.
  void kernel(const Kernel& kernel, double ns);
  // The call is over: direction is "infer", "forward" or "backward". Writes the page the first time that the direction ran, and says so on
  // standard error. A page that cannot be written is no error of the call.
  void ran(const std::string& direction, const DimValues& dims);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xhat::runtime
