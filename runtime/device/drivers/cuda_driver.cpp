// CUDA through its driver API, of CUDA 11 or later: declared here, found in libcuda.so.1.
#include <algorithm>
#include <cstdint>

#include "runtime/device/drivers/drivers.h"
#include "runtime/device/drivers/library.h"

namespace xhat::runtime {
namespace {

using Context = void*;
using Module = void*;
using Function = void*;
using Pointer = uint64_t;  // CUdeviceptr

// Values of CUresult (cuda.h) that get messages of ours.
enum CudaResult : int { kCudaOk = 0, kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidContext = 201, kInvalidHandle = 400 };
enum class JitOption : int { max_registers = 0, error_log = 5, error_log_bytes = 6 };
enum PointerAttribute : int { kPointerContext = 1, kPointerType = 2, kPointerManaged = 8, kPointerDevice = 9 };
constexpr unsigned kTypeHost = 1;  // CU_MEMORYTYPE_HOST
// Stream handles that are not pointers: the default streams of a context and of a thread.
constexpr uintptr_t kLastSpecialStream = 2;

// The functions that we call, with their names in the library.
#define XHAT_CUDA_FUNCTIONS(F)                                                                              \
  F(init, "cuInit", (unsigned))                                                                             \
  F(error_name, "cuGetErrorName", (CudaResult, const char**))                                                   \
  F(error_text, "cuGetErrorString", (CudaResult, const char**))                                                 \
  F(device_count, "cuDeviceGetCount", (int*))                                                               \
  F(device_get, "cuDeviceGet", (int*, int))                                                                 \
  F(device_name, "cuDeviceGetName", (char*, int, int))                                                      \
  F(primary_context, "cuDevicePrimaryCtxRetain", (Context*, int))                                           \
  F(current_context, "cuCtxGetCurrent", (Context*))                                                         \
  F(push_context, "cuCtxPushCurrent_v2", (Context))                                                         \
  F(pop_context, "cuCtxPopCurrent_v2", (Context*))                                                          \
  F(context_device, "cuCtxGetDevice", (int*))                                                               \
  F(stream_context, "cuStreamGetCtx", (DeviceStream, Context*))                                             \
  F(stream_capturing, "cuStreamIsCapturing", (DeviceStream, int*))                                          \
  F(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                                     \
  F(synchronize, "cuStreamSynchronize", (DeviceStream))                                                     \
  F(allocate, "cuMemAlloc_v2", (Pointer*, size_t))                                                          \
  F(release, "cuMemFree_v2", (Pointer))                                                                     \
  F(to_device, "cuMemcpyHtoDAsync_v2", (Pointer, const void*, size_t, DeviceStream))                        \
  F(to_host, "cuMemcpyDtoHAsync_v2", (void*, Pointer, size_t, DeviceStream))                                \
  F(set, "cuMemsetD8Async", (Pointer, unsigned char, size_t, DeviceStream))                                 \
  F(pointer_attribute, "cuPointerGetAttribute", (void*, PointerAttribute, Pointer))                         \
  F(load, "cuModuleLoadDataEx", (Module*, const void*, unsigned, JitOption*, void**))                       \
  F(unload, "cuModuleUnload", (Module))                                                                     \
  F(function, "cuModuleGetFunction", (Function*, Module, const char*))                                      \
  F(launch, "cuLaunchKernel",                                                                               \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, DeviceStream, void**, void**))

struct Cuda {
#define XHAT_DECLARE(member, name, parameters) CudaResult(*member) parameters = nullptr;
  XHAT_CUDA_FUNCTIONS(XHAT_DECLARE)
#undef XHAT_DECLARE
  DriverLibrary library{"XHAT_CUDA_LIBRARY", kCudaLibrary};
  int devices = 0;

  Cuda() {
#define XHAT_FIND(member, name, parameters) library.find(member, name);
    XHAT_CUDA_FUNCTIONS(XHAT_FIND)
#undef XHAT_FIND
    if (!library.problem().empty()) throw no_device(Target::cuda, DeviceFailure::no_driver, library.problem());
    if (CudaResult r = init(0)) throw no_device(Target::cuda, r == kNoDevice ? DeviceFailure::no_device : DeviceFailure::no_driver, said(r));
    if (CudaResult r = device_count(&devices)) throw no_device(Target::cuda, DeviceFailure::no_device, said(r));
    if (devices == 0) throw no_device(Target::cuda, DeviceFailure::no_device, "the driver knows no device");
  }

