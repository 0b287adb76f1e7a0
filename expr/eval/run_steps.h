// Runs the steps of a program with loops and branches, forward and, along what was noted then, backward. What a value is and how a block
// is computed is the Machine's: arrays and the evaluator (expr/eval/evaluate_steps.cpp), or views and compiled kernels (runtime/call).
//
// A Machine has
//   Value, Saved                                     copies of a Value share it; an empty one is false
//   void block(block, operands, results, Saved*)     Saved: what the backward of this run will need; null where there will be none
//   Value update(Value base, row, value)             may overwrite base where nobody else has it
//   int64_t integer(value)                           of a scalar of an integer type or bool
//   void block_back(block, saved, cotangents, into)  adds to into[k], the adjoint of operand k; cotangents may be empty ones
//   Value zeros(tensor)                              a new one, of that tensor's type and shape
//   void add(Value& into, value)                     into becomes value where it is empty
//   Value take_row(Value& from, row)                 a copy of that row, which becomes zero
#pragma once
#include <algorithm>
#include <utility>

#include "expr/core/scalar.h"
#include "expr/core/steps.h"
#include "expr/index/dims.h"

namespace xhat {

// An operand of one run of a block.
template <class Value>
struct RunOperand {
  Value value;               // empty: a scalar
  std::vector<int64_t> row;  // leading indices
  int64_t scalar = 0;
};

template <class Machine>
class StepRun {
 public:
  using Value = typename Machine::Value;

  // keep: note what a backward needs.
  StepRun(const Program& p, const Lifetimes& lifetimes, const DimValues& dims, Machine& machine, bool keep)
      : p_(p), lifetimes_(lifetimes), dims_(dims), machine_(machine), keep_(keep), values_(p.tensors.size()) {}

  void set(TensorId t, Value v) { values_[t] = std::move(v); }
  const Value& value(TensorId t) const { return values_[t]; }
  void run() { list(*p_.steps); }

  // Backward: adjoints of outputs are given, those of inputs are found (empty: zero).
  void set_adjoint(TensorId t, Value v) {
    adjoints_.resize(p_.tensors.size());
    machine_.add(adjoints_[t], std::move(v));
  }
  Value adjoint(TensorId t) const { return t < adjoints_.size() ? adjoints_[t] : Value(); }
  void run_back() {
    adjoints_.resize(p_.tensors.size());
    for (auto entry = tape_.rbegin(); entry != tape_.rend(); ++entry) std::visit([&](const auto& e) { back(e); }, *entry);
  }
  // For another backward of the same run.
  void forget_adjoints() { adjoints_.clear(); }
  // What the blocks saved, for who asks what of the caller's is needed.
  template <class F>
  void for_each_saved(F f) const {
    for (const Entry& e : tape_)
      if (auto* run = std::get_if<BlockRun>(&e)) f(run->saved);
  }

 private:
  struct BlockRun {
    const Block* block;
    typename Machine::Saved saved;
    std::vector<std::vector<int64_t>> rows;  // by operand
  };
  struct UpdateRun {
    const Update* update;
    std::vector<int64_t> row;
  };
  struct Moves {  // each `to` became `from`, all at once
    std::vector<std::pair<TensorId, TensorId>> to_from;
  };
  using Entry = std::variant<BlockRun, UpdateRun, Moves>;

  const Program& p_;
  const Lifetimes& lifetimes_;
  const DimValues& dims_;
  Machine& machine_;
  const bool keep_;
  std::vector<Value> values_;  // by TensorId
  AxisValues variables_;
  std::vector<Value> adjoints_;
  std::vector<Entry> tape_;

  int64_t integer(Id id) {
    const Arena& a = *p_.arena;
    const Node& n = a[id];
    switch (n.op) {
      case Op::constant: return n.integer;
      case Op::axis: return variables_.at(id);
      case Op::dim: return dims_.at(a.name(id));
      case Op::read: return machine_.integer(values_[n.symbol]);
      case Op::select: return integer(integer(n.arg(0)) ? n.arg(1) : n.arg(2));
      case Op::cast: return n.type == DType::boolean ? integer(n.arg(0)) != 0 : integer_from(n.type, integer(n.arg(0)));
      default: break;
    }
    int64_t args[3] = {};
    for (size_t k = 0; k < n.arg_count; ++k) args[k] = integer(n.arg(k));
    const int64_t r = scalar(n.op).integers.at(args);
    return n.type == DType::boolean ? r : integer_from(n.type, r);
  }
  std::vector<int64_t> integers(const std::vector<Id>& ids) {
    std::vector<int64_t> values;
    for (Id id : ids) values.push_back(integer(id));
    return values;
  }

  void list(const Steps& steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      std::visit([&](const auto& s) { run(s, steps, i); }, steps[i].is);
      for (TensorId t : lifetimes_.last_used(steps, i)) values_[t] = Value();
    }
  }

  void run(const Block& b, const Steps&, size_t) {
    std::vector<RunOperand<Value>> operands;
    std::vector<std::vector<int64_t>> rows;
    for (const Operand& o : b.operands) {
      RunOperand<Value> r;
      if (o.scalar != kNone) r.scalar = integer(o.scalar);
      else r.value = values_[o.value], r.row = row_of(o.value, o.row, {});
      rows.push_back(r.row);
      operands.push_back(std::move(r));
    }
    std::vector<Value> results(b.results.size());
    const bool kept = keep_ && b.with_gradient;
    typename Machine::Saved saved;
    machine_.block(b, operands, results, kept ? &saved : nullptr);
    for (size_t k = 0; k < results.size(); ++k) values_[b.results[k]] = std::move(results[k]);
    if (kept) tape_.push_back(BlockRun{&b, std::move(saved), std::move(rows)});
  }

