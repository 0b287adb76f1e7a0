#include "runtime/call/gpu_add.h"

#include <map>
#include <mutex>

#include <fmt/format.h>

#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"

namespace xhat::runtime {
namespace {

// An op of its own, compiled once per type and number of elements. A thread reads what it then writes, and nobody else does: so
// one of the tensors added may be where the sum goes.
const GpuDirection& adder(DType type, int64_t elements, const DeviceQueue& queue) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::tuple<Target, DType, int64_t>, std::unique_ptr<GpuDirection>>;  // stays, as drivers do
  std::lock_guard lock(mutex);
  auto& made = known[{queue.driver->target(), type, elements}];
  if (!made) {
    refuse_in_capture(queue, "compile a kernel that adds to a gradient");
    Program p = parse_op(fmt::format("op add(total: {0}[N], more: {0}[N]) -> (sum) {{ sum[n] = total[n] + more[n] }}", name_of(type)));
    made = std::make_unique<GpuDirection>(infer_program(p), DimValues{{"N", elements}}, PlanRequest{.machine = for_gpu({})}, queue);
  }
  return *made;
}

}  // namespace

RunCounts add_on_device(ThreadPool& pool, const TensorView& target, const TensorView& value, const DeviceQueue& queue) {
  if (target.elements() == 0) return {};
  const GpuDirection& add = adder(target.type, target.elements(), queue);
  auto flat = [](const TensorView& v) {
    TensorView f(v.data, v.type, std::vector<int64_t>{v.elements()}, {});
    f.place = v.place;
    return f;
  };
  std::vector<TensorView> views(add.program().tensors.size());
  views[add.program().inputs[0]] = flat(target);
  views[add.program().inputs[1]] = flat(value);
  views[add.program().outputs[0]] = flat(target);
  return add.run(pool, views, {}, queue, {});
}

}  // namespace xhat::runtime
