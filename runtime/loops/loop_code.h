// A loop with all that is in it as one function: of values only (infer), of values and a tape (forward), and of adjoints (backward).
//
// The tape follows Griewank and Walther, Evaluating Derivatives, 2nd ed. 2008, chapter 4 (store what is overwritten): before the forward writes
// over memory that the backward reads, it puts what was there on the tape; at the end, all of that memory but what the loop leaves, which the
// backward gets as it is. The backward goes through the steps the other way round; after each it takes back from the tape what the step
// overwrote, so that each step finds memory as it was. What is never overwritten after it was read (loop_lasting.h) is read where the loop left it.
#pragma once
#include <memory>
#include <optional>
#include <unordered_map>

#include "runtime/loops/loop_argument.h"
#include "runtime/loops/loop_memory.h"
#include "runtime/loops/nest.h"

namespace xhat::runtime {

// A block of the loop at its sizes.
struct LoopBlock {
  // What a tensor of one of the nests is to the block.
  struct Role {
    enum class Is : uint8_t { operand, result, kept, cotangent, gradient, temporary } is = Is::temporary;
    size_t number = 0;  // of the operand (also of a gradient), the result (also of a cotangent), or of what is kept
  };
  struct Direction {
    KernelSpec spec;
    std::unordered_map<TensorId, Role> roles;  // by SpecTensor::original
    // Of a tensor of the spec: a part of an adjoint, which no other definition reads.
    bool is_added(uint32_t tensor) const;
  };
  struct Kept {
    DType type;
    std::vector<int64_t> shape;
  };
  // Results are true where an index in the data is outside. Where there is `exact`, `check` is true elsewhere, too, and that decides.
  std::optional<Direction> check, exact;
  Direction infer;
  std::optional<Direction> forward, backward;  // where it has gradients
  std::vector<Kept> kept;                      // beside operands and results
  // Results that can be written where an operand is: it is read at the element that is written, and not after that. By result and operand.
  std::set<std::pair<size_t, size_t>> in_place;
  // Results whose adjoint can become, where it lies, that of an operand (loop_adjoints.h). Likewise.
  std::set<std::pair<size_t, size_t>> adjoints_in_place;

  bool backward_reads(Role::Is is, size_t number) const;
};
using LoopBlocks = std::unordered_map<const Block*, LoopBlock>;

// For LoopBlock::in_place, from the rest.
std::set<std::pair<size_t, size_t>> found_in_place(const LoopBlock& block);
// As LoopMemory asks for it. The blocks outlive it.
LoopMemory::InPlace in_place_of(const LoopBlocks& blocks);

struct LoopFunction {
  std::vector<LoopArgument> arguments;
  std::vector<std::string> names;  // of the arguments
  Halide::Internal::Stmt body;
};

// How many elements go on the tapes: by type, in the order of LoopFunction's tapes.
struct LoopTapes {
  std::vector<Halide::Type> types;
  std::vector<int64_t> elements;
};

struct LoopWriter;

class LoopCode {
 public:
  // shapes: of all tensors of p; callers_shapes: of those of which it gets a part, how they lie with the caller.
  LoopCode(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
           const std::vector<std::vector<int64_t>>& callers_shapes, const LoopBlocks& blocks, const Halide::Target& target);
  ~LoopCode();

  // False: what it carries does not lie where it leaves it (LoopMemory).
  bool is_possible() const;
  LoopFunction function(LoopPhase phase);
  // False: data decide how much goes on the tapes.
  bool knows_tapes() const;
  // Variables of loops around are at these values.
  LoopTapes tapes(const AxisValues& around) const;
  // Of what it carries, what the backward reads of what the loop leaves.
  std::vector<size_t> left() const;
  const LoopMemory& memory() const;
  const std::vector<Id>& variables() const;

 private:
  std::unique_ptr<LoopWriter> impl_;
};

}  // namespace xhat::runtime
