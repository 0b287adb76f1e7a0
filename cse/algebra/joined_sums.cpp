#include "cse/algebra/joined_sums.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "cse/match/bodies.h"
#include "expr/rules/parts.h"

namespace xhat {
namespace {

// A sum that is added to others, times a factor over the sum's own axes.
struct Term {
  const Definition* sum;
  std::vector<Id> indices;  // of the read: axes
  Parts factor;             // without the read
  bool subtracted;
  Id whole;  // the term
};

class Joiner {
 public:
  explicit Joiner(const Program& p) : p_(p), a_(*p_.arena) {}

  Program run() {
    find_sums();
    if (sums_.size() < 2) return p_;
    bool changed = false;
    std::vector<Definition> all = p_.backward.definitions, made;
    for (Definition& d : all) {
      if (deciding(d)) continue;
      std::set<Id> inside;  // sums that are terms of sums
      for (Id id : reachable(a_, d.body))
        if (adds(id))
          for (Id x : a_[id].args())
            if (adds(x)) inside.insert(x);
      const Id body = rewrite(a_, d.body, [&](Id id) { return adds(id) && !inside.contains(id) ? joined(id, made) : id; });
      changed = changed || body != d.body;
      d.body = body;
    }
    if (!changed) return p_;
    all.insert(all.end(), made.begin(), made.end());
    p_.backward.definitions = std::move(all);
    return without_dead(ordered(p_));
  }

 private:
  bool deciding(const Definition& d) const { return deciding_.contains(d.target()) || !is_float(a_[d.body].type); }

  // Those of the backward that one operand reads, and how many sums each waits for.
  void find_sums() {
    deciding_ = feeds_control(p_);
    std::map<TensorId, int> reads;
    for (const Definition& d : p_.backward.definitions) {
      int level = 0;
      for (TensorId t : tensors_read(a_, d.body)) level = std::max(level, level_[t]);
      level_[d.target()] = level + is_reduction(a_[d.body].op);
      if (is_read(a_[d.body].op)) ++reads[a_[d.body].symbol];
      for (Id id : reachable(a_, d.body))
        for (Id x : a_[id].args())
          if (x != kNone && is_read(a_[x].op)) ++reads[a_[x].symbol];
    }
    for (const Definition& d : p_.backward.definitions) {
      const Node n = a_[d.body];
      const bool wide = n.type == DType::f32 || n.type == DType::f64;
      if (n.op != Op::sum || !wide || deciding(d) || has_tensor(p_.gradients, d.target()) || reads[d.target()] != 1) continue;
      if (reads_all_axes(d)) sums_[d.target()] = &d;
    }
  }

  // Operands of a matrix product lack an axis each. An axis that the condition alone looks at is none of a product: of what is added by place,
  // sum(k if f[k] == i: …), the data say which i a term belongs to.
  bool reads_all_axes(const Definition& d) const {
    std::vector<Id> axes = axes_of(d.axes);
    for (const AxisRange& r : reduce_axes(a_[d.body])) axes.push_back(r.axis);
    std::erase_if(axes, [&](Id x) { return !a_[reduce_body(a_[d.body])].depends_on(x) && a_[reduce_condition(a_[d.body])].depends_on(x); });
    const std::vector<Id> all = reachable(a_, d.body);
    return std::ranges::any_of(
        all, [&](Id id) { return a_[id].op == Op::read && std::ranges::all_of(axes, [&](Id x) { return a_[id].depends_on(x); }); });
  }

  bool adds(Id id) const { return (a_[id].op == Op::add || a_[id].op == Op::sub) && is_float(a_[id].type); }

  // x + y - … with two of its terms or more as one sum.
  Id joined(Id id, std::vector<Definition>& made) {
    const Parts whole = terms_of(a_, id);
    if (!whole.all) return id;
    std::vector<Term> terms;
    for (const Parts::Part& part : whole.parts)
      if (auto term = term_of(part)) terms.push_back(*term);
    for (size_t i = 0; i + 1 < terms.size(); ++i) {
      std::vector<Term> group = {terms[i]};
      for (size_t k = i + 1; k < terms.size(); ++k)
        if (terms[k].sum != terms[i].sum && joins(terms[i], terms[k])) group.push_back(terms[k]);
      if (group.size() < 2 || waits_longer(group)) continue;
      Parts rest{{}, whole.number};
      for (const Parts::Part& part : whole.parts)
        if (std::ranges::none_of(group, [&](const Term& t) { return t.whole == part.value; })) rest.parts.push_back(part);
      rest.parts.push_back({one_sum(group, made), false});
      return sum_of(a_, rest, a_[id].type);
    }
    return id;
  }

