#include "runtime/explain/dump_kernels.h"

#include <filesystem>

#include "fusion/plan/plan_text.h"
#include "runtime/cpu/kernel_compile.h"
#include "runtime/kernel/kernel_access.h"
#include "runtime/kernel/spec_text.h"

namespace xhat::runtime {

void dump_kernels(const Debug& debug, const std::string& name, const Program& p, const KernelPlan& plan, const DimValues& sizes) {
  write_dump(debug, name + ".plan.txt", to_text(p, plan));
  const std::vector<bool> dense(p.tensors.size(), true);
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelSpec spec = make_spec(p, plan.kernels[i], sizes, dense);
    const std::string kernel = name + "." + std::to_string(i) + "." + spec.name;
    write_dump(debug, kernel + ".spec.txt", to_text(spec));
    if (!writes_nothing(spec)) write_listings(with_class_representatives(spec), std::filesystem::path(debug.dump) / kernel);
  }
}

}  // namespace xhat::runtime
