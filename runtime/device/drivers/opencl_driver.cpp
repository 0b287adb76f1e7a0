// OpenCL 1.2, declared here, found in libOpenCL.so.1: for GPUs without CUDA, and for the CPU (PoCL), where tests run it.
#include <algorithm>
#include <cstring>

#include "runtime/device/drivers/drivers.h"
#include "runtime/device/drivers/library.h"

namespace xhat::runtime {
namespace {

using Handle = void*;  // cl_platform_id, cl_device_id, cl_context, …

// Constants of CL/cl.h.
enum ClResult : int {
  kClOk = 0, kNoMemory = -4, kOutOfResources = -5, kBuildFailed = -11, kInvalidMemory = -38, kInvalidSize = -61, kNoPlatform = -1001
};
enum Info : unsigned {
  kDeviceName = 0x102B, kDeviceConstantBytes = 0x1020, kDeviceConstantArgs = 0x1021,
  kQueueContext = 0x1090, kQueueDevice = 0x1091, kQueueProperties = 0x1093,
  kMemoryBytes = 0x1102, kMemoryContext = 0x1106, kBuildLog = 0x1183
};
constexpr uint64_t kAnyDevice = 0xFFFFFFFF, kGpuDevice = 1 << 2;
constexpr uint64_t kOutOfOrder = 1;
constexpr uint64_t kReadWrite = 1, kInherited = 0;
constexpr unsigned kRegion = 0x1220;
constexpr unsigned kBlocking = 1;

using Sizes = const size_t*;
using Events = const Handle*;

#define XHAT_OPENCL_FUNCTIONS(F)                                                                                                \
  F(platforms, "clGetPlatformIDs", ClResult, (unsigned, Handle*, unsigned*))                                                      \
  F(devices, "clGetDeviceIDs", ClResult, (Handle, uint64_t, unsigned, Handle*, unsigned*))                                        \
  F(device_info, "clGetDeviceInfo", ClResult, (Handle, Info, size_t, void*, size_t*))                                             \
  F(create_context, "clCreateContext", Handle, (const intptr_t*, unsigned, const Handle*, void*, void*, ClResult*))               \
  F(retain_context, "clRetainContext", ClResult, (Handle))                                                                        \
  F(create_queue, "clCreateCommandQueue", Handle, (Handle, Handle, uint64_t, ClResult*))                                          \
  F(queue_info, "clGetCommandQueueInfo", ClResult, (Handle, Info, size_t, void*, size_t*))                                        \
  F(create_buffer, "clCreateBuffer", Handle, (Handle, uint64_t, size_t, void*, ClResult*))                                        \
  F(create_part, "clCreateSubBuffer", Handle, (Handle, uint64_t, unsigned, const size_t*, ClResult*))                             \
  F(release_buffer, "clReleaseMemObject", ClResult, (Handle))                                                                     \
  F(memory_info, "clGetMemObjectInfo", ClResult, (Handle, Info, size_t, void*, size_t*))                                          \
  F(write, "clEnqueueWriteBuffer", ClResult, (Handle, Handle, unsigned, size_t, size_t, const void*, unsigned, Events, Handle*))  \
  F(read, "clEnqueueReadBuffer", ClResult, (Handle, Handle, unsigned, size_t, size_t, void*, unsigned, Events, Handle*))          \
  F(set, "clEnqueueFillBuffer", ClResult, (Handle, Handle, const void*, size_t, size_t, size_t, unsigned, Events, Handle*))         \
  F(finish, "clFinish", ClResult, (Handle))                                                                                       \
  F(flush, "clFlush", ClResult, (Handle))                                                                                         \
  F(create_program, "clCreateProgramWithSource", Handle, (Handle, unsigned, const char**, Sizes, ClResult*))                      \
  F(build_program, "clBuildProgram", ClResult, (Handle, unsigned, const Handle*, const char*, void*, void*))                      \
  F(build_info, "clGetProgramBuildInfo", ClResult, (Handle, Handle, Info, size_t, void*, size_t*))                                \
  F(release_program, "clReleaseProgram", ClResult, (Handle))                                                                      \
  F(create_kernel, "clCreateKernel", Handle, (Handle, const char*, ClResult*))                                                    \
  F(release_kernel, "clReleaseKernel", ClResult, (Handle))                                                                        \
  F(set_argument, "clSetKernelArg", ClResult, (Handle, unsigned, size_t, const void*))                                            \
  F(launch, "clEnqueueNDRangeKernel", ClResult, (Handle, Handle, unsigned, Sizes, Sizes, Sizes, unsigned, Events, Handle*))

struct OpenCl {
#define XHAT_DECLARE(member, name, result, parameters) result(*member) parameters = nullptr;
  XHAT_OPENCL_FUNCTIONS(XHAT_DECLARE)
#undef XHAT_DECLARE
  DriverLibrary library{"XHAT_OPENCL_LIBRARY", kOpenclLibrary};

