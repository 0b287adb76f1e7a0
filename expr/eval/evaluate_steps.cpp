#include "expr/eval/evaluate_steps.h"

#include <algorithm>
#include <memory>

#include "expr/eval/run_steps.h"

namespace xhat {
namespace {

// Extents of a row.
std::vector<int64_t> row_shape(const Array& a, const std::vector<int64_t>& row) {
  std::vector<int64_t> left;
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (d >= row.size() || row[d] == kWhole) left.push_back(a.shape[d]);
  return left;
}

// Where the elements of a row are, in their order.
template <class F>
void for_each_place(const Array& a, const std::vector<int64_t>& row, size_t d, int64_t at, F&& f) {
  if (d == a.shape.size()) return f(at);
  at *= a.shape[d];
  if (d < row.size() && row[d] != kWhole) return for_each_place(a, row, d + 1, at + row[d], f);
  for (int64_t i = 0; i < a.shape[d]; ++i) for_each_place(a, row, d + 1, at + i, f);
}

// Calls f with each element of the row and that of `other` in its place: floats, or integers.
void on_row(Array& whole, const std::vector<int64_t>& row, const Array& other, auto f) {
  size_t next = 0;
  for_each_place(whole, row, 0, 0, [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    whole.real() ? f(whole.reals[i], other.reals[next]) : f(whole.integers[i], other.integers[next]);
    ++next;
  });
}

class ArrayMachine {
 public:
  using Value = std::shared_ptr<Array>;
  using Saved = Arrays;  // the block's inputs
  struct LoopSaved {};
  struct Overwritten {};  // values that are noted stay as they are

  ArrayMachine(const Program& p, const DimValues& dims, const EvaluateOptions& options) : p_(p), dims_(dims), options_(options) {
    options_.every_tensor = false;
  }

  static bool whole(const Loop&) { return false; }
  static bool loop(const Loop&, const auto&, const auto&, std::vector<Value>&, LoopSaved*) { return false; }
  static void loop_back(const Loop&, const LoopSaved&, std::vector<Value>&, std::vector<Value>&) {}

  void block(const Block& b, const std::vector<RunOperand<Value>>& operands, std::vector<Value>& results, Saved* saved) {
    Arrays inputs;
    for (size_t k = 0; k < operands.size(); ++k) inputs[name(b, b.op->inputs[k])] = array_of_operand(operands[k]);
    Arrays made = evaluate(*b.op, inputs, dims_of_call(*b.op, shapes_of(inputs), dims_), options_);
    for (size_t k = 0; k < results.size(); ++k) results[k] = std::make_shared<Array>(made.at(name(b, b.op->outputs[k])));
    if (saved) *saved = std::move(inputs);
  }

  static void take_back(Overwritten&, const std::vector<int64_t>&, std::vector<Value>&) {}
  static void write_again(Overwritten&, const std::vector<int64_t>&) {}
  static int64_t bytes(const Overwritten&) { return 0; }

  Value update(Value base, const std::vector<int64_t>& row, const Value& value, Overwritten*) const {
    if (base.use_count() > 1) base = std::make_shared<Array>(*base);
    on_row(*base, row, *value, [](auto& to, auto from) { to = from; });
    return base;
  }

  static int64_t bytes(const Value& v) { return v ? static_cast<int64_t>(v->size() * byte_size(v->type)) : 0; }
  static int64_t bytes(const Saved& saved) {
    int64_t sum = 0;
    for (const auto& [name, array] : saved) sum += static_cast<int64_t>(array.size() * byte_size(array.type));
    return sum;
  }
  int64_t extent(TensorId t, size_t d) const { return evaluate_extent(*p_.arena, p_.tensors[t].shape[d], dims_); }
  static int64_t integer(const Value& v, const std::vector<int64_t>& at) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place = place * v->shape[d] + at[d];
    return v->integers[static_cast<size_t>(place)];
  }
  Value zeros(TensorId t) const { return std::make_shared<Array>(xhat::zeros(p_.tensors[t].type, shape_of(p_, t, dims_))); }

  void add(Value& into, Value v) const {
    if (!into) {
      into = std::move(v);
      return;
    }
    if (into.use_count() > 1) into = std::make_shared<Array>(*into);
    on_row(*into, {}, *v, [](auto& to, auto from) { to += from; });
    settle(*into);
  }