  std::string said(CudaResult r) const {
    const char *name = nullptr, *text = nullptr;
    if (error_name(r, &name) || !name) return "error " + std::to_string(r);
    std::string all = name;
    if (!error_text(r, &text) && text) all += std::string(": ") + text;
    return all;
  }
  void ok(CudaResult r, const std::string& what, DeviceFailure why = DeviceFailure::failed) const {
    if (r) throw DeviceError(r == kOutOfMemory ? DeviceFailure::no_memory : why, "target cuda: " + what + " failed: " + said(r));
  }
};

// Loads the library once. After a failure every call tries again, and throws the reason.
const Cuda& cuda() {
  static const Cuda loaded;
  return loaded;
}

// Makes the context current in this thread while the object exists.
class Current {
 public:
  explicit Current(Context context) {
    Context now = nullptr;
    cuda().ok(cuda().current_context(&now), "asking for the context");
    if (now == context) return;
    cuda().ok(cuda().push_context(context), "making a context current");
    pushed_ = true;
  }
  ~Current() {
    Context popped;
    if (pushed_) cuda().pop_context(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  bool pushed_ = false;
};

// While any thread captures a stream, CUDA refuses allocating and loading, and they break the capture, unless the calling thread declares them
// unrelated to the graph. This object does so while it exists.
class NotCaptured {
 public:
  NotCaptured() { cuda().exchange_capture_mode(&mode_); }
  ~NotCaptured() { cuda().exchange_capture_mode(&mode_); }
  NotCaptured(const NotCaptured&) = delete;
  NotCaptured& operator=(const NotCaptured&) = delete;

 private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; after the exchange, the thread's previous mode
};

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(Context context, const DeviceKernel& kernel)
      : CudaKernel(context, kernel.zeros, kernel.launches) {  // delegates, so that the destructor runs if this constructor throws
    if (launches_.empty()) return;
    Current current(context_);
    NotCaptured no_part_of_a_graph;
    char said[4096] = "";
    JitOption options[] = {JitOption::max_registers, JitOption::error_log, JitOption::error_log_bytes};
    auto number = [](uintptr_t n) { return reinterpret_cast<void*>(n); };
    void* values[] = {number(kMaxRegisters), said, number(sizeof said - 1)};
    CudaResult r = cuda().load(&module_, kernel.text.c_str(), std::size(options), options, values);
    cuda().ok(r, "compiling PTX" + (*said ? " (" + std::string(said) + ")" : std::string()));
    for (const DeviceLaunch& l : launches_)
      cuda().ok(cuda().function(&functions_.emplace_back(), module_, l.entry.c_str()), "looking for the kernel " + l.entry);
  }
  ~CudaKernel() override {
    if (!module_) return;
    NotCaptured no_part_of_a_graph;
    cuda().unload(module_);
  }

  void run(DeviceStream stream, std::span<const DeviceMemory> buffers, std::span<const SizeValue> values) const override {
    Current current(context_);
    for (const DeviceZeros& z : zeros_)
      if (auto bytes = static_cast<size_t>(z.bytes.at(values)))
        cuda().ok(cuda().set(buffers[z.buffer], 0, bytes, stream), "setting " + std::to_string(bytes) + " bytes to zero");
    std::vector<void*> args;
    for (size_t i = 0; i < launches_.size(); ++i) {
      const DeviceLaunch& l = launches_[i];
      args.clear();
      for (const LaunchArg& a : l.args)
        args.push_back(a.is_buffer ? static_cast<void*>(const_cast<DeviceMemory*>(&buffers[a.number]))
                                   : static_cast<void*>(const_cast<SizeValue*>(&values[a.number])));
      auto blocks = static_cast<unsigned>(l.blocks.at(values)), threads = static_cast<unsigned>(l.threads);
      if (blocks == 0) continue;
      auto shared = static_cast<unsigned>(l.shared_bytes);
      CudaResult r = cuda().launch(functions_[i], blocks, 1, 1, threads, 1, 1, shared, stream, args.data(), nullptr);
      cuda().ok(r, "launching " + l.entry);
    }
  }

 private:
  CudaKernel(Context context, std::vector<DeviceZeros> zeros, std::vector<DeviceLaunch> launches)
      : context_(context), zeros_(std::move(zeros)), launches_(std::move(launches)) {}
  Context context_;
  std::vector<DeviceZeros> zeros_;
  std::vector<DeviceLaunch> launches_;
  Module module_ = nullptr;
  std::vector<Function> functions_;
};

class CudaDriver : public DeviceDriver {
 public:
  explicit CudaDriver(Context context, void* = nullptr) : context_(context) {
    Current current(context_);
    cuda().ok(cuda().context_device(&device_), "asking for the device");
  }

