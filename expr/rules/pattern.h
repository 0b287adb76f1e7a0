// Expressions over letters, read from a text in the language and instantiated as nodes: both sides of a simplification rule
// (rules.h), and the partial derivatives of ops.def (ad/common/partials.h).
#pragma once
#include <array>
#include <optional>
#include <span>
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
  char letter = 0;    // variable; cast: the type's
  double number = 0;  // boolean: 0 or 1
  Op op = Op::add;    // apply
  std::vector<int> args = {};
};

// Children before parents, the root last.
using RulePattern = std::vector<PatternNode>;
// Bug where it cannot be one.
RulePattern read_pattern(const std::string& text);

// The node of an operation of ops.def.
using MakeNode = Id (*)(Arena&, Op, std::span<const Id>);
inline Id make_node(Arena& a, Op op, std::span<const Id> args) { return a.apply(op, args); }
// The node for a pattern, which ends with its root. Its numbers take the type of what they stand beside, else `type`. Bug
// where a type does not fit.
Id instantiate(Arena& a, std::span<const PatternNode> pattern, const RuleBinding& binding, DType type, MakeNode make = make_node);

}  // namespace xhat
