// Runs the steps of a program with loops and branches, forward and, along what was noted then, backward. What a value is and how a block
// is computed is the Machine's: arrays and the evaluator (expr/eval/evaluate_steps.cpp), or views and compiled kernels (runtime/call).
//
// A Machine has
//   Value, Saved                                     copies of a Value share it; an empty one is false
//   void block(block, operands, results, Saved*)     Saved: what the backward of this run will need; null where there will be none
//   Value update(Value base, row, value, Overwritten*)   may overwrite base where nobody else has it, or nobody but what is Saved; then
//                                                    Overwritten (null where nothing is saved) has what was there
//   void take_back(overwritten, row, adjoints)       base is as it was before the update; adjoints: as for settle
//   void write_again(overwritten, row)               base is as it was after the update, for another backward
//   int64_t extent(tensor, dimension)
//   int64_t integer(value, indices)                  an element of an integer type or bool
//   void block_back(block, saved, cotangents, into)  adds to into[k], the adjoint of operand k; cotangents may be empty ones
//   Value zeros(tensor)                              a new one, of that tensor's type and shape
//   void add(Value& into, value)                     into becomes value where it is empty
//   Value take_row(Value& from, row)                 a copy of that row, which becomes zero
//   void settle(t, adjoints)                         adjoints[t] is about to be read: what block_back still has to add to it is added
//   void settle_all(adjoints), forget_waiting()      the same of all adjoints; what block_back still has to add is dropped
//   int64_t bytes(value), bytes(saved), bytes(overwritten)   of memory that is kept for the backward
// and, if it runs loops as a whole (whole() is false where it does not),
//   bool whole(loop)
//   bool loop(loop, variable, value, carried, LoopSaved*)   carried: of each carried value the initial one, then the result; false: an index
//                                                    is outside of its tensor, and nothing has happened
//   void loop_back(loop, saved, cotangents, into)    adds to into[k], the adjoint of tensor k
#pragma once
#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "expr/core/scalar.h"
#include "expr/core/steps.h"
#include "expr/index/dims.h"

namespace xhat {

constexpr int64_t kWhole = -1;  // in a row (Row) of one run: all of the dimension

// An operand of one run of a block.
template <class Value>
struct RunOperand {
  Value value;               // empty: a scalar
  std::vector<int64_t> row;  // by dimension an index, or kWhole; dimensions that it does not name are whole, too
  int64_t scalar = 0;
};

template <class Machine>
class StepRun {
 public:
  using Value = typename Machine::Value;

  // keep: note what a backward needs; of loops for which that is more than `budget` bytes, only what some of their iterations began with,
  // and run the others again (Griewank, Walther: Algorithm 799, revolve).
  StepRun(const Program& p, const Lifetimes& lifetimes, const DimValues& dims, Machine& machine, bool keep,
          std::optional<int64_t> budget = {})
      : p_(p), lifetimes_(lifetimes), dims_(dims), machine_(machine), keep_(keep), budget_(budget), values_(p.tensors.size()) {}

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
    std::vector<Entry> tape = std::exchange(tape_, {});
    for (Entry& e : tape)
      if (auto* u = std::get_if<UpdateRun>(&e)) machine_.write_again(u->overwritten, u->row);
    undo(tape);
    machine_.settle_all(adjoints_);
    tape_ = std::move(tape);
  }
  // Of the states that segments begin with, and of rows that were written over.
  int64_t state_bytes() const {
    int64_t sum = 0;
    for (const Entry& e : tape_)
      if (auto* u = std::get_if<UpdateRun>(&e))
        sum += Machine::bytes(u->overwritten);
      else if (auto* s = std::get_if<Segment>(&e))
        for (const auto& [t, v] : s->values)
          if (made_within(*s->loop, t)) sum += Machine::bytes(v);
    return sum;
  }
  // Iterations that the backward ran again.
  int64_t replayed() const { return replayed_; }
  // For another backward of the same run.
  void forget_adjoints() {
    adjoints_.clear();
    machine_.forget_waiting();
  }
  // What the blocks saved, for who asks what of the caller's is needed.
  template <class F>
  void for_each_saved(F f) const {
    for (const Entry& e : tape_)
      if (auto* run = std::get_if<BlockRun>(&e))
        f(run->saved);
      else if (auto* loop = std::get_if<LoopRun>(&e))
        f(loop->saved);
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
    typename Machine::Overwritten overwritten;
  };
  struct Moves {  // each `to` became `from`, all at once
    std::vector<std::pair<TensorId, TensorId>> to_from;
  };
  struct Segment {  // iterations of a loop of which only the beginning is kept
    const Loop* loop;
    std::vector<int64_t> variables;                  // the loop's, one per iteration
    std::vector<std::pair<TensorId, Value>> values;  // those from outside, and what the first iteration begins with
    AxisValues around;                               // variables of the loops around it
    int64_t slots;                                   // how many states may be kept while it is undone
  };
  struct LoopRun {
    const Loop* loop;
    typename Machine::LoopSaved saved;
  };
  using MovesRun = std::shared_ptr<const Moves>;
  using Entry = std::variant<BlockRun, UpdateRun, MovesRun, Segment, LoopRun>;

