// The stash of a library compiled ahead of time: one choice for all sizes that it serves.
#pragma once
#include "runtime/ahead/build/ahead.h"

namespace xhat::runtime {

// Chosen for the largest given value of each dim, and the nominal size (StashOptions) of the open dim. Throws Error for a budget that does not hold
// at all sizes, those of the open dim included.
Derivation derive_ahead(const Program& op, const AheadOptions& options);

// The sizes that the stash was chosen for: "N = 64, C = 128".
std::string stash_sizes_text(const Derivation& derivation, const AheadOptions& options);

}  // namespace xhat::runtime
