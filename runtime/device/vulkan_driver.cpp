#include "runtime/device/vulkan_driver.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "runtime/device/drivers/drivers.h"

namespace xhat::runtime {
namespace {

// Halide's runtime aborts without these functions. They are the only part of Vulkan's header that we need.
bool vulkan_is_there() {
  struct CreateInfo {
    int type = 1;
    const void* next = nullptr;
    uint32_t flags = 0;
    const void* application = nullptr;
    uint32_t layers = 0;
    const char* const* layer_names = nullptr;
    uint32_t extensions = 0;
    const char* const* extension_names = nullptr;
  } info;
  void* library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  auto create = reinterpret_cast<int (*)(const CreateInfo*, const void*, void**)>(dlsym(library, "vkCreateInstance"));
  auto count = reinterpret_cast<int (*)(void*, uint32_t*, void*)>(dlsym(library, "vkEnumeratePhysicalDevices"));
  auto destroy = reinterpret_cast<void (*)(void*, const void*)>(dlsym(library, "vkDestroyInstance"));
  void* instance = nullptr;
  uint32_t devices = 0;
  if (create && count && destroy && create(&info, nullptr, &instance) == 0) {
    if (count(instance, &devices, nullptr) != 0) devices = 0;
    destroy(instance, nullptr);
  }
  return devices > 0;  // the library stays loaded, for Halide
}

// Collects the runtime's message during a call; ok() throws it.
class HalideCall {
 public:
  HalideCall() {
    context_.handlers.custom_error = [](Halide::JITUserContext* context, const char* message) {
      constexpr size_t kEnough = 2000;
      std::string& said = static_cast<Context*>(context)->said;
      if (said.size() < kEnough) said += message;
    };
  }
  Halide::JITUserContext* context() { return &context_; }
  void ok(int status, const std::string& what) const {
    if (status == 0) return;
    std::string said = context_.said.empty() ? "status " + std::to_string(status) : context_.said;
    while (std::isspace(static_cast<unsigned char>(said.back()))) said.pop_back();
    throw DeviceError(DeviceFailure::failed, "target vulkan: " + what + " failed: " + said);
  }

 private:
  struct Context : Halide::JITUserContext {
    std::string said;
  } context_;
};

struct Memory {
  halide_dimension_t dim = {};
  halide_buffer_t raw = {};
};
Memory& memory_at(DeviceMemory memory) { return *reinterpret_cast<Memory*>(memory); }

class VulkanKernel : public LoadedKernel {
 public:
  VulkanKernel(Halide::Callable code, std::string name) : code_(std::move(code)), name_(std::move(name)) {}

  void run(DeviceStream, std::span<const DeviceMemory> buffers, std::span<const SizeValue> values) const override {
    HalideCall call;
    Halide::JITUserContext* context = call.context();
    std::vector<const void*> argv = {&context};
    for (const SizeValue& v : values) argv.push_back(&v);
    for (DeviceMemory m : buffers) argv.push_back(&memory_at(m).raw);
    int32_t nothing = 0;
    halide_buffer_t unused = {};
    unused.host = reinterpret_cast<uint8_t*>(&nothing);
    unused.type = halide_type_of<int32_t>();
    argv.push_back(&unused);
    call.ok(code_.call_argv_fast(argv.size(), argv.data()), "kernel " + name_);
  }

 private:
  Halide::Callable code_;
  std::string name_;
};

class VulkanDriver : public DeviceDriver {
 public:
  VulkanDriver() {
    if (!vulkan_is_there()) throw no_device(Target::vulkan, DeviceFailure::no_device, "no driver has one");
    // Halide cuts Vulkan memory from blocks of 32 MB and rounds sizes to an alignment. If that is smaller than the driver's, copies read and write
    // beyond the end (v21). 256 bytes suffice for all drivers.
    setenv("HL_VK_ALLOC_CONFIG", "0:32:0:0:256", 0);
    device_ = Halide::get_device_interface_for_device_api(Halide::DeviceAPI::Vulkan, vulkan_target());
    if (!device_) throw no_device(Target::vulkan, DeviceFailure::no_driver, "this build of Halide has no runtime for it");
    release(allocate(1));
  }

