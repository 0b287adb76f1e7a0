#include "runtime/call/callers_memory.h"

#include <algorithm>
#include <cstring>

namespace xhat::runtime {
namespace {

// The number 1 of that type, a tensor of rank 0.
TensorView one_of(DType float_type) {
  static const double f64 = 1;
  static const float f32 = 1;
  static const float16 f16 = 1;
  static const bfloat16 bf16 = 1;
  switch (float_type) {
    case DType::f64: return {&f64, {}};
    case DType::f32: return {&f32, {}};
    case DType::f16: return {&f16, {}};
    case DType::bf16: return {&bf16, {}};
    case DType::i64:
    case DType::i32:
    case DType::u32:
    case DType::u8:
    case DType::boolean: break;
  }
  throw Bug("a cotangent is no float");
}

}  // namespace

void CallersMemory::remember(const Program& p, std::span<const TensorView> views) {
  tensors_.assign(p.inputs.begin(), p.inputs.end());
  tensors_.insert(tensors_.end(), p.outputs.begin(), p.outputs.end());
  views_.resize(tensors_.size());
  scalars_.resize(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TensorView& v = views_[i] = views[tensors_[i]];
    if (v.rank != 0 || v.on_device() || !v.data) continue;
    std::memcpy(scalars_[i].data(), v.data, byte_size(v.type));
    v.data = scalars_[i].data();
    v.writable = false;
  }
}

bool CallersMemory::supply(const Program& p, TensorId t, TensorView& view) const {
  if (auto it = std::ranges::find(tensors_, t); it != tensors_.end()) {
    view = views_[static_cast<size_t>(it - tensors_.begin())];
    return true;
  }
  const bool loss = p.cotangents.size() == 1 && p.cotangents[0] == t && p.tensors[t].shape.empty();
  if (loss) view = one_of(p.tensors[t].type);
  return loss;
}

}  // namespace xhat::runtime
