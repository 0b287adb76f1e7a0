// A partial is a short text such as "if a < b then 1 else if a == b then 1/2 else 0". It becomes a template
// of terms; instantiating puts arena nodes for a, b, c, r and folds constants, so that x^2 gives 2*x and not
// `if 2 == 0 then 0 else 2*x^(2 - 1)`. Operands are opaque: nothing the user wrote is looked into.
#include "ad/common/partials.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "expr/core/error.h"
#include "expr/core/program.h"

namespace xhat {
namespace {

using Term = Partials::Term;
using Template = Partials::Template;

// Recursive descent; the texts are one line long.
class PartialParser {
 public:
  explicit PartialParser(std::string_view text) : text_(text) {}
  Template parse() {
    choose();
    if (skip() != text_.size()) fail();
    return std::move(terms_);
  }

 private:
  size_t skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_;
  }
  bool accept(std::string_view token) {
    if (text_.substr(skip(), token.size()) != token) return false;
    bool word = std::isalpha(static_cast<unsigned char>(token[0])) != 0;
    size_t end = at_ + token.size();
    if (word && end < text_.size() && std::isalnum(static_cast<unsigned char>(text_[end]))) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail();
  }
  [[noreturn]] void fail() const {
    throw Bug("ops.def: cannot read the partial '" + std::string(text_) + "'");
  }
  int push(Term t) {
    terms_.push_back(std::move(t));
    return static_cast<int>(terms_.size()) - 1;
  }
  int apply(Op op, std::vector<int> args) { return push({Term::Kind::apply, 0, 0, op, std::move(args)}); }

  int choose() {
    if (!accept("if")) return logic();
    int condition = logic();
    expect("then");
    int yes = choose();
    expect("else");
    int no = choose();
    return push({Term::Kind::choose, 0, 0, Op::select, {condition, yes, no}});
  }
  int logic() {
    int x = comparison();
    while (true) {
      if (accept("&&"))
        x = apply(Op::land, {x, comparison()});
      else if (accept("||"))
        x = apply(Op::lor, {x, comparison()});
      else
        return x;
    }
  }
  int comparison() {
    int x = sum();
    if (accept("==")) return apply(Op::eq, {x, sum()});
    if (accept("!=")) return apply(Op::ne, {x, sum()});
    if (accept("<=")) return apply(Op::le, {x, sum()});
    if (accept(">=")) return swapped(Op::le, x);
    if (accept("<")) return apply(Op::lt, {x, sum()});
    if (accept(">")) return swapped(Op::lt, x);
    return x;
  }
  int swapped(Op op, int x) {
    int y = sum();
    return apply(op, {y, x});
  }
  int sum() {
    int x = product();
    while (true) {
      if (accept("+"))
        x = apply(Op::add, {x, product()});
      else if (accept("-"))
        x = apply(Op::sub, {x, product()});
      else
        return x;
    }
  }
  int product() {
    int x = sign();
    while (true) {
      if (accept("*"))
        x = apply(Op::mul, {x, sign()});
      else if (accept("/"))
        x = apply(Op::div, {x, sign()});
      else
        return x;
    }
  }
  int sign() {
    if (accept("-")) return apply(Op::neg, {sign()});
    int x = atom();
    return accept("^") ? apply(Op::pow, {x, sign()}) : x;
  }
  int atom() {
    if (accept("(")) {
      int x = choose();
      expect(")");
      return x;
    }
    skip();
    size_t start = at_;
    auto peek = [&](size_t i) { return i < text_.size() ? static_cast<unsigned char>(text_[i]) : 0; };
    if (std::isdigit(peek(at_))) {
      while (std::isdigit(peek(at_)) || peek(at_) == '.') ++at_;
      return push(
          {Term::Kind::number, std::stod(std::string(text_.substr(start, at_ - start))), 0, Op::add, {}});
    }
    while (std::isalnum(peek(at_))) ++at_;
    std::string_view word = text_.substr(start, at_ - start);
    if (word.size() == 1 && std::string_view("abcr").find(word[0]) != std::string_view::npos) {
      int index = word[0] == 'r' ? 3 : word[0] - 'a';
      return push({Term::Kind::operand, 0, index, Op::add, {}});
    }
    const Op* op = function_named(word);
    if (!op) fail();
    expect("(");
    std::vector<int> args{choose()};
    while (accept(",")) args.push_back(choose());
    expect(")");
    return apply(*op, std::move(args));
  }

  std::string_view text_;
  size_t at_ = 0;
  Template terms_;
};

std::optional<double> number_of(const Arena& a, Id id) {
  const Node& n = a[id];
  if (n.op == Op::constant) return is_float(n.type) ? n.value : static_cast<double>(n.integer);
  if (n.op == Op::neg && a[n.arg(0)].op == Op::constant) return -*number_of(a, n.arg(0));
  return std::nullopt;
}

std::optional<double> fold(Op op, double x, double y) {
  if (op == Op::add) return x + y;
  if (op == Op::sub) return x - y;
  if (op == Op::mul) return x * y;
  if (op == Op::div) return x / y;
  if (op == Op::pow) return std::pow(x, y);
  if (op == Op::eq) return x == y;
  if (op == Op::ne) return x != y;
  if (op == Op::lt) return x < y;
  if (op == Op::le) return x <= y;
  return std::nullopt;
}

class Instance {
 public:
  Instance(Arena& a, Op op, const Template& terms, std::span<const Id> args, Id result)
      : arena_(a),
        op_(op),
        terms_(terms),
        args_(args),
        result_(result),
        type_(a[result].type),
        built_(terms.size(), kNone) {}

