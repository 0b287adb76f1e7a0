#include "runtime/call/show_compiled.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/call/debug.h"

namespace xhat::runtime {

std::string cause_of(const ReadyList& list, const DimValues& dims, bool again) {
  if (list.all.empty()) return again ? "at these sizes something else is kept for the backward" : "first call";
  const DimValues& before = list.all.back()->dims;
  std::vector<std::string> changed;
  for (const auto& [name, value] : dims)
    if (auto it = before.find(name); it == before.end() || it->second != value)
      changed.push_back(it == before.end() ? fmt::format("{} is {}", name, value) : fmt::format("{} was {}", name, it->second));
  for (const auto& ready : list.all)
    if (ready->dims == dims) return "a tensor with gaps, or in place of another, where there was none";
  return fmt::format("new sizes: {}", fmt::join(changed, ", "));
}

void show_compiled(const std::string& direction, const Direction& made, const std::string& cause) {
  const int all = static_cast<int>(made.plan().kernels.size());
  const std::string sizes = made.sizes().empty() ? "" : " at " + dims_text(made.sizes());
  show_text(fmt::format("{}{}: compiled {} kernel{}, loaded {}, had {} in memory, {:.0f} ms: {}", direction, sizes, made.compiled(),
                        made.compiled() == 1 ? "" : "s", made.loaded(), std::max(0, all - made.compiled() - made.loaded()),
                        made.compile_ms(), cause));
  for (const std::string& why : made.refused()) show_text(direction + ": kernel " + why);
}

}  // namespace xhat::runtime
