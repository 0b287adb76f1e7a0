// Values and kernels of a program with loops and branches: the Machine of runtime/call/steps_op.cpp (expr/eval/run_steps.h says what one is).
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "expr/eval/run_steps.h"
#include "runtime/call/compile.h"
#include "runtime/call/steps_kernels.h"
#include "runtime/host/finish.h"
#include "runtime/host/scratch.h"

namespace xhat::runtime {

// One run's values, and the kernels for its sizes.
class KernelMachine {
 public:
  using Value = std::shared_ptr<Held>;
  struct Operand {
    Value value;
    std::vector<int64_t> row;
  };
  struct Saved {
    std::shared_ptr<Stash> stash;
    std::vector<std::pair<const std::string*, Operand>> kept;  // by name in the block's op
    int64_t bytes = 0;                                         // of what nothing before it kept
  };
  // A row that was written over in place: what is noted finds it as it was once the backward has taken it back.
  struct Overwritten {
    Value value, row;
    bool taken_back = false;
  };
  struct LoopSaved {
    std::vector<Value> outside;  // as CompiledLoop::outside has them
    std::vector<Value> left;     // of what it carries, those of CompiledLoop::left
    std::vector<Value> tapes;
    std::vector<int32_t> status;
    AxisValues around;
  };
  KernelMachine(const Program& p, const Lifetimes& lifetimes, std::shared_ptr<StepsKernels> kernels, std::shared_ptr<Pool> pool)
      : p_(p), lifetimes_(lifetimes), kernels_(std::move(kernels)), pool_(std::move(pool)), inputs_(p.tensors.size()) {}

  CallCounts counts;
  CallOptions call;

  void give_input(TensorId t, const TensorView& v) { inputs_[t] = v; }
  const StepsKernels& kernels() const { return *kernels_; }
  Value input(TensorId t) const {
    auto v = std::make_shared<Held>();
    v->input = t;
    return v;
  }
  TensorView view(const Value& v) const { return v->input ? inputs_[*v->input] : v->view; }

  Value fresh(DType type, const std::vector<int64_t>& shape) {
    auto v = std::make_shared<Held>();
    v->view = TensorView(nullptr, type, shape, {});
    v->bytes = v->view.bytes();
    v->pool = pool_;
    v->memory = pool_->take(v->bytes, counts.allocations);
    v->view.data = v->memory.get();
    return v;
  }
  Value fresh(TensorId t) { return fresh(p_.tensors[t].type, kernels_->shapes[t]); }
  Value copy(const TensorView& v) {
    Value made = fresh(v.type, {v.extents().begin(), v.extents().end()});
    copy_into(made->view, v);
    return made;
  }

  void block(const Block& b, const std::vector<RunOperand<Value>>& operands, std::vector<Value>& results, Saved* saved) {
    const Program& op = *b.op;
    std::vector<Operand> given(operands.size());
    std::vector<Argument> arguments;
    for (size_t k = 0; k < operands.size(); ++k) {
      given[k] = {operands[k].value, operands[k].row};
      if (!given[k].value) {
        given[k].value = fresh(DType::i64, {});
        std::memcpy(given[k].value->view.data, &operands[k].scalar, sizeof(int64_t));
      }
      arguments.push_back({op.tensors[op.inputs[k]].name, row_of(view(given[k].value), given[k].row)});
    }
    for (size_t k = 0; k < results.size(); ++k) {
      results[k] = fresh(b.results[k]);
      arguments.push_back({op.tensors[op.outputs[k]].name, results[k]->view});
    }
    CompiledBlock& compiled = kernels_->compiled.at(key(b));
    if (!saved) {
      counts += compiled.op.infer(arguments, call);
      return;
    }
    saved->stash = take_stash(kernels_, compiled);
    counts += compiled.op.forward(arguments, *saved->stash, call);
    auto note = [&](const std::string& name) {
      auto [own, operand] = keep(b, name, given, results);
      if (operand.value->noted == 0) saved->bytes += operand.value->bytes;
      saved->kept.push_back({own, {noted(operand.value), std::move(operand.row)}});
    };
    for (const std::string& name : compiled.op.kept(*saved->stash)) note(name);
    if (!compiled.sums) return;
    for (size_t k : compiled.sums->operands)
      if (const std::string& name = op.tensors[op.inputs[k]].name; !find_kept(*saved, name)) note(name);
  }

