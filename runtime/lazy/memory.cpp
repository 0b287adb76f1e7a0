#include "runtime/lazy/memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "expr/core/scalar.h"

namespace xhat::lazy::detail {
namespace {

constexpr size_t kAlignment = 64;            // a cache line, and a vector of AVX-512
constexpr size_t kPooled = size_t{1} << 28;  // bytes kept for later; the rest goes back to the system

// Blocks by size. Never destroyed: arrays of static storage duration give their memory back late.
struct MemoryPool {
  std::mutex mutex;
  std::map<size_t, std::vector<void*>> free;
  size_t pooled = 0;
  std::atomic<int64_t> used = 0;
};
MemoryPool& pool() {
  static auto* held = new MemoryPool;
  return *held;
}

void* take_block(size_t bytes) {
  MemoryPool& p = pool();
  p.used += static_cast<int64_t>(bytes);
  {
    std::lock_guard lock(p.mutex);
    if (auto it = p.free.find(bytes); it != p.free.end() && !it->second.empty()) {
      void* block = it->second.back();
      it->second.pop_back();
      p.pooled -= bytes;
      return block;
    }
  }
  void* block = std::aligned_alloc(kAlignment, bytes);
  if (!block) throw std::bad_alloc();
  return block;
}

void give_block(void* block, size_t bytes) {
  MemoryPool& p = pool();
  p.used -= static_cast<int64_t>(bytes);
  std::lock_guard lock(p.mutex);
  if (p.pooled + bytes > kPooled) return std::free(block);
  p.pooled += bytes;
  p.free[bytes].push_back(block);
}

template <class F>
auto with_type(DType type, F&& f) {
  switch (type) {
    case DType::f64: return f(double{});
    case DType::f32: return f(float{});
    case DType::i64: return f(int64_t{});
    case DType::i32: return f(int32_t{});
    case DType::u32: return f(uint32_t{});
    case DType::f16:
    case DType::bf16: return f(uint16_t{});
    case DType::u8:
    case DType::boolean: return f(uint8_t{});
  }
  throw Bug("no such type");
}

// One element as the evaluator sees it: a float as a double, all others as int64_t.
struct Element {
  double real = 0;
  int64_t integer = 0;
};

Element load(DType type, const char* p) {
  return with_type(type, [&](auto zero) {
    std::memcpy(&zero, p, sizeof(zero));
    if (type == DType::f16) return Element{f16_value(static_cast<uint16_t>(zero)), 0};
    if (type == DType::bf16) return Element{bf16_value(static_cast<uint16_t>(zero)), 0};
    return Element{static_cast<double>(zero), static_cast<int64_t>(zero)};
  });
}

void store(DType type, char* p, const Element& e) {
  with_type(type, [&](auto zero) {
    if (type == DType::f16)
      zero = static_cast<decltype(zero)>(f16_bits(e.real));
    else if (type == DType::bf16)
      zero = static_cast<decltype(zero)>(bf16_bits(e.real));
    else if (is_float(type))
      zero = static_cast<decltype(zero)>(e.real);
    else
      zero = static_cast<decltype(zero)>(e.integer);
    std::memcpy(p, &zero, sizeof(zero));
  });
}

Element converted(DType to, DType from, const Element& e) {
  if (is_float(to)) return {is_float(from) ? e.real : real_from(to, e.integer), 0};
  return {0, is_float(from) ? integer_from(to, e.real) : integer_from(to, e.integer)};
}

}  // namespace

std::shared_ptr<Storage> new_storage(DType type, const Shape& shape) {
  auto s = pooled<Storage>();
  s->view = TensorView(nullptr, type, shape, {});
  const auto wanted = static_cast<size_t>(std::max<int64_t>(s->view.bytes(), 1));
  const size_t bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  void* block = take_block(bytes);
  s->view.data = block;
  s->owner = std::shared_ptr<void>(block, [bytes](void* p) { give_block(p, bytes); });
  return s;
}

int64_t storage_bytes() { return pool().used; }

void copy_elements(const TensorView& to, const TensorView& from) {
  if (from.on_device() || to.on_device())
    throw Error("the memory of a device is not read by the host; realize on that device, or copy it first");
  if (from.elements() == 0) return;
  const size_t width = byte_size(from.type), to_width = byte_size(to.type);
  if (to.type == from.type && to.dense() && from.dense()) {
    std::memmove(to.data, from.data, static_cast<size_t>(from.bytes()));
    return;
  }
  std::vector<int64_t> offsets;
  offsets.reserve(static_cast<size_t>(from.elements()));
  runtime::for_each_offset(from, [&](int64_t, int64_t offset) { offsets.push_back(offset); });
  runtime::for_each_offset(to, [&](int64_t i, int64_t offset) {
    const char* p = static_cast<const char*>(from.data) + offsets[static_cast<size_t>(i)] * static_cast<int64_t>(width);
    char* q = static_cast<char*>(to.data) + offset * static_cast<int64_t>(to_width);
    if (to.type == from.type)
      std::memcpy(q, p, width);
    else
      store(to.type, q, converted(to.type, from.type, load(from.type, p)));
  });
}

TensorView scalar_view(const TensorView& one) {
  TensorView v = one;
  v.rank = 0;
  return v;
}

void write_array(const TensorView& to, const xhat::Array& values) {
  const size_t width = byte_size(to.type);
  runtime::for_each_offset(to, [&](int64_t i, int64_t offset) {
    const auto k = static_cast<size_t>(i);
    const Element e = values.real() ? Element{values.reals[k], 0} : Element{0, values.integers[k]};
    store(to.type, static_cast<char*>(to.data) + offset * static_cast<int64_t>(width), e);
  });
}

void fill(const TensorView& to, const Node& n) {
  const size_t width = byte_size(to.type);
  runtime::for_each_offset(to, [&](int64_t i, int64_t offset) {
    const Element e = n.kind == Kind::iota ? Element{0, i} : Element{n.value, n.integer};
    store(to.type, static_cast<char*>(to.data) + offset * static_cast<int64_t>(width), e);
  });
}

}  // namespace xhat::lazy::detail
