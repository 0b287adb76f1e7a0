#include "runtime/call/steps_op.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "ad/reverse/gradient.h"
#include "expr/eval/run_steps.h"
#include "runtime/call/check_view.h"
#include "expr/index/steps_blocks.h"
#include "expr/core/array.h"
#include "runtime/device/device.h"
#include "runtime/host/finish.h"
#include "runtime/host/scratch.h"

namespace xhat::runtime {
namespace {

// Memory of values that are gone, for those to come: an iteration allocates nothing that one before it has given back.
class Pool {
 public:
  OwnedMemory take(int64_t bytes, int64_t& allocations) {
    auto& list = free_[bytes];
    if (list.empty() || memory_source) {
      ++allocations;
      return allocate(bytes);
    }
    OwnedMemory m = std::move(list.back());
    list.pop_back();
    return m;
  }
  void give(int64_t bytes, OwnedMemory m) {
    if (!m.get_deleter().source) free_[bytes].push_back(std::move(m));
  }

 private:
  std::unordered_map<int64_t, std::vector<OwnedMemory>> free_;
};

// A value: memory of ours, or an input of the caller's, which is found by name again in each call.
struct Held {
  TensorView view;
  OwnedMemory memory;
  std::shared_ptr<Pool> pool;
  int64_t bytes = 0;
  std::optional<TensorId> input;

  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (memory) pool->give(bytes, std::move(memory));
  }
};

TensorView row_of(TensorView v, const std::vector<int64_t>& row) {
  int64_t at = 0;
  for (size_t k = 0; k < row.size(); ++k) at += row[k] * v.strides[k];
  v.data = static_cast<char*>(v.data) + at * static_cast<int64_t>(byte_size(v.type));
  const int left = v.rank - static_cast<int>(row.size());
  std::copy_n(v.shape.begin() + row.size(), left, v.shape.begin());
  std::copy_n(v.strides.begin() + row.size(), left, v.strides.begin());
  v.rank = left;
  return v;
}

// to has no gaps.
void copy_into(const TensorView& to, const TensorView& from) {
  if (from.dense()) {
    if (from.bytes() > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
    return;
  }
  const size_t size = byte_size(from.type);
  for_each_offset(from, [&](int64_t i, int64_t offset) {
    std::memcpy(static_cast<char*>(to.data) + static_cast<size_t>(i) * size,
                static_cast<const char*>(from.data) + offset * static_cast<int64_t>(size), size);
  });
}

// Blocks with the same key are compiled as one.
const Program* key(const Block& b) { return b.with_gradient ? b.with_gradient.get() : b.op.get(); }

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
  };
  struct Compiled {
    CompiledOp op;
    std::vector<std::unique_ptr<Stash>> free;  // to be used again
  };
  struct Ops {  // for one set of sizes
    DimValues dims;
    std::vector<std::vector<int64_t>> shapes;  // by tensor
    std::map<const Program*, Compiled> compiled;
    std::mutex mutex;  // of `free`
  };

  KernelMachine(const Program& p, const Lifetimes& lifetimes, std::shared_ptr<Ops> ops, std::shared_ptr<Pool> pool)
      : p_(p), lifetimes_(lifetimes), ops_(std::move(ops)), pool_(std::move(pool)), inputs_(p.tensors.size()) {}

  CallCounts counts;
  CallOptions call;

