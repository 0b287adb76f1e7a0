// The interface to a GPU's driver: memory, copies, code from text, launches. The libraries of CUDA and OpenCL are loaded at first use
// (cuda_driver.cpp, opencl_driver.cpp), without linking or headers. Knows neither Halide nor the engine, so libraries compiled ahead of time
// contain it too.
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

// Most registers of a thread (CUDA): two blocks of 256 threads then fit the 65536 registers of a multiprocessor.
constexpr int kMaxRegisters = 128;

// An argument of a kernel function.
struct LaunchArg {
  bool is_buffer = true;
  uint32_t number = 0;  // index into the kernel's buffers, or into its values
  uint32_t bytes = 0;   // size of a value
  bool operator==(const LaunchArg&) const = default;
};

struct DeviceLaunch {
  std::string what;          // "tile", "map", "reduce", "contract", "finish", …: for reports and tests
  Amount blocks;             // 0: nothing is launched
  int threads = 1;           // per block
  int64_t shared_bytes = 0;  // per block
  std::string entry;         // the function's name in the text
  std::vector<LaunchArg> args;
  bool operator==(const DeviceLaunch&) const = default;
};

// A part of a buffer that is set to zero, from its beginning.
struct DeviceZeros {
  uint32_t buffer = 0;  // index into the kernel's buffers
  Amount bytes;
  bool operator==(const DeviceZeros&) const = default;
};

// A kernel as plain data: a GPU first sets the zeros, then runs the launches in order.
struct DeviceKernel {
  std::string text;  // PTX or OpenCL C
  std::vector<DeviceZeros> zeros;
  std::vector<DeviceLaunch> launches;
  bool operator==(const DeviceKernel&) const = default;
};

enum class DeviceFailure : uint8_t {
  no_driver,    // its library is not installed
  no_device,    // the driver finds no device
  no_memory,    // the device's memory is exhausted
  bad_pointer,  // host memory, or memory of another device or context
  bad_stream,   // a stream of another context, an invalid one, or one that is being captured and cannot be used like this
  failed,       // any other error of the driver
};

// The message has the place, the driver's error, and a remedy.
class DeviceError : public Error {
 public:
  DeviceError(DeviceFailure why, const std::string& message) : Error(message), why_(why) {}
  DeviceFailure why() const { return why_; }

 private:
  DeviceFailure why_;
};

// Where a caller's memory lies, seen from a context. too_small: here, but smaller than asked about, if the driver can tell.
enum class MemoryPlace : uint8_t { host, here, other_device, other_context, too_small };

// The code of one kernel, loaded into one context. May be run from many threads.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // Enqueues its launches. buffers, values: indexed by LaunchArg::number.
  virtual void run(DeviceStream stream, std::span<const DeviceMemory> buffers, std::span<const SizeValue> values) const = 0;
};

// A context on a device. A process has one object per context that it uses, and never destroys it. All functions may be called from many threads,
// with any current context, and throw DeviceError.
class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;
  virtual Target target() const = 0;
  virtual std::string device_name() const = 0;

  // Compiles and loads. Must not be called while the stream is being captured.
  virtual std::unique_ptr<LoadedKernel> load(const DeviceKernel& kernel) = 0;

  virtual DeviceMemory allocate(int64_t bytes) = 0;  // aligned to 128 bytes or more
  virtual void release(DeviceMemory memory) noexcept = 0;  // work enqueued before may still use it
  // A part of memory, in bytes, that kernels take like memory of its own. It must be released before the memory. OpenCL requires an alignment of
  // the offset, at most 512 bytes.
  virtual DeviceMemory part(DeviceMemory memory, int64_t offset, int64_t bytes);  // the default is for memory that is an address
  virtual void release_part(DeviceMemory part) noexcept;

  // Copies in the order of the stream. Both return when the host's memory may be used again.
  virtual void upload(DeviceStream stream, DeviceMemory to, const void* from, int64_t bytes) = 0;
  virtual void download(DeviceStream stream, void* to, DeviceMemory from, int64_t bytes) = 0;
  virtual void synchronize(DeviceStream stream) = 0;

  // Runs `call` with this context current in the calling thread, for libraries that use the current context.
  virtual void in_context(const std::function<void()>& call) { call(); }

  virtual bool capturing(DeviceStream stream) = 0;  // into a graph: then allocating, loading and waiting are forbidden
  virtual MemoryPlace place_of(DeviceMemory memory, int64_t bytes) = 0;
  // Is this address, which a caller gave as host memory, device memory that the host cannot read?
  virtual bool hidden_from_host(const void* address, int64_t bytes);
};

// The context of the stream. For a null stream: on CUDA the current context of this thread, else the primary one of device 0, like the CUDA
// runtime's API; on OpenCL a context of ours, on the first GPU, else on the first device of any kind. Throws DeviceError, which says what
// is missing and what to install.
DeviceDriver& device_driver(Target target, DeviceStream stream = nullptr);

// The drivers' libraries. The environment variables name other files: for tests, and for libraries in other places.
constexpr const char* kCudaLibrary = "libcuda.so.1";       // XHAT_CUDA_LIBRARY
constexpr const char* kOpenclLibrary = "libOpenCL.so.1";   // XHAT_OPENCL_LIBRARY

}  // namespace xhat::runtime