  const Program& p_;
  const Lifetimes& lifetimes_;
  const DimValues& dims_;
  Machine& machine_;
  const bool keep_;
  const std::optional<int64_t> budget_;
  bool within_segments_ = false;
  bool rehearsing_ = false;  // runs as if for a backward, but notes nothing
  int64_t used_ = 0;         // bytes noted
  int64_t replayed_ = 0;
  std::vector<Value> values_;  // by TensorId
  AxisValues variables_;
  std::vector<Value> adjoints_;
  std::vector<Value> taken_;  // while values move
  std::vector<Entry> tape_;

  int64_t integer(Id id) {
    const Arena& a = *p_.arena;
    const Node& n = a[id];
    switch (n.op) {
      case Op::constant: return n.integer;
      case Op::axis: return variables_.at(id);
      case Op::dim: {
        auto [it, fresh] = variables_.try_emplace(id, 0);
        if (fresh) it->second = dims_.at(a.name(id));
        return it->second;
      }
      case Op::read: return machine_.integer(values_[n.symbol], element_of(n));
      case Op::read_or: {
        const std::vector<int64_t> at = integers({read_indices(n).begin(), read_indices(n).end()});
        for (size_t k = 0; k < at.size(); ++k)
          if (at[k] < 0 || at[k] >= extent(n.symbol, k)) return integer(n.args().back());
        return machine_.integer(values_[n.symbol], at);
      }
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
      if (o.scalar != kNone)
        r.scalar = integer(o.scalar);
      else
        r.value = values_[o.value], r.row = row_of(o.value, o.row, {});
      rows.push_back(r.row);
      operands.push_back(std::move(r));
    }
    std::vector<Value> results(b.results.size());
    const bool kept = keep_ && b.with_gradient;
    typename Machine::Saved saved;
    machine_.block(b, operands, results, kept ? &saved : nullptr);
    for (size_t k = 0; k < results.size(); ++k) values_[b.results[k]] = std::move(results[k]);
    if (!kept || rehearsing_) return;
    used_ += machine_.bytes(saved);
    tape_.push_back(BlockRun{&b, std::move(saved), std::move(rows)});
  }

  int64_t extent(TensorId t, size_t dimension) const { return machine_.extent(t, dimension); }
  std::vector<int64_t> element_of(const Node& read) {
    if (read.arg_count == 0) return {};
    return row_of(read.symbol, {read_indices(read).begin(), read_indices(read).end()}, {});
  }

  // Indices into t, in range; all of a dimension where there is none.
  std::vector<int64_t> row_of(TensorId t, const std::vector<Id>& ids, Pos pos) {
    std::vector<int64_t> row;
    for (size_t k = 0; k < ids.size(); ++k) {
      row.push_back(ids[k] == kNone ? kWhole : integer(ids[k]));
      if (ids[k] == kNone) continue;
      if (row[k] < 0 || row[k] >= extent(t, k))
        throw op_error(p_,
                       p_.tensors[t].name + " is used at index " + std::to_string(row[k]) + " of its dimension " + std::to_string(k) +
                           ", which has extent " + std::to_string(extent(t, k)),
                       pos);
    }
    return row;
  }