  void give_input(TensorId t, const TensorView& v) { inputs_[t] = v; }
  const Ops& ops() const { return *ops_; }
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
  Value fresh(TensorId t) { return fresh(p_.tensors[t].type, ops_->shapes[t]); }
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
    Compiled& compiled = ops_->compiled.at(key(b));
    if (!saved) return count(compiled.op.infer(arguments, call));
    saved->stash = take_stash(compiled);
    count(compiled.op.forward(arguments, *saved->stash, call));
    for (const std::string& name : compiled.op.kept(*saved->stash)) saved->kept.push_back(keep(b, name, given, results));
  }

  Value update(Value base, const std::vector<int64_t>& row, const Value& value) {
    if (base->input || base.use_count() > 1) base = copy(view(base));
    copy_into(row_of(base->view, row), view(value));
    return base;
  }

  static int64_t bytes(const Value& v) { return v ? v->bytes : 0; }
  static int64_t bytes(const Saved& saved) {
    int64_t sum = saved.stash->bytes();
    for (const auto& [name, operand] : saved.kept) sum += operand.value->bytes;
    return sum;
  }
  int64_t integer(const Value& v) const {
    const TensorView x = view(v);
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
    own(into);
    add_into(into->view, view(v));
  }

  Value take_row(Value& from, const std::vector<int64_t>& row) {
    own(from);
    const TensorView taken = row_of(from->view, row);
    Value made = copy(taken);
    std::memset(taken.data, 0, static_cast<size_t>(taken.bytes()));
    return made;
  }

  void block_back(const Block& b, const Saved& saved, const std::vector<std::vector<int64_t>>& rows, const std::vector<Value>& cotangents,
                  std::vector<Value>& adjoints) {
    const Program& op = *b.with_gradient;
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
      if (it == op.gradient_of.end()) continue;
      const TensorId t = b.operands[k].value;
      const bool first = !adjoints[t];
      if (first) adjoints[t] = rows[k].empty() ? fresh(t) : zeros(t);
      own(adjoints[t]);
      arguments.push_back({op.tensors[op.gradients[static_cast<size_t>(it - op.gradient_of.begin())]].name,
                           row_of(adjoints[t]->view, rows[k]), !first || !rows[k].empty()});
    }
    count(ops_->compiled.at(key(b)).op.backward(arguments, *saved.stash, call));
  }

 private:
  const Program& p_;
  const Lifetimes& lifetimes_;
  std::shared_ptr<Ops> ops_;
  std::shared_ptr<Pool> pool_;
  std::vector<TensorView> inputs_;  // of the caller's, in this call

  void own(Value& v) {
    if (v->input || v.use_count() > 1) v = copy(view(v));
  }

  void count(const CallCounts& c) {
    counts.kernels += c.kernels;
    counts.tiles += c.tiles;
    counts.finishes += c.finishes;
    counts.allocations += c.allocations;
    counts.launches += c.launches;
    counts.uploads += c.uploads;
    counts.downloads += c.downloads;
    counts.library_calls += c.library_calls;
  }

  // Goes back to be used again when the tape is gone.
  std::shared_ptr<Stash> take_stash(Compiled& compiled) {
    std::unique_ptr<Stash> s;
    {
      std::lock_guard lock(ops_->mutex);
      if (!compiled.free.empty()) {
        s = std::move(compiled.free.back());
        compiled.free.pop_back();
      }
    }
    if (!s) s = std::make_unique<Stash>();
    return {s.release(), [ops = ops_, c = &compiled](Stash* stash) {
              std::lock_guard lock(ops->mutex);
              c->free.emplace_back(stash);
            }};
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

}  // namespace

namespace {

// What a block does in that phase of the program: none, where it has no gradients.
std::optional<CompiledOp::Phase> phase_of(const Block& b, CompiledOp::Phase phase) {
  if (b.with_gradient) return phase;
  if (phase == CompiledOp::Phase::backward) return {};
  return CompiledOp::Phase::infer;
}

}  // namespace

class StepsTape {
 public:
  StepsTape(const Program& p, const Lifetimes& lifetimes, std::shared_ptr<KernelMachine::Ops> ops, std::shared_ptr<Pool> pool,
            std::optional<int64_t> budget)
      : machine(p, lifetimes, ops, std::move(pool)), run(p, lifetimes, ops->dims, machine, true, budget) {}
  KernelMachine machine;
  StepRun<KernelMachine> run;
};

