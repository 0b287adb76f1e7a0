#include "expr/imperative/inline_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/steps.h"
#include "expr/index/expand_calls.h"

namespace xhat::imperative {

namespace {

class InlineSteps {
 public:
  InlineSteps(Context& c, InlinedCall call)
      : c_(c), a_(c.arena()), callee_(call.callee), to_(std::move(call.dims)), tensors_(std::move(call.tensors)), pos_(call.pos) {
    for (const auto& [name, dim] : to_) varies_ = varies_ || c.varies(dim);
    for (const std::string& word : c.words) avoid_.push_back(a_.axis(word));
    for (const auto& [name, dim] : c.scope.dims) avoid_.push_back(a_.axis(name));
    for (const LoopVariable& l : c.state.loops) avoid_.push_back(l.range.axis);
  }

  Items run() {
    if (callee_.steps) return list(*callee_.steps);
    Items items;
    const Program op = without_calls(callee_);
    const auto like = [&](TensorId t) -> const Tensor& { return op.tensors[t]; };
    for (const Definition& d : op.forward.definitions)
      add(d, items, [&](TensorId t) { return tensor(t, like(t)); }, [&](const Node& n, std::span<const Id> at) {
        return read(tensor(n.symbol, like(n.symbol)), n, {at.begin(), at.end()});
      });
    return items;
  }

 private:
  Items list(const Steps& steps) {
    Items items;
    for (const Step& s : steps) std::visit([&](const auto& x) { add(x, items); }, s.is);
    return items;
  }

  // What is not a tensor of the largest size has no call in it: each is of one shape.
  Program without_calls(const Program& op) const {
    if (!varies_) return op;
    auto refuse = [&](const Program& stated) {
      throw Error(fmt::format("not yet: {} is called with a shape that depends on the iteration, and {} states its gradient itself; call "
                              "it with whole tensors, or write what it computes in the loop",
                              callee_.name, &stated == &op ? "it" : "op " + stated.name),
                  pos_);
    };
    if (states_gradient(op)) refuse(op);
    Program expanded = expand_calls(op, true);
    for (const Definition& d : expanded.forward.definitions)
      if (d.is_call()) refuse(*d.callee);
    return expanded;
  }

  Shaped made(const Tensor& like) {
    Shape shape;
    for (Id extent : like.shape) shape.push_back(c_.tidy(substitute(a_, extent, to_)));
    const TensorId t = c_.new_tensor(like.name, like.type, shape);
    c_.program.tensors[t].pos = like.pos;
    return {t, std::move(shape)};
  }
  const Shaped& tensor(TensorId t, const Tensor& like) {
    auto it = tensors_.find(t);
    return it != tensors_.end() ? it->second : tensors_[t] = made(like);
  }
  const Shaped& shaped(TensorId t) { return tensor(t, callee_.tensors[t]); }
  TensorId tensor(TensorId t) { return shaped(t).tensor; }

  // What `n` reads of the callee's tensor, at these indices of ours; behind its own shape it is what n is outside.
  Id read(const Shaped& t, const Node& n, std::vector<Id> at) {
    if (n.op == Op::read) return a_.read(t.tensor, n.type, at);
    const Id other = n.args().back();
    const Id found = a_.read_or(t.tensor, n.type, at, other);
    Id inside = kNone;
    for (size_t d = 0; d < at.size(); ++d)
      if (c_.varies(t.shape[d])) {
        const Id part = a_.binary(Op::lt, at[d], t.shape[d]);
        inside = inside == kNone ? part : a_.land(inside, part);
      }
    return inside == kNone ? found : a_.select(inside, found, other);
  }
  // An expression over sizes, loop variables and scalars of the callee.
  Row expressions(Row row) {
    for (Id& x : row) x = expression(x);
    return row;
  }
  Id expression(Id x) {
    return x == kNone ? x : reads(substitute(a_, x, to_), [&](const Node& n, std::span<const Id> at) {
      return read(shaped(n.symbol), n, {at.begin(), at.end()});
    });
  }
  // The expression with f(node, its indices) in place of every read.
  template <class F>
  Id reads(Id root, F f) {
    return rewrite(a_, root, [&](Id x) {
      const Node n = a_[x];
      return is_read(n.op) ? f(n, read_indices(n)) : x;
    });
  }

