// recognize (simplify.h): rows see the value of a map in a read of it, and stand in parts of products and sums (parts.h); an `if` whose
// branches are one function goes; the exponential of a difference with the logarithm of a sum of exponentials is a quotient.
#include <algorithm>
#include <cmath>
#include <map>

#include "expr/rules/parts.h"
#include "expr/rules/rewriter.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

class Recognizer {
 public:
  explicit Recognizer(Program p)
      : p_(std::move(p)),
        a_(*p_.arena),
        rows_(a_, spellings(), [this](Id id, bool alone) { return seen_as(id, alone); }),
        in_parts_(a_, spellings(), [this](Id id, bool alone) { return seen_as(id, alone); }) {
    for (const Definition& d : p_.definitions())
      for (Id id : reachable(a_, d.body))
        for (Id x : a_[id].args()) {
          if (x == kNone) continue;
          ++uses_[x];
          if (a_[x].op == Op::read) ++reads_[a_[x].symbol];
        }
    rows_.fold_constants();
    rows_.watch([this](Id was, Id is) {
      if (was != is) uses_[is] = std::max(uses_[is], uses_[was]);
    });
    rows_.before([this](Id id) { return in_parts_.applied(id); });
    rows_.then([this](Id id) { return in_parts_.factored(id); });
    rows_.then([this](Id id) { return without_choice(id); });
    rows_.then([this](Id id) { return share_of_a_sum(id); });
  }

  Program run() {
    for (Definition& d : p_.definitions()) {
      if (d.is_call()) continue;
      find_ranges(d);
      d.body = rows_.run(d.body);
      const bool map = std::ranges::none_of(reachable(a_, d.body), [&](Id id) { return is_reduction(a_[id].op); });
      if (is_float(a_[d.body].type)) values_[d.target()] = {&d, map, {}};
    }
    return p_;
  }

 private:
  // The value of a map in a read of it.
  Id seen_as(Id id, bool alone = false) {
    if (alone && (a_[id].op == Op::read ? reads_[a_[id].symbol] : uses_[id]) > 1) return kNone;
    return value_of(id, true);
  }

  // Of any definition.
  Id value_of(Id id, bool of_map = false) {
    const Node n = a_[id];
    if (n.op != Op::read) return id;
    auto found = values_.find(n.symbol);
    if (found == values_.end() || (of_map && !found->second.is_map)) return id;
    auto [known, fresh] = found->second.seen.emplace(id, kNone);
    if (!fresh) return known->second;
    Replacements at;
    for (size_t i = 0; i < n.arg_count; ++i) at[found->second.definition->axes[i].axis] = a_.to(DType::i64, n.arg(i));
    return known->second = substitute(a_, found->second.definition->body, at, taken_);
  }

  // With the bodies of definitions in place of their names; kNone where there are more than a formula of one function has.
  Id written_out(Id root) {
    constexpr size_t kLargest = 100;  // nodes; such formulas have some twenty
    size_t left = 20;                 // definitions
    if (reachable(a_, root).size() > kLargest) return kNone;
    const Id whole = written_out(root, left);
    return left == 0 || reachable(a_, whole).size() > kLargest ? kNone : whole;
  }
  Id written_out(Id root, size_t& left) {
    return rewrite(a_, root, [&](Id id) {
      Id value = left == 0 ? id : seen_as(id);
      if (value == id || --left == 0) return id;
      return written_out(value, left);
    });
  }

  // if c then f(a) else g(a), where rows make one formula of both: 1/(1 + exp(-a)) and exp(a)/(1 + exp(a)). The row same_either_way
  // does the rest. Not through abs(a) as a or -a: its derivative at 0 is 0.
  Id without_choice(Id id) {
    const Node n = a_[id];
    if (n.op != Op::select || !is_float(n.type) || n.arg(1) == n.arg(2)) return kNone;
    Id values[2];
    for (size_t i : {0, 1}) {
      values[i] = written_out(n.arg(i + 1));
      if (values[i] == kNone) return kNone;
      values[i] = rows_.run(values[i]);
    }
    return values[0] == values[1] ? a_.select(n.arg(0), values[0], values[0]) : kNone;
  }

  // exp(u - log(s)) where exp(u) is a term of the sum s: exp(u)/s, as softmax has it. It is at most 1, and where exp(u) overflows so does s.
  Id share_of_a_sum(Id id) {
    const Node n = a_[id];
    if (n.op != Op::exp) return kNone;
    Parts terms = terms_through_names(n.arg(0));
    if (!terms.all || terms.number != 0) return kNone;
    for (size_t i = 0; i < terms.parts.size(); ++i) {
      const Node part = a_[value_of(terms.parts[i].value)];
      if (!terms.parts[i].inverse || part.op != Op::log) continue;
      Parts rest = terms;
      rest.parts.erase(rest.parts.begin() + static_cast<std::ptrdiff_t>(i));
      if (!has_term(part.arg(0), rest)) continue;
      return a_.div(a_.unary(Op::exp, sum_of(a_, rest, a_[n.arg(0)].type)), part.arg(0));
    }
    return kNone;
  }

