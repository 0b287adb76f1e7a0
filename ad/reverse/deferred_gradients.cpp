#include "ad/reverse/deferred_gradients.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "expr/index/expand_calls.h"
#include "expr/text/import.h"

namespace xhat {
namespace {

class Deferral {
 public:
  Deferral(const Program& derived, const std::vector<std::string>& unchanging, const DimValues& sizes)
      : p_(own_copy(derived)), a_(*p_.arena), sizes_(sizes) {
    for (const std::string& name : unchanging)
      if (const auto t = p_.find(name)) unchanging_.insert(*t);
  }

  std::optional<DeferredGradients> run() {
    choose();
    if (chosen_.empty()) return {};
    DeferredGradients made;
    made.parts.assign(parts_.begin(), parts_.end());
    for (TensorId t : made.parts) made.part_bytes += bytes_of(p_, t, sizes_);
    for (size_t i : chosen_) {
      made.of.push_back(p_.gradient_of[i]);
      made.gradient_bytes += bytes_of(p_, p_.gradients[i], sizes_);
    }
    sums(made);
    rest(made);
    return made;
  }

 private:
  using Guards = std::vector<std::pair<Id, bool>>;  // conditions, and whether they hold; the outermost first

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  std::set<TensorId> unchanging_;
  std::vector<size_t> chosen_;     // of p_.gradients
  std::map<size_t, Id> bodies_;    // of those that may wait, of parts
  std::map<Id, Definition> made_;  // parts that are no tensors of the op yet, by value
  std::set<TensorId> parts_;       // what all of them read that a run makes or is handed

  const Definition& definition(size_t gradient) const { return *p_.backward.definition_of(p_.gradients[gradient]); }

  // The body, with the integers that the forward computes written out: a backward hands on floats alone.
  Id without_integers(const Definition& d) {
    Id body = d.body;
    for (Id before = kNone; before != body;) {
      before = body;
      std::vector<Id> taken = all_axes(a_, std::span<const Id>(&body, 1));
      for (const AxisRange& r : d.axes) taken.push_back(r.axis);
      body = rewrite(a_, body, [&](Id id) {
        const Node n = a_[id];
        if (n.op != Op::read || is_float(n.type)) return id;
        const Definition* made = p_.forward.definition_of(n.symbol);
        if (!made || made->is_call() || !is_map(made->body)) return id;
        Replacements at;
        for (size_t k = 0; k < n.arg_count; ++k) at[made->axes[k].axis] = a_.to(DType::i64, n.arg(k));
        return substitute(a_, made->body, at, taken);
      });
    }
    return body;
  }
  bool is_map(Id body) const {
    return std::ranges::none_of(reachable(a_, body), [&](Id x) { return is_reduction(a_[x].op) || a_[x].op == Op::random; });
  }

  // What it reads that differs from run to run.
  std::set<TensorId> parts_of(Id body) const {
    std::set<TensorId> parts;
    for (TensorId t : tensors_read(a_, body))
      if (!unchanging_.contains(t)) parts.insert(t);
    return parts;
  }

  // Can it be computed from parts alone? Random numbers would be others, and what no run hands on is no part.
  bool may_wait(size_t gradient) {
    const TensorId t = p_.gradients[gradient];
    if (!unchanging_.contains(p_.gradient_of[gradient])) return false;
    const Definition* d = p_.backward.definition_of(t);
    if (!d || d->is_call()) return false;
    const Id body = bodies_[gradient] = without_integers(*d);
    for (Id x : reachable(a_, body))
      if (a_[x].op == Op::random) return false;
    for (const AxisRange& r : d->axes)
      if (!tensors_read(a_, r.begin).empty() || !tensors_read(a_, r.end).empty()) return false;
    for (TensorId part : parts_of(body))
      if (!has_tensor(p_.inputs, part) && !is_float(p_.tensors[part].type)) return false;
    return std::ranges::none_of(p_.backward.definitions, [&](const Definition& other) {
      if (other.is_call()) return has_tensor(other.arguments, t);
      return std::ranges::count(tensors_read(a_, other.body), t) > 0;
    });
  }

