// Inside the evaluator: a definition as loops over registers.
//
// Every node of the body becomes one instruction, placed in the innermost loop whose axis it depends on: what
// does not change in a loop is computed outside of it. One loop of a nest, the innermost where possible,
// takes its points a block at a time, so that one dispatch of an instruction serves hundreds of points
// ("lanes"); registers that depend on its axis hold a value per lane, all others one value.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "expr/core/program.h"
#include "expr/core/scalar.h"
#include "expr/index/dims.h"

namespace xhat::evaluation {

using Reg = uint32_t;

struct Register {
  DType type = DType::i64;
  bool lanes = false;   // a value per lane
  bool counts = false;  // the axis of the loop over lanes: consecutive integers
};

struct Instruction {
  enum class Kind : uint8_t { reals, tests, integers, draws, select, cast, read, read_or, reduce } kind;
  Op op;
  DType type;
  Reg out = 0;
  uint32_t first = 0, count = 0;  // operands in Code::operands; none for reduce
  uint32_t index = 0;             // read: the tensor; reduce: in Code::reductions
  const ScalarOp* scalar = nullptr;
  // For messages: the axes the node depends on, in Code::places.
  uint32_t first_place = 0, place_count = 0;
};

struct Loop {
  Reg axis = 0, begin = 0, end = 0;
  bool lanes = false;
  bool masked = false;  // lanes of an outer loop have different ranges
  uint32_t depth = 0;
  uint32_t inner = kNone;  // the next loop of the same nest
  std::vector<Instruction> body;
};

struct Reduction {
  Op op;
  uint32_t first = 0, last = 0;  // its nest of loops
  Reg body = 0, condition = kNone, out = 0;
  DType body_type;
};

struct Preset {
  Reg out;
  double real;
  int64_t integer;
};

struct Code {
  std::vector<Register> registers;
  std::vector<Loop> loops;  // loops[0]: what is done once; then the definition's own nest
  std::vector<Reg> operands;
  std::vector<std::pair<Id, Reg>> places;
  std::vector<Reduction> reductions;
  std::vector<Preset> presets;       // constants and dims
  std::vector<uint32_t> axis_loops;  // per axis of the definition
  uint32_t last_loop = 0;            // the innermost loop of the definition; 0 if it has no axes
  Reg result = 0;
};

Code translate(const Program& p, const Definition& d, const DimValues& dims);

}  // namespace xhat::evaluation