  Target target() const override { return Target::cuda; }
  std::string device_name() const override {
    char name[256] = "";
    cuda().ok(cuda().device_name(name, sizeof name, device_), "asking for the device's name");
    return name;
  }

  std::unique_ptr<LoadedKernel> load(const DeviceKernel& kernel) override { return std::make_unique<CudaKernel>(context_, kernel); }

  DeviceMemory allocate(int64_t bytes) override {
    Current current(context_);
    NotCaptured no_part_of_a_graph;
    Pointer memory = 0;
    CudaResult r = cuda().allocate(&memory, static_cast<size_t>(std::max<int64_t>(1, bytes)));
    if (r == kOutOfMemory) throw no_memory(Target::cuda, bytes, cuda().said(r));
    cuda().ok(r, "an allocation of " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void release(DeviceMemory memory) noexcept override {
    try {
      Current current(context_);
      NotCaptured no_part_of_a_graph;
      cuda().release(memory);
    } catch (const DeviceError&) {  // the context has been destroyed, with its memory
    }
  }

  void upload(DeviceStream stream, DeviceMemory to, const void* from, int64_t bytes) override {
    Current current(context_);
    cuda().ok(cuda().to_device(to, from, static_cast<size_t>(bytes), stream), "a copy to the device");
    // The driver copies pageable memory at once, but reads pinned memory later.
    cuda().ok(cuda().synchronize(stream), "a copy to the device");
  }
  void download(DeviceStream stream, void* to, DeviceMemory from, int64_t bytes) override {
    Current current(context_);
    cuda().ok(cuda().to_host(to, from, static_cast<size_t>(bytes), stream), "a copy from the device");
    cuda().ok(cuda().synchronize(stream), "a copy from the device");
  }
  void synchronize(DeviceStream stream) override {
    Current current(context_);
    cuda().ok(cuda().synchronize(stream), "waiting for the device");
  }

  void in_context(const std::function<void()>& call) override {
    Current current(context_);
    call();
  }

  bool capturing(DeviceStream stream) override {
    Current current(context_);
    int status = 0;
    cuda().ok(cuda().stream_capturing(stream, &status), "asking whether the stream is being captured", DeviceFailure::bad_stream);
    return status != 0;
  }

  MemoryPlace place_of(DeviceMemory memory, int64_t) override {
    Current current(context_);
    switch (access_to(memory)) {
      case Access::host: return MemoryPlace::host;
      case Access::both: return MemoryPlace::here;
      case Access::device: break;
    }
    int device = 0;
    cuda().ok(cuda().pointer_attribute(&device, kPointerDevice, memory), "asking where a pointer leads");
    if (device != device_) return MemoryPlace::other_device;
    Context owner = nullptr;  // null: memory of a pool, which belongs to the device
    if (cuda().pointer_attribute(&owner, kPointerContext, memory) == kCudaOk && owner && owner != context_) return MemoryPlace::other_context;
    return MemoryPlace::here;
  }
  bool hidden_from_host(const void* address, int64_t) override {
    Current current(context_);
    return access_to(reinterpret_cast<Pointer>(address)) == Access::device;
  }

 private:
  enum class Access : uint8_t { host, device, both };
  static Access access_to(Pointer memory) {
    unsigned type = 0, managed = 0;
    CudaResult r = cuda().pointer_attribute(&type, kPointerType, memory);
    if (r == kInvalidValue) return Access::host;  // the driver does not know the address
    cuda().ok(r, "asking where a pointer leads");
    cuda().ok(cuda().pointer_attribute(&managed, kPointerManaged, memory), "asking where a pointer leads");
    if (managed & 0xff) return Access::both;
    return type == kTypeHost ? Access::host : Access::device;
  }

  Context context_;
  int device_ = 0;
};

}  // namespace

DeviceDriver& cuda_driver(DeviceStream stream) {
  static auto* drivers = new DriversByContext<CudaDriver>;
  const Cuda& api = cuda();
  Context context = nullptr;
  if (reinterpret_cast<uintptr_t>(stream) > kLastSpecialStream) {
    api.ok(api.stream_context(stream, &context), "asking for the context of the stream", DeviceFailure::bad_stream);
  } else {
    api.ok(api.current_context(&context), "asking for the context");
    static Context primary = nullptr;
    static std::mutex mutex;
    if (!context) {
      std::lock_guard lock(mutex);
      int first = 0;
      if (!primary) api.ok(api.device_get(&first, 0), "asking for device 0");
      if (!primary) api.ok(api.primary_context(&primary, first), "making a context on device 0");
      context = primary;
    }
  }
  return drivers->of(context);
}

}  // namespace xhat::runtime
