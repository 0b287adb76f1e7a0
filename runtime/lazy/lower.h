// A graph as a program: each value that is used more than once, and each reduction, is a definition; all other nodes are expressions in
// their users, and movement is what happens to indices on the way. Derivatives are made by ad, definitions beside the others.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/lazy/extents.h"
#include "runtime/lazy/graph.h"

namespace xhat::lazy::detail {

struct Lowered {
  Program program;                      // forward only; inputs x<leaf> and c<number>
  std::vector<uint32_t> leaves;         // per input of memory: which of Walk::leaves
  std::vector<uint32_t> numbers;        // per input that is a number: which of Walk::numbers
  std::vector<uint32_t> outputs;        // per root: which of the program's outputs
  std::map<std::string, int64_t> dims;  // at the sizes of the graph
};

// varying: per number of the walk, is it an argument of the program (and not part of it)?
// parts: of a root that is an update, is its output only the part that is written?
Lowered lower(const Walk& w, const std::vector<char>& varying, const std::vector<char>& parts);

}  // namespace xhat::lazy::detail
