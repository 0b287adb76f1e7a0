// What the function of a loop (loop_code.h) is called with.
#pragma once
#include <cstddef>
#include <cstdint>

namespace xhat::runtime {

// count: forward, but only how much would go on the tapes; where data decide how often a loop runs.
enum class LoopPhase : uint8_t { infer, forward, backward, count };

// Elements of a tape, at most.
constexpr int32_t kMostOnTape = 1 << 30;

struct LoopArgument {
  enum class Is : uint8_t {
    variable,  // of a loop around: an i64
    outside,   // a value from outside
    carried,   // infer, forward: holds what the loop begins with, then what it leaves; backward: what it left, which is only read
    memory,    // anything, of that many bytes
    tape,
    status,           // int32: an error, then how long each tape is
    adjoint,          // backward: of what is carried; of what the loop leaves, then of what it begins with
    outside_adjoint,  // is added to
  } is = Is::memory;
  size_t number = 0;  // in Loop::carried, LoopMemory::outside, loop variables or tapes
  int64_t bytes = 0;
};

}  // namespace xhat::runtime
