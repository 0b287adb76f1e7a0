// A kernel spec as text, for people; XHAT=dump writes it (docs/passes.md).
#pragma once
#include <string>

#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

std::string to_text(const KernelSpec& spec);

}  // namespace xhat::runtime
