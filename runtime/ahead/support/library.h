// An opened library compiled ahead of time: its table, and the functions that calls on the CPU and on devices share.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ahead/support/run.h"
#include "runtime/ahead/support/status.h"
#include "runtime/ahead/support/table.h"

namespace xhat::runtime {

enum SideNumber { kInfer, kForward, kBackward };

struct CpuCalls;     // run.cpp
struct DeviceCalls;  // device_run.cpp

struct Opened {
  AheadTable table;
  size_t arguments = 0;  // number of dims that are arguments of calls
  std::mutex mutex;      // guards the members below, which are made at first use
  std::shared_ptr<CpuCalls> cpu;
  std::vector<std::shared_ptr<DeviceCalls>> devices;  // per device of the table
};

// Opens the library at its first call; it stays open until the process ends.
Opened& open(xhat_ahead_library* library);

[[noreturn]] void fail(const AheadTable& t, AheadStatus status, const std::string& what);
const AheadSide& side_of(const AheadTable& t, int number);

// The values of all dims, from those that are arguments. Throws Failure for sizes that the op cannot have.
std::vector<int64_t> dims_of(const Opened& o, const int64_t* given);
std::vector<int64_t> shape_of(const AheadTable& t, int64_t tensor, const std::vector<int64_t>& dims);
// Throws Failure for more elements than kernels can count.
void check_elements(const AheadTable& t, const std::vector<int64_t>& shape, const std::vector<int64_t>& dims);
int64_t bytes_of(const AheadTable& t, int64_t tensor, const std::vector<int64_t>& dims);
std::string sizes_text(const AheadTable& t, const std::vector<int64_t>& dims);
// The numbers of the plan for these sizes. Throws Failure, with the served sizes, if no variant serves them. device: its name; empty for the CPU.
AheadNumbers numbers_for(const AheadTable& t, const std::vector<AheadVariant>& variants, const std::vector<int64_t>& dims,
                         const std::string& known_sizes, std::string_view device = {}, AheadLayout layout = AheadLayout::dense);
// Throws Failure if the side cannot run at these sizes with any data.
void check_sizes(const AheadTable& t, const AheadSide& side, const std::vector<int64_t>& dims);

// Runs `call` and returns a status, so that no exception leaves a C function. The thread's last message is kept.
int guarded(const std::function<void()>& call);
const char* last_message();

}  // namespace xhat::runtime
