#include "runtime/interop/dlpack.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace xhat {
namespace {

// Device types by number, because older headers lack some names.
enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
enum Device : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kOpenCl = 4, kCudaManaged = 13 };

struct KnownType {
  DType type;
  uint8_t code, bits;
};
constexpr KnownType kTypes[] = {
    {DType::f64, kFloat, 64}, {DType::f32, kFloat, 32}, {DType::f16, kFloat, 16},
    {DType::bf16, kBfloat, 16}, {DType::i64, kInt, 64}, {DType::i32, kInt, 32},
    {DType::u32, kUInt, 32}, {DType::u8, kUInt, 8}, {DType::boolean, kBool, 8},
};

struct KnownDevice {
  int32_t type;
  Target place;
};
// For export, the first entry of a target is used.
constexpr KnownDevice kDevices[] = {
    {kCpu, Target::cpu},
    {kCudaHost, Target::cpu},
    {kCuda, Target::cuda},
    {kCudaManaged, Target::cuda},
    {kOpenCl, Target::opencl},
};

[[noreturn]] void fail(const std::string& what) { throw Error("DLPack: " + what); }

struct Exported {
  DLManagedTensor tensor = {};
  std::array<int64_t, kMaxRank> shape, strides;
  std::function<void()> release;
};

}  // namespace

TensorView view_of(const DLTensor& t, bool writable) {
  auto device = std::ranges::find(kDevices, static_cast<int32_t>(t.device.device_type), &KnownDevice::type);
  if (device == std::end(kDevices))
    fail(fmt::format("the tensor lies on a device of type {}; known are the CPU (1, 3), CUDA (2, 13) and OpenCL (4). copy it to one of "
                     "these", static_cast<int>(t.device.device_type)));
  auto type = std::ranges::find_if(kTypes, [&](const KnownType& k) { return k.code == t.dtype.code && k.bits == t.dtype.bits; });
  if (type == std::end(kTypes))
    fail(fmt::format("elements of type code {} with {} bits; there are f64, f32, f16, bf16, i64, i32, u32, u8 and bool", t.dtype.code,
                     t.dtype.bits));
  if (t.dtype.lanes != 1) fail(fmt::format("elements are vectors of {}; they must be single numbers", t.dtype.lanes));
  if (t.ndim < 0 || t.ndim > kMaxRank) fail(fmt::format("the tensor has {} dimensions; kernels take up to {}", t.ndim, kMaxRank));
  const auto rank = static_cast<size_t>(t.ndim);
  const std::span<const int64_t> shape(t.shape, rank), strides(t.strides, t.strides ? rank : 0);
  for (size_t d = 0; d < rank; ++d) {
    if (shape[d] < 0) fail(fmt::format("dimension {} has the extent {}", d, shape[d]));
    if (!strides.empty() && strides[d] < 0)
      fail(fmt::format("dimension {} has the stride {}; negative ones are not taken, copy the tensor", d, strides[d]));
  }
  if (t.byte_offset % byte_size(type->type) != 0)
    fail(fmt::format("the tensor begins {} bytes into its memory, which is no whole number of elements", t.byte_offset));
  if (t.byte_offset != 0 && device->place == Target::opencl)
    fail(fmt::format("the tensor begins {} bytes into its cl_mem; copy it, or make a sub-buffer", t.byte_offset));
  void* data = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
  TensorView v(data, type->type, shape, strides);
  v.place = device->place;
  v.writable = writable;
  return v;
}

DlpackTensor::DlpackTensor(DLManagedTensor* tensor) : tensor_(tensor) {
  if (!tensor) fail("there is no tensor: the pointer is null");
  view_ = view_of(tensor->dl_tensor);
}

DLManagedTensor* to_dlpack(const TensorView& view, std::function<void()> release, int device) {
  auto place = std::ranges::find(kDevices, view.place, &KnownDevice::place);
  if (place == std::end(kDevices)) fail("memory of Vulkan cannot be handed to others");
  auto made = std::make_unique<Exported>();
  made->shape = view.shape;
  made->strides = view.strides;
  made->release = std::move(release);
  const KnownType& type = *std::ranges::find(kTypes, view.type, &KnownType::type);
  DLTensor& t = made->tensor.dl_tensor;
  t.data = view.data;
  t.device = {static_cast<DLDeviceType>(place->type), view.place == Target::cuda ? device : 0};
  t.ndim = view.rank;
  t.dtype = {type.code, type.bits, 1};
  t.shape = made->shape.data();
  t.strides = made->strides.data();
  made->tensor.manager_ctx = made.get();
  made->tensor.deleter = [](DLManagedTensor* self) {
    std::unique_ptr<Exported> ours(static_cast<Exported*>(self->manager_ctx));
    if (ours->release) ours->release();
  };
  return &made.release()->tensor;
}

}  // namespace xhat
