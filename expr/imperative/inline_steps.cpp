#include "expr/imperative/inline_steps.h"

#include <algorithm>

#include "expr/core/steps.h"
#include "expr/index/expand_calls.h"

namespace xhat::imperative {

namespace {

class InlineSteps {
 public:
  InlineSteps(Context& c, const Program& callee, const std::vector<TensorId>& arguments, const std::vector<TensorId>& results)
      : c_(c), a_(c.arena()), callee_(callee), to_(dims_of_call(c.program, callee, arguments)) {
    for (size_t k = 0; k < arguments.size(); ++k) tensors_[callee.inputs[k]] = arguments[k];
    for (size_t k = 0; k < results.size(); ++k) tensors_[callee.outputs[k]] = results[k];
    for (const std::string& word : c.words) avoid_.push_back(a_.axis(word));
    for (const auto& [name, dim] : c.scope.dims) avoid_.push_back(a_.axis(name));
    for (const LoopVariable& l : c.state.loops) avoid_.push_back(l.range.axis);
  }

  Items list(const Steps& steps) {
    Items items;
    for (const Step& s : steps) std::visit([&](const auto& x) { add(x, items); }, s.is);
    return items;
  }

 private:
  TensorId made(const Tensor& like) {
    Shape shape;
    for (Id extent : like.shape) shape.push_back(c_.tidy(substitute(a_, extent, to_)));
    const TensorId t = c_.new_tensor(like.name, like.type, std::move(shape));
    c_.program.tensors[t].pos = like.pos;
    return t;
  }
  TensorId tensor(TensorId t) {
    auto it = tensors_.find(t);
    return it != tensors_.end() ? it->second : tensors_[t] = made(callee_.tensors[t]);
  }
  // An expression over sizes, loop variables and scalars of the callee.
  Row expressions(Row row) {
    for (Id& x : row) x = expression(x);
    return row;
  }
  Id expression(Id x) {
    return x == kNone ? x : reads(substitute(a_, x, to_), [&](const Node& n, std::span<const Id> at) {
      return a_.read(tensor(n.symbol), n.type, at);
    });
  }
  // The expression with f(node, its indices) in place of every read; what a read with else is outside stays.
  template <class F>
  Id reads(Id root, F f) {
    return rewrite(a_, root, [&](Id x) {
      const Node n = a_[x];
      if (!is_read(n.op)) return x;
      const Id read = f(n, read_indices(n));
      const Node made = a_[read];
      return n.op == Op::read ? read : a_.read_or(made.symbol, made.type, made.args(), n.args().back());
    });
  }