  // The terms of a sum in a definition, with the factors that have some of the axes only as parts: sum(b: dy[b,j] * (1 - y[b,j]^2) * h[b,k])
  // is sum(b: part[b,j] * h[b,k]).
  // What a condition guards is a part under that condition, or none: what the part reads may lie outside elsewhere.
  Id with_parts(Id body, const Definition& d, const Guards& guards = {}) {
    const Node n = a_[body];
    if (n.op == Op::select) {
      const Id condition = n.arg(0), then = n.arg(1), otherwise = n.arg(2);
      auto side = [&](Id value, bool holds) {
        Guards more = guards;
        more.emplace_back(condition, holds);
        return with_parts(value, d, more);
      };
      const Id first = side(then, true);
      return a_.select(condition, first, side(otherwise, false));
    }
    const std::set<Id> always = evaluated_always(body);
    return rewrite(a_, body, [&](Id id) {
      return a_[id].op == Op::sum && always.contains(id) ? sum_of_parts(id, d, guards) : id;
    });
  }
  // Of the nodes of a body, those that neither a choice nor a reduction's condition guards.
  std::set<Id> evaluated_always(Id body) const {
    std::set<Id> seen;
    std::vector<Id> open = {body};
    while (!open.empty()) {
      const Id id = open.back();
      open.pop_back();
      if (!seen.insert(id).second) continue;
      const Node n = a_[id];
      if (n.op == Op::select)
        open.push_back(n.arg(0));
      else if (n.op != Op::read_or && !is_reduction(n.op))
        open.insert(open.end(), n.args().begin(), n.args().end());
    }
    return seen;
  }
  bool is_true_or_none(Id condition) const { return condition == kNone || is_true(a_, condition); }

  // Of a sum that lacks axes of the gradient, the sum itself is the part.
  Id sum_of_parts(Id id, const Definition& d, const Guards& guards) {
    const Node sum = a_[id];
    if (sum.free_axes().size() < d.axes.size()) return part({sum.free_axes().begin(), sum.free_axes().end()}, id, d.axes, guards);
    if (!is_true_or_none(reduce_condition(sum))) return id;
    std::vector<AxisRange> ranges = reduce_axes(sum);
    ranges.insert(ranges.end(), d.axes.begin(), d.axes.end());
    Id total = kNone;
    for (Id term : operands_of(a_, reduce_body(sum), Op::add)) {
      const Id product = product_of_parts(term, ranges, guards);
      total = total == kNone ? product : a_.add(total, product);
    }
    return a_.reduce(Op::sum, reduce_axes(sum), reduce_condition(sum), total);
  }

  Id product_of_parts(Id term, const std::vector<AxisRange>& ranges, const Guards& guards) {
    std::vector<std::pair<std::vector<Id>, Id>> groups;  // axes, and the product of the factors that have these or fewer
    Id numbers = kNone;
    auto times = [&](Id product, Id factor) { return product == kNone ? factor : a_.mul(product, factor); };
    std::vector<Id> factors = operands_of(a_, term, Op::mul);
    std::ranges::stable_sort(factors, std::greater(), [&](Id x) { return a_[x].free_axes().size(); });
    for (Id factor : factors) {
      const std::vector<Id> axes(a_[factor].free_axes().begin(), a_[factor].free_axes().end());
      const auto group = std::ranges::find_if(groups, [&](const auto& g) { return std::ranges::includes(g.first, axes); });
      if (tensors_read(a_, factor).empty())
        numbers = times(numbers, factor);
      else if (group == groups.end())
        groups.emplace_back(axes, factor);
      else
        group->second = times(group->second, factor);
    }
    Id product = numbers;
    for (const auto& [axes, value] : groups) product = times(product, part(axes, value, ranges, guards));
    return product;
  }

