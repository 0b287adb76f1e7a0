#include "cse/normalize/added_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace xhat {
namespace {

constexpr size_t kMostAdded = 8;  // of one sum

// sign * number * dims / divisors * sum
struct AddedSum {
  Id sum;
  double number = 1;
  std::vector<Id> dims, divisors;  // ascending
  Id whole;                        // as it stands
  bool subtracted;
};

// The same number everywhere: made of literals and dims.
bool same_everywhere(const Arena& a, Id id) {
  if (a[id].axes_count > 0) return false;
  const std::vector<Id> all = reachable(a, id);
  return std::ranges::none_of(all, [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op); });
}

// Operands of a matrix product lack an axis each. (That t of sum(k in 0..t+1: x[k]) stands in the range alone.)
bool is_matrix_product(const Arena& a, Id sum) {
  const Id body = reduce_body(a[sum]);
  const std::vector<Id> axes(a[body].free_axes().begin(), a[body].free_axes().end()), all = reachable(a, body);
  return std::ranges::none_of(
      all, [&](Id id) { return a[id].op == Op::read && std::ranges::all_of(axes, [&](Id x) { return a[id].depends_on(x); }); });
}

class Adder {
 public:
  explicit Adder(const Program& p) : p_(p), a_(*p_.arena) {
    for (const Definition& d : p_.definitions()) {
      ++users_[d.body];
      for (Id id : reachable(a_, d.body)) {
        if (is_read(a_[id].op)) read_by_[a_[id].symbol].push_back(id);
        for (Id x : a_[id].args())
          if (x != kNone) ++users_[x];
      }
    }
    for (const auto& list : {p_.outputs, p_.gradients})
      for (TensorId t : list) read_by_[t] = {kNone, kNone};
  }

  Program run() {
    bool changed = false;
    for (Definition& d : p_.definitions()) {
      taken_ = all_axes(a_, std::span<const Id>(&d.body, 1));
      for (const AxisRange& r : d.axes) taken_.push_back(r.axis);
      const Id body = rewrite(a_, d.body, [&](Id id) { return adds(id) && !inside_another(id, d.body) ? joined(id) : id; });
      changed = changed || body != d.body;
      d.body = body;
      definitions_[d.target()] = &d;
    }
    return changed ? without_dead(p_) : p_;
  }

 private:
  bool adds(Id id) const {
    const Node& n = a_[id];
    return (n.op == Op::add || n.op == Op::sub) && (n.type == DType::f32 || n.type == DType::f64);
  }
  bool only_here(Id id) const {
    auto it = users_.find(id);
    return it != users_.end() && it->second == 1;
  }
  // Looked at as a part of the sum around it.
  bool inside_another(Id id, Id body) {
    if (!only_here(id)) return false;
    if (body != looked_at_) {
      looked_at_ = body;
      inside_.clear();
      for (Id x : reachable(a_, body))
        if (adds(x))
          for (Id y : a_[x].args()) inside_.insert(y);
    }
    return inside_.contains(id);
  }

  struct Part {
    Id value;
    bool subtracted;
  };
  void add_parts(Id id, bool subtracted, std::vector<Part>& parts, bool top) const {
    if (!adds(id) || (!top && !only_here(id))) return parts.push_back({id, subtracted});
    const Node n = a_[id];
    add_parts(n.arg(0), subtracted, parts, false);
    add_parts(n.arg(1), subtracted != (n.op == Op::sub), parts, false);
  }

  // Numbers around a sum that stands nowhere else, or around the read of a definition that nobody else reads.
  std::optional<AddedSum> term_of(const Part& part) const {
    AddedSum t{kNone, 1, {}, {}, part.value, part.subtracted};
    bool opened = false;
    for (Id id = part.value;;) {
      const Node n = a_[id];
      if (!opened && !only_here(id)) return std::nullopt;
      if (n.op == Op::neg) {
        t.number = -t.number;
        id = n.arg(0);
      } else if ((n.op == Op::div || n.op == Op::mul) && same_everywhere(a_, n.arg(1))) {
        if (!take(t, n.arg(1), n.op == Op::div)) return std::nullopt;
        id = n.arg(0);
      } else if (n.op == Op::mul && same_everywhere(a_, n.arg(0))) {
        if (!take(t, n.arg(0), false)) return std::nullopt;
        id = n.arg(1);
      } else if (n.op == Op::read && !opened) {
        auto named = definitions_.find(n.symbol);
        if (named == definitions_.end() || read_by_.at(n.symbol).size() != 1) return std::nullopt;
        std::set<Id> own(n.args().begin(), n.args().end());
        if (own.size() != n.arg_count || std::ranges::any_of(own, [&](Id x) { return a_[x].op != Op::axis; })) return std::nullopt;
        Replacements at;
        for (size_t i = 0; i < n.arg_count; ++i) at[named->second->axes[i].axis] = a_.to(DType::i64, n.arg(i));
        id = substitute(a_, named->second->body, at, taken_);
        opened = true;
      } else {
        if (n.op != Op::sum || (n.type != DType::f32 && n.type != DType::f64) || is_matrix_product(a_, id)) return std::nullopt;
        t.sum = id;
        std::ranges::sort(t.dims);
        std::ranges::sort(t.divisors);
        return t;
      }
    }
  }

