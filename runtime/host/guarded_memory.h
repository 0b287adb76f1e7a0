// Memory between protected pages, for tests and `xhat check`: a kernel that reads or writes beyond it is stopped at once. A block ends at a
// protected page (Edge::back) or begins at one (Edge::front); a kernel that passes at both edges touches nothing around its tensors.
// Blocks are filled with kPoison, NaN in every float type, so an element that no kernel wrote differs from any result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/host/scratch.h"

namespace xhat::runtime {

enum class Edge : uint8_t { front, back };

constexpr uint16_t kPoison = 0x7fff;  // repeated: a quiet NaN as f16, bf16, f32 and f64

// A caller's tensor of `bytes` bytes: only these may be read or written. On the side without a protected page a pattern follows (front) or
// precedes it (back); the destructor ends the process with a message if the pattern was overwritten.
class GuardedTensor {
 public:
  // name: for messages. Throws Error if memory is exhausted.
  GuardedTensor(size_t bytes, Edge edge, const std::string& name);
  ~GuardedTensor();
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

// While an object exists, all memory of the engine (temporaries, partial results, stashes, scratch of tiles) is guarded at this edge, and
// allocated anew in every call. Process-wide; one at a time. A kernel may read, but not write, the bytes that with_room() adds after a block.
class GuardedEngine {
 public:
  explicit GuardedEngine(Edge edge);
  ~GuardedEngine();
  GuardedEngine(const GuardedEngine&) = delete;
  GuardedEngine& operator=(const GuardedEngine&) = delete;
  static std::optional<Edge> edge();  // the edge of the existing object, if there is one
};

}  // namespace xhat::runtime