  OpenCl() {
#define XHAT_FIND(member, name, result, parameters) library.find(member, name);
    XHAT_OPENCL_FUNCTIONS(XHAT_FIND)
#undef XHAT_FIND
    if (!library.problem().empty()) throw no_device(Target::opencl, DeviceFailure::no_driver, library.problem());
  }

  static bool is_memory(ClResult r) { return r == kNoMemory || r == kOutOfResources || r == kInvalidSize; }
  static void ok(ClResult r, const std::string& what, DeviceFailure why = DeviceFailure::failed) {
    if (r == kClOk) return;
    throw DeviceError(is_memory(r) ? DeviceFailure::no_memory : why,
                      "target opencl: " + what + " failed: " + (is_memory(r) ? "out of memory, " : "") + "error " + std::to_string(r));
  }
};

const OpenCl& opencl() {
  static const OpenCl loaded;
  return loaded;
}

std::string text_of(Handle device, Info what) {
  size_t bytes = 0;
  if (opencl().device_info(device, what, 0, nullptr, &bytes) || bytes == 0) return "";
  std::string text(bytes, '\0');
  opencl().device_info(device, what, bytes, text.data(), nullptr);
  return text.c_str();  // without the terminating 0
}

class OpenClKernel : public LoadedKernel {
 public:
  OpenClKernel(Handle context, Handle device, Handle own_queue, const DeviceKernel& kernel)
      : OpenClKernel(own_queue, kernel.zeros, kernel.launches) {  // delegates, so that the destructor runs if this constructor throws
    if (launches_.empty()) return;
    ClResult r = kClOk;
    const char* text = kernel.text.c_str();
    program_ = opencl().create_program(context, 1, &text, nullptr, &r);
    OpenCl::ok(r, "taking OpenCL C");
    // Halide's code uses these macros to decide where small buffers are placed.
    uint64_t bytes = 0;
    unsigned args = 0;
    opencl().device_info(device, kDeviceConstantBytes, sizeof bytes, &bytes, nullptr);
    opencl().device_info(device, kDeviceConstantArgs, sizeof args, &args, nullptr);
    std::string options = "-D MAX_CONSTANT_BUFFER_SIZE=" + std::to_string(bytes) + " -D MAX_CONSTANT_ARGS=" + std::to_string(args);
    r = opencl().build_program(program_, 1, &device, options.c_str(), nullptr, nullptr);
    if (r == kBuildFailed) {
      std::string log(4096, '\0');
      size_t length = 0;
      opencl().build_info(program_, device, kBuildLog, log.size(), log.data(), &length);
      throw DeviceError(DeviceFailure::failed, "target opencl: compiling failed: " + std::string(log.c_str()));
    }
    OpenCl::ok(r, "compiling");
    for (const DeviceLaunch& l : launches_) {
      Handle function = opencl().create_kernel(program_, l.entry.c_str(), &r);
      OpenCl::ok(r, "looking for the kernel " + l.entry);
      functions_.push_back(function);
    }
  }
  ~OpenClKernel() override {
    for (Handle f : functions_) opencl().release_kernel(f);
    if (program_) opencl().release_program(program_);
  }

