#include "runtime/device.h"

#include <cstdlib>
#include <dlfcn.h>
#include <future>

#include <fmt/format.h>

#include "expr/error.h"
#include "runtime/lower.h"

namespace xhat {

std::string_view name_of(Target target) {
  switch (target) {
    case Target::cpu: return "cpu";
    case Target::cuda: return "cuda";
    case Target::opencl: return "opencl";
    case Target::vulkan: return "vulkan";
  }
  return "?";
}

namespace runtime {
namespace {

// What a user lacks if there is no such device.
std::string_view remedy(Target target) {
  switch (target) {
    case Target::cuda: return "an NVIDIA driver (libcuda.so.1)";
    case Target::opencl: return "an OpenCL driver (for CPUs: the packages ocl-icd-libopencl1 and pocl-opencl-icd)";
    case Target::vulkan: return "a Vulkan driver (for CPUs: the packages libvulkan1 and mesa-vulkan-drivers)";
    case Target::cpu: break;
  }
  return "";
}

// What Halide's runtime aborts without. Of Vulkan's header we need these lines only.
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
  return devices > 0;  // the library stays, for Halide
}

const halide_device_interface_t* interface_of(Target target) {
  static std::mutex mutex;
  static std::map<Target, const halide_device_interface_t*> known;
  std::lock_guard lock(mutex);
  auto [it, fresh] = known.emplace(target, nullptr);
  if (fresh) {
    // Halide looks for libcuda.so, which only the toolkit has.
    if (target == Target::cuda) dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    // Its limit is 64 where nobody says otherwise, and then the driver spills.
    if (target == Target::cuda) setenv("HL_CUDA_JIT_MAX_REGISTERS", std::to_string(kMostRegisters).c_str(), 0);
    // Its memory for Vulkan is cut into pieces of 32 MB blocks, and rounded to what it takes for the driver's alignment; where that
    // is too little, copies read and write beyond the end (v21). 256 bytes are enough everywhere.
    if (target == Target::vulkan) setenv("HL_VK_ALLOC_CONFIG", "0:32:0:0:256", 0);
    it->second = Halide::get_device_interface_for_device_api(api_of(kind_of(target)), halide_target(target));
  }
  if (!it->second) throw Error(fmt::format("target {}: this build of Halide has no runtime for it; use --target cpu", name_of(target)));
  return it->second;
}

}  // namespace

Halide::Target halide_target(Target target) {
  Halide::Target t = Halide::get_host_target();
  switch (target) {
    case Target::cpu: return cpu_target();
    case Target::cuda:
      // The newest that Halide 21 knows how to name is 86; drivers take the code for everything newer.
      t.set_features({Halide::Target::CUDA, Halide::Target::CUDACapability80});
      break;
    case Target::opencl: t.set_features({Halide::Target::OpenCL, Halide::Target::CLDoubles}); break;
    case Target::vulkan:
      t.set_features({Halide::Target::Vulkan, Halide::Target::VulkanInt8, Halide::Target::VulkanInt16, Halide::Target::VulkanInt64,
                      Halide::Target::VulkanFloat64, Halide::Target::VulkanV13});
      break;
  }
  return t;
}

DeviceKind kind_of(Target target) {
  switch (target) {
    case Target::cuda: return DeviceKind::cuda;
    case Target::opencl: return DeviceKind::opencl;
    case Target::vulkan: return DeviceKind::vulkan;
    case Target::cpu: break;
  }
  throw Bug("the CPU is no device");
}

DeviceCall::DeviceCall() {
  context_.handlers.custom_error = [](Halide::JITUserContext* context, const char* message) {
    constexpr size_t kEnough = 2000;
    std::string& said = static_cast<Context*>(context)->said;
    if (said.size() < kEnough) said += message;
  };
}

void DeviceCall::ok(int status, Target target, const std::string& what) const {
  if (status == 0) return;
  std::string said = context_.said;
  while (!said.empty() && std::isspace(static_cast<unsigned char>(said.back()))) said.pop_back();
  throw Error(fmt::format("target {}: {} failed: {}", name_of(target), what, said.empty() ? fmt::format("status {}", status) : said));
}

DeviceBuffer::DeviceBuffer(Target target, int64_t bytes) : target_(target), bytes_(bytes) {
  constexpr int64_t kWord = 4;  // so that two billion elements of f32 are no more words than an int can count
  constexpr int64_t kBlock = 64;  // words: Halide's memory for Vulkan fails with sizes in between (v21)
  int64_t words = std::max<int64_t>(1, (bytes + kWord - 1) / kWord);
  words = std::min<int64_t>((words + kBlock - 1) / kBlock * kBlock, INT32_MAX);
  dim_ = halide_dimension_t(0, static_cast<int32_t>(words), 1);
  raw_.type = halide_type_t(halide_type_uint, 8 * kWord);
  raw_.dimensions = 1;
  raw_.dim = &dim_;
  DeviceCall call;
  const halide_device_interface_t* device = interface_of(target);
  call.ok(device->device_malloc(call.context(), &raw_, device), target, fmt::format("an allocation of {} bytes", bytes));
}

DeviceBuffer::~DeviceBuffer() {
  DeviceCall call;
  if (raw_.device_interface) raw_.device_interface->device_free(call.context(), &raw_);
}

namespace {

// The buffer with host memory of `bytes`; a word at the end that is not full goes through one of ours.
template <class F>
void by_words(const halide_buffer_t& raw, void* host, int64_t bytes, bool to_host, F&& copy) {
  if (bytes == 0) return;
  std::vector<uint8_t> padded;
  if (bytes % 4 != 0) {
    padded.resize(static_cast<size_t>(bytes + 3) / 4 * 4);
    if (!to_host) std::memcpy(padded.data(), host, static_cast<size_t>(bytes));
  }
  halide_buffer_t b = raw;
  halide_dimension_t dim(0, static_cast<int32_t>((bytes + 3) / 4), 1);
  b.dim = &dim;
  b.host = padded.empty() ? static_cast<uint8_t*>(host) : padded.data();
  b.flags = 0;
  if (to_host) b.set_device_dirty();
  else b.set_host_dirty();
  copy(&b);
  if (to_host && !padded.empty()) std::memcpy(host, padded.data(), static_cast<size_t>(bytes));
}

}  // namespace

void DeviceBuffer::upload(const void* from, int64_t bytes) {
  DeviceCall call;
  by_words(raw_, const_cast<void*>(from), bytes, false, [&](halide_buffer_t* b) {
    call.ok(raw_.device_interface->copy_to_device(call.context(), b, raw_.device_interface), target_, "a copy to the device");
  });
}

void DeviceBuffer::download(void* to, int64_t bytes) const {
  DeviceCall call;
  by_words(raw_, to, bytes, true, [&](halide_buffer_t* b) {
    call.ok(raw_.device_interface->copy_to_host(call.context(), b), target_, "a copy from the device");
  });
}

void require_device(Target target) {
  static std::mutex mutex;
  static std::map<Target, std::string> tried;  // empty: it is there
  std::lock_guard lock(mutex);
  auto it = tried.find(target);
  if (it == tried.end()) {
    std::string problem;
    try {
      if (target == Target::vulkan && !vulkan_is_there()) throw Error("no driver has one");
      DeviceBuffer probe(target, 64);
    } catch (const Error& e) {
      problem = fmt::format("target {}: no device found; install {}, or use --target cpu ({})", name_of(target), remedy(target), e.message());
    }
    it = tried.emplace(target, problem).first;
  }
  if (!it->second.empty()) throw Error(it->second);
}

void wait_for(Target target) {
  DeviceCall call;
  const halide_device_interface_t* device = interface_of(target);
  call.ok(device->device_sync(call.context(), nullptr), target, "waiting");
}

namespace {

std::string key_of(Target target, const KernelSpec& spec, const std::vector<DType>& stored) {
  std::string key = fmt::format("{};", name_of(target));
  for (Id x : spec.shared) key += fmt::format("{}={}/{},", spec.arena->name(x), spec.axes.at(x).extent, spec.axes.at(x).tile);
  for (const SpecTensor& t : spec.tensors)
    if (t.original != kInternal) key += fmt::format("{}", static_cast<int>(stored[t.original]));
  return key + spec.key();
}

}  // namespace

std::shared_ptr<const CompiledGpuKernel> compiled_for(Target target, const KernelSpec& spec, const std::vector<DType>& stored) {
  using Entry = std::shared_future<std::shared_ptr<const CompiledGpuKernel>>;
  static std::mutex mutex;
  static std::map<std::string, Entry> known;
  std::string key = key_of(target, spec, stored);
  std::promise<std::shared_ptr<const CompiledGpuKernel>> promise;
  Entry entry;
  bool mine = false;
  {
    std::lock_guard lock(mutex);
    auto [it, fresh] = known.try_emplace(key);
    if (fresh) it->second = promise.get_future().share();
    entry = it->second;
    mine = fresh;
  }
  if (!mine) return entry.get();
  try {
    GpuKernel lowered = gpu_lower(spec, kind_of(target), stored);
    auto made = std::make_shared<CompiledGpuKernel>();
    made->code = lowered.pipeline.compile_to_callable(lowered.arguments, halide_target(target));
    made->values = lowered.values;
    made->buffers = lowered.buffers;
    made->launches = lowered.launches;
    promise.set_value(made);
  } catch (const Halide::Error& refused) {
    promise.set_exception(std::make_exception_ptr(Bug("Halide refused kernel " + spec.name + ": " + refused.what())));
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
  return entry.get();
}

DeviceCode device_code(Target target, const KernelSpec& spec, const std::vector<DType>& stored) {
  GpuKernel lowered = gpu_lower(spec, kind_of(target), stored);
  DeviceCode made;
  made.launches = lowered.launches;
  Halide::Module module = lowered.pipeline.compile_to_module(lowered.arguments, "xhat_kernel", halide_target(target));
  for (const auto& b : module.buffers()) {
    if (b.name().find("gpu_source_kernels") == std::string::npos) continue;
    made.text.assign(reinterpret_cast<const char*>(b.data()), b.size_in_bytes());
  }
  return made;
}

}  // namespace runtime
}  // namespace xhat