  // The definition with `of` for its target and `f` for what it reads.
  template <class Of, class F>
  void add(const Definition& d, Items& items, Of of, F f) {
    Definition copy = d;
    const Shaped target = of(d.target());
    copy.targets = {target.tensor};
    Replacements to = to_;
    std::vector<Id> used = avoid_;
    std::vector<Id> roots = {d.body};
    for (const AxisRange& r : d.axes) roots.push_back(r.axis);
    for (Id axis : all_axes(a_, roots)) used.push_back(axis);
    for (const AxisRange& r : d.axes) {
      if (std::ranges::find(avoid_, r.axis) == avoid_.end()) continue;
      used.push_back(to[r.axis] = a_.fresh_axis(r.axis, used));
    }
    Id inside = kNone;
    for (size_t k = 0; k < copy.axes.size(); ++k) {
      const Id axis = substitute(a_, d.axes[k].axis, to);
      copy.axes[k] = {axis, substitute(a_, d.axes[k].begin, to), c_.program.tensors[copy.target()].shape[k]};
      if (!c_.varies(target.shape[k])) continue;
      const Id part = a_.binary(Op::lt, axis, target.shape[k]);
      inside = inside == kNone ? part : a_.land(inside, part);
    }
    copy.body = reads(substitute(a_, d.body, to, avoid_), f);
    if (varies_) copy.body = c_.guarded(copy.body);
    if (inside != kNone) {
      const DType type = a_[copy.body].type;
      copy.body = a_.select(inside, copy.body, type == DType::boolean ? a_.boolean(false) : a_.constant(type, 0));
      c_.padded.insert(copy.target());
    }
    items.emplace_back().is = std::move(copy);
  }

  void add(const Block& b, Items& items) {
    const Program op = without_calls(*b.op);
    std::map<TensorId, const Operand*> operands;
    std::map<TensorId, Shaped> own;
    for (size_t k = 0; k < b.operands.size(); ++k) operands[op.inputs[k]] = &b.operands[k];
    for (size_t k = 0; k < b.results.size(); ++k) own[op.outputs[k]] = shaped(b.results[k]);
    auto mine = [&](TensorId t) -> const Shaped& {
      auto it = own.find(t);
      return it != own.end() ? it->second : own[t] = made(op.tensors[t]);
    };
    // A definition reads rows of what it is handed; a call takes whole tensors.
    auto argument = [&](TensorId t) {
      auto it = operands.find(t);
      if (it == operands.end()) return own.at(t).tensor;
      const Operand& o = *it->second;
      if (o.scalar == kNone && o.row.empty()) return tensor(o.value);
      Definition d;
      const TensorId whole = made(op.tensors[t]).tensor;
      d.targets = {whole};
      d.axes = c_.element_axes(c_.program.tensors[whole].shape);
      std::vector<Id> at;
      for (const AxisRange& r : d.axes) at.push_back(r.axis);
      d.body = o.scalar != kNone ? expression(o.scalar)
                                 : a_.read(tensor(o.value), c_.program.tensors[whole].type, in_value(expressions(o.row), at));
      items.emplace_back().is = std::move(d);
      return whole;
    };
    for (const Definition& d : op.forward.definitions) {
      if (d.is_call()) {
        Definition copy = d;
        for (TensorId& t : copy.targets) t = mine(t).tensor;
        for (TensorId& t : copy.arguments) t = argument(t);
        items.emplace_back().is = std::move(copy);
        continue;
      }
      add(d, items, mine, [&](const Node& n, std::span<const Id> at) {
        auto it = operands.find(n.symbol);
        if (it == operands.end()) return read(own.at(n.symbol), n, {at.begin(), at.end()});
        const Operand& o = *it->second;
        if (o.scalar != kNone) return expression(o.scalar);
        return read(shaped(o.value), n, in_value(expressions(o.row), at));
      });
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
  std::map<TensorId, Shaped> tensors_;
  Pos pos_;
  bool varies_ = false;  // by the iteration around: some dims
};

}  // namespace

Items inline_call(Context& c, InlinedCall call) { return InlineSteps(c, std::move(call)).run(); }

}  // namespace xhat::imperative
