// A partial is a short text such as "if a < b then 1 else if a == b then 0.5 else 0", read as a pattern like those of the
// simplification rules. Instantiating puts arena nodes for a, b, c, r and folds constants, so that x^2 gives 2*x and not
// `if 2 == 0 then 0 else 2*x^(2 - 1)`. Operands are opaque: nothing the user wrote is looked into.
#include "ad/common/partials.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "expr/core/program.h"
#include "expr/core/scalar.h"
#include "expr/rules/pattern.h"

namespace xhat {
namespace {

using PatternKind = PatternNode::Kind;

const RulePattern& partial_of(Op op, size_t operand) {
  static const std::vector<std::vector<RulePattern>> all = [] {
    std::vector<std::vector<RulePattern>> rows;
    for (int row = 0; row <= static_cast<int>(Op::random); ++row) {
      rows.emplace_back();
      for (const char* text : info(static_cast<Op>(row)).partials) rows.back().push_back(read_pattern(text));
    }
    return rows;
  }();
  static const RulePattern zero = {{PatternKind::number}};
  const auto& row = all.at(static_cast<size_t>(op));
  return operand < row.size() ? row[operand] : zero;
}

std::optional<double> number_of(const Arena& a, Id id) {
  const Node& n = a[id];
  if (n.op == Op::constant) return is_float(n.type) ? n.value : static_cast<double>(n.integer);
  if (n.op == Op::neg && a[n.arg(0)].op == Op::constant) return -*number_of(a, n.arg(0));
  return std::nullopt;
}

// The operation's node, or what it comes to where constants decide that.
Id folded(Arena& a, Op op, std::span<const Id> args) {
  if (args.size() != 2) return a.apply(op, args);
  const DType type = a[args[0]].type;
  auto x = number_of(a, args[0]), y = number_of(a, args[1]);
  if (x && y) {
    const double values[] = {*x, *y};
    const ScalarOp& row = scalar(op);
    if (row.tests) return a.boolean(row.tests.at(values) != 0);
    if (row.reals) return a.constant(type, row.reals.at(values));
  }
  if (op == Op::mul && x && *x == 1) return args[1];
  if (op == Op::mul && y && *y == 1) return args[0];
  if (op == Op::pow && y && *y == 1) return args[0];
  if (op == Op::pow && y && *y == 0) return a.constant(type, 1);  // also 0^0, as the language has it
  return a.apply(op, args);
}

class Instance {
 public:
  Instance(Arena& a, Op op, const RulePattern& pattern, std::span<const Id> args, Id result)
      : arena_(a), op_(op), pattern_(pattern), type_(a[result].type) {
    for (size_t i = 0; i < args.size(); ++i) binding_.variables[i] = args[i];
    binding_.of('r') = result;
  }

  Scaled scale(Id adjoint, int at) {
    const PatternNode& t = node(at);
    if (t.kind == PatternKind::choose) return scale_choice(adjoint, t);
    if (t.kind == PatternKind::number) return scale_number(adjoint, t.number);
    if (applies(t, Op::neg)) return negated(scale(adjoint, t.args[0]));
    if (applies(t, Op::div)) {
      Scaled s = scale(adjoint, t.args[0]);
      if (s.value == kNone) return s;
      bool infinite = can_vanish(t.args[1]);
      s.singular = s.singular || infinite;
      s.number = s.number && !infinite;
      s.value = arena_.div(s.value, build(t.args[1]));
      return s;
    }
    Scaled s;
    s.singular = singular(at);
    Id factor = build(at);
    auto c = number_of(arena_, factor);
    if (c && (*c == 0 || *c == 1)) return scale_number(adjoint, *c);
    s.number = is_number(factor);
    s.value = arena_.mul(adjoint, factor);
    return s;
  }

 private:
  const PatternNode& node(int at) const { return pattern_[static_cast<size_t>(at)]; }
  static bool applies(const PatternNode& n, Op op) { return n.kind == PatternKind::apply && n.op == op; }

