#include "expr/index/steps_blocks.h"

#include <algorithm>

namespace xhat {
namespace {

class Blocks {
 public:
  Blocks(const Program& p, const DimValues& dims) : p_(p), dims_(dims) {}

  std::vector<BlockAt> run() {
    list(*p_.steps, 1);
    return std::move(found_);
  }

 private:
  const Program& p_;
  const DimValues& dims_;
  AxisValues variables_;  // of loops around: in the middle of their ranges
  std::vector<BlockAt> found_;

  void list(const Steps& steps, int64_t runs) {
    for (const Step& s : steps) {
      if (auto* block = std::get_if<Block>(&s.is)) found_.push_back({block, dims_of(*block), runs});
      if (auto* loop = std::get_if<Loop>(&s.is)) {
        const int64_t trips = trips_of(*loop);
        list(loop->test, runs * trips);
        list(loop->body, runs * trips);
      }
      if (auto* branch = std::get_if<Branch>(&s.is)) {
        list(branch->then, runs);
        list(branch->otherwise, runs);
      }
    }
  }

  int64_t trips_of(const Loop& loop) {
    const Arena& a = *p_.arena;
    if (!tensors_read(a, loop.begin).empty() || !tensors_read(a, loop.end).empty()) {
      variables_[loop.variable] = 0;
      return 1;
    }
    const int64_t begin = evaluate_extent(a, loop.begin, dims_, variables_), end = evaluate_extent(a, loop.end, dims_, variables_);
    variables_[loop.variable] = (begin + end) / 2;
    return std::max<int64_t>(0, (end - begin + loop.stride - 1) / loop.stride);
  }

  DimValues dims_of(const Block& b) const {
    Shapes shapes;
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const Operand& o = b.operands[k];
      std::vector<int64_t> shape;
      if (o.scalar == kNone) shape = shape_of(p_, o.value, dims_);
      shapes[b.op->tensors[b.op->inputs[k]].name] = of_row(shape, o.row);
    }
    return dims_of_call(*b.op, shapes, dims_);
  }
};

}  // namespace

std::vector<BlockAt> blocks_at(const Program& p, const DimValues& dims) { return Blocks(p, dims).run(); }

}  // namespace xhat