  // Is it a sum of exponentials, or of such sums and numbers above 0, of which exp(exponent) is a term?
  bool has_term(Id id, const Parts& exponent) {
    const Parts terms = terms_through_names(id);
    if (!terms.all || terms.number < 0) return false;
    bool found = false;
    for (const Parts::Part& part : terms.parts) {
      const Node sum = a_[value_of(part.value)];
      const bool sums = sum.op == Op::sum;
      const Node term = sums ? a_[seen_as(reduce_body(sum))] : sum;
      if (part.inverse || term.op != Op::exp) return false;
      if (found || (sums && !is_true(a_, reduce_condition(sum)))) continue;
      found = is_instance(terms_through_names(term.arg(0)), exponent, sums ? reduce_axes(sum) : std::vector<AxisRange>{});
    }
    return found;
  }

  // x - l with l[n] = m[n] + log(s[n]) is x - m - log(s).
  Parts terms_through_names(Id id) {
    constexpr int kNames = 4;  // within names
    Parts terms = terms_of(a_, id);
    for (int round = 0; round < kNames && terms.all; ++round) {
      Parts open{{}, terms.number};
      bool changed = false;
      for (const Parts::Part& part : terms.parts) {
        const Id value = value_of(part.value);
        const Op op = a_[value].op;
        if (value == part.value || (op != Op::add && op != Op::sub && op != Op::neg)) {
          open.parts.push_back(part);
          continue;
        }
        changed = true;
        const Parts inner = terms_of(a_, value);
        open.all = open.all && inner.all;
        open.number += part.inverse ? -inner.number : inner.number;
        for (const Parts::Part& x : inner.parts) open.parts.push_back({x.value, x.inverse != part.inverse});
      }
      terms = std::move(open);
      if (!changed) break;
    }
    return terms;
  }

  // Are these the same terms, with something else in the place of bound axes that runs over the same range?
  bool is_instance(const Parts& pattern, const Parts& terms, const std::vector<AxisRange>& bound) {
    if (!pattern.all || pattern.parts.size() != terms.parts.size() || pattern.number != terms.number) return false;
    std::map<Id, Id> found;
    std::vector<Parts::Part> left = terms.parts;
    for (const Parts::Part& want : pattern.parts) {
      auto same = std::ranges::find_if(left, [&](const Parts::Part& x) {
        auto attempt = found;
        if (x.inverse != want.inverse || !equal_but_for(want.value, x.value, bound, attempt)) return false;
        found = attempt;
        return true;
      });
      if (same == left.end()) return false;
      left.erase(same);
    }
    return std::ranges::all_of(bound, [&](const AxisRange& r) {
      auto it = found.find(r.axis);
      auto range = it == found.end() ? ranges_.end() : ranges_.find(it->second);
      return range != ranges_.end() && range->second.begin == r.begin && range->second.end == r.end;
    });
  }

  bool equal_but_for(Id want, Id is, const std::vector<AxisRange>& bound, std::map<Id, Id>& found) {
    if (std::ranges::find(bound, want, &AxisRange::axis) != bound.end()) {
      auto [known, fresh] = found.emplace(want, is);
      return fresh || known->second == is;
    }
    if (want == is && !depends(want, bound)) return true;
    const Node x = a_[want], y = a_[is];
    if (x.op != y.op || x.type != y.type || x.symbol != y.symbol || x.arg_count != y.arg_count || x.arg_count == 0) return false;
    if (is_reduction(x.op)) return false;
    for (size_t i = 0; i < x.arg_count; ++i)
      if (!equal_but_for(x.arg(i), y.arg(i), bound, found)) return false;
    return true;
  }

  bool depends(Id id, const std::vector<AxisRange>& bound) const {
    return std::ranges::any_of(bound, [&](const AxisRange& r) { return a_[id].depends_on(r.axis); });
  }

  // Of all axes of a definition; a name with two ranges has none.
  void find_ranges(const Definition& d) {
    ranges_.clear();
    std::vector<Id> ambiguous;
    auto note = [&](const AxisRange& r) {
      auto [at, fresh] = ranges_.emplace(r.axis, r);
      if (!fresh && !(at->second == r)) ambiguous.push_back(r.axis);
    };
    for (const AxisRange& r : d.axes) note(r);
    for (Id id : reachable(a_, d.body))
      if (is_reduction(a_[id].op))
        for (const AxisRange& r : reduce_axes(a_[id])) note(r);
    for (Id axis : ambiguous) ranges_.erase(axis);
    taken_ = all_axes(a_, std::span<const Id>(&d.body, 1));
    for (const AxisRange& r : d.axes) taken_.push_back(r.axis);
    for (auto& [t, value] : values_)
      if (!value.is_map) value.seen.clear();  // bound axes of sums are called otherwise than those here
  }

  struct Value {
    const Definition* definition;
    bool is_map;
    std::unordered_map<Id, Id> seen;  // by read
  };

  Program p_;
  Arena& a_;
  std::unordered_map<TensorId, Value> values_;
  // Nodes that have it, or a read of it, as an operand.
  std::unordered_map<Id, int> uses_;
  std::map<TensorId, int> reads_;
  std::map<Id, AxisRange> ranges_;  // of the axes of the definition that is looked at
  std::vector<Id> taken_;           // these axes
  Rewriter rows_;
  PartRows in_parts_;
};

}  // namespace

// Once more: what one row has made of a name another one sees where the name stands alone now.
Program recognize(const Program& p) { return Recognizer(Recognizer(p).run()).run(); }

}  // namespace xhat
