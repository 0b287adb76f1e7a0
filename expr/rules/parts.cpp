#include "expr/rules/parts.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace xhat {
namespace {

constexpr size_t kMostParts = 16;  // of a product or a sum that is looked into

// By the tree of mul, div and neg, or of add, sub and neg.
struct PartSplitter {
  const Arena& a;
  bool product;
  Parts made;
  explicit PartSplitter(const Arena& arena, bool of_product) : a(arena), product(of_product), made{{}, of_product ? 1.0 : 0.0} {}

  void add(Id id, bool inverse) {
    if (made.parts.size() > kMostParts) made.all = false;
    if (!made.all) return;
    const Node& n = a[id];
    if (n.op == Op::constant && is_float(n.type)) {
      if (product)
        made.number = inverse ? made.number / n.value : made.number * n.value;
      else
        made.number += inverse ? -n.value : n.value;
    } else if (n.op == (product ? Op::mul : Op::add)) {
      add(n.arg(0), inverse), add(n.arg(1), inverse);
    } else if (n.op == (product ? Op::div : Op::sub)) {
      add(n.arg(0), inverse), add(n.arg(1), !inverse);
    } else if (n.op == Op::neg) {
      if (product) made.number = -made.number;
      add(n.arg(0), product ? inverse : !inverse);
    } else {
      made.parts.push_back({id, inverse});
    }
  }
};

bool is_product(Op op) { return op == Op::mul || op == Op::div || op == Op::neg; }
bool is_sum(Op op) { return op == Op::add || op == Op::sub; }

// Of a pattern, as PartSplitter does of an expression.
struct PatternSplitter {
  const RulePattern& p;
  bool product;
  std::vector<std::pair<int, bool>> parts;
  double number;
  void add(int at, bool inverse) {
    const PatternNode& n = p[static_cast<size_t>(at)];
    const bool apply = n.kind == PatternNode::Kind::apply;
    if (n.kind == PatternNode::Kind::number) {
      if (product)
        number = inverse ? number / n.number : number * n.number;
      else
        number += inverse ? -n.number : n.number;
    } else if (apply && n.op == (product ? Op::mul : Op::add)) {
      add(n.args[0], inverse), add(n.args[1], inverse);
    } else if (apply && n.op == (product ? Op::div : Op::sub)) {
      add(n.args[0], inverse), add(n.args[1], !inverse);
    } else if (apply && n.op == Op::neg) {
      if (product) number = -number;
      add(n.args[0], product ? inverse : !inverse);
    } else {
      parts.emplace_back(at, inverse);
    }
  }
};

std::string letters_below(const RulePattern& p, int at) {
  const PatternNode& n = p[static_cast<size_t>(at)];
  std::string letters = n.kind == PatternNode::Kind::variable ? std::string(1, n.letter) : "";
  for (int x : n.args) letters += letters_below(p, x);
  return letters;
}

}  // namespace

Parts factors_of(const Arena& a, Id product, const SeenAs& seen_as) {
  PartSplitter s(a, true);
  s.add(product, false);
  if (!seen_as) return s.made;
  // A name for something times a number counts as both: h = k/2.
  for (Parts::Part& part : s.made.parts) {
    PartSplitter named(a, true);
    named.add(seen_as(part.value, false), part.inverse);
    if (named.made.parts.size() != 1 || named.made.number == 1) continue;
    s.made.number *= named.made.number;
    part = named.made.parts[0];
  }
  return s.made;
}

Parts terms_of(const Arena& a, Id sum) {
  PartSplitter s(a, false);
  s.add(sum, false);
  return s.made;
}

Id product_of(Arena& a, const Parts& p, DType type) {
  Id value = kNone;
  const bool negative = p.number == -1;
  for (bool inverse : {false, true})
    for (const Parts::Part& part : p.parts) {
      if (part.inverse != inverse) continue;
      if (inverse && value == kNone) value = a.constant(type, 1);
      value = value == kNone ? part.value : inverse ? a.div(value, part.value) : a.mul(value, part.value);
    }
  if (value == kNone) return a.constant(type, p.number);
  if (negative) return a.unary(Op::neg, value);
  return p.number == 1 ? value : a.mul(value, a.constant(type, p.number));
}