  bool take(AddedSum& t, Id number, bool below) const {
    const Node& n = a_[number];
    if (n.op != Op::constant) {
      (below ? t.divisors : t.dims).push_back(number);
      return true;
    }
    if (below && n.value == 0) return false;
    t.number = below ? t.number / n.value : t.number * n.value;
    return std::isfinite(t.number) && t.number != 0;
  }

  // The axes of another term's sum as those of the first one's; none if they have other ranges.
  std::optional<Replacements> renamed(const AddedSum& first, const AddedSum& other) const {
    const Node x = a_[first.sum], y = a_[other.sum];
    if (x.type != y.type || !std::ranges::equal(x.free_axes(), y.free_axes())) return std::nullopt;
    std::vector<AxisRange> own = reduce_axes(x);
    Replacements to;
    for (const AxisRange& r : reduce_axes(y)) {
      auto same = std::ranges::find_if(
          own, [&](const AxisRange& o) { return substitute(a_, r.begin, to) == o.begin && substitute(a_, r.end, to) == o.end; });
      if (same == own.end()) return std::nullopt;
      to[r.axis] = same->axis;
      own.erase(same);
    }
    if (!own.empty() || substitute(a_, reduce_condition(y), to) != reduce_condition(x)) return std::nullopt;
    return to;
  }

  bool joins(const AddedSum& first, const AddedSum& other) const {
    const bool divided = first.divisors == other.divisors || other.divisors.empty();
    return divided && renamed(first, other).has_value();
  }

  // x + y - … with all terms that are one sum with the first one that others can be one with.
  Id joined(Id id) {
    std::vector<Part> parts;
    add_parts(id, false, parts, true);
    std::vector<AddedSum> terms;
    for (const Part& part : parts)
      if (auto t = term_of(part)) terms.push_back(*t);
    for (const AddedSum& first : terms) {
      std::vector<AddedSum> group = {first};
      for (const AddedSum& t : terms)
        if (t.whole != first.whole && group.size() < kMostAdded && joins(first, t)) group.push_back(t);
      if (group.size() < 2) continue;
      std::ranges::sort(group, {}, [&](const AddedSum& t) { return std::ranges::find(parts, t.whole, &Part::value); });
      return with_rest(id, parts, group, first);
    }
    return id;
  }

  // In the place of the group's first term.
  Id with_rest(Id id, const std::vector<Part>& parts, const std::vector<AddedSum>& group, const AddedSum& first) {
    std::vector<Part> now;
    for (const Part& part : parts) {
      if (part.value == group[0].whole)
        now.push_back({one_sum(group, first), negative(group[0])});
      else if (std::ranges::none_of(group, [&](const AddedSum& t) { return t.whole == part.value; }))
        now.push_back(part);
    }
    // What is subtracted waits for something to be subtracted from.
    std::ranges::stable_partition(now, [](const Part& part) { return !part.subtracted; });
    Id value = now[0].subtracted ? a_.unary(Op::neg, now[0].value) : now[0].value;
    for (size_t i = 1; i < now.size(); ++i) value = now[i].subtracted ? a_.sub(value, now[i].value) : a_.add(value, now[i].value);
    return a_.to(a_[id].type, value);
  }

  static bool negative(const AddedSum& t) { return t.subtracted != (t.number < 0); }

  // The group's first term is positive in it.
  Id one_sum(const std::vector<AddedSum>& group, const AddedSum& first) {
    const Node sum = a_[first.sum];
    auto size = [](const AddedSum& t) { return std::abs(t.number); };
    const bool alike = std::ranges::all_of(
        group, [&](const AddedSum& t) { return size(t) == size(first) && t.dims == first.dims && t.divisors == first.divisors; });
    Id body = kNone;
    for (const AddedSum& t : group) {
      Id x = reduce_body(a_[t.sum]);
      if (t.sum != first.sum) x = substitute(a_, x, *renamed(first, t));
      Id number = alike || size(t) == 1 ? kNone : a_.constant(sum.type, size(t));
      auto times = [&](Id dim) { number = number == kNone ? a_.to(sum.type, dim) : a_.mul(number, a_.to(sum.type, dim)); };
      if (!alike) std::ranges::for_each(t.dims, times);
      if (t.divisors != first.divisors) std::ranges::for_each(first.divisors, times);
      if (number != kNone) x = a_.mul(number, x);
      body = body == kNone ? x : negative(t) == negative(group[0]) ? a_.add(body, x) : a_.sub(body, x);
    }
    Id value = a_.reduce(Op::sum, reduce_axes(sum), reduce_condition(sum), body);
    if (alike && size(first) != 1) value = a_.mul(a_.constant(sum.type, size(first)), value);
    if (alike)
      for (Id dim : first.dims) value = a_.mul(value, a_.to(sum.type, dim));
    for (Id dim : first.divisors) value = a_.div(value, a_.to(sum.type, dim));
    return value;
  }

  Program p_;
  Arena& a_;
  std::map<Id, int> users_;                      // how often a node is an operand or a body
  std::map<TensorId, std::vector<Id>> read_by_;  // one for each body that it stands in
  std::map<TensorId, const Definition*> definitions_;
  std::vector<Id> taken_;
  Id looked_at_ = kNone;
  std::set<Id> inside_;
};

}  // namespace

Program without_added_sums(const Program& p) {
  for (const Definition& d : p.definitions())
    if (d.is_call()) return p;
  return Adder(p).run();
}

}  // namespace xhat
