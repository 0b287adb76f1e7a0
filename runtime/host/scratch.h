// The engine's own memory, in 64-byte aligned blocks.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "expr/core/error.h"

namespace xhat::runtime {

// A source of memory to use instead of the C library: tests and `xhat check` put every block between protected pages, filled with NaN
// (guarded_memory.h). Blocks of such a source are not kept for the next call.
struct MemorySource {
  void* (*take)(size_t bytes, size_t room);  // 64-byte aligned. bytes: the part of `room` that is used
  void (*give)(void*);
};
inline std::atomic<const MemorySource*> memory_source = nullptr;

// The bytes of a block with `room` spare bytes at its end. Code may read a vector beyond our blocks, without using its values, but never beyond
// the caller's memory.
inline size_t with_room(size_t bytes, size_t room) { return (bytes + room + 63) / 64 * 64; }

struct FreeMemory {
  const MemorySource* source = nullptr;
  void operator()(void* p) const { source ? source->give(p) : std::free(p); }
};
using OwnedMemory = std::unique_ptr<void, FreeMemory>;

// Null if memory is exhausted.
inline OwnedMemory take_memory(size_t bytes, size_t room) {
  const MemorySource* source = memory_source;
  const size_t all = with_room(bytes, room);
  return OwnedMemory(source ? source->take(bytes, all) : std::aligned_alloc(64, all), {source});
}

inline OwnedMemory allocate(int64_t bytes) {
  constexpr size_t kRoom = 128;  // bytes: two vectors. So a block is never empty
  OwnedMemory block = take_memory(static_cast<size_t>(std::max<int64_t>(bytes, 0)), kRoom);
  if (!block) throw Error("out of memory: " + std::to_string(bytes) + " bytes for a temporary tensor");
  return block;
}

// Memory that is reused, and grows only if a larger block is asked for.
struct Scratch {
  OwnedMemory data;
  int64_t capacity = 0;

  // 64-byte aligned; true if it had to allocate.
  bool reserve(int64_t bytes) {
    const bool kept = data && !data.get_deleter().source && !memory_source;
    if (kept && bytes <= capacity) return false;
    data = allocate(bytes);
    capacity = bytes;
    return true;
  }
};

}  // namespace xhat::runtime
