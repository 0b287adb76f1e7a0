// Between the evaluator's arrays, .npy files and the views that kernels take.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expr/core/array.h"
#include "expr/index/dims.h"
#include "runtime/host/guarded_memory.h"
#include "runtime/host/tensor_view.h"
#include "tools/npy.h"
#include "tools/options.h"

namespace xhat::tool {

// A tensor with memory of its own; made while a GuardedEngine lives, between guard pages too.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DType type, std::vector<int64_t> shape);  // zeros; poison between guard pages
  explicit Buffer(const Array& values);
  explicit Buffer(const NpyArray& values);

  TensorView view() const { return {data(), type_, shape_, {}}; }
  Array array() const;
  NpyArray npy() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::byte* data() const { return guarded_ ? static_cast<std::byte*>(guarded_->data()) : data_.get(); }
  DType type_ = DType::f32;
  std::vector<int64_t> shape_;
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
  std::unique_ptr<runtime::GuardedTensor> guarded_;  // in place of data_
};

using Buffers = std::map<std::string, Buffer>;

std::vector<Argument> arguments_of(const Buffers& buffers);

// The array of that file for a tensor of the op, whose type must be its own; what: "x", "the cotangent of y", for messages.
NpyArray read_array(const Program& op, TensorId t, const std::string& path, const std::string& what);
// The input of that name. Throws UsageError, which says which there are; option: "--in".
TensorId input_named(const Program& op, const std::string& name, const std::string& option);
// NAME=FILE or NAME=NUMBER: the number, if there is no such file and it is one.
std::optional<double> number_for(const std::string& text);
// An array of that type and shape, all of whose elements are the number.
NpyArray filled(DType type, const std::vector<int64_t>& shape, double value);

// The values of --set, by parameter. Throws UsageError for what is no scalar parameter, or no value of its
// type.
Arrays scalars_of(const Command& c, const Program& op);

}  // namespace xhat::tool
