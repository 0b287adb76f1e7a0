#include "ad/reverse/common_factors.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "expr/rules/parts.h"

namespace xhat {
namespace {

// A term: its factors times a number.
using Terms = std::vector<Parts>;

bool has(const Parts& term, const Parts::Part& part) { return std::ranges::find(term.parts, part) != term.parts.end(); }

void divide(Parts& term, const Parts& by) {
  for (const Parts::Part& part : by.parts) term.parts.erase(std::ranges::find(term.parts, part));
  term.number /= by.number;
}

// The factors that all have.
Parts shared(const Terms& terms) {
  Parts common{{}, 1};
  for (const Parts::Part& part : terms[0].parts) {
    const auto count = [&](const Parts& t) { return std::ranges::count(t.parts, part); };
    const auto least = std::ranges::min(terms, {}, count);
    if (std::ranges::count(common.parts, part) < count(least)) common.parts.push_back(part);
  }
  const double size = std::abs(terms[0].number);
  if (std::ranges::all_of(terms, [&](const Parts& t) { return std::abs(t.number) == size; })) common.number = size;
  return common;
}

class Factored {
 public:
  explicit Factored(Arena& a) : a_(a) {}

  Id run(Id root) {
    for (Id id : reachable(a_, root)) done_[id] = made(id);
    return done_.at(root);
  }

 private:
  // Operands are done.
  Id made(Id id) {
    const Node n = a_[id];
    if (!is_float(n.type)) return id;
    std::vector<Id> args(n.args().begin(), n.args().end());
    switch (n.op) {
      case Op::add:
      case Op::sub:
      case Op::mul:
      case Op::div:
      case Op::neg:
        for (Id& x : args) x = done_.at(x);
        break;
      case Op::select:
        for (size_t i : {1u, 2u}) args[i] = done_.at(args[i]);
        break;
      case Op::sum: return a_.reduce(Op::sum, reduce_axes(n), reduce_condition(n), done_.at(reduce_body(n)));
      default: return id;
    }
    const Id now = a_.with_args(id, args);
    return n.op == Op::add || n.op == Op::sub ? factored(now) : now;
  }

  Id factored(Id sum) {
    const Parts all = terms_of(a_, sum);
    if (!all.all || all.parts.size() < 2) return sum;
    Terms terms;
    for (const Parts::Part& part : all.parts) {
      Parts term = factors_of(a_, part.value);
      if (!term.all || !std::isfinite(term.number) || term.number == 0) return sum;
      if (part.inverse) term.number = -term.number;
      terms.push_back(std::move(term));
    }
    const DType type = a_[sum].type;
    bool changed = false;
    Id value = grouped(terms, type, changed);
    if (!changed) return sum;
    return all.number == 0 ? value : a_.add(value, a_.constant(type, all.number));
  }

  // The sum of the terms, with what most of them share in front of these, as often as two share anything.
  Id grouped(Terms terms, DType type, bool& changed) {
    Parts sum{{}, 0};
    auto add = [&](Parts term) {
      const bool negative = term.number < 0;
      term.number = std::abs(term.number);
      sum.parts.push_back({product_of(a_, term, type), negative});
    };
    while (!terms.empty()) {
      size_t most = 1;
      Parts::Part best{kNone, false};
      for (const Parts& t : terms)
        for (const Parts::Part& part : t.parts) {
          const auto count = static_cast<size_t>(std::ranges::count_if(terms, [&](const Parts& other) { return has(other, part); }));
          if (count > most) most = count, best = part;
        }
      if (best.value == kNone) break;
      Terms group;
      for (const Parts& t : terms)
        if (has(t, best)) group.push_back(t);
      std::erase_if(terms, [&](const Parts& t) { return has(t, best); });
      Parts common = shared(group);
      for (Parts& t : group) divide(t, common);
      common.parts.push_back({grouped(group, type, changed), false});
      add(common);
      changed = true;
    }
    for (const Parts& t : terms) add(t);
    return sum_of(a_, sum, type);
  }

  Arena& a_;
  std::unordered_map<Id, Id> done_;
};

}  // namespace

Id with_common_factors(Arena& a, Id body) { return Factored(a).run(body); }

}  // namespace xhat