  bool whole(const Loop& l) const { return kernels_->whole.contains(&l); }

  template <class Variable, class ValueOf>
  bool loop(const Loop& l, const Variable& variable, const ValueOf& value_of, std::vector<Value>& carried, LoopSaved* saved) {
    TiledLoop& code = *kernels_->whole.at(&l);
    const LoopPhase phase = saved ? LoopPhase::forward : LoopPhase::infer;
    if (!code.has(phase) || !code.ready(phase)) return false;
    LoopSaved made;
    for (TensorId t : code.outside()) made.outside.push_back(noted(dense(value_of(t))));
    for (Id x : code.variables()) made.around[x] = variable(x);
    made.status.resize(1);
    if (saved) {
      std::vector<CompiledLoop::Tape> tapes = code.tapes(made.around);
      made.status.resize(1 + tapes.size());
      if (!code.knows_tapes()) {
        if (!code.ready(LoopPhase::count)) return false;
        std::vector<Value> copies;
        for (const Value& v : carried) copies.push_back(copy(view(v)));
        run_loop(code, LoopPhase::count, made, copies);
        if (made.status[0] != 0 || *std::max_element(made.status.begin(), made.status.end()) >= kMostOnTape) return false;
        for (size_t k = 0; k < tapes.size(); ++k) tapes[k].elements = made.status[k + 1];
      }
      for (const CompiledLoop::Tape& t : tapes) made.tapes.push_back(room(t.elements * t.element_bytes));
    }
    std::vector<Value> results;
    const bool may_fail = code.may_fail(phase);
    for (Value& v : carried) {
      results.push_back(may_fail ? v : std::move(v));
      own(results.back());
    }
    run_loop(code, phase, made, results);
    if (made.status[0] != 0) return false;
    carried = std::move(results);
    if (!saved) return true;
    made.left.resize(carried.size());
    for (size_t k : code.left()) made.left[k] = noted(carried[k]);
    *saved = std::move(made);
    return true;
  }

  void loop_back(const Loop& l, const LoopSaved& saved, const std::vector<Value>& cotangents, std::vector<Value>& adjoints) {
    TiledLoop& code = *kernels_->whole.at(&l);
    code.ready(LoopPhase::backward);
    std::vector<Value> outside, memory, made(cotangents.size());
    for (const Value& v : saved.outside) outside.push_back(dense(v));
    std::vector<int32_t> status = saved.status;
    code.run(
        LoopPhase::backward,
        [&](const LoopArgument& a) -> void* {
          switch (a.is) {
            case LoopArgument::Is::outside: return view(outside[a.number]).data;
            case LoopArgument::Is::carried: return view(saved.left[a.number]).data;
            case LoopArgument::Is::tape: return saved.tapes[a.number]->view.data;
            case LoopArgument::Is::status: return status.data();
            case LoopArgument::Is::adjoint: {
              Value& v = made[a.number];
              v = cotangents[a.number] ? cotangents[a.number] : zeros(l.carried[a.number].result);
              clear_unwritten(v);
              own(v);
              return v->view.data;
            }
            case LoopArgument::Is::outside_adjoint: {
              const TensorId t = code.outside()[a.number];
              settle(t, adjoints);
              if (!adjoints[t]) adjoints[t] = zeros(t);
              own(adjoints[t]);
              return adjoints[t]->view.data;
            }
            default: memory.push_back(room(a.bytes)); return memory.back()->view.data;
          }
        },
        [&](Id x) { return saved.around.at(x); }, kernels_->threads);
    ++counts.kernels;
    counts.tiles += code.tiles();
    for (size_t k = 0; k < made.size(); ++k)
      if (made[k]) add(adjoints[l.carried[k].initial], std::move(made[k]));
  }

