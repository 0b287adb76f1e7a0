#include "runtime/cpu/output_over.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/core/error.h"
#include "runtime/cpu/lower.h"

namespace xhat::runtime {

bool lies_on(const TensorView& output, const TensorView& input) {
  return output.data == input.data && output.place == Target::cpu && overlap(output, input) && output.type == input.type &&
         std::ranges::equal(output.extents(), input.extents()) && output.dense() && input.dense();
}

[[noreturn]] void refuse_over(const Program& p, OutputOver o, const std::string& why) {
  const std::string &output = p.tensors[o.output].name, &input = p.tensors[o.input].name;
  throw Error(fmt::format("{0}: {1} overlaps {2} in memory, and cannot be written over it: {3}. Give {1} memory of its own", p.name, output,
                          input, why));
}

static bool reads(const Program& p, const Kernel& k, TensorId t) {
  return std::ranges::any_of(k.members, [&](const Member& m) {
    return std::ranges::binary_search(tensors_read(*p.arena, p.forward.definitions[m.definition].body), t);
  });
}

bool reads_beside(const Program& p, const KernelPlan& plan, const std::vector<OutputOver>& over) {
  for (const OutputOver& o : over) {
    auto makes = [&](const Kernel& k) { return std::ranges::find(k.results, o.output) != k.results.end(); };
    const auto maker = std::ranges::find_if(plan.kernels, makes);
    auto first = maker;  // of its sweep
    while (first != plan.kernels.end() && first->horizontal) --first;
    for (auto k = first; k != plan.kernels.end(); ++k)
      if (k != maker && reads(p, *k, o.input)) return true;
  }
  return false;
}

void write_over(const Program& p, KernelPlan& plan, size_t i, OutputOver o) {
  plan.kernels[i].streams = false;
  for (size_t later = i + 1; later < plan.kernels.size(); ++later)
    if (reads(p, plan.kernels[later], o.input)) refuse_over(p, o, fmt::format("kernel {} reads it after that", plan.kernels[later].name));
}

void write_over(const Program& p, KernelSpec& spec, OutputOver o) {
  const Arena& a = *spec.arena;
  auto made = std::ranges::find(spec.tensors, o.output, &SpecTensor::original);
  auto read = spec.tensors.end();
  for (const SpecMember& m : spec.members)
    for (Id id : reachable(a, m.body)) {
      if (!is_read(a[id].op) || spec.tensors[a[id].symbol].original != o.input) continue;
      auto t = spec.tensors.begin() + a[id].symbol;
      if (a[id].op != Op::read || !std::ranges::equal(read_indices(a[id]), m.left) || t->shape != made->shape || !t->dense)
        refuse_over(p, o, fmt::format("kernel {} reads other elements of it than the one in the place of what it writes", spec.name));
      if (read != spec.tensors.end() && read != t) throw Bug("one tensor, read as two");
      read = t;
    }
  if (read == spec.tensors.end()) return;  // nobody reads it here
  if (!element_by_element(spec)) refuse_over(p, o, fmt::format("kernel {} is not one loop over the elements of its results", spec.name));
  auto number = [&](auto it) { return static_cast<uint32_t>(it - spec.tensors.begin()); };
  spec.over.emplace_back(number(made), number(read));
}

}  // namespace xhat::runtime