  // Indices into t, in range.
  std::vector<int64_t> row_of(TensorId t, const std::vector<Id>& ids, Pos pos) {
    std::vector<int64_t> row = integers(ids);
    for (size_t k = 0; k < row.size(); ++k) {
      const int64_t extent = evaluate_extent(*p_.arena, p_.tensors[t].shape[k], dims_);
      if (row[k] < 0 || row[k] >= extent)
        throw op_error(p_, p_.tensors[t].name + " is used at index " + std::to_string(row[k]) + " of its dimension " + std::to_string(k) +
                               ", which has extent " + std::to_string(extent), pos);
    }
    return row;
  }

  void run(const Update& u, const Steps& steps, size_t i) {
    std::vector<int64_t> row = row_of(u.base, u.row, u.pos);
    Value base = values_[u.base];
    if (lifetimes_.ends_at(steps, i, u.base) && u.base != u.value) values_[u.base] = Value();
    values_[u.result] = machine_.update(std::move(base), row, values_[u.value]);
    if (keep_) tape_.push_back(UpdateRun{&u, std::move(row)});
  }

  // Each `to` becomes `from`, all at once; a value that nobody reads any more (is_over) is handed over, so that nobody else has it.
  template <class Over>
  void move(const Moves& moves, Over is_over) {
    std::vector<Value> taken;
    for (auto [to, from] : moves.to_from) taken.push_back(values_[from]);
    for (auto [to, from] : moves.to_from)
      if (is_over(from)) values_[from] = Value();
    for (size_t k = 0; k < taken.size(); ++k) values_[moves.to_from[k].first] = std::move(taken[k]);
    if (keep_ && !moves.to_from.empty()) tape_.push_back(moves);
  }

  void run(const Loop& l, const Steps& steps, size_t i) {
    Moves first, next, last;
    for (const Carried& c : l.carried) {
      first.to_from.emplace_back(c.entering, c.initial);
      next.to_from.emplace_back(c.entering, c.leaving);
      last.to_from.emplace_back(c.result, c.entering);
    }
    const int64_t begin = integer(l.begin), end = integer(l.end);
    move(first, [&](TensorId t) { return lifetimes_.ends_at(steps, i, t) && !lifetimes_.is_read_within(l, t); });
    for (int64_t v = begin; v < end; v += l.stride) {
      variables_[l.variable] = v;
      if (l.condition) {
        list(l.test);
        if (machine_.integer(values_[*l.condition]) == 0) break;
      }
      list(l.body);
      move(next, [&](TensorId t) { return made_within(l, t); });
    }
    move(last, [](TensorId) { return true; });
  }
  static bool made_within(const Loop& l, TensorId t) {
    for (const Carried& c : l.carried)
      if (c.entering == t) return true;
    bool found = false;
    for (const Steps* list : {&l.test, &l.body})
      for (const Step& s : *list) found |= makes(s, t);
    return found;
  }
  static bool makes(const Step& s, TensorId t) {
    auto among = [&](const auto& results, auto id) {
      for (const auto& r : results)
        if (id(r) == t) return true;
      return false;
    };
    if (auto* b = std::get_if<Block>(&s.is)) return among(b->results, [](TensorId r) { return r; });
    if (auto* u = std::get_if<Update>(&s.is)) return u->result == t;
    if (auto* l = std::get_if<Loop>(&s.is)) return among(l->carried, [](const Carried& c) { return c.result; });
    return among(std::get<Branch>(s.is).merges, [](const Branch::Merge& m) { return m.result; });
  }

  void run(const Branch& b, const Steps&, size_t) {
    const bool then = machine_.integer(values_[b.condition]) != 0;
    list(then ? b.then : b.otherwise);
    Moves merged;
    for (const Branch::Merge& m : b.merges) merged.to_from.emplace_back(m.result, then ? m.then : m.otherwise);
    move(merged, [&](TensorId t) { return std::ranges::any_of(then ? b.then : b.otherwise, [&](const Step& s) { return makes(s, t); }); });
  }

  void back(const BlockRun& run) {
    std::vector<Value> cotangents;
    bool any = false;
    for (size_t k = 0; k < run.block->results.size(); ++k) {
      if (!is_float(p_.tensors[run.block->results[k]].type)) continue;
      cotangents.push_back(std::exchange(adjoints_[run.block->results[k]], Value()));
      any |= static_cast<bool>(cotangents.back());
    }
    if (any) machine_.block_back(*run.block, run.saved, run.rows, cotangents, adjoints_);
  }
  void back(const UpdateRun& run) {
    Value g = std::exchange(adjoints_[run.update->result], Value());
    if (!g) return;
    machine_.add(adjoints_[run.update->value], machine_.take_row(g, run.row));
    machine_.add(adjoints_[run.update->base], std::move(g));
  }
  void back(const Moves& moves) {
    std::vector<Value> taken;
    for (auto [to, from] : moves.to_from) taken.push_back(std::exchange(adjoints_[to], Value()));
    for (size_t k = 0; k < taken.size(); ++k)
      if (taken[k]) machine_.add(adjoints_[moves.to_from[k].second], std::move(taken[k]));
  }
};

}  // namespace xhat
