// Which values of a loop lie in the same memory.
//
// Values are given once (expr/core/steps.h). A value that becomes another one - what an iteration leaves and what the next one begins with, a
// tensor and the same with a row replaced, what both sides of a branch leave - lies in the same memory if nobody reads one of them where the
// other one is needed: then nothing is copied. Live ranges by a backward walk, copies merged if their ranges do not interfere (Chaitin et al.,
// Register allocation via coloring, 1981). A block's result may lie where an operand lay, if the block can write it there (InPlace); rows of
// the operand that the block reads besides are copied before.
#pragma once
#include <functional>
#include <set>
#include <unordered_map>
#include <vector>

#include "expr/core/steps.h"

namespace xhat::runtime {

class LoopMemory {
 public:
  // May the block write this result where that operand is, as far as the block itself is concerned?
  using InPlace = std::function<bool(const Block&, size_t result, size_t operand)>;
  // Without in_place: none.
  LoopMemory(const Program& p, const Loop& loop, InPlace in_place = {});

  // A tensor that stands for all that lie in the memory of t. A value from outside of the loop stands for itself.
  TensorId place(TensorId t) const;
  // Is this operand a row of what the block writes in place? Then the block reads a copy of the row.
  bool is_copied(const Block& b, size_t operand) const;
  bool is_outside(TensorId t) const { return outside_.contains(t); }
  // Values from outside that the loop reads, what it carries at first not included, unless something else reads it, too.
  const std::vector<TensorId>& outside() const { return outside_in_order_; }
  // One of each place that the loop makes, ascending.
  std::vector<TensorId> places() const;

 private:
  using Live = std::set<TensorId>;
  struct Move {
    TensorId to, from;
  };

  void list(const Steps& steps, Live& live);
  void step(const Block& b, Live& live);
  // Is the value, all of it, an operand that the result may be written over?
  bool is_beside(const Block& b, size_t result, TensorId value) const;
  void step(const Update& u, Live& live);
  void step(const Loop& l, Live& live);
  void step(const Branch& b, Live& live);
  void within(const Loop& l, Live& header);
  void define(TensorId t, const Live& live, TensorId from);
  // All at once: each `to` becomes its `from`.
  void move(const std::vector<Move>& moves, Live& live);
  void read(TensorId t, Live& live);
  void read_in(Id expression, Live& live);
  void interfere(TensorId x, TensorId y);
  void merge();

  const Program& p_;
  const InPlace in_place_;
  std::unordered_set<TensorId> made_;
  std::unordered_set<TensorId> outside_;
  std::vector<TensorId> outside_in_order_;
  std::unordered_map<TensorId, std::set<TensorId>> interferes_;
  std::vector<Move> moves_;
  mutable std::unordered_map<TensorId, TensorId> parent_;
};

}  // namespace xhat::runtime
