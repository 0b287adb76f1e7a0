#include "cse/normalize/nested_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "ad/common/guards.h"
#include "expr/core/scalar.h"

namespace xhat {
namespace {

bool is_sum(const Node& n) { return n.op == Op::sum && (n.type == DType::f32 || n.type == DType::f64); }

// y is looked at where x holds.
Id both(Arena& a, Id x, Id y) { return is_true(a, x) ? y : is_true(a, y) ? x : conjunction(a, std::array{x, y}); }

// Is the inner sum, at every point of the outer one's, another one? Else it would be computed again and again: y[i] = sum(j in 0..i: r[j]).
bool once_each(const Arena& a, Id outer, Id inner) {
  const Node sum = a[outer], n = a[inner];
  std::vector<Id> axes(sum.free_axes().begin(), sum.free_axes().end());
  for (const AxisRange& r : reduce_axes(sum)) axes.push_back(r.axis);
  // Both axes of g*4+k, for k in 0..4.
  auto walks = [&](Id index, Id axis) {
    const Node& i = a[index];
    if (index == axis) return true;
    if (i.op != Op::add || a[i.arg(0)].op != Op::mul) return false;
    Id group = a[i.arg(0)].arg(0), each = a[i.arg(0)].arg(1);
    if (a[group].op != Op::axis) std::swap(group, each);
    const std::vector<AxisRange> summed = reduce_axes(sum);
    const auto r = std::ranges::find(summed, i.arg(1), &AxisRange::axis);
    return (axis == group || axis == i.arg(1)) && a[group].op == Op::axis && r != summed.end() && range_is_plain(a, *r) && r->end == each;
  };
  return std::ranges::all_of(axes, [&](Id axis) {
    return n.op == Op::read ? std::ranges::any_of(n.args(), [&](Id index) { return walks(index, axis); }) : n.depends_on(axis);
  });
}

// The same number everywhere: made of literals and dims.
bool is_number(const Arena& a, Id id) {
  if (a[id].axes_count > 0) return false;
  const std::vector<Id> all = reachable(a, id);
  return std::ranges::none_of(all, [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op); });
}

// A number that a sum can be divided by also where it has no terms.
bool is_literal(const Arena& a, Id id) { return a[id].op == Op::constant && std::isfinite(a[id].value) && a[id].value != 0; }

// What is multiplied and divided by numbers: -(s/N)*2 is s.
Id without_numbers(const Arena& a, Id id, bool (*is_number)(const Arena&, Id)) {
  for (;;) {
    const Node& n = a[id];
    if (n.op == Op::neg || (n.op == Op::div && is_number(a, n.arg(1))) || (n.op == Op::mul && is_number(a, n.arg(1))))
      id = n.arg(0);
    else if (n.op == Op::mul && is_number(a, n.arg(0)))
      id = n.arg(1);
    else
      return id;
  }
}

class Merger {
 public:
  explicit Merger(const Program& p) : p_(p), a_(*p_.arena) {
    for (const Definition& d : p_.definitions()) {
      for (Id id : reachable(a_, d.body)) {
        if (is_read(a_[id].op)) ++reads_[a_[id].symbol];
        if (is_sum(a_[id])) note_summed(id);
      }
    }
    for (const auto& list : {p_.outputs, p_.gradients})
      for (TensorId t : list) reads_[t] = 2, summed_.erase(t);
  }

  Program run() {
    bool changed = false;
    for (Definition& d : p_.definitions()) {
      taken_ = all_axes(a_, std::span<const Id>(&d.body, 1));
      for (const AxisRange& r : d.axes) taken_.push_back(r.axis);
      const Id body = rewrite(a_, d.body, [&](Id id) {
        return is_mean(id) ? mean_of_means(id) : is_sum(a_[id]) ? merged(id, is_literal) : id;
      });
      changed = changed || body != d.body;
      d.body = body;
      if (is_sum(a_[without_numbers(a_, d.body, is_number)])) sums_[d.target()] = &d;
    }
    return changed ? without_dead(p_) : p_;
  }

 private:
  // A sum of a named tensor, over which of its dimensions.
  void note_summed(Id sum) {
    const Node read = a_[reduce_body(a_[sum])];
    if (read.op != Op::read) return;
    std::vector<size_t> over;
    for (size_t i = 0; i < read.arg_count; ++i)
      for (const AxisRange& r : reduce_axes(a_[sum]))
        if (r.axis == read.arg(i)) over.push_back(i);
    const bool plain =
        is_true(a_, reduce_condition(a_[sum])) && over.size() == reduce_axes(a_[sum]).size() && once_each(a_, sum, reduce_body(a_[sum]));
    ++summed_[read.symbol][plain ? over : std::vector<size_t>{read.arg_count}];
  }

