#include "expr/rules/rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "expr/core/error.h"
#include "expr/text/ast.h"

namespace xhat {
namespace {

using PatternKind = PatternNode::Kind;

bool is_type_letter(const std::string& name) { return name.size() == 1 && name[0] >= 'A' && name[0] <= 'Z'; }

Op infix_named(const std::string& sign) {
  for (int op = static_cast<int>(Op::neg); op <= static_cast<int>(Op::random); ++op)
    if (const OpInfo& row = info(static_cast<Op>(op)); row.syntax == Syntax::infix && row.text == sign)
      return static_cast<Op>(op);
  throw Bug("rules.def: no operator " + sign);
}

// Text -> tree -> pattern: a row is read by the parser that reads programs.
class Reader {
 public:
  explicit Reader(const std::string& text) : file_(ast::parse("op rule() -> (y) {\n  y = " + text + "\n}\n")) {
    add(file_->ops[0].body.statements[0].body);
  }
  RulePattern take() { return std::move(made_); }

 private:
  int push(PatternNode n) {
    made_.push_back(std::move(n));
    return static_cast<int>(made_.size()) - 1;
  }

  std::vector<int> all(const std::vector<ast::Ref>& refs) {
    std::vector<int> made;
    for (ast::Ref r : refs) made.push_back(add(r));
    return made;
  }

  // Recursive: rows are short.
  int add(ast::Ref ref) {
    const ast::Node& n = file_->nodes[ref];
    switch (n.kind) {
      case ast::Kind::number: return push({PatternKind::number, 0, std::strtod(n.text.c_str(), nullptr)});
      case ast::Kind::boolean: return push({PatternKind::boolean, 0, n.text == "true" ? 1.0 : 0.0});
      case ast::Kind::name:
        if (n.text.size() != 1) throw Bug("rules.def: variables are single letters, not " + n.text);
        return push({PatternKind::variable, n.text[0]});
      case ast::Kind::unary: return unary(n);
      case ast::Kind::binary: return push({PatternKind::apply, 0, 0, infix_named(n.text), all(n.args)});
      case ast::Kind::choose: return push({PatternKind::choose, 0, 0, Op::select, all(n.args)});
      case ast::Kind::call:
        if (is_type_letter(n.text)) return push({PatternKind::cast, n.text[0], 0, Op::cast, all(n.args)});
        if (const Op* op = function_named(n.text)) return push({PatternKind::apply, 0, 0, *op, all(n.args)});
        throw Bug("rules.def: no function " + n.text);
      case ast::Kind::read:
      case ast::Kind::let:
      case ast::Kind::reduce: break;
    }
    throw Bug("rules.def: a pattern has no reads, lets or reductions");
  }

  int unary(const ast::Node& n) {
    const ast::Node& operand = file_->nodes[n.args[0]];
    if (n.text == "-" && operand.kind == ast::Kind::number)
      return push({PatternKind::number, 0, -std::strtod(operand.text.c_str(), nullptr)});
    return push({PatternKind::apply, 0, 0, n.text == "-" ? Op::neg : Op::lnot, all(n.args)});
  }

