// The generated texts of a library that is compiled ahead of time: headers for its users, and the source that stands between the
// C functions and runtime/ahead/support/run.h.
#pragma once
#include <string>

#include "runtime/ahead/build/ahead_plans.h"

namespace xhat::runtime {

struct AheadTexts {
  std::string header;      // C
  std::string cpp_header;
  std::string source;      // C++, includes the C header
};

// The function that tile `code` has at a level; in the object file with "_argv" behind it.
std::string tile_symbol(const std::string& name, CpuLevel level, size_t code);

AheadTexts ahead_texts(const Program& p, const AheadPlans& plans, const std::string& name);

}  // namespace xhat::runtime
