// Memory that lies between pages that nobody may touch, so that a kernel that reads or writes beyond it stops there and then: for tests
// and for `xhat check`. A block ends where a page does (Edge::back) or begins there (Edge::front): what runs at both edges touches
// nothing around any of its tensors. Blocks are filled with kPoison, which is NaN in every float type and a number of no meaning in the
// others, so that an element that no kernel wrote differs from any result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/host/scratch.h"

namespace xhat::runtime {

enum class Edge : uint8_t { front, back };

constexpr uint16_t kPoison = 0x7fff;  // repeated: a quiet NaN as f16, bf16, f32 and f64

// A caller's tensor: nothing but its own bytes may be read or written. Where it touches no page that is closed, bytes of a pattern
// follow (front) or precede it; the destructor ends the process with a message if they were written.
class GuardedTensor {
 public:
  // name: for messages. Throws Error if there is no more memory.
  GuardedTensor(size_t bytes, Edge edge, const std::string& name);
  ~GuardedTensor();
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

// As long as it lives, all memory of the engine (temporaries, partial results, stashes, what the code of tiles asks for) is guarded,
// at this edge, and new in every call. Process-wide; one at a time. A kernel may read behind the end of such a block what
// with_room() gives it, but not write there.
class GuardedEngine {
 public:
  explicit GuardedEngine(Edge edge);
  ~GuardedEngine();
  GuardedEngine(const GuardedEngine&) = delete;
  GuardedEngine& operator=(const GuardedEngine&) = delete;
  static std::optional<Edge> edge();  // of the one that lives, if any does
};

}  // namespace xhat::runtime
