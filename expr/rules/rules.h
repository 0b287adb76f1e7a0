// The rows of rules.def, parsed: a pattern each, matched against nodes, and what comes in its place.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "expr/rules/pattern.h"

namespace xhat {

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

const std::vector<Rule>& rules();         // exact: expr/rules/rules.def
const std::vector<Rule>& idioms();        // of real numbers: expr/rules/idioms.def
const std::vector<Rule>& spellings();     // idioms, and what is recognized only where a user wrote it
const std::vector<Rule>& closed_forms();  // likewise: expr/rules/closed_forms.def

// Do the row's conditions hold?
bool holds(const Arena& a, const Rule& rule, const RuleBinding& binding);
// What a node below the pattern's root is taken for, such as a read for the value of the map that it reads. alone: kNone if anything else
// uses it.
using SeenAs = std::function<Id(Id, bool alone)>;
// The rule's pattern at this node, every condition met; none if it does not apply.
std::optional<RuleBinding> match(const Arena& a, const Rule& rule, Id node, const SeenAs& seen_as = {});
// Parts of it, by index in the pattern, at these nodes.
std::optional<RuleBinding> match(const Arena& a, const Rule& rule, const std::vector<std::pair<int, Id>>& parts, const SeenAs& seen_as);

}  // namespace xhat
