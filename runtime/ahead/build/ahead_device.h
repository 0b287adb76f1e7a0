// The device code of a library: for each side and choice of sizes, the kernels that the engine would run there.
#pragma once
#include "runtime/ahead/build/ahead.h"
#include "runtime/device/device_table.h"

namespace xhat::runtime {

// Throws Error naming the dims that must be given.
AheadDevice device_code_of(const Derivation& derivation, const AheadOptions& options, Target target);

}  // namespace xhat::runtime
