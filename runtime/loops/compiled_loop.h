// The functions of a loop (loop_code.h) for its sizes, or for those of a tile, compiled when they are first asked for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "expr/core/steps.h"
#include "expr/index/dims.h"
#include "runtime/host/compiled_kernel.h"
#include "runtime/loops/loop_argument.h"
#include "runtime/store/disk_cache.h"

namespace xhat::runtime {

struct LoopBlock;
using LoopBlocks = std::unordered_map<const Block*, LoopBlock>;
class LoopCode;

class CompiledLoop {
 public:
  // p, loop, dims and both shapes (as LoopCode has them) outlive it. disk may be null.
  CompiledLoop(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
               const std::vector<std::vector<int64_t>>& callers_shapes, LoopBlocks blocks, DiskCache* disk);
  ~CompiledLoop();

  // False: it is not to be had in this phase.
  bool has(LoopPhase phase) const;
  void leave_forward_to_kernels() { infers_only_ = true; }
  const std::vector<Id>& variables() const;      // of loops around
  const std::vector<TensorId>& outside() const;  // that it reads
  std::vector<size_t> left() const;              // of what it carries: what the backward reads of it
  // May it find an index outside of its tensor? Then what it carries may be anything.
  bool may_fail(LoopPhase phase);
  // False: data decide how long the tapes are, and LoopPhase::count says so.
  bool knows_tapes() const;
  // Elements and bytes of each tape for these values of variables of loops around; elements are 0 where data decide.
  struct Tape {
    int64_t elements, element_bytes;
  };
  std::vector<Tape> tapes(const AxisValues& around);
  // Compiles it. Throws Bug if Halide refuses it; false: there is no linker, and it cannot be had.
  bool ready(LoopPhase phase);
  double compile_ms() const { return compile_ms_; }
  const std::vector<LoopArgument>& arguments(LoopPhase phase) const;  // of what is ready
  // memory: where an argument lies; variables are asked for apart.
  void run(LoopPhase phase, const std::function<void*(const LoopArgument&)>& memory, const std::function<int64_t(Id)>& variable) const;
  std::string listing(LoopPhase phase);  // its statements

 private:
  struct Function;
  Function& function(LoopPhase phase);

  std::unique_ptr<LoopBlocks> blocks_;
  std::unique_ptr<LoopCode> code_;
  std::unique_ptr<Function> functions_[4];
  std::map<std::vector<int64_t>, std::vector<Tape>> tapes_;  // by the values of `variables`
  DiskCache* const disk_;
  std::mutex mutex_;
  double compile_ms_ = 0;
  bool infers_only_ = false;
};

}  // namespace xhat::runtime
