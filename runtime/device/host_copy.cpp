#include "runtime/device/host_copy.h"

namespace xhat::runtime {

TensorView on_host(TensorView v, std::vector<uint8_t>& memory, const DeviceQueue& queue) {
  if (!v.on_device()) return v;
  memory.resize(static_cast<size_t>(v.bytes()) + 1);
  if (v.bytes() > 0) queue.driver->download(queue.stream, memory.data(), reinterpret_cast<DeviceMemory>(v.data), v.bytes());
  v.data = memory.data();
  v.place = Target::cpu;
  return v;
}

Array array_of(const TensorView& v) {
  Array a;
  a.type = v.type;
  a.shape.assign(v.extents().begin(), v.extents().end());
  for_each_offset(v, [&](int64_t, int64_t offset) {
    auto value = [&]<class T>(T) { return static_cast<const T*>(v.data)[offset]; };
    switch (v.type) {
      case DType::f64: a.reals.push_back(value(0.0)); break;
      case DType::f32: a.reals.push_back(static_cast<double>(value(0.0f))); break;
      case DType::i64: a.integers.push_back(value(int64_t{})); break;
      case DType::i32: a.integers.push_back(value(int32_t{})); break;
      case DType::u8:
      case DType::boolean: a.integers.push_back(value(uint8_t{})); break;
      case DType::f16: a.reals.push_back(f16_value(value(uint16_t{}))); break;
      case DType::bf16: a.reals.push_back(bf16_value(value(uint16_t{}))); break;
      case DType::u32: a.integers.push_back(value(uint32_t{})); break;
    }
  });
  return a;
}

}  // namespace xhat::runtime