  // overwritten: null where nothing is noted.
  Value update(Value base, const std::vector<int64_t>& row, const Value& value, Overwritten* overwritten) {
    if (base->input || base.use_count() > (overwritten ? base->noted : 0) + 1)
      base = copy(view(base));
    else if (base->noted > 0)
      *overwritten = {noted(base), copy(row_of(base->view, row))};
    copy_into(row_of(base->view, row), view(value));
    return base;
  }
  void take_back(Overwritten& o, const std::vector<int64_t>& row, std::vector<Value>& adjoints) {
    if (!o.value) return;
    for (auto& [block, waiting] : waiting_)
      if (waiting.runs > 0 && std::ranges::any_of(waiting.shared, [&](const auto& s) { return s.first == o.value; }))
        add_up(*block, waiting, adjoints);
    exchange(o, row);
  }
  void write_again(Overwritten& o, const std::vector<int64_t>& row) {
    if (o.taken_back) exchange(o, row);
  }

  static int64_t bytes(const Value& v) { return v ? v->bytes : 0; }
  static int64_t bytes(const Saved& saved) {
    return saved.stash->bytes() + saved.bytes;
  }
  static int64_t bytes(const Overwritten& o) { return bytes(o.row); }
  static int64_t bytes(const LoopSaved& saved) {
    int64_t sum = 0;
    for (const Value& v : saved.tapes) sum += v->bytes;
    for (const Value& v : saved.outside) sum += v->bytes;
    for (const Value& v : saved.left) sum += bytes(v);
    return sum;
  }
  int64_t extent(TensorId t, size_t d) const { return kernels_->shapes[t][d]; }
  int64_t integer(const Value& v, const std::vector<int64_t>& at) const {
    const TensorView x = row_of(view(v), at);
    switch (x.type) {
      case DType::i64: return *static_cast<const int64_t*>(x.data);
      case DType::i32: return *static_cast<const int32_t*>(x.data);
      case DType::u32: return *static_cast<const uint32_t*>(x.data);
      default: return *static_cast<const uint8_t*>(x.data);
    }
  }

  Value zeros(TensorId t) {
    Value v = fresh(t);
    std::memset(v->view.data, 0, static_cast<size_t>(v->bytes));
    return v;
  }

  void add(Value& into, Value v) {
    if (!into) {
      into = std::move(v);
      return;
    }
    clear_unwritten(into);
    own(into);
    add_into(into->view, view(v));
  }

  Value take_row(Value& from, const std::vector<int64_t>& row) {
    own(from);
    const TensorView taken = row_of(from->view, row);
    Value made = copy(taken);
    clear(taken);
    return made;
  }

  void block_back(const Block& b, const Saved& saved, const std::vector<std::vector<int64_t>>& rows, const std::vector<Value>& cotangents,
                  std::vector<Value>& adjoints) {
    const Program& op = *b.with_gradient;
    CompiledBlock& compiled = kernels_->compiled.at(key(b));
    std::vector<Argument> arguments;
    std::vector<Value> made;  // stay until the call is done
    for (const auto& [name, kept] : saved.kept) arguments.push_back({*name, row_of(view(kept.value), kept.row)});
    size_t next = 0;
    for (size_t k = 0; k < b.results.size(); ++k) {
      if (!is_float(op.tensors[op.outputs[k]].type)) continue;
      made.push_back(cotangents[next] ? cotangents[next] : zeros(b.results[k]));
      arguments.push_back({op.tensors[op.cotangents[next++]].name, view(made.back())});
    }
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const auto it = std::ranges::find(op.gradient_of, op.inputs[k]);
      if (it == op.gradient_of.end() || (compiled.sums && compiled.sums->gives(k))) continue;
      const bool add = prepare_to_add(adjoints[b.operands[k].value], b.operands[k].value, rows[k]);
      arguments.push_back({op.tensors[op.gradients[static_cast<size_t>(it - op.gradient_of.begin())]].name,
                           row_of(adjoints[b.operands[k].value]->view, rows[k]), add});
    }
    if (!compiled.sums) {
      counts += compiled.op.backward(arguments, *saved.stash, call);
      return;
    }
    Waiting& waiting = waiting_[&b];
    if (waiting.stacks.empty()) begin_to_wait(waiting, *compiled.sums);
    share(waiting, *compiled.sums, b, saved, adjoints);
    for (size_t i = 0; i < waiting.stacks.size(); ++i) {
      const SumsOverRuns::Part& part = compiled.sums->parts[i];
      const TensorView row = row_of(waiting.stacks[i]->view, {waiting.runs});
      if (part.operand)
        copy_into(row, kept_operand(b, saved, *part.operand));
      else
        arguments.push_back({part.made, row});
    }
    counts += compiled.op.backward(arguments, *saved.stash, call);
    if (++waiting.runs == compiled.sums->runs_at_once) add_up(b, waiting, adjoints);
  }