  std::optional<Term> term_of(const Parts::Part& part) const {
    Parts factors = factors_of(a_, part.value);
    if (!factors.all) return std::nullopt;
    auto is_sum = [&](const Parts::Part& f) { return !f.inverse && a_[f.value].op == Op::read && sums_.contains(a_[f.value].symbol); };
    if (std::ranges::count_if(factors.parts, is_sum) != 1) return std::nullopt;
    const auto at = std::ranges::find_if(factors.parts, is_sum);
    const Node read = a_[at->value];
    Term t{sums_.at(read.symbol), {read.args().begin(), read.args().end()}, factors, part.inverse, part.value};
    t.factor.parts.erase(t.factor.parts.begin() + (at - factors.parts.begin()));
    std::set<Id> own(t.indices.begin(), t.indices.end());
    if (own.size() != t.indices.size() || std::ranges::any_of(own, [&](Id x) { return a_[x].op != Op::axis; })) return std::nullopt;
    for (const Parts::Part& f : t.factor.parts)
      if (std::ranges::any_of(a_[f.value].free_axes(), [&](Id x) { return !own.contains(x); })) return std::nullopt;
    return t;
  }

  // The axes of another term's sum as those of the first one's; none if they have other ranges.
  std::optional<Replacements> renamed(const Term& first, const Term& other) const {
    Replacements to;
    for (size_t i = 0; i < other.indices.size(); ++i) {
      const auto same = std::ranges::find(first.indices, other.indices[i]);
      if (same == first.indices.end()) return std::nullopt;
      to[other.sum->axes[i].axis] = first.sum->axes[static_cast<size_t>(same - first.indices.begin())].axis;
    }
    const std::vector<AxisRange> bound = reduce_axes(a_[first.sum->body]), others = reduce_axes(a_[other.sum->body]);
    if (first.indices.size() != other.indices.size() || bound.size() != others.size()) return std::nullopt;
    for (size_t i = 0; i < bound.size(); ++i) to[others[i].axis] = bound[i].axis;
    auto now = [&](Id x) { return substitute(a_, x, to); };
    for (size_t i = 0; i < bound.size(); ++i)
      if (now(others[i].begin) != bound[i].begin || now(others[i].end) != bound[i].end) return std::nullopt;
    if (now(reduce_condition(a_[other.sum->body])) != reduce_condition(a_[first.sum->body])) return std::nullopt;
    return to;
  }

  // The last axes of what is in memory and read at all axes: a sum goes along them.
  std::set<Id> runs_along(const Definition& d, const Replacements& to) const {
    std::set<Id> along;
    const size_t axes = d.axes.size() + reduce_axes(a_[d.body]).size();
    for (Id id : reachable(a_, d.body)) {
      const Node n = a_[id];
      if (!is_read(n.op) || n.free_axes().size() != axes || p_.backward.definition_of(n.symbol)) continue;
      for (Id x : a_[read_indices(n).back()].free_axes()) {
        const auto now = to.find(x);
        along.insert(now == to.end() ? x : now->second);
      }
    }
    return along;
  }

  bool joins(const Term& first, const Term& other) const {
    if (a_[first.sum->body].type != a_[other.sum->body].type) return false;
    const auto to = renamed(first, other);
    if (!to) return false;
    const std::set<Id> x = runs_along(*first.sum, {}), y = runs_along(*other.sum, *to);
    return x.empty() || y.empty() || std::ranges::any_of(x, [&](Id axis) { return y.contains(axis); });
  }

  bool waits_longer(const std::vector<Term>& group) {
    int before = 0, now = 0;
    for (const Term& t : group) {
      before = std::max(before, level_[t.sum->target()]);
      for (const Parts::Part& f : t.factor.parts)
        for (TensorId read : tensors_read(a_, f.value)) now = std::max(now, level_[read] + 1);
    }
    return now > before;
  }

  Id one_sum(const std::vector<Term>& group, std::vector<Definition>& made) {
    const Term& first = group[0];
    const Node sum = a_[first.sum->body];
    Replacements own;  // the reader's axes as the sum's
    for (size_t i = 0; i < first.indices.size(); ++i) own[first.indices[i]] = first.sum->axes[i].axis;
    Parts body{{}, 0};
    for (const Term& t : group) {
      Parts product{{}, t.factor.number};
      for (const Parts::Part& f : t.factor.parts) product.parts.push_back({substitute(a_, f.value, own), f.inverse});
      product.parts.insert(product.parts.begin(), {substitute(a_, reduce_body(a_[t.sum->body]), *renamed(first, t)), false});
      body.parts.push_back({product_of(a_, product, sum.type), t.subtracted});
    }
    Definition d;
    d.axes = first.sum->axes;
    d.body = a_.reduce(Op::sum, reduce_axes(sum), reduce_condition(sum), sum_of(a_, body, sum.type));
    d.targets = {p_.add_tensor(p_.tensors[first.sum->target()].name, sum.type, p_.tensors[first.sum->target()].shape)};
    made.push_back(d);
    return read_at(a_, p_, d.target(), first.indices);
  }

  Program p_;
  Arena& a_;
  std::map<TensorId, const Definition*> sums_;
  std::map<TensorId, int> level_;
  std::set<TensorId> deciding_;
};

}  // namespace

Program with_joined_sums(const Program& p) { return Joiner(p).run(); }

}  // namespace xhat