  Scaled scale_number(Id adjoint, double c) {
    Scaled s;
    s.number = std::isfinite(c);
    if (c == 0) return s;
    if (c == 1)
      s.value = adjoint;
    else if (c == -1)
      s.value = arena_.unary(Op::neg, adjoint);
    else
      s.value = arena_.mul(adjoint, arena_.constant(type_, c));
    return s;
  }

  Scaled negated(Scaled s) {
    if (s.value != kNone) s.value = arena_.unary(Op::neg, s.value);
    return s;
  }

  // A zero branch is a guard; with none, the selection itself, and where it is not zero as knowledge.
  Scaled scale_choice(Id adjoint, const PatternNode& t) {
    Id condition = build(t.args[0]);
    if (auto c = number_of(arena_, condition)) return scale(adjoint, *c != 0 ? t.args[1] : t.args[2]);
    Scaled yes = scale(adjoint, t.args[1]), no = scale(adjoint, t.args[2]);
    if (yes.value == kNone && no.value == kNone) return yes;
    if (no.value == kNone || yes.value == kNone) {
      Scaled s = no.value == kNone ? yes : no;
      Literals outer;
      add_literals(arena_, outer, no.value == kNone ? condition : negation(arena_, condition));
      for (Id id : s.guards) add_literals(arena_, outer, id);
      s.guards = outer;
      return s;
    }
    Scaled s;
    s.singular = yes.singular || no.singular;
    s.number = yes.number && no.number;
    s.value = arena_.select(condition, guarded(arena_, yes.guards, yes.value),
                            guarded(arena_, no.guards, no.value));
    if (yes.guards.empty() && !no.guards.empty())
      add_literals(arena_, s.implied, disjunction(arena_, condition, conjunction(arena_, no.guards)));
    return s;
  }

  bool is_number(Id factor) const {
    if (auto c = number_of(arena_, factor)) return std::isfinite(*c);
    return arena_[factor].free_axes().empty() && tensors_read(arena_, factor).empty();
  }

  // Can it be zero for some data, or at some point? What is made of dims alone is a count of elements: zero where
  // there are none.
  bool can_vanish(int at) {
    Id divisor = build(at);
    if (number_of(arena_, divisor) == 0) return true;
    return !is_number(divisor);
  }

  bool overflows() const {
    return op_ == Op::exp || op_ == Op::expm1 || op_ == Op::rsqrt || op_ == Op::exp2 || op_ == Op::sinh || op_ == Op::erfinv;
  }
  static bool has_poles(Op op) {
    return op == Op::log || op == Op::rsqrt || op == Op::digamma || op == Op::polygamma || op == Op::sinh;
  }

  // Division, logarithm, a power whose exponent is not known to be >= 0, or a result that overflows.
  bool singular(int at) {
    const PatternNode& t = node(at);
    if (t.kind == PatternKind::variable) return t.letter == 'r' && overflows();
    if (t.kind == PatternKind::apply && has_poles(t.op)) return true;
    if (applies(t, Op::div) && can_vanish(t.args[1])) return true;
    if (applies(t, Op::pow)) {
      auto exponent = number_of(arena_, build(t.args[1]));
      if (!exponent || *exponent < 0) return true;
    }
    return std::any_of(t.args.begin(), t.args.end(), [&](int x) { return singular(x); });
  }

  Id build(int at) {
    return instantiate(arena_, std::span(pattern_).first(static_cast<size_t>(at) + 1), binding_, type_, folded);
  }

  Arena& arena_;
  Op op_;
  const RulePattern& pattern_;
  RuleBinding binding_;
  DType type_;
};

}  // namespace

bool partial_is_zero(Op op, size_t operand) {
  const PatternNode& root = partial_of(op, operand).back();
  return root.kind == PatternKind::number && root.number == 0;
}

Scaled scale_by_partial(Arena& a, Id adjoint, Op op, size_t operand, std::span<const Id> args, Id result) {
  const RulePattern& partial = partial_of(op, operand);
  return Instance(a, op, partial, args, result).scale(adjoint, static_cast<int>(partial.size()) - 1);
}

}  // namespace xhat
