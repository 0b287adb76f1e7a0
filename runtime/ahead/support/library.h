// A library that was compiled ahead of time, opened: its table, and what calls for the CPU and for devices both ask of it.
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
  size_t arguments = 0;  // dims that are
  std::mutex mutex;      // of what follows, which the first call makes that needs it
  std::shared_ptr<CpuCalls> cpu;
  std::vector<std::shared_ptr<DeviceCalls>> devices;  // by device of the table
};

// Each library is opened once, and stays so while the process lives, as the library does.
Opened& open(xhat_ahead_library* library);

[[noreturn]] void fail(const AheadTable& t, AheadStatus status, const std::string& what);
const AheadSide& side_of(const AheadTable& t, int number);

// All dims, from those that are arguments. Throws Failure for sizes that the op cannot have.
std::vector<int64_t> dims_of(const Opened& o, const int64_t* given);
std::vector<int64_t> shape_of(const AheadTable& t, int64_t tensor, const std::vector<int64_t>& dims);
int64_t bytes_of(const AheadTable& t, int64_t tensor, const std::vector<int64_t>& dims);
std::string sizes_text(const AheadTable& t, const std::vector<int64_t>& dims);
// A plan's numbers at these sizes. Throws Failure where no variant serves them, and says which do. device: its name; none for the CPU.
AheadNumbers numbers_for(const AheadTable& t, const std::vector<AheadVariant>& variants, const std::vector<int64_t>& dims,
                         const std::string& known_sizes, std::string_view device = {});
// Throws Failure where the side cannot run at these sizes, whatever the data.
void check_sizes(const AheadTable& t, const AheadSide& side, const std::vector<int64_t>& dims);

// Does it, and returns a status; no exception leaves a C function. The message stays, for the thread.
int guarded(const std::function<void()>& call);
const char* last_message();

}  // namespace xhat::runtime
