// particle, saddle.
#include "bench/gradbench/evals.h"

namespace xhat::gradbench {

std::map<std::string, Module> descent_modules() { return {}; }

}  // namespace xhat::gradbench