  // Does nothing but one sum read it, or one that is written several times?
  bool only_summed(TensorId t) const {
    if (reads_.at(t) == 1) return true;
    auto sums = summed_.find(t);
    return sums != summed_.end() && sums->second.size() == 1 && sums->second.begin()->second == reads_.at(t);
  }

  // A sum that is divided by the size of all that it goes over.
  bool is_mean(Id id) const {
    const Node n = a_[id];
    if (n.op != Op::div || !is_sum(a_[n.arg(0)]) || !is_number(a_, n.arg(1))) return false;
    const std::vector<Id> size = reachable(a_, n.arg(1));
    for (const AxisRange& r : reduce_axes(a_[n.arg(0)]))
      if (a_[r.end].op != Op::constant && !std::ranges::binary_search(size, r.end)) return false;
    return true;
  }

  // Of nothing the mean is NaN either way; a sum over nothing of what is divided by a dim of 0 is 0, and would be 0/0 if the dim came out.
  Id mean_of_means(Id mean) {
    const Node n = a_[mean];
    const Id sum = merged(n.arg(0), is_number);
    return sum == n.arg(0) ? mean : a_.div(sum, n.arg(1));
  }

  // comes_out: numbers that the inner sum may be scaled by; they stand in front of the one sum then.
  Id merged(Id id, bool (*comes_out)(const Arena&, Id)) {
    const Node outer = a_[id];
    Id whole = reduce_body(outer), inner = without_numbers(a_, whole, comes_out);
    if (!once_each(a_, id, inner)) return id;
    if (const Node read = a_[inner]; read.op == Op::read && sums_.contains(read.symbol) && only_summed(read.symbol)) {
      const Definition& named = *sums_.at(read.symbol);
      Replacements at;
      for (size_t i = 0; i < read.arg_count; ++i) at[named.axes[i].axis] = a_.to(DType::i64, read.arg(i));
      const Id value = substitute(a_, named.body, at, taken_);
      whole = rewrite(a_, whole, [&](Id x) { return x == inner ? value : x; });
      inner = without_numbers(a_, value, comes_out);
    }
    const Node sum = a_[inner];
    if (!is_sum(sum) || sum.type != outer.type) return id;
    std::vector<AxisRange> axes = reduce_axes(outer), more = reduce_axes(sum);
    for (const AxisRange& r : more)
      if (std::ranges::find(axes, r.axis, &AxisRange::axis) != axes.end()) return id;
    axes.insert(axes.end(), more.begin(), more.end());
    const Id one = a_.reduce(Op::sum, axes, both(a_, reduce_condition(outer), reduce_condition(sum)), reduce_body(sum));
    return rewrite(a_, whole, [&](Id x) { return x == inner ? one : x; });
  }

  Program p_;
  Arena& a_;
  std::map<TensorId, int> reads_;                                  // nodes that read it, in all bodies
  std::map<TensorId, std::map<std::vector<size_t>, int>> summed_;  // sums of it alone, by the dimensions that they go over
  std::map<TensorId, const Definition*> sums_;
  std::vector<Id> taken_;
};

// Does it leave one value of an axis: k == i64(t[n])?
bool names_one(const Arena& a, Id condition, const std::vector<AxisRange>& axes) {
  const Node n = a[condition];
  auto summed = [&](Id id) { return std::ranges::find(axes, id, &AxisRange::axis) != axes.end(); };
  auto named = [&](Id axis, Id value) { return summed(axis) && is_integer(a[value].type) && !a[value].depends_on(axis); };
  return n.op == Op::eq && (named(n.arg(0), n.arg(1)) || named(n.arg(1), n.arg(0)));
}

bool has_calls(const Program& p) {
  for (const Definition& d : p.definitions())
    if (d.is_call()) return true;
  return false;
}

}  // namespace

Program without_nested_sums(const Program& p) { return has_calls(p) ? p : Merger(p).run(); }

Program without_neutral_terms(const Program& given) {
  if (has_calls(given)) return given;
  Program p = given;
  Arena& a = *p.arena;
  auto neutral = [&](Op op, Id value) { return is_float(a[value].type) && is_constant(a, value, identity_of(op)); };
  for (Definition& d : p.definitions())
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (n.op != Op::sum && n.op != Op::prod && n.op != Op::max && n.op != Op::min) return id;
      const Node choice = a[reduce_body(n)];
      if (choice.op != Op::select || !neutral(n.op, choice.arg(2)) || a[choice.arg(1)].op == Op::constant) return id;
      const std::vector<Id> asked = reachable(a, choice.arg(0));
      const bool of_data =
          std::ranges::any_of(asked, [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op) || is_float(a[x].type); });
      if (of_data && !(n.op == Op::sum && names_one(a, choice.arg(0), reduce_axes(n)))) return id;
      return a.reduce(n.op, reduce_axes(n), both(a, reduce_condition(n), choice.arg(0)), choice.arg(1));
    });
  return p;
}

}  // namespace xhat
