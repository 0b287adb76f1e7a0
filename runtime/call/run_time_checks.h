// What can only fail on data, or at some sizes, is checked before a direction writes anything: indices that depend on data
// or that no relation expresses, and an argmax over nothing.
//
// A check costs one pass over the data that decide it (the indices, and what stands in conditions around the read), however many loops
// stand around the read; equal checks of several definitions are made once, and what ranges and conditions prove is not checked.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat::runtime {

// A bool scalar of the program of checks.
struct DataCheck {
  TensorId fails;       // true: an index falls outside its tensor, or no element meets the condition of an argmax
  size_t definition;    // of the direction: the first that it is made for
  std::string checked;  // "table[ids[b],d]", for people
};

struct Checks {
  // bool over dims: true at sizes at which an argmax has nothing to run over.
  std::vector<Id> of_sizes;
  // A program whose outputs are `checks`, in this order. None if there is nothing to check.
  std::optional<Program> of_data;
  std::vector<DataCheck> checks;
  // The same outputs, true wherever those of of_data are, and maybe elsewhere: it looks at inputs only, and at no condition that
  // depends on more axes than the indices do. Where all of it is false, of_data need not run. None: of_data costs no more.
  std::optional<Program> at_first;

  const Program& first() const { return at_first ? *at_first : *of_data; }
};

Checks run_time_checks(const Program& direction);

}  // namespace xhat::runtime
