// An op with memory for all its tensors, filled with numbers in -1..1.
#pragma once
#include <utility>
#include <vector>

#include "bench/touched_buffer.h"
#include "expr/index/dims.h"
#include "runtime/call/compile.h"

namespace xhat::bench {

struct OpSetup {
  CompiledOp op;
  std::vector<TouchedBuffer> buffers;
  std::vector<Argument> outer, inner;  // of infer and forward; of backward

  // behind: bytes from the beginning of a line of the cache to each tensor.
  OpSetup(CompiledOp compiled, const DimValues& dims, size_t behind = 0) : op(std::move(compiled)), behind_(behind) {
    const Program& p = op.program();
    for (const auto* list : {&p.inputs, &p.outputs})
      for (TensorId t : *list) add(t, dims, &outer);
    inner = outer;
    for (const auto* list : {&p.cotangents, &p.gradients})
      for (TensorId t : *list) add(t, dims, &inner);
  }

 private:
  void add(TensorId t, const DimValues& dims, std::vector<Argument>* to) {
    const Tensor& tensor = op.program().tensor(t);
    if (tensor.type != DType::f32) throw Error("data is made for f32 only");
    std::vector<int64_t> shape = shape_of(op.program(), t, dims);
    TensorView view(nullptr, tensor.type, shape, {});
    auto count = static_cast<size_t>(view.elements());
    auto* data = reinterpret_cast<float*>(buffers.emplace_back(behind_ + count * sizeof(float)).data() + behind_);
    for (size_t i = 0; i < count; ++i) {
      uint32_t scrambled = static_cast<uint32_t>(i + t) * 2654435761u;
      data[i] = static_cast<float>(scrambled * 0x1p-31 - 1);
    }
    view.data = data;
    to->push_back({tensor.name, view});
  }

  size_t behind_;
};

}  // namespace xhat::bench
