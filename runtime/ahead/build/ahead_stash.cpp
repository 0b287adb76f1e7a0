#include "runtime/ahead/build/ahead_stash.h"

#include <algorithm>

#include <fmt/format.h>

#include "cse/stash/nominal_sizes.h"
#include "runtime/ahead/build/ahead_sizes.h"

namespace xhat::runtime {
namespace {

using Policy = StashOptions::Policy;

int64_t stash_bytes(const Program& p, const DimValues& sizes, int64_t otherwise) {
  const NominalSizes at(p, sizes, otherwise);
  int64_t bytes = 0;
  for (TensorId t : stashes(p))
    bytes = saturating_add(bytes, saturating_mul(static_cast<int64_t>(byte_size(p.tensors[t].type)), at.elements(p.tensors[t].shape)));
  return bytes;
}

void check_budget(const Program& p, const AheadOptions& options) {
  const StashOptions& stash = options.compile.stash;
  constexpr int64_t kSome = 64, kMore = 129;  // values of the open dim: a stash of equal bytes at both does not grow with it
  for (const DimValues& sizes : all_choices(options.sizes)) {
    const int64_t bytes = stash_bytes(p, sizes, kSome);
    const std::string at = sizes.empty() ? "" : " with " + dims_text(sizes);
    if (bytes != stash_bytes(p, sizes, kMore))
      throw Error(fmt::format("op {}: what is kept grows with the size that stays open{}, so a stash budget of {} bytes cannot be promised; "
                              "give all sizes, or another --stash",
                              p.name, at, stash.budget));
    if (bytes > stash.budget)
      throw Error(fmt::format("op {}: what is kept takes {} bytes{}, more than the stash budget of {}; it was chosen for the largest of the "
                              "sizes that are given. make a library for these sizes alone, or give a larger budget",
                              p.name, bytes, at, stash.budget));
  }
}

DimValues largest_sizes(const AheadOptions& options) {
  DimValues largest;
  for (const auto& [name, values] : options.sizes)
    if (!values.empty()) largest[name] = *std::ranges::max_element(values);
  return largest;
}

}  // namespace

Derivation derive_ahead(const Program& op, const AheadOptions& options) {
  Derivation d = derive(op, options.compile, largest_sizes(options));
  if (options.compile.differentiate && options.compile.stash.policy == Policy::budget) check_budget(d.program, options);
  return d;
}

std::string stash_sizes_text(const Derivation& derivation, const AheadOptions& options) {
  DimValues sizes = derivation.stash.nominal;
  for (const auto& [name, size] : options.compile.stash.nominal)
    if (sizes.contains(name)) sizes[name] = size;
  return dims_text(sizes);
}

}  // namespace xhat::runtime
