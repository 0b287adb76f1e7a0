// Inside the evaluator: runs the code of one definition.
//
// Both branches of a select are computed for all lanes, and so are bodies where a condition is false. What
// goes wrong there must not matter, so a read outside its tensor does not throw: it yields a poisoned value,
// which poisons what is computed from it, except through a select that takes the other branch or a reduction
// that leaves the value out. Only poison that reaches the definition's target is an error; that one point is
// then run again, remembering what failed.
#pragma once
#include <bit>
#include <span>
#include <string>
#include <vector>

#include "expr/eval/evaluate.h"
#include "expr/eval/evaluate_code.h"

namespace xhat::evaluation {

// From -1 to 1, by the operation and its operands to the digits of f32: the same for operands that noise has moved differently far.
inline double chance_of(Op op, double x, double y) {
  uint64_t h = static_cast<uint64_t>(op) + 1;
  for (double v : {x, y}) {
    h = (h ^ std::bit_cast<uint32_t>(static_cast<float>(v))) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  return static_cast<double>(h >> 11) * 0x1p-52 - 1;
}

class Machine {
 public:
  // arrays: by TensorId; the target's entry is written through `target`.
  Machine(const Program& p, const Definition& d, const Code& code, std::span<const Array* const> arrays,
          Array& target, const EvaluateOptions& options);
  // Throws Error for poison that reaches the target.
  void run();

 private:
  struct Poison {
    std::vector<uint32_t> marks;  // per lane; 0: fine, else what failed (an index into failures_ plus one)
    bool any = false;
  };
  struct Failure {
    const Instruction* instruction;
    size_t dimension;
    std::vector<int64_t> indices;
    std::vector<int64_t> axes;  // values of the instruction's places
  };
  struct Extreme {  // argmax and argmin: the best so far, per lane
    std::vector<double> real;
    std::vector<int64_t> integer;
    std::vector<uint8_t> seen;
  };

  const Program& p_;
  const Definition& d_;
  const Code& code_;
  std::span<const Array* const> arrays_;
  Array& target_;
  bool declared_;
  double noise_;  // EvaluateOptions

  size_t block_;               // lanes at once
  std::vector<double> reals_;  // registers; offset_ says where each begins
  std::vector<int64_t> integers_;
  std::vector<size_t> offset_;
  std::vector<Poison> poison_;
  std::vector<Extreme> extremes_;              // per reduction
  std::vector<std::vector<int64_t>> strides_;  // by TensorId, for what is read or written
  std::vector<int64_t> target_strides_;
  size_t lanes_ = 1;               // in use, in the loop over lanes that we are in
  bool poisoned_ = false;          // any poison so far in this definition
  std::vector<uint32_t> outside_;  // lanes of the read at hand that are outside

  const std::vector<int64_t>* only_ = nullptr;  // running again: this point only
  std::vector<Failure> failures_;

  double* real(Reg r) { return reals_.data() + offset_[r]; }
  int64_t* integer(Reg r) { return integers_.data() + offset_[r]; }
  size_t stride(Reg r) const { return code_.registers[r].lanes; }
  size_t lanes_of(Reg r) const { return code_.registers[r].lanes ? lanes_ : 1; }
  Lanes<double> reals_of(Reg r) { return {real(r), stride(r)}; }
  Lanes<int64_t> integers_of(Reg r) { return {integer(r), stride(r)}; }

  void enter(uint32_t loop, const Reduction* reduction);
  void block(const Loop& loop, const Reduction* reduction);
  void execute(const Instruction& i);
  void elementwise(const Instruction& i, size_t n);
  void select(const Instruction& i, size_t n);
  void cast(const Instruction& i, size_t n);
  void settle(DType type, Reg out, size_t n);
  void move(const Instruction& i, size_t n);

  void read(const Instruction& i, size_t n);
  bool read_straight(const Instruction& i, size_t n);
  void read_lane(const Instruction& i, size_t lane);

  void reduce(const Instruction& i, size_t n);
  void accumulate(const Reduction& r);
  template <class T>
  void fold(const Reduction& r, size_t count, T* into, Lanes<T> body);
  template <class T, class F>
  void fold_with(const Reduction& r, size_t count, T* into, Lanes<T> body, F f);
  template <class T>
  void fold_extreme(const Reduction& r, size_t count, std::vector<T>& best, Lanes<T> body);
  bool active(const Reduction& r, size_t lane);
  bool masked(const Reduction& r) const;

  void mark(Reg out, size_t lane, uint32_t failure);
  void inherit(Reg out, Reg operand, size_t n);
  uint32_t poison_at(Reg r, size_t lane) const;
  uint32_t failed(const Instruction& i, size_t dimension, size_t lane);

  void store();
  [[noreturn]] void fail(const Failure& f) const;
  [[noreturn]] void run_again(size_t lane);
};

}  // namespace xhat::evaluation
