// Memory of our own, in aligned blocks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "expr/error.h"

namespace xhat::runtime {

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
using Block = std::unique_ptr<void, FreeMemory>;

inline Block allocate(int64_t bytes) {
  // A vector's slack past the end, and never zero.
  size_t rounded = (static_cast<size_t>(std::max<int64_t>(bytes, 0)) + 191) / 64 * 64;
  void* p = std::aligned_alloc(64, rounded);
  if (!p) throw Error("out of memory: " + std::to_string(bytes) + " bytes for a temporary tensor");
  return Block(p);
}

// Memory that grows when it must and is used again otherwise.
struct Scratch {
  Block data;
  int64_t capacity = 0;

  // 64-byte aligned; true if it had to allocate.
  bool reserve(int64_t bytes) {
    if (bytes <= capacity && data) return false;
    size_t rounded = (static_cast<size_t>(bytes) + 191) / 64 * 64;
    data.reset(std::aligned_alloc(64, rounded));
    if (!data) throw Error("out of memory: " + std::to_string(bytes) + " bytes");
    capacity = static_cast<int64_t>(rounded);
    return true;
  }
};

}  // namespace xhat::runtime
