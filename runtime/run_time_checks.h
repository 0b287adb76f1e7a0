// What can only fail on data, or at some sizes, is checked before a direction writes anything: indices that depend on data,
// and an argmax over nothing.
#pragma once
#include <optional>
#include <vector>

#include "expr/program.h"

namespace xhat::runtime {

struct Checks {
  // bool over dims: true at sizes at which an argmax has nothing to run over.
  std::vector<Id> of_sizes;
  // A program with one bool scalar per definition that can fail: true if an index of it falls outside its tensor, or no
  // element meets the condition of an argmax. None if there is nothing to check.
  std::optional<Program> of_data;
};

Checks run_time_checks(const Program& direction);

}  // namespace xhat::runtime