  Target target() const override { return Target::vulkan; }
  std::string device_name() const override { return "Vulkan"; }
  std::unique_ptr<LoadedKernel> load(const DeviceKernel&) override { throw Bug("Vulkan's kernels come with their pipeline"); }

  DeviceMemory allocate(int64_t bytes) override {
    constexpr int64_t kBlock = 64;  // words: Halide's Vulkan allocations fail for sizes that are no multiple of this (v21)
    int64_t words = std::max<int64_t>(1, (bytes + kWord - 1) / kWord);
    words = std::min<int64_t>((words + kBlock - 1) / kBlock * kBlock, INT32_MAX);
    auto made = std::make_unique<Memory>();
    made->dim = halide_dimension_t(0, static_cast<int32_t>(words), 1);
    made->raw.type = halide_type_t(halide_type_uint, 8 * kWord);
    made->raw.dimensions = 1;
    made->raw.dim = &made->dim;
    HalideCall call;
    call.ok(device_->device_malloc(call.context(), &made->raw, device_), "an allocation of " + std::to_string(bytes) + " bytes");
    return reinterpret_cast<DeviceMemory>(made.release());
  }
  void release(DeviceMemory memory) noexcept override {
    HalideCall call;
    device_->device_free(call.context(), &memory_at(memory).raw);
    delete &memory_at(memory);
  }

  void upload(DeviceStream, DeviceMemory to, const void* from, int64_t bytes) override {
    by_words(memory_at(to).raw, const_cast<void*>(from), bytes, false, [&](halide_buffer_t* b) {
      HalideCall call;
      call.ok(device_->copy_to_device(call.context(), b, device_), "a copy to the device");
    });
  }
  void download(DeviceStream, void* to, DeviceMemory from, int64_t bytes) override {
    by_words(memory_at(from).raw, to, bytes, true, [&](halide_buffer_t* b) {
      HalideCall call;
      call.ok(device_->copy_to_host(call.context(), b), "a copy from the device");
    });
  }
  void synchronize(DeviceStream) override {
    HalideCall call;
    call.ok(device_->device_sync(call.context(), nullptr), "waiting");
  }

  bool capturing(DeviceStream) override { return false; }
  // Callers cannot have memory of Vulkan, so every pointer is the host's.
  MemoryPlace place_of(DeviceMemory, int64_t) override { return MemoryPlace::host; }

 private:
  static constexpr int64_t kWord = 4;  // bytes: the words of 2^31 - 1 elements of f32 fit an int

  // Calls copy with the buffer and host memory of `bytes` bytes, padded to whole words in memory of ours if necessary.
  template <class F>
  static void by_words(const halide_buffer_t& raw, void* host, int64_t bytes, bool to_host, F&& copy) {
    if (bytes == 0) return;
    std::vector<uint8_t> padded;
    if (bytes % kWord != 0) {
      padded.resize(static_cast<size_t>((bytes + kWord - 1) / kWord * kWord));
      if (!to_host) std::memcpy(padded.data(), host, static_cast<size_t>(bytes));
    }
    halide_buffer_t b = raw;
    halide_dimension_t dim(0, static_cast<int32_t>((bytes + kWord - 1) / kWord), 1);
    b.dim = &dim;
    b.host = padded.empty() ? static_cast<uint8_t*>(host) : padded.data();
    b.flags = 0;
    if (to_host) b.set_device_dirty();
    else b.set_host_dirty();
    copy(&b);
    if (to_host && !padded.empty()) std::memcpy(host, padded.data(), static_cast<size_t>(bytes));
  }

  const halide_device_interface_t* device_ = nullptr;
};

}  // namespace

DeviceDriver& vulkan_driver() {
  static auto* driver = new VulkanDriver;  // never destroyed, because Halide's runtime may be destroyed before static objects
  return *driver;
}

std::unique_ptr<LoadedKernel> vulkan_kernel(Halide::Callable code, const std::string& name) {
  return std::make_unique<VulkanKernel>(std::move(code), name);
}

Halide::Target vulkan_target() {
  Halide::Target t = Halide::get_host_target();
  t.set_features({Halide::Target::Vulkan, Halide::Target::VulkanInt8, Halide::Target::VulkanInt16, Halide::Target::VulkanInt64,
                  Halide::Target::VulkanFloat64, Halide::Target::VulkanV13});
  return t;
}

}  // namespace xhat::runtime
