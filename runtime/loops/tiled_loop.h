// A loop as one function for all of its points, or tile of points by tile (loop_tiles.h) on several threads. What it computes does not depend
// on their number: what tiles leave in parts is added up in their order.
#pragma once
#include <optional>

#include "runtime/loops/compiled_loop.h"
#include "runtime/loops/loop_tiles.h"

namespace xhat::runtime {

class TiledLoop {
 public:
  using Memory = std::function<void*(const LoopArgument&)>;
  using Variable = std::function<int64_t(Id)>;
  // p, loop, dims and shapes (of all tensors of p) outlive it. disk may be null.
  TiledLoop(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
            const LoopBlocks& blocks, std::optional<LoopTiles> tiles, DiskCache* disk);

  // As CompiledLoop has them; tapes: of all tiles together.
  bool has(LoopPhase phase) const { return main_->has(phase); }
  void leave_forward_to_kernels();
  const std::vector<Id>& variables() const { return main_->variables(); }
  const std::vector<TensorId>& outside() const { return main_->outside(); }
  std::vector<size_t> left() const { return main_->left(); }
  bool may_fail(LoopPhase phase) { return main_->may_fail(phase); }
  bool knows_tapes() const { return main_->knows_tapes(); }
  std::vector<CompiledLoop::Tape> tapes(const AxisValues& around);
  bool ready(LoopPhase phase) { return main_->ready(phase) && (!rest_ || rest_->ready(phase)); }
  double compile_ms() const { return main_->compile_ms() + (rest_ ? rest_->compile_ms() : 0); }
  std::string listing(LoopPhase phase) { return main_->listing(phase); }
  int64_t tiles() const { return tiles_ ? tiles_->count() : 1; }

  // memory: where an argument lies, all of it; asked on this thread, once for each.
  void run(LoopPhase phase, const Memory& memory, const Variable& variable, int threads);

 private:
  struct Call;

  const Program& p_;
  const Loop& loop_;
  const std::vector<std::vector<int64_t>>& shapes_;
  const std::optional<LoopTiles> tiles_;
  std::vector<std::vector<int64_t>> main_shapes_, rest_shapes_;
  std::unique_ptr<CompiledLoop> main_, rest_;  // of whole tiles, or of everything; of the last one, if it is smaller
};

}  // namespace xhat::runtime
