// What of the kernels is one parallel sweep: a kernel, those beside it, and small ones that follow.
#include <algorithm>

#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {

bool Planner::reads_from(const Kernel& k, const Kernel& maker) const {
  return std::ranges::any_of(k.members, [&](const Member& m) {
    return std::ranges::any_of(shape(m).reads, [&](Id r) {
      return std::ranges::find(maker.results, (*p_.arena)[r].symbol) != maker.results.end();
    });
  });
}

// What is left to do in one small tile once all tiles of a kernel are done (the mean of a sum of everything) is done where that
// is finished; so are small sums of nothing else than what it has made, which are its partial results, and what is made of these.
void Planner::find_epilogues(std::vector<Kernel>& kernels) const {
  for (size_t k = 1; k < kernels.size(); ++k) {
    size_t host = k;
    while (host > 0 && !reads_from(kernels[k], kernels[host - 1])) --host;
    if (host == 0) continue;
    const Kernel& last = kernels[host - 1];
    if (kernels[k].combines_partials || kernels[k].bytes_unavoidable > machine_.serial_bytes) continue;
    auto of_parts = [&](const Member& m) {
      return std::ranges::all_of(shape(m).reads, [&](Id r) {
        const TensorId t = (*p_.arena)[r].symbol;
        auto makes = [&](const Member& x) { return p_.forward.definitions[x.definition].target() == t; };
        return std::ranges::any_of(kernels[k].members, makes) || std::ranges::find(last.results, t) != last.results.end();
      });
    };
    auto sums = [&](const Member& m) { return shape(m).is_reduction; };
    const bool partials = may_share_a_sweep() && std::ranges::any_of(kernels[k].members, sums) &&
                          std::ranges::all_of(kernels[k].members, of_parts);
    if (!last.combines_partials && !last.epilogue && !partials) continue;
    kernels[k].epilogue = true;
    kernels[k].reason.clear();
    while (host < k && kernels[host].epilogue) ++host;
    auto at = [&](size_t i) { return kernels.begin() + static_cast<std::ptrdiff_t>(i); };
    std::rotate(at(host), at(k), at(k) + 1);
  }
}

// Kernels one behind the other that read nothing of each other become one sweep. What follows the first of them comes after all.
void Planner::find_horizontal_groups(std::vector<Kernel>& kernels) const {
  auto by_library = [&](const Kernel& k) { return alone(k.members[0]); };
  for (size_t first = 0, end; first < kernels.size(); first = end) {
    end = first + 1;  // of the sweep
    size_t next = end;
    while (next < kernels.size() && kernels[next].epilogue) ++next;
    while (next < kernels.size() && !by_library(kernels[first]) && !by_library(kernels[next])) {
      const bool reads = std::ranges::any_of(std::span(kernels).subspan(first, next - first), [&](const Kernel& k) {
        return reads_from(kernels[next], k);
      });
      if (reads) break;
      kernels[next].horizontal = true;
      auto at = [&](size_t i) { return kernels.begin() + static_cast<std::ptrdiff_t>(i); };
      std::rotate(at(end), at(next), at(next) + 1);
      ++end;
      ++next;
      while (next < kernels.size() && kernels[next].epilogue) ++next;
    }
    end = next;
  }
}

}  // namespace xhat::fusion
