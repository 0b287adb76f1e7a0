// Between the evaluator's arrays, .npy files and the views that kernels take.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expr/array.h"
#include "expr/dims.h"
#include "runtime/tensor_view.h"
#include "tools/npy.h"
#include "tools/options.h"

namespace xhat::tool {

// A tensor with memory of its own.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DType type, std::vector<int64_t> shape);  // zeros
  explicit Buffer(const Array& values);
  explicit Buffer(const NpyArray& values);

  TensorView view() const { return {data_.get(), type_, shape_, {}}; }
  Array array() const;
  NpyArray npy() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  DType type_ = DType::f32;
  std::vector<int64_t> shape_;
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

using Buffers = std::map<std::string, Buffer>;

std::vector<Argument> arguments_of(const Buffers& buffers);

// The values of --set, by parameter. Throws UsageError for what is no scalar parameter, or no value of its
// type.
Arrays scalars_of(const Command& c, const Program& op);

}  // namespace xhat::tool
