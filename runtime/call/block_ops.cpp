#include "runtime/call/block_ops.h"

#include <algorithm>
#include <set>

#include "ad/common/differentiation.h"
#include "expr/index/steps_blocks.h"
#include "runtime/call/passes.h"

namespace xhat::runtime {
namespace {

// Parts are added up when they have this many times the bytes of the gradients: adding then costs a fraction of writing and reading parts,
// and parts take no more memory than a few of the gradients do.
constexpr int64_t kPartsPerGradient = 4;
// Fewer iterations than this are not worth another kernel.
constexpr int64_t kLeastRuns = 3;

// By key, the inputs that are the same in all iterations of the innermost loop around, wherever the op is called.
class Unchanging {
 public:
  explicit Unchanging(const Program& p) { list(*p.steps, nullptr); }
  std::map<const Program*, std::set<std::string>> found;

 private:
  void list(const Steps& steps, const std::unordered_set<TensorId>* made_in_loop) {
    for (const Step& s : steps) {
      if (auto* block = std::get_if<Block>(&s.is)) note(*block, made_in_loop);
      if (auto* loop = std::get_if<Loop>(&s.is)) {
        const std::unordered_set<TensorId> made = made_within(*loop);
        list(loop->test, &made);
        list(loop->body, &made);
      }
      if (auto* branch = std::get_if<Branch>(&s.is)) {
        list(branch->then, made_in_loop);
        list(branch->otherwise, made_in_loop);
      }
    }
  }

  void note(const Block& b, const std::unordered_set<TensorId>* made_in_loop) {
    std::set<std::string> names;
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const Operand& o = b.operands[k];
      if (made_in_loop && o.scalar == kNone && o.row.empty() && !made_in_loop->contains(o.value))
        names.insert(b.op->tensors[b.op->inputs[k]].name);
    }
    auto [it, fresh] = found.try_emplace(key(b), names);
    if (!fresh) std::erase_if(it->second, [&](const std::string& name) { return !names.contains(name); });
  }
};

}  // namespace

DimValues given_dims(const Program& op, DimValues dims) {
  for (const Dim& d : op.dims)
    if (d.definition != kNone) dims.erase(op.arena->name(d.dim));
  return dims;
}

std::map<const Program*, BlockOp> block_ops(const Program& p, const CompileOptions& options, const DimValues& dims) {
  Unchanging unchanging(p);
  std::map<const Program*, BlockOp> made;
  for_each_block(*p.steps, [&](const Block& b) {
    auto [it, fresh] = made.try_emplace(key(b));
    if (!fresh) return;
    BlockOp& block = it->second;
    block.op = *b.op;
    CompileOptions& o = block.options;
    o = options;
    o.dims.clear();
    for (const Dim& d : b.op->dims)  // those of the program have the same names
      if (auto given = dims.find(b.op->arena->name(d.dim)); given != dims.end() && d.definition == kNone) o.dims.insert(*given);
    o.differentiate = b.with_gradient != nullptr;
    o.wrt = o.differentiate ? names_of(*b.with_gradient, b.with_gradient->gradient_of) : std::vector<std::string>{};
  });
  if (options.check_values) return made;  // which looks for the definition of a gradient in the op
  for (const BlockAt& at : blocks_at(p, dims)) {
    BlockOp& block = made.at(key(*at.block));
    const std::set<std::string>& same = unchanging.found.at(key(*at.block));
    if (!at.block->with_gradient || block.deferred || at.runs < kLeastRuns) continue;
    if (std::ranges::none_of(block.options.wrt, [&](const std::string& name) { return same.contains(name); })) continue;
    block.deferred = defer_gradients(with_gradients(*at.block->op, block.options.wrt), {same.begin(), same.end()}, at.dims);
    if (!block.deferred) continue;
    block.op = block.deferred->op;
    block.options.differentiated = true;
    block.options.wrt.clear();
    block.sums_options = block.options;
    block.sums_options.differentiate = block.sums_options.differentiated = false;
    block.sums_options.dims = given_dims(block.deferred->sums, at.dims);
    const int64_t bytes = kPartsPerGradient * block.deferred->gradient_bytes;
    block.runs_at_once = std::clamp<int64_t>(bytes / std::max<int64_t>(1, block.deferred->part_bytes), kLeastRuns, at.runs);
  }
  return made;
}

}  // namespace xhat::runtime