  std::shared_ptr<ast::File> file_;
  RulePattern made_;
};

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
  Rule rule{name, Reader(pattern).take(), Reader(replacement).take(), conditions_of(where), {}, {}, {}};
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

bool commutes(Op op) {
  return op == Op::add || op == Op::mul || op == Op::maximum || op == Op::minimum || op == Op::eq || op == Op::ne ||
         op == Op::land || op == Op::lor;
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
  Matcher(const Arena& arena, const Rule& rule) : a_(arena), rule_(rule), p_(rule.pattern) {}

  bool meet(std::vector<Goal> goals, RuleBinding& binding) const {
    while (!goals.empty()) {
      Goal goal = goals.back();
      goals.pop_back();
      const PatternNode& want = p_[static_cast<size_t>(goal.pattern)];
      const Node& n = a_[goal.node];
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
      if (commutes(n.op)) {
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
  if (c.word == "varying") return a[binding.of(c.letters[0])].op != Op::constant;
  if (c.word == "reciprocal") return has_exact_reciprocal(a[binding.of(c.letters[0])]);
  if (c.word == "same") return type == type_of(a, binding, c.letters.at(1));
  if (c.word == "wider") return promote(type, type_of(a, binding, c.letters.at(1))) == type;
  if (c.word == "unused") return true;
  throw Bug("rules.def: unknown condition '" + c.word + "'");
}

// The type that a part has by itself; numbers have none.
std::optional<DType> own_type(const Arena& a, const RulePattern& pattern, int at, const RuleBinding& binding) {
  const PatternNode& n = pattern[static_cast<size_t>(at)];
  switch (n.kind) {
    case PatternKind::variable: return a[binding.of(n.letter)].type;
    case PatternKind::number: return std::nullopt;
    case PatternKind::boolean: return DType::boolean;
    case PatternKind::cast: return binding.type(n.letter);
    case PatternKind::choose: break;
    case PatternKind::apply:
      if (TypeRule rule = info(n.op).type;
          rule == TypeRule::compare || rule == TypeRule::logic || rule == TypeRule::classify)
        return DType::boolean;
      break;
  }
  for (size_t i = n.kind == PatternKind::choose ? 1 : 0; i < n.args.size(); ++i)
    if (auto type = own_type(a, pattern, n.args[i], binding)) return type;
  return std::nullopt;
}

Id build(Arena& a, const RulePattern& pattern, int at, const RuleBinding& binding, DType wanted) {
  const PatternNode& n = pattern[static_cast<size_t>(at)];
  switch (n.kind) {
    case PatternKind::variable: return binding.of(n.letter);
    case PatternKind::number:
      if (!is_float(wanted) && round_to(wanted, n.number) != n.number) throw Bug("a rule's number does not fit its type");
      return a.constant(wanted, n.number);
    case PatternKind::boolean: return a.boolean(n.number != 0);
    case PatternKind::cast: return a.cast(*binding.type(n.letter), build(a, pattern, n.args[0], binding, wanted));
    case PatternKind::choose:
    case PatternKind::apply: break;
  }
  DType operand = wanted;
  size_t first = n.kind == PatternKind::choose ? 1 : 0;
  for (size_t i = n.args.size(); i-- > first;)
    if (auto type = own_type(a, pattern, n.args[i], binding)) operand = *type;
  std::vector<Id> args;
  for (size_t i = 0; i < n.args.size(); ++i)
    args.push_back(build(a, pattern, n.args[i], binding, i < first ? DType::boolean : operand));
  return n.kind == PatternKind::choose ? a.select(args[0], args[1], args[2]) : a.apply(n.op, args);
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
#define XHAT_RULE(name, pattern, replacement, where) rule_of(#name, pattern, replacement, where),
#include "expr/rules/rules.def"
  };
  return all;
}

const std::vector<Rule>& idioms() {
  static const std::vector<Rule> all = {
#define XHAT_IDIOM(name, pattern, replacement, where) rule_of(#name, pattern, replacement, where),
#include "expr/rules/idioms.def"
  };
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

std::optional<RuleBinding> match(const Arena& a, const Rule& rule, Id node) {
  RuleBinding binding;
  if (!Matcher(a, rule).meet({{static_cast<int>(rule.pattern.size()) - 1, node}}, binding)) return std::nullopt;
  for (char letter : rule.dropped)
    if (checks_data(a, binding.of(letter))) return std::nullopt;
  return binding;
}

Id instantiate(Arena& a, const RulePattern& pattern, const RuleBinding& binding, DType type) {
  return build(a, pattern, static_cast<int>(pattern.size()) - 1, binding, type);
}

}  // namespace xhat
