// A direction's only kernel, and the code that it is lowered to, as text. Header only: helpers with a .cpp are linked into tests
// that lack the runtime.
#pragma once
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "Halide.h"
#include "fusion/plan/plan.h"
#include "runtime/cpu/lower.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::testing {

inline runtime::KernelSpec only_spec(const Program& direction, const DimValues& sizes, const MachineModel& machine = {}) {
  const KernelPlan plan = plan_kernels(direction, sizes, {.machine = machine});
  EXPECT_EQ(plan.kernels.size(), 1u) << print(direction);
  return runtime::make_spec(direction, plan.kernels.at(0), sizes, std::vector<bool>(direction.tensors.size(), true));
}

inline std::string lowered_code(const runtime::KernelSpec& spec, const Halide::Target& target = runtime::cpu_target()) {
  auto lowered = runtime::lower(spec, target);
  std::ostringstream code;
  code << lowered.pipeline.compile_to_module(lowered.arguments, "kernel", target).functions()[0].body;
  return code.str();
}

inline int times_in(const std::string& code, const std::string& phrase) {
  int n = 0;
  for (size_t at = 0; (at = code.find(phrase, at)) != std::string::npos; ++at) ++n;
  return n;
}

}  // namespace xhat::testing
