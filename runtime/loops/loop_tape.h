// What goes on the tape of a loop. The backward finds a place as it was in one of three ways, whichever takes least:
//
//   it lasts       nothing is written after it was read (loop_lasting.h): nothing goes on the tape
//   restored       what is written over goes on the tape before that, and comes back when the step is undone
//   kept as read   what a block's backward reads of it goes on the tape where the block reads it
//
//   for k in 0..N { for i, j in k+1..N { a[i,j] -= a[i,k]*a[k,j] } }      reads two rows, and writes over (N-k-1)^2 elements: kept as read
//   for t in 0..T { x[t % 2] = x*w }                                      reads all of x, and writes over a row: restored
#pragma once
#include <map>
#include <optional>
#include <set>

#include "runtime/loops/loop_code.h"
#include "runtime/loops/loop_reach.h"

namespace xhat::runtime {

class LoopTape {
 public:
  // What it is made of outlives it.
  LoopTape(const Program& p, const Loop& loop, const DimValues& dims, const LoopBlocks& blocks, const LoopMemory& memory);

  // Does the backward find the place as it was?
  bool is_read_back(TensorId t) const { return read_back_.contains(memory_.place(t)); }
  bool is_lasting(TensorId t) const { return lasting_.contains(memory_.place(t)); }
  bool is_restored(TensorId t) const { return is_read_back(t) && !is_lasting(t); }
  bool is_kept_as_read(TensorId t) const { return as_read_.contains(memory_.place(t)); }
  // Of a block: operands and results that are kept where it reads and makes them.
  std::vector<size_t> operands_as_read(const Block& b) const;
  std::vector<size_t> results_as_read(const Block& b) const;
  // Places that the backward reads and the loop leaves: by place, which of what it carries.
  const std::map<TensorId, size_t>& left() const { return left_; }
  // What a block that writes a result in place may change of it; empty: all of it.
  const std::vector<Changed>& changed(const Block& b, size_t result) const;
  // The memory of which results must the backward find as it was before the block? Those are undone before the block's backward runs.
  bool is_undone_first(const Block& b, size_t result) const;
  // Does the block compute where the elements are that it changes? Then they go on the tape after it did, and after other results.
  bool is_computed(const Block& b, size_t result) const;
  // The block's results in the order in which they go on the tape: of those that say where elements of others are, after these.
  std::vector<size_t> results_in_order(const Block& b) const;
  // Elements, about, that a run of the block puts on the tape, but for what it keeps beside operands and results.
  double elements(const Block& b) const;

 private:
  const Program& p_;
  const Loop& loop_;
  const DimValues& dims_;
  const LoopBlocks& blocks_;
  const LoopMemory& memory_;
  std::set<TensorId> read_back_, lasting_, as_read_;  // places
  std::set<TensorId> looked_up_;                      // places of what says where rows are
  std::map<TensorId, size_t> left_;
  std::map<std::pair<const Block*, size_t>, std::vector<Changed>> changed_;
  std::map<std::pair<const Block*, size_t>, double> changed_elements_;  // by result
  struct Traffic {
    double written = 0, read = 0;  // elements
  };

  std::vector<size_t> named_by(const Block& b, size_t result) const;
  bool reads_as_it_was(const Block& b, size_t result) const;
  void keep_what_can_be_found(const Block& b);
  void find_read_back(const Steps& steps);
  void look_up(Id expression);
  void note(const Loop& l, double runs, AxisValues& at, std::map<TensorId, Traffic>& by_place);
  void note(const Steps& steps, double runs, AxisValues& at, std::map<TensorId, Traffic>& by_place);
  void note_moved(TensorId to, TensorId from, double runs, std::map<TensorId, Traffic>& by_place) const;
  double turns(const Loop& l, AxisValues& at) const;
  double elements(TensorId t) const;
  double row_elements(TensorId t, const Row& row) const;
  double changed_elements(const Block& b, size_t result, const AxisValues& at);
};

}  // namespace xhat::runtime