Id sum_of(Arena& a, const Parts& p, DType type) {
  Id value = kNone;
  for (bool inverse : {false, true})
    for (const Parts::Part& part : p.parts) {
      if (part.inverse != inverse) continue;
      if (value == kNone)
        value = inverse ? a.unary(Op::neg, part.value) : part.value;
      else
        value = inverse ? a.sub(value, part.value) : a.add(value, part.value);
    }
  if (value == kNone) return a.constant(type, p.number);
  return p.number == 0 ? value : a.add(value, a.constant(type, p.number));
}

PartRows::PartRows(Arena& arena, const std::vector<Rule>& rows, SeenAs seen_as) : a_(arena), seen_as_(std::move(seen_as)) {
  for (const Rule& rule : rows) {
    if (is_product(rule.root))
      if (auto row = row_of(rule, true)) products_.push_back(std::move(*row));
    if (is_sum(rule.root))
      if (auto row = row_of(rule, false)) sums_.push_back(std::move(*row));
  }
  for (auto* list : {&products_, &sums_}) std::ranges::stable_sort(*list, std::greater{}, [](const Row& r) { return r.parts.size(); });
}

// None where a part may be anything.
std::optional<PartRows::Row> PartRows::row_of(const Rule& rule, bool product) {
  PatternSplitter s{rule.pattern, product, {}, product ? 1.0 : 0.0};
  s.add(static_cast<int>(rule.pattern.size()) - 1, false);
  Row row{&rule, {}, s.number};
  std::string known;
  for (bool bare : {false, true})
    for (auto [at, inverse] : s.parts) {
      const PatternNode& n = rule.pattern[static_cast<size_t>(at)];
      if ((n.kind == PatternNode::Kind::variable) != bare) continue;
      if (bare && known.find(n.letter) == std::string::npos) return std::nullopt;
      known += letters_below(rule.pattern, at);
      row.parts.push_back({at, inverse});
    }
  const bool only_a_sign = product && row.parts.size() == 1 && std::abs(row.number) == 1 && !row.parts[0].inverse;
  if (row.parts.empty() || only_a_sign) return std::nullopt;
  return row;
}

Id PartRows::applied(Id id) const {
  const Op op = a_[id].op;
  if (!is_float(a_[id].type)) return kNone;
  if (is_product(op)) return applied(id, factors_of(a_, id, seen_as_), products_, true);
  return is_sum(op) ? applied(id, terms_of(a_, id), sums_, false) : kNone;
}

Id PartRows::applied(Id id, const Parts& whole, const std::vector<Row>& rows, bool product) const {
  if (!whole.all) return kNone;
  const DType type = a_[id].type;
  const double nothing = product ? 1 : 0;
  std::vector<Op> seen;
  for (const Parts::Part& part : whole.parts) seen.push_back(a_[seen_as_(part.value, false)].op);
  for (const Row& row : rows) {
    if (row.parts.size() > whole.parts.size() || (row.number != nothing && whole.number == nothing)) continue;
    if (!product && row.number != nothing && row.number != whole.number) continue;
    std::vector<size_t> chosen;
    std::optional<RuleBinding> found;
    std::function<void()> choose = [&] {
      if (chosen.size() == row.parts.size()) {
        std::vector<std::pair<int, Id>> goals;
        for (size_t i = 0; i < chosen.size(); ++i) goals.emplace_back(row.parts[i].node, whole.parts[chosen[i]].value);
        found = match(a_, *row.rule, goals, seen_as_);
        return;
      }
      const Row::Part& part = row.parts[chosen.size()];
      const PatternNode& want = row.rule->pattern[static_cast<size_t>(part.node)];
      for (size_t i = 0; i < whole.parts.size() && !found; ++i) {
        if (whole.parts[i].inverse != part.inverse || std::ranges::count(chosen, i) > 0) continue;
        if (want.kind == PatternNode::Kind::apply && want.op != seen[i]) continue;
        chosen.push_back(i);
        choose();
        if (!found) chosen.pop_back();
      }
    };
    choose();
    if (!found) continue;
    Parts left{{}, product ? whole.number / row.number : whole.number - row.number};
    for (size_t i = 0; i < whole.parts.size(); ++i)
      if (std::ranges::count(chosen, i) == 0) left.parts.push_back(whole.parts[i]);
    const Id made = instantiate(a_, row.rule->replacement, *found, type);
    // Numbers of what comes in its place join the others.
    const Parts own = product ? factors_of(a_, made) : terms_of(a_, made);
    if (!own.all || !std::isfinite(left.number)) continue;
    left.parts.insert(left.parts.end(), own.parts.begin(), own.parts.end());
    left.number = product ? left.number * own.number : left.number + own.number;
    return product ? product_of(a_, left, type) : sum_of(a_, left, type);
  }
  return kNone;
}