  void run(const Update& u, const Steps& steps, size_t i) {
    std::vector<int64_t> row = row_of(u.base, u.row, u.pos);
    Value base = values_[u.base];
    if (lifetimes_.ends_at(steps, i, u.base) && u.base != u.value) values_[u.base] = Value();
    const bool noting = keep_ && !rehearsing_;
    UpdateRun made{&u, std::move(row), {}};
    if (base) values_[u.result] = machine_.update(std::move(base), made.row, values_[u.value], noting ? &made.overwritten : nullptr);
    if (noting) used_ += machine_.bytes(made.overwritten);
    note(std::move(made));
  }

  // Each `to` becomes `from`, all at once; a value that nobody reads any more (is_over) is handed over, so that nobody else has it.
  template <class Over>
  void move(const MovesRun& moves, Over is_over) {
    taken_.clear();
    for (auto [to, from] : moves->to_from) taken_.push_back(values_[from]);
    for (auto [to, from] : moves->to_from)
      if (is_over(from)) values_[from] = Value();
    for (size_t k = 0; k < taken_.size(); ++k) values_[moves->to_from[k].first] = std::move(taken_[k]);
    if (!moves->to_from.empty()) note(moves);
  }
  void note(Entry e) {
    if (keep_ && !rehearsing_) tape_.push_back(std::move(e));
  }

  // By the machine, as a whole. False: nothing has happened.
  bool run_whole(const Loop& l, const Steps& steps, size_t i) {
    if (!machine_.whole(l)) return false;
    std::vector<Value> carried;
    for (const Carried& c : l.carried) {
      carried.push_back(values_[c.initial]);
      if (!carried.back()) return false;  // what is only written may be gone (a state that iterations run again from)
    }
    auto is_read = [&](TensorId t) {  // by the loop: in an iteration, or where it asks how many there are
      return lifetimes_.is_read_within(l, t) || has_tensor(tensors_read(*p_.arena, l.begin), t) ||
             has_tensor(tensors_read(*p_.arena, l.end), t);
    };
    for (const Carried& c : l.carried)
      if (lifetimes_.ends_at(steps, i, c.initial) && !is_read(c.initial)) values_[c.initial] = Value();
    typename Machine::LoopSaved saved;
    const bool done = machine_.loop(
        l, [&](Id variable) { return variables_.at(variable); }, [&](TensorId t) -> const Value& { return values_[t]; }, carried,
        keep_ ? &saved : nullptr);
    for (size_t k = 0; k < l.carried.size(); ++k) values_[done ? l.carried[k].result : l.carried[k].initial] = std::move(carried[k]);
    if (done) note(LoopRun{&l, std::move(saved)});
    return done;
  }

  void run(const Loop& l, const Steps& steps, size_t i) {
    if (run_whole(l, steps, i)) return;
    const MovesRun first = moves(l, &Carried::entering, &Carried::initial), next = moves(l, &Carried::entering, &Carried::leaving),
                   last = moves(l, &Carried::result, &Carried::entering);
    const int64_t begin = integer(l.begin), end = integer(l.end);
    const auto iterations = (end - begin + l.stride - 1) / l.stride;
    const bool may_segment = keep_ && budget_ && !within_segments_ && iterations > 1;
    move(first, [&](TensorId t) { return lifetimes_.ends_at(steps, i, t) && !lifetimes_.is_read_within(l, t); });
    if (!may_segment || !in_segments(l, next, begin, iterations))
      for (int64_t v = begin; v < end; v += l.stride)
        if (!iterate(l, next, v)) break;
    move(last, [](TensorId) { return true; });
  }

  static MovesRun moves(const Loop& l, TensorId Carried::*to, TensorId Carried::*from) {
    auto made = std::make_shared<Moves>();
    for (const Carried& c : l.carried) made->to_from.emplace_back(c.*to, c.*from);
    return made;
  }

