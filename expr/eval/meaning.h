// What a program means, in the fewest lines: each element of each definition by itself, each expression by recursion. definition.h runs it;
// nonfinite.h asks it for the values of parts of an expression.
#pragma once
#include <cmath>
#include <limits>

#include "expr/core/scalar.h"
#include "expr/eval/definition.h"
#include "expr/index/recurrence.h"

namespace xhat::evaluation {

struct Value {
  double real = 0;      // of floats
  int64_t integer = 0;  // of integers and bools
};

class Meaning {
 public:
  virtual ~Meaning() = default;
  // p, inputs and dims stay where they are. inputs: of any tensors; those that are given are not computed.
  Meaning(const Program& p, const Arrays& inputs, const DimValues& dims, Rounding rounding)
      : p_(p), a_(*p.arena), dims_(dims), rounding_(rounding) {
    for (const auto& [name, array] : inputs)
      tensors_[*p.find(name)] = rounding == Rounding::declared || !array.real() ? rounded(array) : array;
  }

  Arrays run() {
    bool backward = p_.cotangents.empty();
    for (TensorId t : p_.cotangents) backward |= tensors_.contains(t);
    auto definitions = p_.definitions();
    if (!backward) definitions.count = definitions.firsts;
    for (const Definition& d : definitions) d.is_call() ? call(d) : define(d);
    Arrays results;
    for (const auto* list : {&p_.outputs, &p_.gradients})
      for (TensorId t : *list)
        if (auto it = tensors_.find(t); it != tensors_.end()) results[p_.tensor(t).name] = it->second;
    return results;
  }

 protected:
  void call(const Definition& d) {
    const Program& callee = *d.callee;
    Arrays arguments;
    for (size_t k = 0; k < d.arguments.size(); ++k) arguments[callee.tensor(callee.inputs[k]).name] = tensors_.at(d.arguments[k]);
    Arrays results = evaluate_by_definition(callee, arguments, dims_of_call(callee, shapes_of(arguments), dims_), rounding_);
    for (size_t k = 0; k < d.targets.size(); ++k) tensors_[d.targets[k]] = results.at(callee.tensor(callee.outputs[k]).name);
  }

  void define(const Definition& d) {
    const TensorId t = d.target();
    std::vector<Id> axes;
    for (const AxisRange& r : d.axes) axes.push_back(r.axis);
    const auto own = recurrence_of(a_, t, axes, d.body);  // reads what stands in the tensor by then
    Array& made = tensors_[t] = zeros(p_.tensor(t).type, shape_of(p_, t, dims_));
    for (size_t n = made.size(), i = 0; i < n; ++i) {
      const size_t place = own && own->falls ? n - 1 - i : i;
      const std::vector<int64_t> position = position_of(place, made.shape);
      for (size_t k = 0; k < d.axes.size(); ++k) axes_[d.axes[k].axis] = position[k];
      const Value v = at(d.body);
      made.real() ? void(made.reals[place] = v.real) : void(made.integers[place] = v.integer);
    }
  }

  double round(DType type, double v) const { return rounding_ == Rounding::declared ? round_to(type, v) : v; }
  Value settled(DType type, Value v) const {
    return is_float(type) ? Value{round(type, v.real), 0} : Value{0, type == DType::boolean ? v.integer : integer_from(type, v.integer)};
  }

  virtual Value at(Id id) { return value_of(id); }

  Value value_of(Id id) {
    const Node& n = a_[id];
    switch (n.op) {
      case Op::constant: return is_float(n.type) ? Value{round(n.type, n.value), 0} : Value{0, n.integer};
      case Op::axis: return {0, axes_.at(id)};
      case Op::dim: return {0, dims_.at(a_.name(id))};
      case Op::read:
      case Op::read_or: return read(n);
      case Op::select: return at(at(n.arg(0)).integer ? n.arg(1) : n.arg(2));
      case Op::cast: return cast(n.type, a_[n.arg(0)].type, at(n.arg(0)));
      default: return is_reduction(n.op) ? reduced(n) : computed(n);
    }
  }

  Value cast(DType to, DType from, Value v) const {
    if (is_float(to))
      return {is_float(from)                    ? round(to, v.real)
              : rounding_ == Rounding::declared ? real_from(to, v.integer)
                                                : static_cast<double>(v.integer),
              0};
    return {0, is_float(from) ? integer_from(to, v.real) : integer_from(to, v.integer)};
  }