  Scaled scale(Id adjoint, int index) {
    const Term& t = terms_[static_cast<size_t>(index)];
    if (t.kind == Term::Kind::choose) return scale_choice(adjoint, t);
    if (t.kind == Term::Kind::apply && t.op == Op::neg) return negated(scale(adjoint, t.args[0]));
    if (auto c = number(index)) return scale_number(adjoint, *c);
    if (t.kind == Term::Kind::apply && t.op == Op::div) {
      Scaled s = scale(adjoint, t.args[0]);
      if (s.value == kNone) return s;
      bool infinite = can_vanish(t.args[1]);
      s.singular = s.singular || infinite;
      s.number = s.number && !infinite;
      s.value = arena_.div(s.value, build(t.args[1]));
      return s;
    }
    Scaled s;
    s.singular = singular(index);
    Id factor = build(index);
    auto c = number_of(arena_, factor);
    if (c && (*c == 0 || *c == 1)) return scale_number(adjoint, *c);
    s.number = is_number(factor);
    s.value = arena_.mul(adjoint, factor);
    return s;
  }

 private:
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
  Scaled scale_choice(Id adjoint, const Term& t) {
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

  std::optional<double> number(int index) {
    const Term& t = terms_[static_cast<size_t>(index)];
    if (t.kind == Term::Kind::number) return t.number;
    if (t.kind == Term::Kind::apply && t.op == Op::neg) {
      auto x = number(t.args[0]);
      return x ? std::optional<double>(-*x) : std::nullopt;
    }
    if (t.kind == Term::Kind::apply && t.args.size() == 2) {
      auto x = number(t.args[0]), y = number(t.args[1]);
      if (x && y) return fold(t.op, *x, *y);
    }
    return std::nullopt;
  }

  bool is_number(Id factor) const {
    if (auto c = number_of(arena_, factor)) return std::isfinite(*c);
    return arena_[factor].free_axes().empty() && tensors_read(arena_, factor).empty();
  }

  // Can it be zero for some data, or at some point? What is made of dims alone is a count of elements: zero where
  // there are none.
  bool can_vanish(int index) {
    Id divisor = build(index);
    if (number_of(arena_, divisor) == 0) return true;
    return !is_number(divisor);
  }

  // Division, logarithm, a power whose exponent is not known to be >= 0, or a result that overflows.
  bool singular(int index) {
    const Term& t = terms_[static_cast<size_t>(index)];
    if (t.kind == Term::Kind::operand)
      return t.operand == 3 && (op_ == Op::exp || op_ == Op::expm1 || op_ == Op::rsqrt);
    if (t.kind == Term::Kind::number || number(index)) return false;
    if (t.op == Op::log || (t.op == Op::div && can_vanish(t.args[1]))) return true;
    if (t.op == Op::pow) {
      auto exponent = number_of(arena_, build(t.args[1]));
      if (!exponent || *exponent < 0) return true;
    }
    return std::any_of(t.args.begin(), t.args.end(), [&](int x) { return singular(x); });
  }

  Id build(int index) {
    Id& done = built_[static_cast<size_t>(index)];
    if (done != kNone) return done;
    const Term& t = terms_[static_cast<size_t>(index)];
    if (t.kind == Term::Kind::operand)
      return done = t.operand == 3 ? result_ : args_[static_cast<size_t>(t.operand)];
    if (auto c = number(index)) return done = arena_.constant(type_, *c);
    if (t.kind == Term::Kind::choose)
      return done = arena_.select(build(t.args[0]), build(t.args[1]), build(t.args[2]));
    std::vector<Id> args;
    for (int x : t.args) args.push_back(build(x));
    return done = folded(t.op, args);
  }

  Id folded(Op op, const std::vector<Id>& args) {
    auto x = number_of(arena_, args[0]);
    if (args.size() == 1) {
      if (op == Op::neg && x) return arena_.constant(type_, -*x);
      return arena_.apply(op, args);
    }
    auto y = number_of(arena_, args[1]);
    if (x && y)
      if (auto z = fold(op, *x, *y))
        return info(op).type == TypeRule::compare ? arena_.boolean(*z != 0) : arena_.constant(type_, *z);
    if (op == Op::mul && x && *x == 1) return args[1];
    if (op == Op::mul && y && *y == 1) return args[0];
    if (op == Op::pow && y && *y == 1) return args[0];
    if (op == Op::pow && y && *y == 0) return arena_.constant(type_, 1);  // also 0^0, as the language has it
    return arena_.apply(op, args);
  }

  Arena& arena_;
  Op op_;
  const Template& terms_;
  std::span<const Id> args_;
  Id result_;
  DType type_;
  std::vector<Id> built_;
};

}  // namespace

const Template& Partials::of(Op op, size_t operand) {
  auto [at, fresh] = templates_.try_emplace({op, operand});
  if (fresh) {
    const auto& texts = info(op).partials;
    at->second = operand < texts.size() ? PartialParser(texts[operand]).parse() : PartialParser("0").parse();
  }
  return at->second;
}

bool Partials::is_zero(Op op, size_t operand) {
  const Template& t = of(op, operand);
  return t.size() == 1 && t[0].kind == Term::Kind::number && t[0].number == 0;
}

Scaled Partials::scale(Arena& a, Id adjoint, Op op, size_t operand, std::span<const Id> args, Id result) {
  const Template& t = of(op, operand);
  return Instance(a, op, t, args, result).scale(adjoint, static_cast<int>(t.size()) - 1);
}

}  // namespace xhat
