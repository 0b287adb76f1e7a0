// The body of a program with loops and branches: steps in the order in which they run. Every tensor is given a value by one step
// (static single assignment), nothing is overwritten, and views are gone: what `prog` becomes once it is functionalized
// (expr/imperative). A program that is one straight run of definitions needs no steps: it is an op.
//
// TensorIds are those of the Program whose `steps` these are. Indices and bounds are i64 expressions of its arena over
// dims, loop variables (axis nodes) and elements of tensors of integers that stand before (is_step_index).
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

// A part of a value: by dimension an index, or kNone for all of it. Dimensions that it does not name are whole, too; the last one that it
// names has an index. a[i] is {i}, a[:,j] is {kNone, j}, a itself is {}.
using Row = std::vector<Id>;
inline bool is_whole(const Row& row, size_t dimension) { return dimension >= row.size() || row[dimension] == kNone; }
// Of a value's extents, or of whatever its dimensions have, those of the row.
template <class T>
std::vector<T> of_row(std::span<const T> dimensions, const Row& row) {
  std::vector<T> left;
  for (size_t d = 0; d < dimensions.size(); ++d)
    if (is_whole(row, d)) left.push_back(dimensions[d]);
  return left;
}
template <class T>
std::vector<T> of_row(const std::vector<T>& dimensions, const Row& row) {
  return of_row(std::span<const T>(dimensions), row);
}
// Indices into the value of an element of its row.
Row in_value(const Row& row, std::span<const Id> element);

// What a block's op is handed for one of its inputs.
struct Operand {
  TensorId value = 0;
  Row row;              // the op's input is this part of the value
  Id scalar = kNone;    // instead of a tensor: an i64 expression of loop variables and dims, handed as an i64 scalar
};

// A straight run of definitions: a call of an op. One operand per input of the op, one result per output.
// A result's shape is that of the op's output with the operands' extents put in.
struct Block {
  std::shared_ptr<const Program> op;
  std::vector<Operand> operands;
  std::vector<TensorId> results;
  std::shared_ptr<const Program> with_gradient = nullptr;  // the op with the gradients that the program's need; null: none
};

// result = base, but this row of it is value. Indices are already counted from the front; one outside its extent is an error
// when the program runs. Done in place where nothing else needs base.
struct Update {
  TensorId base = 0;
  Row row;
  TensorId value = 0;
  TensorId result = 0;
  Pos pos;
};

// A value that goes from one iteration to the next, all of one shape and type.
struct Carried {
  TensorId initial = 0;   // before the loop
  TensorId entering = 0;  // at the start of an iteration: initial, or leaving of the one before
  TensorId leaving = 0;   // at the end of an iteration (may be entering, or a value from outside the loop)
  TensorId result = 0;    // after the loop: leaving of the last iteration, initial where there was none
};

struct Step;

// For variable = begin, begin + stride, ... < end (at most `end` iterations of a while loop, whose variable counts from 0).
struct Loop {
  Id variable = kNone;  // an axis node
  Id begin = kNone, end = kNone;
  int64_t stride = 1;
  std::vector<Carried> carried;
  // of a while loop: run before each iteration, on the entering values; the loop ends where `condition`, a bool scalar, is false
  std::vector<Step> test;
  std::optional<TensorId> condition;
  std::vector<Step> body;
  std::string why;  // why it is a loop: "h[t] depends on h[t-1]", for explain
  Pos pos;
};

// The branch that the condition, a bool scalar, takes.
struct Branch {
  struct Merge {
    TensorId then = 0, otherwise = 0, result = 0;
  };
  TensorId condition = 0;
  std::vector<Step> then, otherwise;
  std::vector<Merge> merges;
  Pos pos;
};

struct Step {
  std::variant<Block, Update, Loop, Branch> is;
};
using Steps = std::vector<Step>;

// Can steps compute it by themselves? Integers and bools without reductions; anything else is a block's result.
bool is_step_index(const Arena& a, Id index);

// What a step gives to those after it; not what stands within a loop or a branch.
std::vector<TensorId> made_by(const Step& step);
// What a loop's iterations begin with and make, at whatever depth.
std::unordered_set<TensorId> made_within(const Loop& loop);

// Calls f(steps) for each list that stands in this one, at whatever depth, and for this one first.
void for_each_list(const Steps& steps, const std::function<void(const Steps&)>& f);
void for_each_block(const Steps& steps, const std::function<void(const Block&)>& f);
// What they have in the program's arena: rows, scalars, variables and bounds, at whatever depth. kNone is none.
void for_each_expression(Steps& steps, const std::function<void(Id&)>& f);
// The same steps with f(block) in place of each block.
Steps map_blocks(const Steps& steps, const std::function<Block(const Block&)>& f);

// The values whose last use in their list is a step of it: they are dropped when it is done, or may be taken over by it. Values from
// outside of a loop's body or a branch are dropped outside.
class Lifetimes {
 public:
  explicit Lifetimes(const Program& p);
  std::span<const TensorId> last_used(const Steps& list, size_t step) const { return lists_.at(&list)[step]; }
  bool ends_at(const Steps& list, size_t step, TensorId t) const;
  // Does the loop, or what stands in it, read t from outside?
  bool is_read_within(const Loop& loop, TensorId t) const { return within_.at(&loop).contains(t); }
  const std::unordered_set<TensorId>& read_within(const Loop& loop) const { return within_.at(&loop); }
  const std::unordered_set<TensorId>& made_within(const Loop& loop) const { return made_within_.at(&loop); }
  // Carried values of the loop, in order, that its steps write but never look at: an iteration does without.
  const std::vector<bool>& only_written(const Loop& loop) const { return only_written_.at(&loop); }
  // Is part of t, or of a value that t shares memory with, overwritten by an Update?
  bool is_updated(TensorId t) const { return updated_[t]; }

 private:
  void note(const Program& p, const Steps& list, std::vector<TensorId> made, const std::vector<TensorId>& left);
  std::unordered_map<const Steps*, std::vector<std::vector<TensorId>>> lists_;
  std::unordered_map<const Loop*, std::unordered_set<TensorId>> within_, made_within_;
  std::unordered_map<const Loop*, std::vector<bool>> only_written_;
  std::vector<bool> updated_;
};

}  // namespace xhat
