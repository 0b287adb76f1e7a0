// The driver of a GPU, as we call it: memory, copies, code from text, launches. CUDA's and OpenCL's are loaded when they are first
// asked for (cuda_driver.cpp, opencl_driver.cpp); nothing is linked, and no header of theirs is needed. Knows neither Halide nor
// the engine, so that libraries compiled ahead of time take it in too.
//
//   DeviceDriver& gpu = device_driver(Target::cuda, stream);
//   std::unique_ptr<LoadedKernel> code = gpu.load(kernel);     // once
//   code->run(stream, buffers, values);                        // enqueued; returns at once
//   gpu.synchronize(stream);
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "expr/core/error.h"
#include "runtime/host/size_value.h"
#include "runtime/host/target.h"

namespace xhat::runtime {

using DeviceMemory = uint64_t;  // CUdeviceptr or cl_mem
using DeviceStream = void*;     // CUstream or cl_command_queue. Null: CUDA's default stream; on OpenCL a queue of ours

// Registers that a thread may have (CUDA): of 65536 of a multiprocessor, so that two blocks of 256 threads fit.
constexpr int kMaxRegisters = 128;

// An argument of a kernel function.
struct LaunchArg {
  bool is_buffer = true;
  uint32_t number = 0;  // of the kernel's buffers, or of its values
  uint32_t bytes = 0;   // of a value
  bool operator==(const LaunchArg&) const = default;
};

struct DeviceLaunch {
  std::string what;          // "tile", "map", "reduce", "contract", "finish", …: for people and tests
  Amount blocks;             // none of them: nothing is launched
  int threads = 1;           // of a block
  int64_t shared_bytes = 0;  // of a block
  std::string entry;         // the function's name in the text
  std::vector<LaunchArg> args;
  bool operator==(const DeviceLaunch&) const = default;
};

// Memory that is set to zero.
struct DeviceZeros {
  uint32_t buffer = 0;  // of the kernel's
  Amount bytes;
  bool operator==(const DeviceZeros&) const = default;
};

// A kernel as plain data: what a GPU runs, zeros first, then one launch after the other.
struct DeviceKernel {
  std::string text;  // PTX or OpenCL C
  std::vector<DeviceZeros> zeros;
  std::vector<DeviceLaunch> launches;
  bool operator==(const DeviceKernel&) const = default;
};

enum class DeviceFailure : uint8_t {
  no_driver,    // its library is not installed
  no_device,    // the driver knows none
  no_memory,    // of the device
  bad_pointer,  // not the device's memory, or of another device or context
  bad_stream,   // of another context, or one that cannot be used; or it is being captured and may not be used so
  failed,       // anything else that the driver says
};

// Says where, what the driver said, and what to do.
class DeviceError : public Error {
 public:
  DeviceError(DeviceFailure why, const std::string& message) : Error(message), why_(why) {}
  DeviceFailure why() const { return why_; }

 private:
  DeviceFailure why_;
};

// Where memory lies that somebody hands us. too_small: here, but fewer bytes than asked about, as far as the driver can say.
enum class MemoryPlace : uint8_t { host, here, other_device, other_context, too_small };

// The code of one kernel, in one context. May be run from many threads.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // Enqueues its launches. buffers, values: by number, as the launches' arguments say.
  virtual void run(DeviceStream stream, std::span<const DeviceMemory> buffers, std::span<const SizeValue> values) const = 0;
};

// A context on a device: a program has one per context that it uses, for as long as it runs. All calls may be made from many
// threads, whatever context is current in them, and throw DeviceError.
class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;
  virtual Target target() const = 0;
  virtual std::string device_name() const = 0;

  // Compiles, too; not while the stream is being captured.
  virtual std::unique_ptr<LoadedKernel> load(const DeviceKernel& kernel) = 0;

  virtual DeviceMemory allocate(int64_t bytes) = 0;  // aligned to 128 bytes or more
  virtual void release(DeviceMemory memory) noexcept = 0;  // what was enqueued before may still use it
  // A piece of memory, for kernels to take as memory of its own; given back before the memory is. OpenCL wants its own alignment of
  // the offset, 512 bytes at most.
  virtual DeviceMemory part(DeviceMemory memory, int64_t offset, int64_t bytes);  // as it stands: of addresses
  virtual void release_part(DeviceMemory part) noexcept;

  // In the order of the stream. Both return when the host's memory may be used again.
  virtual void upload(DeviceStream stream, DeviceMemory to, const void* from, int64_t bytes) = 0;
  virtual void download(DeviceStream stream, void* to, DeviceMemory from, int64_t bytes) = 0;
  virtual void synchronize(DeviceStream stream) = 0;

  // With this context current in the thread that calls, for libraries that take the current one.
  virtual void in_context(const std::function<void()>& call) { call(); }

  virtual bool capturing(DeviceStream stream) = 0;  // into a graph: nothing may be allocated, loaded or waited for
  virtual MemoryPlace place_of(DeviceMemory memory, int64_t bytes) = 0;
  // Of what was handed to us as the host's memory: is it a device's, where the host cannot read?
  virtual bool hidden_from_host(const void* address, int64_t bytes);
};

// The context of that stream. Without one: of CUDA, the context that is current in this thread, else the primary one of device 0,
// as in the CUDA runtime's API; of OpenCL, one of ours, on the first GPU, or else on what there is. Throws DeviceError: what is
// missing and what to install.
DeviceDriver& device_driver(Target target, DeviceStream stream = nullptr);

// The drivers' libraries; in the environment, another one may be named: for tests, and for libraries that lie elsewhere.
constexpr const char* kCudaLibrary = "libcuda.so.1";       // XHAT_CUDA_LIBRARY
constexpr const char* kOpenclLibrary = "libOpenCL.so.1";   // XHAT_OPENCL_LIBRARY

}  // namespace xhat::runtime
