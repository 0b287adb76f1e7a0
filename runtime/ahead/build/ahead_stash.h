// What a library that is compiled ahead of time keeps for its backward: one choice for all the sizes that it serves.
#pragma once
#include "runtime/ahead/build/ahead.h"

namespace xhat::runtime {

// Chosen for the largest of the sizes that are given of each dim, and the nominal one (StashOptions) of the dim that stays open. Throws Error for a
// budget that does not hold at all sizes, those of the open dim included.
Derivation derive_ahead(const Program& op, const AheadOptions& options);

// "N = 64, C = 128": the sizes that it was chosen for.
std::string stash_sizes_text(const Derivation& derivation, const AheadOptions& options);

}  // namespace xhat::runtime
