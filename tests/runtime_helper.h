// Runs a compiled op on Arrays, for comparing kernels with the evaluator. Header only: helpers with a .cpp are linked into
// tests that lack the runtime.
#pragma once
#include <cstring>
#include <map>

#include "expr/evaluate.h"
#include "runtime/compile.h"

namespace xhat::testing {

// An Array's values in their own width, aligned to an element and no more, as a caller's may be.
class Buffer {
 public:
  explicit Buffer(const Array& a) : type_(a.type), shape_(a.shape), bytes_(byte_size(a.type)) {
    for (size_t i = 0; i < a.size(); ++i) put(a, i);
  }
  TensorView view() { return TensorView(bytes_.data() + byte_size(type_), type_, shape_, {}); }

  Array array() const {
    Array a = zeros(type_, shape_);
    for (size_t i = 0; i < a.size(); ++i) {
      switch (type_) {
        case DType::f64: a.reals[i] = get<double>(i); break;
        case DType::f32: a.reals[i] = get<float>(i); break;
        case DType::f16: a.reals[i] = f16_value(get<uint16_t>(i)); break;
        case DType::bf16: a.reals[i] = bf16_value(get<uint16_t>(i)); break;
        case DType::i64: a.integers[i] = get<int64_t>(i); break;
        case DType::i32: a.integers[i] = get<int32_t>(i); break;
        case DType::u32: a.integers[i] = get<uint32_t>(i); break;
        case DType::u8:
        case DType::boolean: a.integers[i] = get<uint8_t>(i); break;
      }
    }
    return a;
  }

 private:
  template <class T>
  void add(T v) {
    const auto* p = reinterpret_cast<const unsigned char*>(&v);
    bytes_.insert(bytes_.end(), p, p + sizeof v);
  }
  template <class T>
  T get(size_t i) const {
    T v;
    std::memcpy(&v, bytes_.data() + (i + 1) * sizeof v, sizeof v);
    return v;
  }
  void put(const Array& a, size_t i) {
    switch (type_) {
      case DType::f64: return add(a.reals[i]);
      case DType::f32: return add(static_cast<float>(a.reals[i]));
      case DType::f16: return add(f16_bits(a.reals[i]));
      case DType::bf16: return add(bf16_bits(a.reals[i]));
      case DType::i64: return add(a.integers[i]);
      case DType::i32: return add(static_cast<int32_t>(a.integers[i]));
      case DType::u32: return add(static_cast<uint32_t>(a.integers[i]));
      case DType::u8:
      case DType::boolean: return add(static_cast<uint8_t>(a.integers[i]));
    }
  }
  DType type_;
  std::vector<int64_t> shape_;
  std::vector<unsigned char> bytes_;
};

// A call's buffers by tensor name.
class Call {
 public:
  Call(const Program& p, const DimValues& dims) : p_(p), dims_(dims) {}
  void give(const std::vector<TensorId>& tensors, const Arrays& data) {
    for (TensorId t : tensors) buffers_.insert_or_assign(p_.tensor(t).name, Buffer(data.at(p_.tensor(t).name)));
  }
  // Filled with rubbish, so that what is not written shows.
  void expect(const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors) {
      Array a = zeros(p_.tensor(t).type, shape_of(p_, t, dims_));
      for (double& v : a.reals) v = -12345;
      for (int64_t& v : a.integers) v = 99;
      buffers_.insert_or_assign(p_.tensor(t).name, Buffer(a));
    }
  }
  std::vector<Argument> arguments(std::initializer_list<std::vector<TensorId>> lists) {
    std::vector<Argument> result;
    for (const auto& tensors : lists)
      for (TensorId t : tensors) result.push_back({p_.tensor(t).name, buffers_.at(p_.tensor(t).name).view()});
    return result;
  }
  Arrays arrays(std::initializer_list<std::vector<TensorId>> lists) const {
    Arrays result;
    for (const auto& tensors : lists)
      for (TensorId t : tensors) result[p_.tensor(t).name] = buffers_.at(p_.tensor(t).name).array();
    return result;
  }

 private:
  const Program& p_;
  DimValues dims_;
  std::map<std::string, Buffer> buffers_;
};

// Outputs of infer().
inline Arrays run_infer(const CompiledOp& op, const Arrays& data, const DimValues& dims) {
  const Program& p = op.program(dims);
  Call call(p, dims);
  call.give(p.inputs, data);
  call.expect(p.outputs);
  op.infer(call.arguments({p.inputs, p.outputs}));
  return call.arrays({p.outputs});
}

// Outputs of forward() and gradients of backward().
inline Arrays run_both(const CompiledOp& op, const Arrays& data, const DimValues& dims) {
  const Program& p = op.program(dims);
  Call call(p, dims);
  call.give(p.inputs, data);
  call.give(p.cotangents, data);
  call.expect(p.outputs);
  call.expect(p.gradients);
  Stash stash = op.forward(call.arguments({p.inputs, p.outputs}));
  op.backward(call.arguments({p.inputs, p.outputs, p.cotangents, p.gradients}), stash);
  return call.arrays({p.outputs, p.gradients});
}

}  // namespace xhat::testing
