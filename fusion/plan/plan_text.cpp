#include "fusion/plan/plan_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace xhat {
namespace {

std::string loop_text(const Kernel& k, size_t c) {
  const KernelAxis& axis = k.axes[c];
  std::string text = fmt::format("{} {}", axis.name, axis.extent);
  if (axis.tile < axis.extent) text += fmt::format(" by {}", axis.tile);
  if (axis.phases > 1) text += fmt::format(", in {} phases", axis.phases);
  if (axis.of >= 0) text += fmt::format(", {} for each {}", axis.each, k.axes[static_cast<size_t>(axis.of)].name);
  return text;
}

std::string kernel_text(const Program& p, const Kernel& k) {
  std::string text =
      fmt::format("kernel {}: {} B priced ({} moved, {} packed, {} in short runs, {} beyond ranges), {} unavoidable, {} flop{}{}{}{}\n",
                  k.name, k.bytes_priced(), k.bytes_moved, k.bytes_packed, k.bytes_waited, k.bytes_in_vain, k.bytes_unavoidable, k.flops,
                  k.streams ? ", non-temporal stores" : "", k.combines_partials ? ", combines partial results" : "",
                  k.epilogue ? ", an epilogue" : "", k.horizontal ? ", beside the one before" : "");
  for (size_t i = 0; i < k.shared.size(); ++i)
    text +=
        fmt::format("  {} {}\n", i + k.sequential < k.shared.size() ? "grid" : "in order", loop_text(k, static_cast<size_t>(k.shared[i])));
  for (size_t c = 0; c < k.axes.size(); ++c)
    if (std::ranges::find(k.shared, static_cast<int>(c)) == k.shared.end()) text += "  each " + loop_text(k, c) + "\n";
  for (const Member& m : k.members) text += "  " + print(p, p.forward.definitions[m.definition]) + "\n";
  text += "  writes";
  for (TensorId t : k.results) text += " " + p.tensors[t].name;
  return text + (k.reason.empty() ? "\n" : "\n  apart: " + k.reason + "\n");
}

}  // namespace

std::string to_text(const Program& p, const KernelPlan& plan) {
  std::string text;
  for (const Kernel& k : plan.kernels) text += kernel_text(p, k);
  return text;
}

}  // namespace xhat