  // One iteration; false where the condition ends the loop.
  bool iterate(const Loop& l, const MovesRun& next, int64_t variable) {
    variables_[l.variable] = variable;
    if (l.condition) {
      list(l.test);
      if (machine_.integer(values_[*l.condition], {}) == 0) return false;
    }
    list(l.body);
    move(next, [&](TensorId t) { return made_within(l, t); });
    return true;
  }

  // What an iteration begins with, and what it reads from outside.
  std::vector<std::pair<TensorId, Value>> state(const Loop& l) const {
    std::vector<std::pair<TensorId, Value>> kept;
    std::unordered_set<TensorId> own;
    for (size_t k = 0; k < l.carried.size(); ++k) {
      own.insert(l.carried[k].entering);
      if (!lifetimes_.only_written(l)[k]) kept.emplace_back(l.carried[k].entering, values_[l.carried[k].entering]);
    }
    for (TensorId t : lifetimes_.read_within(l))
      if (values_[t] && !own.contains(t)) kept.emplace_back(t, values_[t]);
    return kept;
  }

  // Runs the loop and notes segments of it, if all of it would be more than the budget; else false, and nothing has happened.
  bool in_segments(const Loop& l, const MovesRun& next, int64_t begin, int64_t iterations) {
    const auto noted = tape_.size();
    const int64_t before = used_;
    // The second iteration says what one costs: the first may begin with what is the caller's. Both are taken back.
    std::vector<std::pair<TensorId, Value>> kept;
    for (const Carried& c : l.carried) kept.emplace_back(c.entering, values_[c.entering]);
    within_segments_ = true;
    int64_t each = 0;
    if (iterate(l, next, begin)) {
      const int64_t one = used_;
      iterate(l, next, begin + l.stride);
      each = std::max(one - before, used_ - one);
    }
    within_segments_ = false;
    int64_t carried = 1;  // of what an iteration begins with
    for (const auto& [t, v] : state(l))
      if (made_within(l, t)) carried += machine_.bytes(v);
    tape_.erase(tape_.begin() + static_cast<std::ptrdiff_t>(noted), tape_.end());
    used_ = before;
    for (auto& [t, v] : kept) values_[t] = v;
    kept.clear();
    if (used_ + each * iterations <= *budget_) return false;
    if (used_ + each + carried > *budget_)
      throw op_error(p_,
                     fmt::format("the stash budget cannot be met: {} bytes, but one iteration keeps {}, and what it "
                                 "begins with has {}; the least possible is {}",
                                 *budget_, each, carried, used_ + each + carried),
                     l.pos);
    int64_t slots = std::max<int64_t>(1, (*budget_ - used_ - each) / carried);
    used_ += slots * carried + (l.condition ? each : 0);
    rehearsing_ = within_segments_ = true;
    // The last iteration is undone first: it is noted as it runs, where it is known to be the last.
    const int64_t segmented = l.condition ? iterations : iterations - 1;
    for (int64_t done = 0; done < segmented;) {
      Segment s{&l, {}, state(l), variables_, slots};
      const int64_t length = slots > 1 ? first_part(iterations - done, slots--) : segmented - done;
      bool goes_on = true;
      for (int64_t k = 0; k < length && goes_on; ++k) {
        const int64_t v = begin + (done + k) * l.stride;
        goes_on = iterate(l, next, v);
        if (goes_on) s.variables.push_back(v);
      }
      done = goes_on ? done + length : segmented;
      if (!s.variables.empty()) tape_.push_back(std::move(s));
    }
    rehearsing_ = false;
    if (!l.condition) iterate(l, next, begin + segmented * l.stride);
    within_segments_ = false;
    return true;
  }

  // Of n iterations that are undone with this many states, that of the first among them: how many come before the next of these states,
  // so that the fewest iterations in all run again. With s states, and every iteration run at most r times, C(s + r, s) can be undone.
  static int64_t first_part(int64_t n, int64_t states) {
    if (n <= 1) return n;
    auto reach = [&](int64_t s, int64_t r) {
      int64_t c = 1;
      for (int64_t k = 1; k <= s && c < n * 4; ++k) c = c * (r + k) / k;
      return c;
    };
    int64_t r = 1;
    while (reach(states, r) < n) ++r;
    return std::clamp<int64_t>(std::max(n - reach(states - 1, r), r > 1 ? reach(states, r - 2) : 1), 1, n - 1);
  }
  bool made_within(const Loop& l, TensorId t) const { return lifetimes_.made_within(l).contains(t); }

