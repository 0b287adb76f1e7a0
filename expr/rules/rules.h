// The rows of rules.def, parsed: patterns over expressions, matched against nodes and instantiated as nodes.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "expr/core/expr.h"

namespace xhat {

// What a pattern's letters stand for. Indexed by letter: variables 'a'..'z', types 'A'..'Z'.
struct RuleBinding {
  std::array<Id, 26> variables;
  std::array<std::optional<DType>, 26> types;
  RuleBinding() { variables.fill(kNone); }
  Id& of(char letter) { return variables[static_cast<size_t>(letter - 'a')]; }
  Id of(char letter) const { return variables[static_cast<size_t>(letter - 'a')]; }
  std::optional<DType>& type(char letter) { return types[static_cast<size_t>(letter - 'A')]; }
  std::optional<DType> type(char letter) const { return types[static_cast<size_t>(letter - 'A')]; }
};

struct PatternNode {
  enum class Kind : uint8_t { variable, number, boolean, apply, choose, cast } kind;
  char letter = 0;      // variable; cast: the type's
  double number = 0;    // boolean: 0 or 1
  Op op = Op::add;      // apply
  std::vector<int> args = {};
};

// Children before parents, the root last.
using RulePattern = std::vector<PatternNode>;

struct RuleCondition {
  std::string word;
  std::vector<char> letters;
};

struct Rule {
  std::string name;
  RulePattern pattern;
  RulePattern replacement;
  std::vector<RuleCondition> where;
  std::string letters;  // the pattern's variables and types
  std::string dropped;  // variables that the replacement lacks and the pattern evaluates
  Op root;              // of the pattern
};

const std::vector<Rule>& rules();   // exact: expr/rules/rules.def
const std::vector<Rule>& idioms();  // of real numbers: expr/rules/idioms.def
const std::vector<Rule>& closed_forms();  // likewise: expr/rules/closed_forms.def

// Do the row's conditions hold?
bool holds(const Arena& a, const Rule& rule, const RuleBinding& binding);
// The rule's pattern at this node, every condition met; none if it does not apply.
std::optional<RuleBinding> match(const Arena& a, const Rule& rule, Id node);
// The node for a pattern. Its numbers take the type of what they stand beside, else `type`. Bug where a type does not fit.
Id instantiate(Arena& a, const RulePattern& pattern, const RuleBinding& binding, DType type);

}  // namespace xhat
