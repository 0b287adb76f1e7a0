#include "runtime/loops/loop_code.h"

#include "runtime/loops/loop_writer.h"

namespace xhat::runtime {

void add_read_back(const Block& b, const LoopBlock& block, const LoopMemory& memory, std::set<TensorId>& places) {
  if (!block.backward) return;
  using Is = LoopBlock::Role::Is;
  for (const SpecTensor& t : block.backward->spec.tensors) {
    const auto role = block.backward->roles.find(t.original);
    if (t.use != SpecTensor::Use::input || role == block.backward->roles.end()) continue;
    const size_t k = role->second.number;
    if (role->second.is == Is::operand && b.operands[k].scalar == kNone) places.insert(memory.place(b.operands[k].value));
    if (role->second.is == Is::result) places.insert(memory.place(b.results[k]));
  }
}

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
