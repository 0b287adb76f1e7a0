#include "runtime/call/show_kernels.h"

#include <cstdio>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "fusion/plan/plan_text.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"
#include "runtime/cpu/kernel_compile.h"
#include "runtime/kernel/kernel_access.h"
#include "runtime/kernel/spec_text.h"

namespace xhat::runtime {

void show_device(const DeviceQueue& queue) {
  static std::mutex mutex;
  static std::set<const DeviceDriver*> shown;
  std::lock_guard lock(mutex);
  if (!shown.insert(queue.driver).second) return;
  if (queue.driver) {
    show_text(fmt::format("{}: {}", name_of(queue.driver->target()), queue.driver->device_name()));
  } else {
    const Machine m = this_machine();
    show_text(fmt::format("cpu: {}, {}, {} threads", m.cpu, m.vectors, m.threads));
  }
}

namespace {

// A line per launch: what it is, and how large.
std::string launches_text(const DeviceCode& code, const KernelSpec& spec) {
  std::string text;
  for (const DeviceLaunch& l : code.kernel.launches)
    text += fmt::format("{}: {} blocks of {} threads, {} bytes shared\n", l.what, l.blocks.at(values_of(code, spec)), l.threads, l.shared_bytes);
  return text;
}

}  // namespace

void show_kernels(const Debug& debug, const std::string& name, const Program& p, const KernelPlan& plan, const DimValues& sizes,
                  Target target) {
  auto show = [&](bool printed, const std::string& what, const std::string& text) {
    if (printed) show_text(name + what + "\n" + text);
    if (!debug.dump.empty()) write_dump(debug, name + what, text);
  };
  const bool code = debug.source || debug.assembly || !debug.dump.empty();
  if (debug.schedule || code) show(debug.schedule, ".plan.txt", to_text(p, plan));
  if (!debug.loops && !code) return;
  const bool on_gpu = target != Target::cpu;
  const std::vector<bool> dense(p.tensors.size(), true);
  std::vector<KernelSpec> specs;
  if (on_gpu)
    specs = gpu_specs(p, plan, sizes, target);
  else
    for (const Kernel& k : plan.kernels) specs.push_back(make_spec(p, k, sizes, dense));
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string kernel = fmt::format(".{}.{}", i, specs[i].name);
    show(debug.loops, kernel + ".spec.txt", to_text(specs[i]));
    if (!code || writes_nothing(specs[i])) continue;
    if (on_gpu) {
      const GpuClass compiled = class_of(target, specs[i], stored_types(p));
      show(debug.loops, kernel + ".launches.txt", launches_text(launches_of(compiled), compiled.spec));
      const bool text = target != Target::vulkan;  // SPIR-V is binary
      if (text) show(debug.source || debug.assembly, kernel + ".code", device_code(compiled).kernel.text);
      continue;
    }
    const Listings made = listings_of(with_class_representatives(specs[i]));
    show(debug.source, kernel + ".stmt", made.statements);
    show(debug.assembly, kernel + ".s", made.assembly);
  }
}

void show_run(const std::string& direction, const Kernel& kernel, double ns) {
  const auto bytes = static_cast<double>(kernel.bytes_moved), flops = static_cast<double>(kernel.flops);
  show_text(fmt::format("{} {}: {:.1f} us, {:.3f} MB, {:.2f} GB/s, {:.2f} GFLOP/s", direction, kernel.name, ns / 1e3, bytes / 1e6,
                        bytes / ns, flops / ns));
}

}  // namespace xhat::runtime
