// A second generator of random programs, made to differ from tests/helpers/random_program.h in what it composes: windows with strides,
// shifts and `else`, results that do not cover what they read, ranges that depend on axes, conditions on data, gathers by
// computed indices, flattened axes (p/M, p%M), norms, products, and all types. It does not prove that what it writes is valid:
// the front end refuses some of its programs, and it tries again.
#pragma once
#include <cstdint>
#include <string>

namespace xhat::testing {

struct ComposedProgram {
  std::string text;  // its last op is the one
  int refused = 0;   // programs that the front end refused before this one
};

// Equal seeds, equal texts. Throws Bug where no program of many is accepted.
ComposedProgram composed_program(uint64_t seed);

}  // namespace xhat::testing
