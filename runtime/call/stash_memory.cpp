#include "runtime/call/stash_memory.h"

#include "expr/index/size_limits.h"
#include "runtime/call/steps_op.h"
#include "runtime/device/device.h"

namespace xhat {

Stash::Stash() = default;
Stash::~Stash() = default;
Stash::Stash(Stash&&) noexcept = default;
Stash& Stash::operator=(Stash&&) noexcept = default;

int64_t Stash::bytes() const {
  if (impl_ && impl_->tape) return runtime::bytes_of(*impl_->tape);
  int64_t n = 0;
  if (impl_)
    for (const TensorView& v : impl_->views) n += v.bytes();
  return n;
}

bool Stash::Impl::in_place(const runtime::DeviceQueue& queue) const {
  for (const auto& there : on_device)
    if (there ? &there->driver() != queue.driver : queue.driver != nullptr) return false;
  return true;
}

bool Stash::Impl::is_for(const Program& op, const std::vector<TensorView>& given) const {
  for (TensorId t : op.inputs) {
    const auto& shape = op.tensors[t].shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (evaluate_extent(*op.arena, shape[d], dims) != given[t].shape[d]) return false;
  }
  return true;
}

int64_t Stash::Impl::resize(std::shared_ptr<runtime::OpPlan> for_plan, const DimValues& sizes, const runtime::DeviceQueue& queue) {
  plan.reset();  // until all of it is there
  const Program& p = for_plan->program();
  const size_t count = for_plan->stash.size();
  memory.resize(count);
  on_device.resize(count);
  views.resize(count);
  int64_t allocations = 0;
  for (size_t i = 0; i < count; ++i) {
    const Tensor& t = p.tensors[for_plan->stash[i]];
    check_elements(p, for_plan->stash[i], sizes);
    const auto shape = shape_of(p, for_plan->stash[i], sizes);
    TensorView v(nullptr, t.type, shape, {});
    if (queue.driver) {
      auto& there = on_device[i];
      if (!there || &there->driver() != queue.driver || there->bytes() < v.bytes()) {
        runtime::refuse_in_capture(queue, "allocate memory for the stash");
        there = std::make_unique<runtime::DeviceBuffer>(*queue.driver, v.bytes());
        ++allocations;
      }
      v = there->view(t.type, shape);
    } else {
      allocations += memory[i].reserve(v.bytes());
      v.data = memory[i].data.get();
    }
    views[i] = v;
  }
  plan = std::move(for_plan);
  dims = sizes;
  return allocations;
}

}  // namespace xhat