  // A read of a new part that holds the value, if it is of fewer axes than `all`; or of one that holds it already.
  Id part(const std::vector<Id>& axes, Id value, const std::vector<AxisRange>& all, const Guards& guards) {
    if (is_read(a_[value].op) || a_[value].op == Op::random) return value;
    Definition d;
    std::vector<Id> shape;
    for (Id axis : axes) {
      const auto r = std::ranges::find(all, axis, &AxisRange::axis);
      if (r == all.end() || !range_is_plain(a_, *r) || !tensors_read(a_, r->end).empty()) return value;
      d.axes.push_back(*r);
      shape.push_back(r->end);
    }
    const std::optional<Id> body = guarded(value, axes, guards);
    if (!body) return value;
    auto made = made_.find(*body);
    if (made == made_.end()) {
      if (axes.size() == all.size()) return value;
      d.targets = {p_.add_tensor("part", a_[value].type, shape)};
      d.body = *body;
      made = made_.emplace(*body, std::move(d)).first;
    }
    return a_.read(made->second.target(), a_[value].type, axes);
  }

  // The value where all that guards it holds, and 0 elsewhere. What a condition says of axes that the value lacks is left out; none if
  // that could be what keeps a read inside.
  std::optional<Id> guarded(Id value, const std::vector<Id>& axes, const Guards& guards) {
    const Id zero = a_.constant(a_[value].type, 0);
    Id body = value;
    for (auto g = guards.rbegin(); g != guards.rend(); ++g) {
      const auto& [condition, holds] = *g;
      const std::vector<Id> all = holds ? operands_of(a_, condition, Op::land) : std::vector{condition};
      for (auto c = all.rbegin(); c != all.rend(); ++c) {
        const bool own = std::ranges::all_of(a_[*c].free_axes(), [&](Id x) { return std::ranges::count(axes, x) > 0; });
        if (own)
          body = holds ? a_.select(*c, body, zero) : a_.select(*c, zero, body);
        else if (!(holds && names_an_axis(*c, axes)) && !reads_at_axes_alone(value))
          return {};
      }
    }
    return body;
  }
  // Is it `place == v` of an axis v that is not among these?
  bool names_an_axis(Id condition, const std::vector<Id>& axes) const {
    const Node n = a_[condition];
    return n.op == Op::eq && std::ranges::any_of(n.args(), [&](Id x) { return a_[x].op == Op::axis && !std::ranges::count(axes, x); });
  }
  bool reads_at_axes_alone(Id value) const {
    return std::ranges::all_of(reachable(a_, value), [&](Id x) {
      return a_[x].op != Op::read || std::ranges::all_of(read_indices(a_[x]), [&](Id i) { return a_[i].op == Op::axis; });
    });
  }

  // Those that cost more to add to than what they need of a run costs to keep; the largest first, because the others may read the same.
  void choose() {
    std::vector<std::pair<int64_t, size_t>> by_size;
    for (size_t i = 0; i < p_.gradients.size(); ++i)
      if (may_wait(i)) by_size.emplace_back(-bytes_of(p_, p_.gradients[i], sizes_), i);
    std::ranges::sort(by_size);
    for (const auto& [negative, i] : by_size) {
      int64_t more = 0;
      const Id body = with_parts(bodies_.at(i), definition(i));
      const std::set<TensorId> own = parts_of(body);
      for (TensorId t : own)
        if (!parts_.contains(t)) more += bytes_of(p_, t, sizes_);
      if (own.empty() || more > -negative) continue;
      parts_.insert(own.begin(), own.end());
      chosen_.push_back(i);
      bodies_[i] = body;
    }
    for (auto& [value, d] : made_)
      if (parts_.contains(d.target())) p_.backward.definitions.push_back(d);
  }