  void run(DeviceStream stream, std::span<const DeviceMemory> buffers, std::span<const SizeValue> values) const override {
    std::lock_guard lock(mutex_);
    const Handle queue = stream ? stream : queue_;
    for (const DeviceZeros& z : zeros_) {
      constexpr uint8_t kZero = 0;
      if (auto bytes = static_cast<size_t>(z.bytes.at(values)))
        OpenCl::ok(opencl().set(queue, reinterpret_cast<Handle>(buffers[z.buffer]), &kZero, 1, 0, bytes, 0, nullptr, nullptr),
                   "setting " + std::to_string(bytes) + " bytes to zero");
    }
    for (size_t i = 0; i < launches_.size(); ++i) {
      const DeviceLaunch& l = launches_[i];
      const auto threads = static_cast<size_t>(l.threads), all = static_cast<size_t>(l.blocks.at(values)) * threads;
      if (all == 0) continue;
      unsigned n = 0;
      for (const LaunchArg& a : l.args) {
        ClResult r = a.is_buffer ? opencl().set_argument(functions_[i], n, sizeof(Handle), &buffers[a.number])
                               : opencl().set_argument(functions_[i], n, a.bytes, &values[a.number]);
        DeviceFailure why = r == kInvalidMemory ? DeviceFailure::bad_pointer : DeviceFailure::failed;
        OpenCl::ok(r, "argument " + std::to_string(n) + " of " + l.entry, why);
        ++n;
      }
      // The shared memory of a block is the last argument of every function.
      auto shared = static_cast<size_t>(std::max<int64_t>(1, l.shared_bytes));
      OpenCl::ok(opencl().set_argument(functions_[i], n, shared, nullptr), "shared memory of " + l.entry);
      OpenCl::ok(opencl().launch(queue, functions_[i], 1, nullptr, &all, &threads, 0, nullptr, nullptr), "launching " + l.entry);
    }
  }

 private:
  OpenClKernel(Handle own_queue, std::vector<DeviceZeros> zeros, std::vector<DeviceLaunch> launches)
      : queue_(own_queue), zeros_(std::move(zeros)), launches_(std::move(launches)) {}
  Handle queue_;
  std::vector<DeviceZeros> zeros_;
  std::vector<DeviceLaunch> launches_;
  Handle program_ = nullptr;
  std::vector<Handle> functions_;
  mutable std::mutex mutex_;  // held from setting arguments to the launch: the kernel object stores them
};

class OpenClDriver : public DeviceDriver {
 public:
  OpenClDriver(Handle context, Handle device) : context_(context), device_(device) { opencl().retain_context(context_); }
  void make_queue() {  // for calls without a queue
    ClResult r = kClOk;
    queue_ = opencl().create_queue(context_, device_, 0, &r);
    OpenCl::ok(r, "making a command queue");
  }

  Target target() const override { return Target::opencl; }
  std::string device_name() const override { return text_of(device_, kDeviceName); }

  std::unique_ptr<LoadedKernel> load(const DeviceKernel& kernel) override {
    return std::make_unique<OpenClKernel>(context_, device_, queue_, kernel);
  }

  DeviceMemory allocate(int64_t bytes) override {
    ClResult r = kClOk;
    Handle memory = opencl().create_buffer(context_, kReadWrite, static_cast<size_t>(std::max<int64_t>(1, bytes)), nullptr, &r);
    if (OpenCl::is_memory(r)) throw no_memory(Target::opencl, bytes, "error " + std::to_string(r));
    OpenCl::ok(r, "an allocation of " + std::to_string(bytes) + " bytes");
    return reinterpret_cast<DeviceMemory>(memory);
  }
  void release(DeviceMemory memory) noexcept override { opencl().release_buffer(handle(memory)); }

  DeviceMemory part(DeviceMemory memory, int64_t offset, int64_t bytes) override {
    const size_t region[2] = {static_cast<size_t>(offset), static_cast<size_t>(bytes)};
    ClResult r = kClOk;
    Handle made = opencl().create_part(reinterpret_cast<Handle>(memory), kInherited, kRegion, region, &r);
    OpenCl::ok(r, "taking a part of memory", DeviceFailure::bad_pointer);
    return reinterpret_cast<DeviceMemory>(made);
  }
  void release_part(DeviceMemory part) noexcept override { release(part); }

