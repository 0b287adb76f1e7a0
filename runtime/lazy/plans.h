// Graphs that were seen before: their programs, compiled.
//
// A graph is looked for twice. By its structure with all sizes, which is found in microseconds, and then as a program, whose sizes are
// symbols: other sizes are another plan of the same compiled op. Numbers that a graph contains are part of its program at first; those
// that differ the next time the structure is seen (a learning rate that decays) become arguments.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/lazy/graph.h"
#include "runtime/lazy/kept.h"
#include "runtime/lazy/later.h"

namespace xhat::lazy::detail {

struct Plan {
  CompiledOp op;
  std::vector<std::string> leaf_names, number_names, output_names;
  std::vector<uint32_t> leaves, numbers;  // which of Walk::leaves and Walk::numbers
  std::vector<uint32_t> outputs;          // per root
  DimValues dims;
  std::vector<uint64_t> fixed;      // per number of the walk: its bits, or 0 where it is an argument
  std::optional<Program> constant;  // set: nothing is read but sizes, and it is small; the host evaluates it
  std::optional<Later> later;       // what is kept for derivatives comes behind the outputs of the roots
  std::shared_ptr<Asked> asked;     // of the structure
  bool in_place = true;             // may results be written over what was read? Learned from the first call
};

struct PlanCounts {
  int64_t compiles = 0, plans = 0;
};

// Makes it if there is none. parts: of roots that are updates, is only the part written? Under engine_mutex().
Plan& plan_of(Walk& w, const std::vector<char>& parts);
PlanCounts plan_counts();
// A program that is run as it stands, compiled; found again by its text. wrt: with gradients by these inputs.
CompiledOp compiled(const Program& p, const std::vector<std::string>& wrt = {});

}  // namespace xhat::lazy::detail
