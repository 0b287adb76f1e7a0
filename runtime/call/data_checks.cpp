#include "runtime/call/data_checks.h"

#include <algorithm>

#include "runtime/device/host_copy.h"

namespace xhat::runtime {
namespace {

bool any_holds(const Direction& d, ThreadPool& pool, std::span<const TensorView> views, const DeviceQueue& queue) {
  const Program& p = d.program();
  thread_local std::vector<TensorView> here;
  here.assign(p.tensors.size(), TensorView());
  std::vector<std::vector<uint8_t>> fetched;  // what lies on a device
  for (TensorId t : p.inputs) here[t] = on_host(views[t], fetched.emplace_back(), queue);
  thread_local std::vector<uint8_t> holds;
  holds.assign(p.outputs.size(), 0);
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    here[p.outputs[i]] = TensorView(&holds[i], std::span<const int64_t>{});
    here[p.outputs[i]].type = DType::boolean;
  }
  d.run(pool, here);
  return std::ranges::find(holds, 1) != holds.end();
}

}  // namespace

DataChecks::DataChecks(const Checks& checks, DimValues dims, std::vector<bool> dense, const PlanRequest& request,
                       std::shared_ptr<KernelCache> cache)
    : checks_(checks), dims_(std::move(dims)), dense_(std::move(dense)), request_(request), cache_(std::move(cache)) {
  first_ = compiled(checks_.first());
}

std::unique_ptr<Direction> DataChecks::compiled(const Program& p) const {
  std::vector<bool> dense = dense_;
  dense.resize(p.tensors.size(), true);
  return std::make_unique<DirectionKernels>(p, dims_, dense, request_, cache_);
}

bool DataChecks::fail(ThreadPool& pool, std::span<const TensorView> views, const DeviceQueue& queue) const {
  if (!any_holds(*first_, pool, views, queue)) return false;
  if (!checks_.at_first) return true;
  std::call_once(once_, [&] { exact_ = compiled(*checks_.of_data); });
  return any_holds(*exact_, pool, views, queue);
}

}  // namespace xhat::runtime
