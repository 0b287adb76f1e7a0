// The generated texts of a library compiled ahead of time: headers for its users, and the source whose C functions call
// runtime/ahead/support/run.h.
#pragma once
#include <string>

#include "runtime/ahead/build/ahead_plans.h"

namespace xhat::runtime {

struct AheadTexts {
  std::string header;      // C
  std::string cpp_header;
  std::string source;      // C++, includes the C header
};

// The name of the function of tile `code` at a level. In the object file "_argv" is appended.
std::string tile_symbol(const std::string& name, CpuLevel level, size_t code);

AheadTexts ahead_texts(const Program& p, const AheadPlans& plans, const std::string& name);

}  // namespace xhat::runtime
