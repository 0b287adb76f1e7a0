#include "expr/rules/rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "expr/core/dtype.h"
#include "expr/core/error.h"
#include "expr/core/exact_ops.h"

namespace xhat {
namespace {

using PatternKind = PatternNode::Kind;

std::vector<RuleCondition> conditions_of(const std::string& text) {
  std::vector<RuleCondition> result;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ';');) {
    std::istringstream words(one);
    RuleCondition c;
    words >> c.word;
    for (std::string letter; words >> letter;) c.letters.push_back(letter.at(0));
    if (c.letters.empty()) throw Bug("rules.def: condition '" + one + "' names no variable");
    result.push_back(std::move(c));
  }
  return result;
}

std::string letters_of(const RulePattern& pattern) {
  std::string letters;
  for (const PatternNode& n : pattern)
    if (n.letter && letters.find(n.letter) == std::string::npos) letters += n.letter;
  return letters;
}

Rule rule_of(const char* name, const char* pattern, const char* replacement, const char* where) {
  Rule rule{name, read_pattern(pattern), read_pattern(replacement), conditions_of(where), {}, {}, {}};
  rule.letters = letters_of(rule.pattern);
  std::string kept = letters_of(rule.replacement);
  for (const RuleCondition& c : rule.where)
    if (c.word == "unused") kept += c.letters[0];
  for (char letter : rule.letters)
    if (std::islower(letter) && kept.find(letter) == std::string::npos) rule.dropped += letter;
  const PatternNode& root = rule.pattern.back();
  rule.root = root.kind == PatternKind::variable ? Op::constant : root.op;
  return rule;
}

// sin(-a) => -sin(a), hypot(-a, b) => hypot(a, b)
std::vector<Rule> parity_rules(const OpInfo& of) {
  if (of.parity == Parity::none || of.syntax != Syntax::function) return {};
  std::vector<Rule> rows;
  const std::string name(of.text), letters = "ab";
  for (size_t turned = 0; turned < static_cast<size_t>(of.arity); ++turned) {
    std::string pattern = name + "(", plain = of.parity == Parity::odd ? "-" + pattern : pattern;
    for (size_t i = 0; i < static_cast<size_t>(of.arity); ++i) {
      const std::string comma = i > 0 ? ", " : "";
      pattern += comma + (i == turned ? "-" : "") + letters[i];
      plain += comma + letters[i];
    }
    const std::string called = name + "_neg" + (turned > 0 ? "_" + std::to_string(turned + 1) : "");
    rows.push_back(rule_of(called.c_str(), (pattern + ")").c_str(), (plain + ")").c_str(), "float a"));
  }
  return rows;
}

// if c then exp(a) else exp(b) => exp(if c then a else b)
std::optional<Rule> choice_rule(const OpInfo& of) {
  constexpr int kDear_ps = 100;  // what a choice in front of it would save
  if (of.arity != 1 || of.syntax != Syntax::function || of.type != TypeRule::same_float || of.cost_ps < kDear_ps) return std::nullopt;
  const std::string name(of.text);
  return rule_of(("if_" + name).c_str(), ("if c then " + name + "(a) else " + name + "(b)").c_str(),
                 (name + "(if c then a else b)").c_str(), "float a; varying a; varying b; alone a");
}

// By bits: 0 is not -0.
bool is_number(const Node& n, double number) {
  if (n.op != Op::constant || n.type == DType::boolean) return false;
  if (is_float(n.type)) return std::bit_cast<uint64_t>(n.value) == std::bit_cast<uint64_t>(number);
  return !(number == 0 && std::signbit(number)) && static_cast<double>(n.integer) == number;
}

struct Goal {
  int pattern;
  Id node;
};

// Meets the goals from the last one on. Both orders of what commutes are tried, the written one first, until the row's
// conditions hold as well.
class Matcher {
 public:
  Matcher(const Arena& arena, const Rule& rule, const SeenAs& seen_as)
      : a_(arena),
        rule_(rule),
        p_(rule.pattern),
        seen_as_(seen_as),
        alone_(std::ranges::count(rule.where, "alone", &RuleCondition::word) > 0) {}

