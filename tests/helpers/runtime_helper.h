// Runs a compiled op on Arrays, for comparing kernels with the evaluator. Header only: helpers with a .cpp are linked into
// tests that lack the runtime.
#pragma once
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "expr/eval/evaluate.h"
#include "runtime/call/compile.h"
#include "runtime/host/guarded_memory.h"

namespace xhat::testing {

using runtime::Edge;
using Guard = std::optional<Edge>;  // none: memory as callers have it

// An Array's values in their own width. Between guard pages, or aligned to an element and no more, as a caller's may be.
class Buffer {
 public:
  explicit Buffer(const Array& a, Guard guard = {}, const std::string& name = "a tensor") : type_(a.type), shape_(a.shape) {
    for (size_t i = 0; i < a.size(); ++i) put(a, i);
    if (guard) guarded_ = std::make_shared<runtime::GuardedTensor>(bytes_.size(), *guard, name);
    else bytes_.insert(bytes_.begin(), byte_size(type_), 0);
    if (guard && !bytes_.empty()) std::memcpy(guarded_->data(), bytes_.data(), bytes_.size());
  }
  TensorView view() { return TensorView(data(), type_, shape_, {}); }

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
    std::memcpy(&v, data() + i * sizeof v, sizeof v);
    return v;
  }
  unsigned char* data() {
    return guarded_ ? static_cast<unsigned char*>(guarded_->data()) : bytes_.data() + byte_size(type_);
  }
  const unsigned char* data() const { return const_cast<Buffer*>(this)->data(); }
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
  std::shared_ptr<runtime::GuardedTensor> guarded_;
};

// A call's buffers by tensor name.
class Call {
 public:
  Call(const Program& p, const DimValues& dims, Guard guard = {}) : p_(p), dims_(dims), guard_(guard) {}
  void give(const std::vector<TensorId>& tensors, const Arrays& data) {
    for (TensorId t : tensors) put(t, data.at(p_.tensor(t).name));
  }
  // Filled with rubbish, so that what is not written shows.
  void expect(const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors) {
      Array a = zeros(p_.tensor(t).type, shape_of(p_, t, dims_));
      for (double& v : a.reals) v = std::numeric_limits<double>::quiet_NaN();
      for (int64_t& v : a.integers) v = 99;
      put(t, a);
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
  void put(TensorId t, const Array& a) {
    const std::string& name = p_.tensor(t).name;
    buffers_.insert_or_assign(name, Buffer(a, guard_, name));
  }
  const Program& p_;
  DimValues dims_;
  Guard guard_;
  std::map<std::string, Buffer> buffers_;
};

inline bool same_bits(const Arrays& a, const Arrays& b) {
  return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& named) {
           const Array& x = named.second;
           const auto y = b.find(named.first);
           return y != b.end() && x.reals.size() == y->second.reals.size() && x.integers == y->second.integers &&
                  (x.reals.empty() || std::memcmp(x.reals.data(), y->second.reals.data(), x.reals.size() * sizeof(double)) == 0);
         });
}

// What `run` gives with memory as callers have it, and with all of it (the caller's, and the engine's own) between guard pages, poisoned:
// there a kernel that reads or writes beyond a tensor ends the process, and what was written by none is NaN. All must have the same bits.
// On a device once, as it is: its memory is the driver's, and its scatters add in no fixed order (docs/gpu.md).
template <class Run>
Arrays in_any_memory(const CompiledOp& op, Run run) {
  const Arrays plain = run(Guard());
  if (op.target() != Target::cpu) return plain;
  for (Edge edge : {Edge::front, Edge::back}) {
    const runtime::GuardedEngine engine(edge);
    if (!same_bits(run(Guard(edge)), plain)) throw std::runtime_error("results depend on where memory lies, or on what was there before");
  }
  return plain;
}

// Outputs of infer().
inline Arrays run_infer(const CompiledOp& op, const Arrays& data, const DimValues& dims) {
  const Program& p = op.program(dims);
  return in_any_memory(op, [&](Guard guard) {
    Call call(p, dims, guard);
    call.give(p.inputs, data);
    call.expect(p.outputs);
    op.infer(call.arguments({p.inputs, p.outputs}));
    return call.arrays({p.outputs});
  });
}

// Outputs of forward() and gradients of backward().
inline Arrays run_both(const CompiledOp& op, const Arrays& data, const DimValues& dims) {
  const Program& p = op.program(dims);
  return in_any_memory(op, [&](Guard guard) {
    Call call(p, dims, guard);
    call.give(p.inputs, data);
    call.give(p.cotangents, data);
    call.expect(p.outputs);
    call.expect(p.gradients);
    Stash stash = op.forward(call.arguments({p.inputs, p.outputs}));
    op.backward(call.arguments({p.inputs, p.outputs, p.cotangents, p.gradients}), stash);
    return call.arrays({p.outputs, p.gradients});
  });
}

}  // namespace xhat::testing