struct StepsOp::Impl {
  CompileOptions options;        // of blocks
  std::optional<int64_t> budget;  // of all that a forward keeps
  Derivation derivation;
  std::unique_ptr<Lifetimes> lifetimes;
  std::unordered_map<std::string_view, TensorId> names;
  std::mutex mutex;
  std::map<DimValues, std::shared_ptr<KernelMachine::Ops>> by_dims;

  const Program& program() const { return derivation.program; }
  [[noreturn]] void fail(const std::string& what) const { throw Error(program().name + ": " + what); }

  std::vector<std::optional<Argument>> collect(CompiledOp::Arguments arguments) const {
    std::vector<std::optional<Argument>> given(program().tensors.size());
    for (const Argument& a : arguments) {
      auto it = names.find(a.name);
      if (it == names.end()) {
        std::vector<std::string_view> known;
        for (auto& [n, t] : names) known.push_back(n);
        std::ranges::sort(known);
        fail(fmt::format("there is no tensor '{}'; known are {}", a.name, fmt::join(known, ", ")));
      }
      if (given[it->second]) fail(fmt::format("'{}' is given twice", a.name));
      if (a.view.on_device()) fail(fmt::format("'{}' lies on a device; programs with loops or branches take memory of the host as yet", a.name));
      given[it->second] = a;
    }
    return given;
  }

  void need(const std::vector<std::optional<Argument>>& given, const std::vector<TensorId>& tensors, bool written) const {
    const DeviceQueue queue = queue_of(Target::cpu, nullptr);
    for (TensorId t : tensors) {
      if (!given[t]) fail(fmt::format("'{}' is missing", program().tensors[t].name));
      check_view(program(), t, given[t]->view, written, queue);
    }
  }

  void check_shape(const KernelMachine::Ops& ops, TensorId t, const TensorView& v) const {
    if (!std::ranges::equal(ops.shapes[t], v.extents()))
      fail(fmt::format("{} must have shape {} ({}), but the buffer given has {}", program().tensors[t].name, shape_text(ops.shapes[t]),
                       dims_text(ops.dims), shape_text(v.extents())));
  }

  std::shared_ptr<KernelMachine::Ops> at(const DimValues& dims) {
    std::lock_guard lock(mutex);
    auto& ops = by_dims[dims];
    if (ops) return ops;
    auto made = std::make_shared<KernelMachine::Ops>();
    made->dims = dims;
    for (TensorId t = 0; t < program().tensors.size(); ++t) made->shapes.push_back(shape_of(program(), t, dims));
    for_each_block(*program().steps, [&](const Block& b) {
      if (made->compiled.contains(key(b))) return;
      CompileOptions o = options;
      o.dims.clear();
      for (const Dim& d : b.op->dims)  // those of the program have the same names
        if (auto it = dims.find(b.op->arena->name(d.dim)); it != dims.end() && d.definition == kNone) o.dims.insert(*it);
      o.differentiate = b.with_gradient != nullptr;
      o.wrt = o.differentiate ? names_of(*b.with_gradient, b.with_gradient->gradient_of) : std::vector<std::string>{};
      made->compiled[key(b)].op = compile(*b.op, o);
    });
    return ops = made;
  }

  std::shared_ptr<KernelMachine::Ops> ops_for(const std::vector<std::optional<Argument>>& given) {
    Shapes shapes;
    for (TensorId t : program().inputs)
      shapes[program().tensors[t].name] = {given[t]->view.extents().begin(), given[t]->view.extents().end()};
    auto ops = at(solve_dims(program(), shapes, options.dims));
    for (TensorId t : program().outputs) check_shape(*ops, t, given[t]->view);
    return ops;
  }