  bool meet(std::vector<Goal> goals, RuleBinding& binding) const {
    while (!goals.empty()) {
      Goal goal = goals.back();
      goals.pop_back();
      const PatternNode& want = p_[static_cast<size_t>(goal.pattern)];
      if (seen_as_ && want.kind != PatternKind::variable) {
        const bool alone = alone_ && want.kind == PatternKind::apply && std::ranges::count(p_.back().args, goal.pattern) > 0;
        goal.node = seen_as_(goal.node, alone);
        if (goal.node == kNone) return false;
      }
      const Node n = a_[goal.node];
      switch (want.kind) {
        case PatternKind::variable: {
          Id& bound = binding.of(want.letter);
          if (bound != kNone && bound != goal.node) return false;
          bound = goal.node;
          continue;
        }
        case PatternKind::number:
          if (!is_number(n, want.number)) return false;
          continue;
        case PatternKind::boolean:
          if (n.op != Op::constant || n.type != DType::boolean || (n.integer != 0) != (want.number != 0)) return false;
          continue;
        case PatternKind::cast: {
          if (n.op != Op::cast) return false;
          auto& bound = binding.type(want.letter);
          if (bound && *bound != n.type) return false;
          bound = n.type;
          break;
        }
        case PatternKind::apply:
        case PatternKind::choose:
          if (n.op != want.op) return false;
          break;
      }
      if (operands_commute(n.op)) {
        std::vector<Goal> as_written = goals;
        RuleBinding attempt = binding;
        as_written.push_back({want.args[0], n.arg(0)});
        as_written.push_back({want.args[1], n.arg(1)});
        if (meet(std::move(as_written), attempt)) {
          binding = attempt;
          return true;
        }
        goals.push_back({want.args[0], n.arg(1)});
        goals.push_back({want.args[1], n.arg(0)});
        continue;
      }
      for (size_t i = 0; i < want.args.size(); ++i) goals.push_back({want.args[i], n.arg(i)});
    }
    return holds(a_, rule_, binding);
  }

 private:
  const Arena& a_;
  const Rule& rule_;
  const RulePattern& p_;
  const SeenAs& seen_as_;
  const bool alone_;
};

// Could evaluating it fail on some data? What is indexed by data is checked at run time, argmax over nothing is an error.
bool checks_data(const Arena& a, Id root) {
  for (Id id : reachable(a, root)) {
    const Node& n = a[id];
    if (n.op == Op::argmax || n.op == Op::argmin) return true;
    if (n.op != Op::read) continue;
    std::vector<Id> indices = reachable(a, read_indices(n));
    if (std::ranges::any_of(indices, [&](Id x) { return is_read(a[x].op) || is_reduction(a[x].op); })) return true;
  }
  return false;
}

// A power of two from 2^-14 to 2^14: it and its reciprocal are normal numbers of f16.
bool has_exact_reciprocal(const Node& n) {
  if (n.op != Op::constant || !is_float(n.type)) return false;
  int exponent = 0;
  double mantissa = std::frexp(std::fabs(n.value), &exponent);
  return mantissa == 0.5 && exponent >= -13 && exponent <= 15;
}

// Is a number added to it: x - 14, 2*(3 - x)? What is too long to say counts as shifted.
bool is_shifted(const Arena& a, Id root) {
  constexpr size_t kMost = 64;
  std::vector<Id> open = {root};
  for (size_t k = 0; k < open.size(); ++k) {
    if (k == kMost) return true;
    const Node& n = a[open[k]];
    const bool sum = n.op == Op::add || n.op == Op::sub;
    if (!sum && n.op != Op::mul && n.op != Op::div && n.op != Op::neg) continue;
    for (Id x : n.args()) {
      const Node& part = a[x];
      const bool number = part.op == Op::constant || (part.op == Op::cast && part.axes_count == 0);
      if (sum && number) return true;
      if (!number) open.push_back(x);
    }
  }
  return false;
}

DType type_of(const Arena& a, const RuleBinding& binding, char letter) {
  if (std::islower(letter)) return a[binding.of(letter)].type;
  return *binding.type(letter);
}

