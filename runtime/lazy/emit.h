// The definitions and expressions of one graph.
#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/lazy/graph.h"
#include "runtime/lazy/infer_extents.h"

namespace xhat::lazy::detail {

using Ids = std::vector<Id>;

// The program that grows, shared by a graph and its derivatives.
struct Emission {
  Program program;
  Extents extents;
  std::vector<TensorId> leaves;   // inputs, per leaf of the walk
  std::vector<TensorId> numbers;  // inputs, per number of the walk; kNone: part of the program
  uint32_t next_number = 0;       // numbers are met in the order of the walk
  uint32_t made = 0;

  Arena& arena() { return *program.arena; }
  TensorId add(std::string name, DType type, Ids shape);
  Id axis(const char* prefix, size_t i) { return arena().axis(prefix + std::to_string(i)); }
  // target[i0, i1, …] = body, over the whole of the tensor.
  void define(TensorId target, Id body);
};

class Emitter {
 public:
  // cuts: tensors of what a derivative is by.
  Emitter(Emission& s, const Graph& g, const std::vector<Terms>& terms, std::vector<TensorId> cuts);

  // The tensor that has the item's value; defined when first asked for.
  TensorId tensor(uint32_t item);
  // Of an update: the tensor of what is written.
  TensorId part(uint32_t item);
  // The derivative is there: its loss, and its gradients in the order of wrt.
  void derived(const Derivative& d, TensorId loss, std::vector<TensorId> gradients);

 private:
  void choose_definitions();
  bool is_wanted(uint32_t item) const;  // a derivative is by it
  void need(uint32_t item);             // emits definitions below, operands first, so that recursion stays shallow
  Id at(uint32_t item, const Ids& indices);
  Id operand(const Item& item, size_t k, const Ids& indices);  // at, broadcast by trailing dimensions
  Id body(uint32_t item, const Ids& indices);
  Id elementwise(const Item& item, const Ids& indices);
  Id constant(const Item& item);
  Id reduce(const Item& item, const Ids& indices);
  Id contract(const Item& item, const Ids& indices);
  Id conv(const Item& item, const Ids& indices);
  Id window(const Item& item, const Ids& indices);
  Id concat(const Item& item, const Ids& indices);
  Id update(const Item& item, const Ids& indices);
  void call(const Item& item, uint32_t number);
  // The operand at indices that may lie outside of it, where it is `otherwise`. outside: which indices may.
  Id guarded(uint32_t item, const Ids& indices, const std::vector<char>& outside, Id otherwise);
  Id index_of(uint32_t table, Id index);
  Ids reshaped(const Ids& indices, const Terms& from, const Terms& to);
  Ids stepped(Kind kind, const Ids& indices, const Params& params, const Terms& from, const Terms& to);
  Id extent(Extents::Term t) { return s_.extents.in(s_.program, t); }
  Id integer(int64_t v) { return s_.arena().integer(v); }
  Id plus(Id a, int64_t b);
  Id times(Id a, int64_t b);
  // The sum of body over fresh axes with these ends.
  Id reduction(Op op, const std::vector<AxisRange>& axes, Id body, DType type);

  Emission& s_;
  const Graph& g_;
  const std::vector<Terms>& terms_;
  std::vector<TensorId> cuts_;
  std::vector<TensorId> tensors_;    // per item; kNone: not yet, or an expression
  std::vector<char> defined_;        // per item: it has a definition of its own
  std::vector<uint32_t> number_of_;  // per item that is a constant: which of Walk::numbers
  std::vector<TensorId> loss_;
  std::vector<std::vector<TensorId>> gradients_;
};

}  // namespace xhat::lazy::detail