  void add(const Block& b, Items& items) {
    std::map<TensorId, const Operand*> operands;
    std::map<TensorId, TensorId> own;
    for (size_t k = 0; k < b.operands.size(); ++k) operands[b.op->inputs[k]] = &b.operands[k];
    for (size_t k = 0; k < b.results.size(); ++k) own[b.op->outputs[k]] = tensor(b.results[k]);
    // A definition reads rows of what it is handed; a call takes whole tensors.
    auto argument = [&](TensorId t) {
      auto it = operands.find(t);
      if (it == operands.end()) return own.at(t);
      const Operand& o = *it->second;
      if (o.scalar == kNone && o.row.empty()) return tensor(o.value);
      Definition d;
      const TensorId whole = made(b.op->tensors[t]);
      d.targets = {whole};
      d.axes = c_.element_axes(c_.program.tensors[whole].shape);
      std::vector<Id> at;
      for (const AxisRange& r : d.axes) at.push_back(r.axis);
      d.body = o.scalar != kNone ? expression(o.scalar)
                                 : a_.read(tensor(o.value), c_.program.tensors[whole].type, in_value(expressions(o.row), at));
      items.emplace_back().is = std::move(d);
      return whole;
    };
    for (const Definition& d : b.op->forward.definitions) {
      Definition copy = d;
      for (TensorId& t : copy.targets) {
        auto it = own.find(t);
        t = it != own.end() ? it->second : own[t] = made(b.op->tensors[t]);
      }
      if (d.is_call()) {
        for (TensorId& t : copy.arguments) t = argument(t);
        items.emplace_back().is = std::move(copy);
        continue;
      }
      Replacements to = to_;
      std::vector<Id> used = avoid_;
      std::vector<Id> roots = {d.body};
      for (const AxisRange& r : d.axes) roots.push_back(r.axis);
      for (Id axis : all_axes(a_, roots)) used.push_back(axis);
      for (AxisRange& r : copy.axes) {
        if (std::ranges::find(avoid_, r.axis) == avoid_.end()) continue;
        used.push_back(to[r.axis] = a_.fresh_axis(r.axis, used));
      }
      for (size_t k = 0; k < copy.axes.size(); ++k)
        copy.axes[k] = {substitute(a_, d.axes[k].axis, to), substitute(a_, d.axes[k].begin, to),
                        c_.program.tensors[copy.target()].shape[k]};
      copy.body = reads(substitute(a_, d.body, to, avoid_), [&](const Node& n, std::span<const Id> at) {
        auto it = operands.find(n.symbol);
        if (it == operands.end()) return a_.read(own.at(n.symbol), n.type, at);
        const Operand& o = *it->second;
        if (o.scalar != kNone) return expression(o.scalar);
        return a_.read(tensor(o.value), n.type, in_value(expressions(o.row), at));
      });
      items.emplace_back().is = std::move(copy);
    }
  }

  void add(const Update& u, Items& items) {
    Write w;
    w.base = tensor(u.base);
    w.result = tensor(u.result);
    w.pos = u.pos;
    w.axes = c_.element_axes(of_row(c_.program.tensors[w.base].shape, u.row));
    std::vector<Id> at;
    for (const AxisRange& r : w.axes) at.push_back(r.axis);
    w.indices = in_value(expressions(u.row), at);
    w.body = a_.read(tensor(u.value), c_.program.tensors[w.base].type, at);
    items.emplace_back().is = std::move(w);
  }

  void add(const Loop& l, Items& items) {
    LoopItem item;
    item.begin = expression(l.begin), item.end = expression(l.end);
    item.variable = std::ranges::find(avoid_, l.variable) == avoid_.end() ? l.variable : a_.fresh_axis(l.variable, avoid_);
    const Replacements outer = to_;
    to_[l.variable] = item.variable;
    avoid_.push_back(item.variable);
    for (const Carried& v : l.carried) item.carried.push_back({tensor(v.initial), tensor(v.entering), tensor(v.leaving), tensor(v.result)});
    item.test = list(l.test);
    if (l.condition) item.condition = tensor(*l.condition);
    item.body = list(l.body);
    avoid_.pop_back();
    to_ = outer;
    item.why = l.why;
    item.pos = l.pos;
    items.emplace_back().is = std::move(item);
  }

  void add(const Branch& b, Items& items) {
    items.emplace_back();
    BranchItem& item = items.back().is.emplace<BranchItem>();
    item.condition = tensor(b.condition);
    item.then = list(b.then);
    item.otherwise = list(b.otherwise);
    for (const Branch::Merge& m : b.merges) item.merges.push_back({tensor(m.then), tensor(m.otherwise), tensor(m.result)});
    item.pos = b.pos;
  }

  Context& c_;
  Arena& a_;
  const Program& callee_;
  Replacements to_;        // the callee's dims and loop variables
  std::vector<Id> avoid_;  // axes that have a meaning where the call stands
  std::map<TensorId, TensorId> tensors_;
};

}  // namespace

Items inline_steps(Context& c, const Program& callee, const std::vector<TensorId>& arguments, const std::vector<TensorId>& results) {
  return InlineSteps(c, callee, arguments, results).list(*callee.steps);
}

}  // namespace xhat::imperative
