#include "runtime/loops/loop_code.h"

#include <algorithm>

#include "expr/core/array.h"
#include "runtime/loops/loop_writer.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {

bool LoopBlock::Direction::is_added(uint32_t tensor) const {
  const auto role = roles.find(spec.tensors[tensor].original);
  return role != roles.end() && role->second.is == Role::Is::gradient && !reads(spec, tensor);
}

bool LoopBlock::backward_reads(Role::Is is, size_t number) const {
  return backward && std::ranges::any_of(backward->spec.tensors, [&](const SpecTensor& t) {
           const auto role = backward->roles.find(t.original);
           return t.use == SpecTensor::Use::input && role != backward->roles.end() && role->second.is == is &&
                  role->second.number == number;
         });
}

namespace {

// Is the operand read only at the element of the result that is being written, and not after it?
bool reads_in_place(const LoopBlock::Direction& d, size_t result, size_t operand) {
  using Is = LoopBlock::Role::Is;
  const KernelSpec& spec = d.spec;
  const Arena& a = *spec.arena;
  auto is = [&](uint32_t t, Is what, size_t number) {
    const auto role = d.roles.find(spec.tensors[t].original);
    return role != d.roles.end() && role->second.is == what && role->second.number == number;
  };
  bool written = false;
  for (const SpecMember& m : spec.members) {
    const bool writes = is(m.tensor, Is::result, result);
    if (writes && (written || !m.scatter.empty())) return false;
    written |= writes;
    for (Id id : reads_of(a, m)) {
      const Node& n = a[id];
      if (!is(n.symbol, Is::operand, operand)) continue;
      if (written && !writes) return false;
      const SpecTensor &from = spec.tensors[n.symbol], &to = spec.tensors[m.tensor];
      if (writes && (from.shape != to.shape || !std::ranges::equal(read_indices(n), m.left))) return false;
    }
  }
  return written;
}

}  // namespace

std::set<std::pair<size_t, size_t>> found_in_place(const LoopBlock& block) {
  using Is = LoopBlock::Role::Is;
  std::set<std::pair<size_t, size_t>> found;
  std::map<Is, std::map<size_t, const SpecTensor*>> tensors;
  for (const SpecTensor& t : block.infer.spec.tensors)
    if (auto role = block.infer.roles.find(t.original); role != block.infer.roles.end()) tensors[role->second.is][role->second.number] = &t;
  for (const auto& [r, to] : tensors[Is::result])
    for (const auto& [o, from] : tensors[Is::operand]) {
      if (from->type != to->type || element_count(from->shape) != element_count(to->shape)) continue;
      // The backward finds one of them there.
      if (block.backward_reads(Is::operand, o) && block.backward_reads(Is::result, r)) continue;
      if (reads_in_place(block.infer, r, o) && (!block.forward || reads_in_place(*block.forward, r, o))) found.insert({r, o});
    }
  return found;
}

LoopMemory::InPlace in_place_of(const LoopBlocks& blocks) {
  return [&](const Block& b, size_t result, size_t operand) { return blocks.at(&b).in_place.contains({result, operand}); };
}

LoopCode::LoopCode(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
                   const std::vector<std::vector<int64_t>>& callers_shapes, const LoopBlocks& blocks, const Halide::Target& target)
    : impl_(std::make_unique<LoopWriter>(p, loop, dims, shapes, callers_shapes, blocks, target)) {}
LoopCode::~LoopCode() = default;

bool LoopCode::is_possible() const { return impl_->in_place; }
bool LoopCode::knows_tapes() const { return impl_->bounded; }
LoopFunction LoopCode::function(LoopPhase phase) { return impl_->function(phase); }
std::vector<size_t> LoopCode::left() const {
  std::vector<size_t> all;
  for (const auto& [t, k] : impl_->tape_plan.left()) all.push_back(k);
  return all;
}
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
