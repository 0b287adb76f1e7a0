#include "expr/eval/evaluate.h"

#include <algorithm>
#include <unordered_map>

#include "expr/core/uses.h"
#include "expr/eval/evaluate_code.h"
#include "expr/eval/evaluate_machine.h"
#include "expr/eval/evaluate_steps.h"

namespace xhat {
namespace {

bool holds(const std::vector<TensorId>& list, TensorId t) { return std::ranges::find(list, t) != list.end(); }

// Runs the definitions of one program in order. Values are kept as long as somebody reads them.
class Evaluation {
 public:
  Evaluation(const Program& program, const Arrays& given, const DimValues& dim_values,
             const EvaluateOptions& o)
      : p(program),
        inputs(given),
        dims(dim_values),
        options(o),
        arrays(p.tensors.size()),
        owned(p.tensors.size()) {}

  Arrays run() {
    take_inputs();
    if (p.steps) return run_steps();
    auto dies_after = last_uses();
    auto definitions = p.definitions();
    if (!backward) definitions.count = definitions.firsts;
    for (const Definition& d : definitions) {
      if (d.is_call())
        call(d);
      else
        compute(d);
      for (TensorId t : dies_after[&d]) {
        arrays[t] = nullptr;
        owned[t] = {};
      }
    }
    Arrays results;
    for (TensorId t = 0; t < owned.size(); ++t) {
      if (!arrays[t] || !wanted(t)) continue;
      if (arrays[t] == &owned[t])
        results[p.tensor(t).name] = std::move(owned[t]);
      else
        results[p.tensor(t).name] = *arrays[t];  // an output that is an input
    }
    return results;
  }

 private:
  const Program& p;
  const Arrays& inputs;
  const DimValues& dims;
  const EvaluateOptions& options;
  std::vector<const Array*> arrays;  // by TensorId: the caller's, or one of owned
  std::vector<Array> owned;
  bool backward = true;

  [[noreturn]] void fail(const std::string& message) const { throw Error("op " + p.name + ": " + message); }

  bool wanted(TensorId t) const {
    if (holds(p.outputs, t) || holds(p.gradients, t)) return true;
    return options.every_tensor && !holds(p.inputs, t) && !holds(p.cotangents, t);
  }

  void take_inputs() {
    for (const auto& [name, array] : inputs) {
      auto t = p.find(name);
      if (!t || !(holds(p.inputs, *t) || holds(p.cotangents, *t))) fail("there is no parameter " + name);
    }
    auto given = [&](TensorId t) { return inputs.contains(p.tensor(t).name); };
    backward = p.cotangents.empty() || std::ranges::any_of(p.cotangents, given);
    for (TensorId t : p.inputs) take(t, "input");
    if (backward)
      for (TensorId t : p.cotangents) take(t, "cotangent");
  }

  void take(TensorId t, const char* what) {
    const Tensor& tensor = p.tensor(t);
    auto it = inputs.find(tensor.name);
    if (it == inputs.end()) fail(std::string(what) + " " + tensor.name + " is missing");
    const Array& a = it->second;
    if (a.type != tensor.type)
      fail(tensor.name + " is declared " + std::string(name_of(tensor.type)) + ", but the array given is " +
           std::string(name_of(a.type)));
    std::vector<int64_t> shape = shape_of(p, t, dims);
    if (a.shape != shape)
      fail(tensor.name + " has shape " + shape_text(a.shape) + ", but must have " + shape_text(shape) +
           (dims.empty() ? "" : " with " + dims_text(dims)));
    if (static_cast<int64_t>(a.size()) != element_count(shape))
      fail(tensor.name + " has shape " + shape_text(shape) + ", but holds " + std::to_string(a.size()) +
           " values");
    arrays[t] = &a;
    bool narrow =
        a.real() ? a.type != DType::f64 && options.rounding == Rounding::declared : a.type != DType::i64;
    if (!narrow) return;
    owned[t] = rounded(a);
    arrays[t] = &owned[t];
  }

  // By definition: temporaries that nobody reads later. Large programs would otherwise keep every tensor in
  // memory.
  std::unordered_map<const Definition*, std::vector<TensorId>> last_uses() const {
    const Uses uses(p);
    std::unordered_map<const Definition*, std::vector<TensorId>> dies;
    for (TensorId t = 0; t < p.tensors.size(); ++t)
      if (!wanted(t)) dies[uses.readers(t).empty() ? uses.definition(t) : uses.readers(t).back()].push_back(t);
    return dies;
  }

  Arrays run_steps() const {
    Arrays taken;
    for (const auto* list : {&p.inputs, &p.cotangents})
      for (TensorId t : *list)
        if (arrays[t]) taken[p.tensor(t).name] = *arrays[t];
    return evaluate_steps(p, taken, dims, options);
  }

  void compute(const Definition& d) {
    TensorId t = d.target();
    const Tensor& tensor = p.tensor(t);
    Array result = zeros(tensor.type, shape_of(p, t, dims));
    if ((*p.arena)[d.body].type != tensor.type)
      throw Bug("evaluate: " + tensor.name + " and its definition have different types");
    evaluation::Code code = evaluation::translate(p, d, dims);
    evaluation::Machine(p, d, code, arrays, result, options).run();
    owned[t] = std::move(result);
    arrays[t] = &owned[t];
  }

  void call(const Definition& d) {
    const Program& callee = *d.callee;
    Arrays arguments;
    for (size_t k = 0; k < d.arguments.size(); ++k)
      arguments[callee.tensor(callee.inputs[k]).name] = *arrays[d.arguments[k]];
    EvaluateOptions inner = options;
    inner.every_tensor = false;
    Arrays results = evaluate(callee, arguments, dims_of_call(callee, shapes_of(arguments), dims), inner);
    for (size_t k = 0; k < d.targets.size(); ++k) {
      TensorId t = d.targets[k];
      owned[t] = results.at(callee.tensor(callee.outputs[k]).name);
      arrays[t] = &owned[t];
    }
  }
};

}  // namespace

Arrays evaluate(const Program& p, const Arrays& inputs, const DimValues& dims,
                const EvaluateOptions& options) {
  return Evaluation(p, inputs, dims, options).run();
}

Arrays evaluate(const Program& p, const Arrays& inputs, const EvaluateOptions& options) {
  return evaluate(p, inputs, solve_dims(p, shapes_of(inputs)), options);
}

Shapes shapes_of(const Arrays& arrays) {
  Shapes shapes;
  for (const auto& [name, array] : arrays) shapes[name] = array.shape;
  return shapes;
}

}  // namespace xhat