  // Runs forward and delivers the outputs.
  void run(KernelMachine& machine, StepRun<KernelMachine>& steps, const std::vector<std::optional<Argument>>& given, const CallOptions& call) {
    machine.call = call;
    for (TensorId t : program().inputs) {
      machine.give_input(t, given[t]->view);
      steps.set(t, machine.input(t));
    }
    steps.run();
    for (TensorId t : program().outputs) {
      const TensorView from = machine.view(steps.value(t)), to = given[t]->view;
      if (to.dense()) copy_into(to, from);
      else deliver(to, from);
    }
  }
  // from has no gaps, to has.
  static void deliver(const TensorView& to, const TensorView& from) {
    const auto size = static_cast<int64_t>(byte_size(to.type));
    std::vector<char> dense;
    const char* source = static_cast<const char*>(from.data);
    if (!from.dense()) {
      dense.resize(static_cast<size_t>(from.bytes()));
      copy_into(TensorView(dense.data(), from.type, from.extents(), {}), from);
      source = dense.data();
    }
    for_each_offset(to, [&](int64_t i, int64_t offset) {
      std::memcpy(static_cast<char*>(to.data) + offset * size, source + i * size, static_cast<size_t>(size));
    });
  }
};

StepsOp::StepsOp(const Program& p, const CompileOptions& options) : impl_(std::make_unique<Impl>()) {
  Impl& i = *impl_;
  i.options = options;
  if (options.stash.policy == StashOptions::Policy::budget) {
    i.budget = options.stash.budget;
    i.options.stash.policy = StashOptions::Policy::cost;
  }
  if (options.stash.kept_by_caller || !options.stash.dropped.empty())
    throw Error(p.name + ": which inputs and outputs stay with the caller cannot be chosen for programs with loops or branches yet");
  i.derivation.program = options.differentiate ? gradient(p, {options.wrt}) : p;
  i.derivation.steps.push_back({"parse", p, 0});
  i.lifetimes = std::make_unique<Lifetimes>(i.program());
  const Program& made = i.program();
  for (auto* list : {&made.inputs, &made.outputs, &made.cotangents, &made.gradients})
    for (TensorId t : *list) i.names[made.tensors[t].name] = t;
}
StepsOp::~StepsOp() = default;

const Derivation& StepsOp::derivation() const { return impl_->derivation; }

CallCounts StepsOp::infer(CompiledOp::Arguments arguments, const CallOptions& call) {
  const auto given = impl_->collect(arguments);
  impl_->need(given, impl_->program().inputs, false);
  impl_->need(given, impl_->program().outputs, true);
  const auto ops = impl_->ops_for(given);
  KernelMachine machine(impl_->program(), *impl_->lifetimes, ops, std::make_shared<Pool>());
  StepRun<KernelMachine> run(impl_->program(), *impl_->lifetimes, ops->dims, machine, false);
  impl_->run(machine, run, given, call);
  return machine.counts;
}

CallCounts StepsOp::forward(CompiledOp::Arguments arguments, std::shared_ptr<StepsTape>& tape, const CallOptions& call) {
  if (!impl_->options.differentiate) impl_->fail("compiled without a backward (CompileOptions::differentiate)");
  const auto given = impl_->collect(arguments);
  impl_->need(given, impl_->program().inputs, false);
  impl_->need(given, impl_->program().outputs, true);
  tape.reset();  // what it holds is used again
  tape = std::make_shared<StepsTape>(impl_->program(), *impl_->lifetimes, impl_->ops_for(given), std::make_shared<Pool>(), impl_->budget);
  impl_->run(tape->machine, tape->run, given, call);
  return tape->machine.counts;
}

