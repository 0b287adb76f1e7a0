#include "runtime/loops/loop_code.h"

#include "runtime/loops/loop_writer.h"

namespace xhat::runtime {

LoopCode::LoopCode(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
                   const LoopBlocks& blocks, const Halide::Target& target)
    : impl_(std::make_unique<LoopWriter>(p, loop, dims, shapes, blocks, target)) {}
LoopCode::~LoopCode() = default;

bool LoopCode::is_possible() const { return impl_->in_place; }
bool LoopCode::knows_tapes() const { return impl_->bounded; }
LoopFunction LoopCode::function(LoopPhase phase) { return impl_->function(phase); }
const LoopMemory& LoopCode::memory() const { return impl_->memory; }
const std::vector<Id>& LoopCode::variables() const { return impl_->around; }

LoopTapes LoopCode::tapes(const AxisValues& around) const {
  LoopTapes t;
  for (const std::string& name : impl_->tape_order) t.types.push_back(impl_->tapes.at(name));
  t.elements.assign(t.types.size(), 0);
  AxisValues at = around;
  if (impl_->bounded) impl_->count(impl_->pushes, at, 1, t.elements);
  return t;
}

}  // namespace xhat::runtime