Id PartRows::scaled(Id id) const {
  const Parts terms = terms_of(a_, id);
  if (!terms.all || terms.parts.size() < 2) return kNone;
  Parts plain{{}, terms.number};
  double number = 0;
  for (const Parts::Part& part : terms.parts) {
    Parts factors = factors_of(a_, part.value, seen_as_);
    if (!factors.all || (number != 0 && std::abs(factors.number) != number)) return kNone;
    number = std::abs(factors.number);
    const bool minus = factors.number < 0;
    factors.number = 1;
    plain.parts.push_back({product_of(a_, factors, a_[id].type), part.inverse != minus});
  }
  if (number == 1 || number == 0) return kNone;
  plain.number /= number;
  if (!std::isfinite(plain.number)) return kNone;
  const Id made = applied(sum_of(a_, plain, a_[id].type));
  return made == kNone ? kNone : a_.mul(made, a_.constant(a_[id].type, number));
}

Id PartRows::factored(Id id) const {
  const Node n = a_[id];
  if (!is_sum(n.op) || !is_float(n.type)) return kNone;
  if (const Id made = scaled(id); made != kNone) return made;
  Parts x = factors_of(a_, n.arg(0), seen_as_), y = factors_of(a_, n.arg(1), seen_as_), common{{}, 1};
  if (!x.all || !y.all || x.parts.empty() || y.parts.empty()) return kNone;
  for (size_t i = x.parts.size(); i-- > 0;) {
    auto same = std::ranges::find(y.parts, x.parts[i]);
    if (same == y.parts.end()) continue;
    common.parts.insert(common.parts.begin(), x.parts[i]);
    y.parts.erase(same);
    x.parts.erase(x.parts.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // One of the two is nothing but the common factor, times a number.
  const bool first = x.parts.empty();
  if (common.parts.empty() || (first ? y : x).parts.empty() || (!first && !y.parts.empty()) || (first ? x : y).number == 0) return kNone;
  if (n.op == Op::sub) y.number = -y.number;
  Parts &number = first ? x : y, &rest = first ? y : x;
  common.number = number.number;
  rest.number /= number.number;
  if (!std::isfinite(rest.number)) return kNone;
  const bool minus = rest.number < 0;
  rest.number = std::abs(rest.number);
  const Id one = a_.constant(n.type, 1), value = product_of(a_, rest, n.type);
  const Id sum = minus ? a_.sub(one, value) : a_.add(one, value);
  // A row for the sum alone, or for the sum and the number.
  common.parts.push_back({sum, false});
  Id made = applied(id, common, products_, true);
  if (made == kNone) {
    const Id alone = applied(sum);
    if (alone == kNone) return kNone;
    common.parts.back().value = alone;
    made = product_of(a_, common, n.type);
  }
  const std::vector<Id> all = reachable(a_, made);
  return std::ranges::binary_search(all, sum) ? kNone : made;
}

}  // namespace xhat