CallCounts StepsOp::backward(CompiledOp::Arguments arguments, StepsTape& tape, const CallOptions& call) {
  const Program& p = impl_->program();
  const auto given = impl_->collect(arguments);
  KernelMachine& machine = tape.machine;
  const KernelMachine::Ops& ops = machine.ops();
  machine.counts = {};
  machine.call = call;
  for (const std::string& name : kept(&tape)) {
    const TensorId t = impl_->names.at(name);
    impl_->need(given, {t}, false);
    impl_->check_shape(ops, t, given[t]->view);
    machine.give_input(t, given[t]->view);
  }
  impl_->need(given, p.cotangents, false);
  tape.run.forget_adjoints();
  size_t next = 0;
  for (TensorId t : p.outputs) {
    if (!is_float(p.tensors[t].type)) continue;
    const TensorId cotangent = p.cotangents[next++];
    impl_->check_shape(ops, cotangent, given[cotangent]->view);
    tape.run.set_adjoint(t, machine.copy(given[cotangent]->view));
  }
  const int64_t replayed = tape.run.replayed();
  tape.run.run_back();
  machine.counts.replayed = tape.run.replayed() - replayed;
  for (size_t i = 0; i < p.gradients.size(); ++i) {
    const auto& wanted = given[p.gradients[i]];
    if (!wanted) continue;
    impl_->need(given, {p.gradients[i]}, true);
    impl_->check_shape(ops, p.gradients[i], wanted->view);
    auto found = tape.run.adjoint(p.gradient_of[i]);
    if (!found) found = machine.zeros(p.gradient_of[i]);
    const TensorView from = machine.view(found);
    if (wanted->accumulate) add_into(wanted->view, from);
    else Impl::deliver(wanted->view, from);
  }
  tape.run.forget_adjoints();
  return machine.counts;
}

double StepsOp::prepare(CompiledOp::Phase phase, const DimValues& dims) {
  const auto ops = impl_->at(dims);
  double ms = 0;
  for (const BlockAt& at : blocks_at(impl_->program(), dims))
    if (const auto own = phase_of(*at.block, phase)) ms += ops->compiled.at(key(*at.block)).op.prepare(*own, at.dims);
  return ms;
}

KernelPlan StepsOp::plan(CompiledOp::Phase phase, const DimValues& dims) {
  const auto ops = impl_->at(dims);
  const Program& p = impl_->program();
  KernelPlan all;
  for (const BlockAt& at : blocks_at(p, dims)) {
    const auto own = phase_of(*at.block, phase);
    if (!own) continue;
    KernelPlan plan = ops->compiled.at(key(*at.block)).op.plan(*own, at.dims);
    all.bytes_moved += at.runs * plan.bytes_moved;
    all.flops += at.runs * plan.flops;
    all.reductions += plan.reductions;
    std::ranges::move(plan.kernels, std::back_inserter(all.kernels));
  }
  auto add = [&](const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors) all.bytes_unavoidable += TensorView(nullptr, p.tensors[t].type, ops->shapes[t], {}).bytes();
  };
  add(p.inputs);
  add(phase == CompiledOp::Phase::backward ? p.cotangents : p.outputs);
  if (phase == CompiledOp::Phase::backward) add(p.gradients);
  return all;
}

std::vector<std::string> StepsOp::kept(const StepsTape* tape) const {
  std::set<TensorId> needed;
  if (tape)
    tape->run.for_each_saved([&](const KernelMachine::Saved& saved) {
      for (const auto& [name, operand] : saved.kept)
        if (operand.value->input) needed.insert(*operand.value->input);
    });
  else needed.insert(impl_->program().inputs.begin(), impl_->program().inputs.end());
  std::vector<TensorId> in_order;
  for (TensorId t : impl_->program().inputs)
    if (needed.contains(t)) in_order.push_back(t);
  return names_of(impl_->program(), in_order);
}

int64_t bytes_of(const StepsTape& tape) {
  int64_t bytes = tape.run.segment_bytes();
  std::set<const Held*> seen;
  tape.run.for_each_saved([&](const KernelMachine::Saved& saved) {
    bytes += saved.stash->bytes();
    for (const auto& [name, operand] : saved.kept)
      if (seen.insert(operand.value.get()).second) bytes += operand.value->bytes;
  });
  return bytes;
}

}  // namespace xhat::runtime