  // Before the adjoint of t is read, or added to by others than blocks.
  void settle(TensorId t, std::vector<Value>& adjoints) {
    for (auto& [block, waiting] : waiting_)
      if (waiting.runs > 0 && std::ranges::any_of(kernels_->compiled.at(key(*block)).sums->gradients,
                                                  [&](const auto& g) { return block->operands[g.second].value == t; }))
        add_up(*block, waiting, adjoints);
    if (adjoints[t]) clear_unwritten(adjoints[t]);
  }
  void settle_all(std::vector<Value>& adjoints) {
    for (auto& [block, waiting] : waiting_)
      if (waiting.runs > 0) add_up(*block, waiting, adjoints);
    waiting_.clear();
    for (Value& v : adjoints)
      if (v) clear_unwritten(v);
  }
  void forget_waiting() { waiting_.clear(); }

 private:
  // Parts of runs whose gradients are not added up yet.
  struct Waiting {
    std::vector<Value> stacks;  // by part; a run has a row
    std::vector<std::pair<Value, std::vector<int64_t>>> shared;
    int64_t runs = 0;
  };

  const Program& p_;
  const Lifetimes& lifetimes_;
  std::map<const Block*, Waiting> waiting_;
  std::shared_ptr<StepsKernels> kernels_;
  std::shared_ptr<Pool> pool_;
  std::vector<TensorView> inputs_;  // of the caller's, in this call

  void run_loop(TiledLoop& code, LoopPhase phase, LoopSaved& with, const std::vector<Value>& carried) {
    std::vector<Value> memory;
    code.run(
        phase,
        [&](const LoopArgument& a) -> void* {
          switch (a.is) {
            case LoopArgument::Is::outside: return view(with.outside[a.number]).data;
            case LoopArgument::Is::carried: return carried[a.number]->view.data;
            case LoopArgument::Is::tape: return with.tapes[a.number]->view.data;
            case LoopArgument::Is::status: return with.status.data();
            default: memory.push_back(room(a.bytes)); return memory.back()->view.data;
          }
        },
        [&](Id x) { return with.around.at(x); }, kernels_->threads);
    ++counts.kernels;
    counts.tiles += code.tiles();
  }
  void exchange(Overwritten& o, const std::vector<int64_t>& row) {
    const TensorView here = row_of(o.value->view, row);
    const Value there = std::exchange(o.row, copy(here));
    copy_into(here, there->view);
    o.taken_back = !o.taken_back;
  }
  Value room(int64_t bytes) { return fresh(DType::u8, {bytes}); }
  Value dense(const Value& v) { return view(v).dense() ? v : copy(view(v)); }
  void own(Value& v) {
    if (v->input || v.use_count() > 1) v = copy(view(v));
  }

  static const Operand* find_kept(const Saved& saved, const std::string& name) {
    const auto it = std::ranges::find_if(saved.kept, [&](const auto& kept) { return *kept.first == name; });
    return it == saved.kept.end() ? nullptr : &it->second;
  }
  TensorView kept_operand(const Block& b, const Saved& saved, size_t k) const {
    const Operand& kept = *find_kept(saved, b.op->tensors[b.op->inputs[k]].name);
    return row_of(view(kept.value), kept.row);
  }

