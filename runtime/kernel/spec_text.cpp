#include "runtime/kernel/spec_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace xhat::runtime {
namespace {

// Names t0, t1, ... for the spec's tensors, so that its expressions can be printed.
Program named(const KernelSpec& spec) {
  Program p;
  p.name = spec.name;
  p.arena = spec.arena;
  for (size_t t = 0; t < spec.tensors.size(); ++t) {
    std::vector<Id> shape;
    for (int64_t n : spec.tensors[t].shape) shape.push_back(spec.arena->integer(n));
    p.add_tensor(fmt::format("t{}", t), spec.tensors[t].type, shape);
  }
  return p;
}

std::string axis_text(const KernelSpec& spec, Id x) {
  const SpecAxis& axis = spec.axes.at(x);
  std::string text = fmt::format("{} {}", spec.arena->name(x), axis.extent);
  if (axis.kind() != AxisKind::untiled) text += fmt::format(" by {}", axis.tile);
  if (!axis.static_extent) text += ", extent given at the call";
  if (axis.unrolled) text += ", unrolled";
  return text;
}

std::string joined(const Arena& a, const std::vector<Id>& axes) {
  std::string text;
  for (Id x : axes) text += (text.empty() ? "" : ",") + a.name(x);
  return text;
}

// The member's body, or the reduction of it.
Id value_of(const KernelSpec& spec, const SpecMember& m) {
  if (m.op == Op::constant) return m.body;
  Arena& a = *spec.arena;
  std::vector<AxisRange> ranges;
  for (Id x : m.reduced) ranges.push_back({x, a.integer(0), a.integer(spec.axes.at(x).extent)});
  return a.reduce(m.op, ranges, m.condition, m.body);
}

const char* use_text(SpecTensor::Use use) {
  switch (use) {
    case SpecTensor::Use::input: return "input";
    case SpecTensor::Use::result: return "result";
    case SpecTensor::Use::temporary: return "temporary of a tile";
    case SpecTensor::Use::partial: return "partial results";
  }
  return "";
}

}  // namespace

std::string to_text(const KernelSpec& spec) {
  const Program p = named(spec);
  std::string text = "kernel " + spec.name + (spec.streams ? ", non-temporal stores" : "") + "\n";
  for (size_t t = 0; t < spec.tensors.size(); ++t) {
    const SpecTensor& x = spec.tensors[t];
    text += fmt::format("  t{}: {}[{}], {}{}{}\n", t, name_of(x.type), fmt::join(x.shape, ","), use_text(x.use),
                        x.dense ? "" : ", strides given at the call", x.is_size() ? fmt::format(", the size {}", x.value) : "");
  }
  for (Id x : spec.shared) text += fmt::format("  {} {}\n", spec.axes.at(x).sequential ? "in order" : "grid", axis_text(spec, x));
  std::vector<Id> others;
  for (const auto& [x, axis] : spec.axes)
    if (axis.shared < 0) others.push_back(x);
  std::ranges::sort(others);
  for (Id x : others) text += "  each " + axis_text(spec, x) + "\n";
  for (const SpecMember& m : spec.members) {
    text += fmt::format("  t{}[{}] = {}\n", m.tensor, joined(*spec.arena, m.left), print(p, value_of(spec, m)));
    for (const auto& [axis, index] : m.scatter)
      text += fmt::format("    added at {} = {}\n", spec.arena->name(axis), print(p, index));
  }
  return text;
}

}  // namespace xhat::runtime