bool condition_holds(const Arena& a, const RuleCondition& c, const RuleBinding& binding) {
  DType type = type_of(a, binding, c.letters[0]);
  if (c.word == "float") return is_float(type);
  if (c.word == "wide") return type == DType::f32 || type == DType::f64;
  if (c.word == "integer") return is_integer(type);
  if (c.word == "bool") return type == DType::boolean;
  if (c.word == "constant") return a[binding.of(c.letters[0])].op == Op::constant;
  if (c.word == "finite") {
    const Node& k = a[binding.of(c.letters[0])];
    return k.op == Op::constant && std::isfinite(k.value) && std::isfinite(round_to(type, k.value));
  }
  if (c.word == "varying") return a[binding.of(c.letters[0])].op != Op::constant;
  if (c.word == "negative") return a[binding.of(c.letters[0])].op == Op::constant && a[binding.of(c.letters[0])].value < 0;
  if (c.word == "positive") return a[binding.of(c.letters[0])].op == Op::constant && a[binding.of(c.letters[0])].value > 0;
  if (c.word == "below" || c.word == "most") {
    const double k = a[binding.of(c.letters[0])].value, m = a[binding.of(c.letters.at(1))].value, near = round_to(type, k),
                 far = round_to(type, m);
    return c.word == "below" ? k < m && near < far : k <= m && near <= far;
  }
  if (c.word == "unshifted") return !is_shifted(a, binding.of(c.letters[0]));
  if (c.word == "reciprocal") return has_exact_reciprocal(a[binding.of(c.letters[0])]);
  if (c.word == "same") return type == type_of(a, binding, c.letters.at(1));
  if (c.word == "wider") return promote(type, type_of(a, binding, c.letters.at(1))) == type;
  if (c.word == "unused" || c.word == "alone") return true;
  throw Bug("rules.def: unknown condition '" + c.word + "'");
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> rows = {
#define XHAT_RULE(name, pattern, replacement, where) rule_of(#name, pattern, replacement, where),
#include "expr/rules/rules.def"
    };
    for (int i = 0; i < kOpCount; ++i)
      for (Rule& row : parity_rules(info(static_cast<Op>(i)))) rows.push_back(std::move(row));
    return rows;
  }();
  return all;
}

const std::vector<Rule>& idioms() {
  static const std::vector<Rule> all = {
#define XHAT_IDIOM(name, pattern, replacement, where) rule_of(#name, pattern, replacement, where),
#define XHAT_SPELLING(name, pattern, replacement, where)
#include "expr/rules/idioms.def"
  };
  return all;
}

const std::vector<Rule>& spellings() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> rows = {
#define XHAT_IDIOM(name, pattern, replacement, where) rule_of(#name, pattern, replacement, where),
#define XHAT_SPELLING XHAT_IDIOM
#include "expr/rules/idioms.def"
    };
    for (int i = 0; i < kOpCount; ++i)
      if (auto row = choice_rule(info(static_cast<Op>(i)))) rows.push_back(std::move(*row));
    return rows;
  }();
  return all;
}

const std::vector<Rule>& closed_forms() {
  static const std::vector<Rule> all = {
#define XHAT_CLOSED_FORM(name, pattern, replacement, where) rule_of(#name, pattern, replacement, where),
#include "expr/rules/closed_forms.def"
  };
  return all;
}

bool holds(const Arena& a, const Rule& rule, const RuleBinding& binding) {
  return std::ranges::all_of(rule.where, [&](const RuleCondition& c) { return condition_holds(a, c, binding); });
}

std::optional<RuleBinding> match(const Arena& a, const Rule& rule, Id node, const SeenAs& seen_as) {
  return match(a, rule, {{static_cast<int>(rule.pattern.size()) - 1, node}}, seen_as);
}

std::optional<RuleBinding> match(const Arena& a, const Rule& rule, const std::vector<std::pair<int, Id>>& parts, const SeenAs& seen_as) {
  RuleBinding binding;
  std::vector<Goal> goals;
  for (size_t i = parts.size(); i-- > 0;) goals.push_back({parts[i].first, parts[i].second});
  if (!Matcher(a, rule, seen_as).meet(std::move(goals), binding)) return std::nullopt;
  for (char letter : rule.dropped)
    if (checks_data(a, binding.of(letter))) return std::nullopt;
  return binding;
}

}  // namespace xhat
