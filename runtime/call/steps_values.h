// Values of a run of a program with loops and branches: memory, and rows of it.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "expr/eval/run_steps.h"
#include "runtime/host/scratch.h"
#include "runtime/host/tensor_view.h"

namespace xhat::runtime {

// Memory of values that are gone, for those to come: an iteration allocates nothing that one before it has given back.
class Pool {
 public:
  OwnedMemory take(int64_t bytes, int64_t& allocations) {
    auto& list = free_[bytes];
    if (list.empty() || memory_source) {
      ++allocations;
      return allocate(bytes);
    }
    OwnedMemory m = std::move(list.back());
    list.pop_back();
    return m;
  }
  void give(int64_t bytes, OwnedMemory m) {
    if (!m.get_deleter().source) free_[bytes].push_back(std::move(m));
  }

 private:
  std::unordered_map<int64_t, std::vector<OwnedMemory>> free_;
};

// A value: memory of ours, or an input of the caller's, which is found by name again in each call.
struct Held {
  TensorView view;
  OwnedMemory memory;
  std::shared_ptr<Pool> pool;
  int64_t bytes = 0;
  std::optional<TensorId> input;
  int64_t noted = 0;            // how many of those that have it only need it for a backward (noted())
  std::vector<bool> unwritten;  // of an adjoint: the rows, by leading index, that nothing was added to and that hold anything

  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (memory) pool->give(bytes, std::move(memory));
  }
};

// For a backward, which takes back what was written over it since (Overwritten): others may write over it in place.
inline std::shared_ptr<Held> noted(const std::shared_ptr<Held>& v) {
  ++v->noted;
  return {v.get(), [v](Held* held) { --held->noted; }};
}

inline TensorView row_of(TensorView v, const std::vector<int64_t>& row) {
  int64_t at = 0;
  int left = 0;
  for (int d = 0; d < v.rank; ++d) {
    const auto k = static_cast<size_t>(d);
    if (k < row.size() && row[k] != kWhole) {
      at += row[k] * v.strides[k];
      continue;
    }
    v.shape[static_cast<size_t>(left)] = v.shape[k];
    v.strides[static_cast<size_t>(left++)] = v.strides[k];
  }
  v.data = static_cast<char*>(v.data) + at * static_cast<int64_t>(byte_size(v.type));
  v.rank = left;
  return v;
}

// Of the same shape and type, in memory that does not overlap.
inline void copy_into(const TensorView& to, const TensorView& from) {
  if (to.dense() && from.dense()) {
    if (from.bytes() > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
    return;
  }
  const auto size = static_cast<int64_t>(byte_size(from.type));
  auto element = [&](const TensorView& v, int64_t offset) { return static_cast<char*>(v.data) + offset * size; };
  if (to.dense())
    return for_each_offset(from, [&](int64_t i, int64_t at) { std::memcpy(element(to, i), element(from, at), static_cast<size_t>(size)); });
  if (from.dense())
    return for_each_offset(to, [&](int64_t i, int64_t at) { std::memcpy(element(to, at), element(from, i), static_cast<size_t>(size)); });
  std::vector<char> between(static_cast<size_t>(from.bytes()));
  const TensorView dense(between.data(), from.type, from.extents(), {});
  copy_into(dense, from);
  copy_into(to, dense);
}

inline void clear(const TensorView& v) {
  const size_t size = byte_size(v.type);
  if (v.dense()) return void(std::memset(v.data, 0, static_cast<size_t>(v.bytes())));
  for_each_offset(v, [&](int64_t, int64_t at) { std::memset(static_cast<char*>(v.data) + at * static_cast<int64_t>(size), 0, size); });
}

}  // namespace xhat::runtime