  // Makes the adjoint, if it is not there. False: that row of it holds nothing yet, and is to be written.
  bool prepare_to_add(Value& adjoint, TensorId t, const std::vector<int64_t>& row) {
    const bool first = !adjoint;
    if (first) adjoint = fresh(t);
    if (row.empty()) {
      if (!first) clear_unwritten(adjoint);
      own(adjoint);
      return !first;
    }
    if (row[0] == kWhole) {
      if (first) clear(adjoint->view);
      clear_unwritten(adjoint);
      own(adjoint);
      return true;
    }
    if (first) adjoint->unwritten.assign(static_cast<size_t>(adjoint->view.shape[0]), true);
    if (adjoint->unwritten.empty()) {
      own(adjoint);
      return true;
    }
    const auto at = static_cast<size_t>(row[0]);
    const bool written = !adjoint->unwritten[at];
    adjoint->unwritten[at] = false;
    if (!written && row.size() > 1) clear_row(adjoint, row[0]);
    return written || row.size() > 1;
  }
  static void clear_row(const Value& v, int64_t at) { clear(row_of(v->view, {at})); }
  static void clear_unwritten(const Value& v) {
    for (size_t i = 0; i < v->unwritten.size(); ++i)
      if (v->unwritten[i]) clear_row(v, static_cast<int64_t>(i));
    v->unwritten.clear();
  }

  void begin_to_wait(Waiting& waiting, const SumsOverRuns& sums) {
    const Program& p = sums.op.program();
    const DimValues dims = sums.full();
    for (const SumsOverRuns::Part& part : sums.parts) {
      const TensorId t = *p.find(part.name);
      waiting.stacks.push_back(fresh(p.tensors[t].type, shape_of(p, t, dims)));
    }
  }

  // What runs that wait have in common is the same in the innermost loop only: where a loop around it has changed it, they wait no longer.
  void share(Waiting& waiting, const SumsOverRuns& sums, const Block& b, const Saved& saved, std::vector<Value>& adjoints) {
    std::vector<std::pair<Value, std::vector<int64_t>>> shared;
    for (const auto& [name, k] : sums.shared) {
      const Operand* kept = find_kept(saved, b.op->tensors[b.op->inputs[k]].name);
      shared.emplace_back(kept->value, kept->row);
    }
    if (shared == waiting.shared) return;
    if (waiting.runs > 0) add_up(b, waiting, adjoints);
    waiting.shared = std::move(shared);
  }

  void add_up(const Block& b, Waiting& waiting, std::vector<Value>& adjoints) {
    const SumsOverRuns& sums = *kernels_->compiled.at(key(b)).sums;
    std::vector<Argument> arguments;
    for (size_t i = 0; i < waiting.stacks.size(); ++i) {
      TensorView v = waiting.stacks[i]->view;
      v.shape[0] = waiting.runs;
      arguments.push_back({sums.parts[i].name, v});
    }
    for (size_t i = 0; i < sums.shared.size(); ++i)
      arguments.push_back({sums.shared[i].first, row_of(view(waiting.shared[i].first), waiting.shared[i].second)});
    std::vector<Value> made;
    for (const auto& [name, k] : sums.gradients) {
      made.push_back(fresh(b.operands[k].value));
      arguments.push_back({name, made.back()->view});
    }
    counts += sums.op.infer(arguments, call);
    for (size_t i = 0; i < made.size(); ++i) add(adjoints[b.operands[sums.gradients[i].second].value], std::move(made[i]));
    waiting.runs = 0;
  }

  // An operand that is a row of what is overwritten later is copied: the rest need not stay for it.
  std::pair<const std::string*, Operand> keep(const Block& b, const std::string& name, const std::vector<Operand>& given,
                                              const std::vector<Value>& results) {
    const Program& op = *b.op;
    for (size_t k = 0; k < given.size(); ++k) {
      const std::string& own = op.tensors[op.inputs[k]].name;
      if (own != name) continue;
      const bool alone = given[k].row.empty() || b.operands[k].scalar != kNone || !lifetimes_.is_updated(b.operands[k].value);
      return {&own, alone ? given[k] : Operand{copy(row_of(view(given[k].value), given[k].row)), {}}};
    }
    for (size_t k = 0; k < results.size(); ++k)
      if (op.tensors[op.outputs[k]].name == name) return {&op.tensors[op.outputs[k]].name, {results[k], {}}};
    throw Bug("a block keeps " + name + ", which it neither reads nor makes");
  }
};

}  // namespace xhat::runtime