  Value read(const Node& n) {
    const Array& from = tensors_.at(n.symbol);
    size_t place = 0;
    for (size_t k = 0; k < read_indices(n).size(); ++k) {
      const int64_t index = at(n.arg(k)).integer;
      if (index < 0 || index >= from.shape[k]) {
        if (n.op == Op::read_or) return at(n.args().back());
        throw Error("op " + p_.name + ": " + p_.tensor(n.symbol).name + " is read at " + std::to_string(index) +
                    ", outside its dimension " + std::to_string(k));
      }
      place = place * static_cast<size_t>(from.shape[k]) + static_cast<size_t>(index);
    }
    return from.real() ? Value{from.reals[place], 0} : Value{0, from.integers[place]};
  }

  Value computed(const Node& n) {
    double reals[3] = {};
    int64_t integers[3] = {};
    for (size_t k = 0; k < n.arg_count; ++k) {
      const Value v = at(n.arg(k));
      reals[k] = v.real, integers[k] = v.integer;
    }
    const ScalarOp& f = scalar(n.op);
    if (is_float(a_[n.arg(0)].type)) return is_float(n.type) ? settled(n.type, {f.reals.at(reals), 0}) : Value{0, f.tests.at(reals)};
    return settled(n.type, is_float(n.type) ? Value{f.draws.at(integers), 0} : Value{0, f.integers.at(integers)});
  }

  // Calls step at each point at which the condition holds; axes from the k-th on are still to be walked.
  template <class Step>
  void each_point(const Node& n, const std::vector<AxisRange>& axes, size_t k, Step&& step) {
    if (k == axes.size()) {
      if (at(reduce_condition(n)).integer) step(at(reduce_body(n)));
      return;
    }
    const int64_t end = at(axes[k].end).integer;
    for (int64_t i = at(axes[k].begin).integer; i < end; ++i) {
      axes_[axes[k].axis] = i;
      each_point(n, axes, k + 1, step);
    }
  }

  Value reduced(const Node& n) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const DType type = a_[reduce_body(n)].type;
    const std::vector<AxisRange> axes = reduce_axes(n);
    const bool floats = is_float(type), largest = n.op == Op::max || n.op == Op::argmax;
    auto better = [&](Value v, Value than) {
      if (floats) return std::isnan(v.real) ? !std::isnan(than.real) : largest ? v.real > than.real : v.real < than.real;
      return largest ? v.integer > than.integer : v.integer < than.integer;
    };
    auto whole = [](uint64_t v) { return static_cast<int64_t>(v); };
    Value r, best;
    bool any = false;
    if (n.op == Op::prod) r = {1, 1};
    if (n.op == Op::all) r.integer = 1;
    if (n.op == Op::max) r = {-kInfinity, floats ? 0 : lowest_of(type)};
    if (n.op == Op::min) r = {kInfinity, floats ? 0 : highest_of(type)};
    each_point(n, axes, 0, [&](Value v) {
      switch (n.op) {
        case Op::sum: r = {r.real + v.real, whole(static_cast<uint64_t>(r.integer) + static_cast<uint64_t>(v.integer))}; break;
        case Op::prod:
          r = {round(accumulator_of(type), r.real * v.real), whole(static_cast<uint64_t>(r.integer) * static_cast<uint64_t>(v.integer))};
          break;
        case Op::any: r.integer |= v.integer != 0; break;
        case Op::all: r.integer &= v.integer != 0; break;
        case Op::max:
        case Op::min:
          if (better(v, r)) r = v;
          break;
        default:  // argmax, argmin: the first one
          if (!any || better(v, best)) best = v, r.integer = axes_.at(axes[0].axis);
      }
      any = true;
    });
    if ((n.op == Op::argmax || n.op == Op::argmin) && !any)
      throw Error("op " + p_.name + ": " + std::string(info(n.op).text) + " over nothing");
    if (n.op == Op::sum && floats) r.real = round(accumulator_of(type), r.real);
    return n.op == Op::sum || n.op == Op::prod ? settled(n.type, r) : r;
  }

  const Program& p_;
  const Arena& a_;
  const DimValues& dims_;
  Rounding rounding_;
  std::map<TensorId, Array> tensors_;
  std::map<Id, int64_t> axes_;  // where the walk is
};

}  // namespace xhat::evaluation