  Value take_row(Value& from, const std::vector<int64_t>& row) const {
    if (from.use_count() > 1) from = std::make_shared<Array>(*from);
    auto taken = std::make_shared<Array>(row_of(*from, row));
    const Array nothing = xhat::zeros(from->type, taken->shape);
    on_row(*from, row, nothing, [](auto& to, auto zero) { to = zero; });
    return taken;
  }

  void settle(TensorId, std::vector<Value>&) const {}  // nothing waits
  void settle_all(std::vector<Value>&) const {}
  void forget_waiting() const {}

  void block_back(const Block& b, const Saved& saved, const std::vector<std::vector<int64_t>>& rows, const std::vector<Value>& cotangents,
                  std::vector<Value>& adjoints) {
    const Program& op = *b.with_gradient;
    const DimValues dims = dims_of_call(op, shapes_of(saved), dims_);
    Arrays inputs = saved;
    size_t next = 0;
    for (TensorId t : op.outputs) {
      if (!is_float(op.tensors[t].type)) continue;
      const TensorId cotangent = op.cotangents[next];
      inputs[op.tensors[cotangent].name] =
          cotangents[next] ? *cotangents[next] : xhat::zeros(op.tensors[cotangent].type, shape_of(op, cotangent, dims));
      ++next;
    }
    Arrays gradients = evaluate(op, inputs, dims, options_);
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const auto it = std::ranges::find(op.gradient_of, op.inputs[k]);
      if (it == op.gradient_of.end()) continue;
      const Array& g = gradients.at(op.tensors[op.gradients[static_cast<size_t>(it - op.gradient_of.begin())]].name);
      Value& into = adjoints[b.operands[k].value];
      if (rows[k].empty()) {
        add(into, std::make_shared<Array>(g));
        continue;
      }
      if (!into) into = zeros(b.operands[k].value);
      if (into.use_count() > 1) into = std::make_shared<Array>(*into);
      on_row(*into, rows[k], g, [](auto& to, auto from) { to += from; });
      settle(*into);
    }
  }

 private:
  const Program& p_;
  const DimValues& dims_;
  EvaluateOptions options_;

  static const std::string& name(const Block& b, TensorId t) { return b.op->tensors[t].name; }
  void settle(Array& a) const {
    if (options_.rounding == Rounding::declared) a = rounded(std::move(a));
  }

  static Array row_of(const Array& from, const std::vector<int64_t>& row) {
    Array taken = xhat::zeros(from.type, row_shape(from, row));
    size_t next = 0;
    for_each_place(from, row, 0, 0, [&](int64_t at) {
      const auto i = static_cast<size_t>(at);
      from.real() ? void(taken.reals[next] = from.reals[i]) : void(taken.integers[next] = from.integers[i]);
      ++next;
    });
    return taken;
  }
  static Array array_of_operand(const RunOperand<Value>& o) {
    if (!o.value) {
      Array scalar = xhat::zeros(DType::i64, {});
      scalar.integers[0] = o.scalar;
      return scalar;
    }
    return o.row.empty() ? *o.value : row_of(*o.value, o.row);
  }
};

}  // namespace

Arrays evaluate_steps(const Program& p, const Arrays& inputs, const DimValues& dims, const EvaluateOptions& options) {
  auto given = [&](TensorId t) { return inputs.contains(p.tensors[t].name); };
  const bool backward = !p.gradients.empty() && (p.cotangents.empty() || std::ranges::any_of(p.cotangents, given));
  ArrayMachine machine(p, dims, options);
  const Lifetimes lifetimes(p);
  StepRun<ArrayMachine> run(p, lifetimes, dims, machine, backward);
  for (TensorId t : p.inputs) run.set(t, std::make_shared<Array>(inputs.at(p.tensors[t].name)));
  run.run();
  Arrays results;
  for (TensorId t : p.outputs) results[p.tensors[t].name] = *run.value(t);
  if (!backward) return results;
  size_t next = 0;
  for (TensorId t : p.outputs)
    if (is_float(p.tensors[t].type)) run.set_adjoint(t, std::make_shared<Array>(inputs.at(p.tensors[p.cotangents[next++]].name)));
  run.run_back();
  for (size_t i = 0; i < p.gradients.size(); ++i) {
    const auto found = run.adjoint(p.gradient_of[i]);
    results[p.tensors[p.gradients[i]].name] = found ? *found : *machine.zeros(p.gradient_of[i]);
  }
  return results;
}

}  // namespace xhat