  void sums(DeferredGradients& made) const {
    Program& s = made.sums;
    s.name = p_.name + "_sums";
    s.arena = p_.arena;
    s.file = p_.file;
    s.text = p_.text;
    s.dims = p_.dims;
    made.runs = "runs";
    auto taken = [&](const Dim& d) { return a_.name(d.dim) == made.runs; };
    while (p_.find(made.runs) || std::ranges::any_of(p_.dims, taken)) made.runs += "_1";
    const Id runs = a_.dim(made.runs);
    s.dims.push_back({runs, kNone, {}});
    std::vector<Id> bodies;
    for (size_t i : chosen_) {
      bodies.push_back(bodies_.at(i));
      for (const AxisRange& r : definition(i).axes) bodies.push_back(r.axis);
    }
    const Id run = a_.fresh_axis(a_.axis("run"), all_axes(a_, bodies));
    std::vector<TensorId> to(p_.tensors.size());
    auto input = [&](TensorId t, bool of_each_run) {
      const Tensor& like = p_.tensors[t];
      std::vector<Id> shape = like.shape;
      if (of_each_run) shape.insert(shape.begin(), runs);
      to[t] = s.add_tensor(like.name, like.type, shape);
      s.tensors[to[t]].role = Role::input;
      s.inputs.push_back(to[t]);
    };
    for (TensorId t : made.parts) input(t, true);
    std::set<TensorId> others;
    for (size_t i : chosen_)
      for (TensorId t : tensors_read(a_, bodies_.at(i)))
        if (!parts_.contains(t)) others.insert(t);
    for (TensorId t : others) {
      input(t, false);
      made.shared.push_back(t);
    }
    for (size_t i : chosen_) {
      const Definition& d = definition(i);
      const Tensor& like = p_.tensors[p_.gradients[i]];
      const TensorId target = s.add_tensor(like.name, like.type, like.shape);
      const Id body = rewrite(a_, bodies_.at(i), [&](Id id) {
        const Node n = a_[id];
        if (!is_read(n.op)) return id;
        std::vector<Id> at(read_indices(n).begin(), read_indices(n).end());
        if (parts_.contains(n.symbol)) at.insert(at.begin(), run);
        return n.op == Op::read ? a_.read(to[n.symbol], n.type, at) : a_.read_or(to[n.symbol], n.type, at, n.args().back());
      });
      Id total = kNone;
      for (Id term : operands_of(a_, body, Op::add)) {
        const AxisRange all{run, a_.integer(0), runs};
        const Node choice = a_[term];  // of a row that data name: a scatter
        const bool some = choice.op == Op::select && is_constant(a_, choice.arg(2), 0);
        const Id sum = a_.reduce(Op::sum, std::span(&all, 1), some ? choice.arg(0) : kNone, some ? choice.arg(1) : term);
        total = total == kNone ? sum : a_.add(total, sum);
      }
      s.forward.definitions.push_back({{target}, d.axes, total, d.pos, nullptr, {}});
      s.outputs.push_back(target);
    }
    s = with_clear_axes(s);
    verify(s);
  }

  // The op without these gradients. What its backward hands on besides is given a name there, if it is the forward's.
  void rest(DeferredGradients& made) {
    for (size_t k = p_.gradients.size(); k-- > 0;) {
      if (!std::ranges::count(chosen_, k)) continue;
      p_.gradients.erase(p_.gradients.begin() + static_cast<std::ptrdiff_t>(k));
      p_.gradient_of.erase(p_.gradient_of.begin() + static_cast<std::ptrdiff_t>(k));
    }
    for (TensorId& t : made.parts) {
      if (has_tensor(p_.inputs, t)) continue;
      if (!p_.backward.definition_of(t) || has_tensor(p_.gradients, t)) t = copy(t);
      p_.gradients.push_back(t);
      p_.gradient_of.push_back(kNoTensor);
    }
    made.op = with_clear_axes(without_dead(p_));
    verify(made.op);
  }

  TensorId copy(TensorId t) {
    const Tensor like = p_.tensors[t];
    const TensorId made = p_.add_tensor(like.name + "_kept", like.type, like.shape);
    Definition d;
    d.targets = {made};
    std::vector<Id> at;
    for (size_t k = 0; k < like.shape.size(); ++k) {
      at.push_back(a_.axis("i" + std::to_string(k)));
      d.axes.push_back({at.back(), a_.integer(0), like.shape[k]});
    }
    d.body = a_.read(t, like.type, at);
    p_.backward.definitions.push_back(std::move(d));
    return made;
  }
};

}  // namespace

std::optional<DeferredGradients> defer_gradients(const Program& derived, const std::vector<std::string>& unchanging,
                                                 const DimValues& sizes) {
  return Deferral(derived, unchanging, sizes).run();
}

}  // namespace xhat
