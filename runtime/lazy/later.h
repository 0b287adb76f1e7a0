// A program whose results are differentiated after it has run, by another program.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/lazy/shape.h"

namespace xhat::lazy::detail {

struct Later {
  enum class From : uint8_t { input, result, stash, cotangent };
  struct Argument {
    From from;
    uint32_t number;  // of the program's inputs; of results; of what is kept; of results
  };
  struct Value {
    DType type;
    Shape shape;  // at the sizes of the plan
  };
  std::vector<uint32_t> results;            // outputs of the program that have a cotangent
  std::vector<Value> kept;                  // further outputs of the program, behind those that it had
  std::shared_ptr<const Program> forward;   // of the program's inputs: the results, then what is kept
  std::shared_ptr<const Program> backward;  // its outputs: gradients
  std::vector<Argument> arguments;          // of the backward
  std::vector<uint32_t> by;                 // per output of the backward: the input of the program that it is the gradient by
};

// Adds to p's outputs what a backward from its outputs `results` to its inputs `by` shall find, by the planner's choice at these sizes.
// None, and p as it was, if nobody can say so beforehand: a gradient that there is not, a size that only the forward knows.
std::optional<Later> keep_for_later(Program& p, std::span<const uint32_t> results, std::span<const uint32_t> by,
                                    const CompileOptions& options, const DimValues& dims);

}  // namespace xhat::lazy::detail
