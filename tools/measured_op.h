// An op compiled one way, with data and memory for its calls, to be timed.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/call/compile.h"
#include "tools/data.h"

namespace xhat::tool {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start);  // milliseconds

struct Times {
  std::vector<double> ms;
  double least() const;
  double median() const;
};

// One call to be timed, as often as makes a sample.
struct Timer {
  std::function<void()> call;
  int calls = 1;
  Times times;
  bool once = false;  // it takes so long that the first run is its only sample
  bool stopped = false;            // at a limit, and the time until then is its only sample
  const Timer* after = nullptr;    // another one, without which it cannot run: where that was stopped, it has no sample

  bool is_timed() const { return !times.ms.empty(); }
  // compiled: so are its kernels, so that a first call which takes long tells enough.
  void warm_up(bool compiled = false);
  double sample();  // milliseconds that it took
};

// All sizes of the op: those given, and what follows from them. Throws UsageError for what is missing.
DimValues all_dims(const Command& c, const Program& op);

// Inputs, scalars that --set gives, cotangents.
Buffers random_data(const Command& c, const Program& op, const Program& derived, const DimValues& dims);

class MeasuredOp {
 public:
  // shared: inputs and cotangents; outputs and gradients where others write them too, else they get memory of their own, as
  // does the stash.
  MeasuredOp(const Program& op, CompileOptions options, const DimValues& dims, const Buffers& shared, Stash* stash = nullptr);
  MeasuredOp(const MeasuredOp&) = delete;
  MeasuredOp& operator=(const MeasuredOp&) = delete;

  CompiledOp compiled;
  Stash stash;
  Timer infer, forward, backward;
  double limit_ms = 0;  // of a call, looked at between kernels; 0: none
  using KernelTimes = std::map<std::string, Times>;  // by name, of every call
  KernelTimes infer_kernels, forward_kernels, backward_kernels;
  static constexpr const char* kChecks = "checks of the data";  // among them (a kernel's name has no spaces)

 private:
  CompileOptions timed(CompileOptions options);

  KernelTimes* running_ = nullptr;
  Clock::time_point began_;
  Stash* stash_;
  Buffers own_;
  std::vector<Argument> forward_, backward_;
};

}  // namespace xhat::tool