  void upload(DeviceStream stream, DeviceMemory to, const void* from, int64_t bytes) override {
    ClResult r = opencl().write(on(stream), handle(to), kBlocking, 0, static_cast<size_t>(bytes), from, 0, nullptr, nullptr);
    OpenCl::ok(r, "a copy to the device");
  }
  void download(DeviceStream stream, void* to, DeviceMemory from, int64_t bytes) override {
    ClResult r = opencl().read(on(stream), handle(from), kBlocking, 0, static_cast<size_t>(bytes), to, 0, nullptr, nullptr);
    OpenCl::ok(r, "a copy from the device");
  }
  void synchronize(DeviceStream stream) override { OpenCl::ok(opencl().finish(on(stream)), "waiting for the device"); }

  bool capturing(DeviceStream) override { return false; }

  MemoryPlace place_of(DeviceMemory memory, int64_t bytes) override {
    if (!is_object(handle(memory))) return MemoryPlace::host;
    Handle owner = nullptr;
    size_t there = 0;
    if (opencl().memory_info(handle(memory), kMemoryContext, sizeof owner, &owner, nullptr)) return MemoryPlace::host;
    if (owner != context_) return MemoryPlace::other_context;
    OpenCl::ok(opencl().memory_info(handle(memory), kMemoryBytes, sizeof there, &there, nullptr), "asking for the size of memory");
    return there < static_cast<size_t>(bytes) ? MemoryPlace::too_small : MemoryPlace::here;
  }
  bool hidden_from_host(const void* address, int64_t bytes) override {
    return bytes >= static_cast<int64_t>(sizeof(void*)) && is_object(address);
  }

 private:
  // Objects of an OpenCL driver, such as cl_mem and cl_context, begin with a pointer to the driver's function table (cl_khr_icd). Comparing it tells
  // them from other pointers, which the library would dereference without a check.
  bool is_object(const void* p) const {
    void *table = nullptr, *ours = nullptr;
    if (reinterpret_cast<uintptr_t>(p) % alignof(void*) != 0) return false;
    std::memcpy(&table, p, sizeof table);
    std::memcpy(&ours, context_, sizeof ours);
    return table == ours;
  }
  static Handle handle(DeviceMemory memory) { return reinterpret_cast<Handle>(memory); }
  Handle on(DeviceStream stream) const { return stream ? stream : queue_; }
  Handle context_, device_, queue_ = nullptr;
};

// The first GPU of all platforms, or else the first device of any kind.
Handle first_device() {
  unsigned platforms = 0;
  Handle ids[16] = {};
  ClResult r = opencl().platforms(std::size(ids), ids, &platforms);
  if (r != kClOk && r != kNoPlatform) OpenCl::ok(r, "asking for platforms");
  for (uint64_t kind : {kGpuDevice, kAnyDevice})
    for (unsigned i = 0; i < std::min<unsigned>(platforms, std::size(ids)); ++i) {
      Handle device = nullptr;
      if (opencl().devices(ids[i], kind, 1, &device, nullptr) == kClOk && device) return device;
    }
  throw no_device(Target::opencl, DeviceFailure::no_device, r == kNoPlatform ? "no driver is installed" : "the drivers know no device");
}

}  // namespace

DeviceDriver& opencl_driver(DeviceStream stream) {
  static auto* drivers = new DriversByContext<OpenClDriver>;
  const OpenCl& api = opencl();
  if (!stream) {
    static OpenClDriver& ours = [&]() -> OpenClDriver& {
      Handle device = first_device();
      ClResult r = kClOk;
      Handle context = api.create_context(nullptr, 1, &device, nullptr, nullptr, &r);
      OpenCl::ok(r, "making a context");
      OpenClDriver& driver = drivers->of(context, device);
      driver.make_queue();
      return driver;
    }();
    return ours;
  }
  Handle context = nullptr, device = nullptr;
  uint64_t properties = 0;
  auto ask = [&](Info what, auto& value) {
    ClResult r = api.queue_info(stream, what, sizeof value, &value, nullptr);
    OpenCl::ok(r, "asking for the context of the queue", DeviceFailure::bad_stream);
  };
  ask(kQueueContext, context);
  ask(kQueueDevice, device);
  ask(kQueueProperties, properties);
  if (properties & kOutOfOrder)
    throw DeviceError(DeviceFailure::bad_stream, "target opencl: this command queue runs out of order; kernels of an op need one in order");
  return drivers->of(context, device);
}

}  // namespace xhat::runtime