  void run(const Branch& b, const Steps&, size_t) {
    const bool then = machine_.integer(values_[b.condition], {}) != 0;
    list(then ? b.then : b.otherwise);
    auto merged = std::make_shared<Moves>();
    for (const Branch::Merge& m : b.merges) merged->to_from.emplace_back(m.result, then ? m.then : m.otherwise);
    move(merged, [&](TensorId t) {
      return std::ranges::any_of(then ? b.then : b.otherwise, [&](const Step& s) { return std::ranges::count(made_by(s), t) > 0; });
    });
  }

  void undo(std::vector<Entry>& entries) {
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) std::visit([&](auto& e) { back(e); }, *entry);
  }

  void back(const Segment& s) {
    variables_ = s.around;
    within_segments_ = true;
    for (const Carried& c : s.loop->carried) values_[c.entering] = Value();
    undo_iterations(*s.loop, s.variables, s.values, s.slots);
    within_segments_ = false;
  }

  void undo_iterations(const Loop& l, std::span<const int64_t> variables, const std::vector<std::pair<TensorId, Value>>& start,
                       int64_t slots) {
    const MovesRun next = moves(l, &Carried::entering, &Carried::leaving);
    const auto n = static_cast<int64_t>(variables.size());
    auto begin_at = [&](const std::vector<std::pair<TensorId, Value>>& values) {
      for (const auto& [t, v] : values) values_[t] = v;
    };
    begin_at(start);
    if (n == 1) {
      ++replayed_;
      const int64_t used = used_;
      iterate(l, next, variables[0]);
      std::vector<Entry> own = std::exchange(tape_, {});
      undo(own);
      used_ = used;
      return;
    }
    const int64_t length = slots > 1 ? first_part(n, slots) : n - 1;
    rehearsing_ = true;
    for (int64_t k = 0; k < length; ++k) {
      ++replayed_;
      iterate(l, next, variables[static_cast<size_t>(k)]);
    }
    rehearsing_ = false;
    const auto at = static_cast<size_t>(length);
    undo_iterations(l, variables.subspan(at), state(l), slots - 1);
    undo_iterations(l, variables.first(at), start, slots);
  }

  Value take_adjoint(TensorId t) {
    machine_.settle(t, adjoints_);
    return std::exchange(adjoints_[t], Value());
  }

  void back(const BlockRun& run) {
    std::vector<Value> cotangents;
    bool any = false;
    for (size_t k = 0; k < run.block->results.size(); ++k) {
      if (!is_float(p_.tensors[run.block->results[k]].type)) continue;
      cotangents.push_back(take_adjoint(run.block->results[k]));
      any |= static_cast<bool>(cotangents.back());
    }
    if (any) machine_.block_back(*run.block, run.saved, run.rows, cotangents, adjoints_);
  }
  void back(const LoopRun& run) {
    std::vector<Value> cotangents;
    bool any = false;
    for (const Carried& c : run.loop->carried) {
      cotangents.push_back(is_float(p_.tensors[c.result].type) ? take_adjoint(c.result) : Value());
      any |= static_cast<bool>(cotangents.back());
    }
    if (any) machine_.loop_back(*run.loop, run.saved, cotangents, adjoints_);
  }
  void back(UpdateRun& run) {
    machine_.take_back(run.overwritten, run.row, adjoints_);
    Value g = take_adjoint(run.update->result);
    if (!g) return;
    machine_.add(adjoints_[run.update->value], machine_.take_row(g, run.row));
    machine_.add(adjoints_[run.update->base], std::move(g));
  }
  void back(const MovesRun& moves) {
    taken_.clear();
    for (auto [to, from] : moves->to_from) taken_.push_back(take_adjoint(to));
    for (size_t k = 0; k < taken_.size(); ++k)
      if (taken_[k]) machine_.add(adjoints_[moves->to_from[k].second], std::move(taken_[k]));
  }
};

}  // namespace xhat
