// Operations on elements: promotion of types, broadcasting, and what is folded while the graph is built.
#include <fmt/format.h>

#include <cmath>

#include "expr/core/scalar.h"
#include "runtime/lazy/functions.h"
#include "runtime/lazy/options.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy {
namespace detail {
namespace {

// The type of the operands that are no plain numbers; plain numbers alone keep their own kind.
DType common_type(const NodeList& operands, const Site& site) {
  std::optional<DType> common;
  bool real_number = false;
  for (const NodePtr& n : operands) {
    if (n->weak) {
      real_number |= is_float(n->type);
      continue;
    }
    const auto both = common ? promote(*common, n->type) : n->type;
    if (!both)
      fail(site, fmt::format("operands of type {} and {}; cast one: cast(x, {})", name_of(*common), name_of(n->type), name_of(*common)));
    common = both;
  }
  if (!common) return real_number ? DType::f32 : operands[0]->type;
  return real_number && is_integer(*common) ? DType::f32 : *common;  // 0.5f * integers
}

Shape common_shape(const NodeList& operands, const Site& site) {
  Shape shape = operands[0]->shape;
  for (size_t i = 1; i < operands.size(); ++i) {
    const auto both = broadcast(shape, operands[i]->shape);
    if (!both)
      fail(site, fmt::format("shapes {} and {} do not broadcast: extents counted from the last must be equal, or one of them 1",
                             text(shape), text(operands[i]->shape)));
    shape = *both;
  }
  return shape;
}

bool is_plain(const NodePtr& n) { return n->kind == Kind::constant; }

// The value of an operation on constants.
NodePtr folded(Op op, DType type, const Shape& shape, const NodeList& operands) {
  const bool from_float = is_float(operands[0]->type), to_float = is_float(type);
  NodePtr n = make(Kind::constant, type, shape, {});
  if (op == Op::cast) {
    if (to_float)
      n->value = round_to(type, from_float ? operands[0]->value : real_from(type, operands[0]->integer));
    else
      n->integer = from_float ? integer_from(type, operands[0]->value) : integer_from(type, operands[0]->integer);
    return n;
  }
  if (op == Op::select) {
    const NodePtr& chosen = operands[0]->integer ? operands[1] : operands[2];
    n->value = chosen->value;
    n->integer = chosen->integer;
    return n;
  }
  const ScalarOp& row = scalar(op);
  double reals[3] = {};
  int64_t integers[3] = {};
  for (size_t i = 0; i < operands.size(); ++i) reals[i] = operands[i]->value, integers[i] = operands[i]->integer;
  if (from_float && to_float && row.reals)
    n->value = round_to(type, row.reals.at(reals));
  else if (from_float && row.tests)
    n->integer = row.tests.at(reals);
  else if (!from_float && !to_float && row.integers)
    n->integer = type == DType::boolean ? row.integers.at(integers) : wrap_to(type, row.integers.at(integers));
  else
    return nullptr;
  return n;
}

// x of `x op c`, where that is x; the operand itself must have the result's shape.
NodePtr without_neutral(Op op, const NodeList& o, const Shape& shape) {
  if (o.size() == 1) {
    const bool twice = (op == Op::neg || op == Op::lnot) && o[0]->kind == Kind::elementwise && o[0]->op == op;
    return twice ? o[0]->args[0] : nullptr;
  }
  if (o.size() != 2) return nullptr;
  auto keeps = [&](const NodePtr& x, const NodePtr& c, double neutral) { return is_number(c, neutral) && x->shape == shape; };
  if (op == Op::add || op == Op::sub) {
    if (keeps(o[0], o[1], 0)) return o[0];
    if (op == Op::add && keeps(o[1], o[0], 0)) return o[1];
  }
  if (op == Op::mul || op == Op::div || op == Op::pow) {
    if (keeps(o[0], o[1], 1)) return o[0];
    if (op == Op::mul && keeps(o[1], o[0], 1)) return o[1];
  }
  if ((op == Op::pow && is_number(o[1], 0)) || (op == Op::pow && is_number(o[0], 1))) return constant(o[0]->type, 1, shape);
  const bool zero = op == Op::mul && (is_number(o[0], 0) || is_number(o[1], 0));
  if (zero && (!is_float(o[0]->type) || options().fast_math)) return constant(o[0]->type, 0, shape);
  return nullptr;
}

// (x + 3) + 4 = x + 7, and the same of products: exact for integers, for floats only where asked for.
NodePtr with_one_constant(Op op, const NodeList& o, const Shape& shape, const Site& site) {
  if (o.size() != 2 || !is_plain(o[1]) || !(op == Op::add || op == Op::sub || op == Op::mul)) return nullptr;
  const NodePtr& inner = o[0];
  if (is_float(inner->type) && !options().fast_math) return nullptr;
  if (inner->kind != Kind::elementwise || inner->args.size() != 2 || !is_plain(inner->args[1]) || inner->shape != shape) return nullptr;
  const bool product = op == Op::mul;
  if (product != (inner->op == Op::mul) || (!product && inner->op != Op::add && inner->op != Op::sub)) return nullptr;
  const Op between = product ? Op::mul : inner->op == op ? Op::add : Op::sub;
  NodePtr together = folded(between, inner->type, {}, {inner->args[1], o[1]});
  return elementwise(inner->op, {inner->args[0], together}, site);
}

DType result_type(Op op, DType operand) {
  switch (info(op).type) {
    case TypeRule::compare:
    case TypeRule::classify:
    case TypeRule::logic: return DType::boolean;
    case TypeRule::same_float:
    case TypeRule::same:
    case TypeRule::same_or_bool:
    case TypeRule::whole:
    case TypeRule::any: return operand;
  }
  return operand;
}

NodePtr operation(Op op, DType type, const Shape& shape, NodeList operands) {
  if (std::ranges::all_of(operands, is_plain))
    if (NodePtr n = folded(op, type, shape, operands)) {
      n->weak = std::ranges::all_of(operands, [](const NodePtr& x) { return x->weak; });
      return n;
    }
  NodePtr n = make(Kind::elementwise, type, shape, std::move(operands));
  n->op = op;
  return n;
}

}  // namespace

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape shape = longer;
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& extent = shape[longer.size() - 1 - i];
    const int64_t other = shorter[shorter.size() - 1 - i];
    if (extent == 1)
      extent = other;
    else if (other != 1 && other != extent)
      return std::nullopt;
  }
  return shape;
}

NodePtr cast_node(const NodePtr& x, DType type) {
  if (x->type == type) return x;
  // A cast of a cast to a wider type of the same kind is the first one alone.
  const bool widened = x->kind == Kind::elementwise && x->op == Op::cast && promote(x->args[0]->type, x->type) == x->type;
  if (widened && promote(x->args[0]->type, type)) return cast_node(x->args[0], type);
  return operation(Op::cast, type, x->shape, {x});
}

NodePtr expanded(const NodePtr& x, const Shape& shape) {
  if (x->shape == shape) return x;
  Shape ones;
  for (size_t i = x->shape.size(); i < shape.size(); ++i) ones.push_back(1);
  for (int64_t e : x->shape) ones.push_back(e);
  NodePtr same_rank = x->shape.size() == shape.size() ? x : moved(x, Kind::reshape, ones, {});
  return moved(same_rank, Kind::expand, shape, {});
}

NodePtr elementwise(Op op, NodeList operands, const Site& site) {
  DType type = common_type(operands, site);
  const OpInfo& row = info(op);
  if (row.type == TypeRule::same_float && is_integer(type)) type = DType::f32;  // exp of integers
  if (op == Op::div && is_integer(type) && std::ranges::all_of(operands, [](const NodePtr& n) { return n->weak; })) type = DType::f32;
  if (row.type == TypeRule::same && type == DType::boolean) type = DType::i64;  // bools are counted
  if (row.type == TypeRule::logic && type != DType::boolean)
    fail(site, fmt::format("operands must be bool, and are {}; compare them first: x != 0", name_of(type)));
  if ((row.type == TypeRule::classify || row.type == TypeRule::same_float) && !is_float(type))
    fail(site, fmt::format("operands must be floats, and are {}; cast them: cast(x, f32)", name_of(type)));
  if (row.type == TypeRule::whole && !is_integer(type))
    fail(site, fmt::format("operands must be integers, and are {}; cast them: cast(x, i64)", name_of(type)));
  for (NodePtr& n : operands) n = cast_node(n, type);
  if (op == Op::pow && is_integer(type) && (operands[1]->kind != Kind::constant || operands[1]->integer < 0))
    fail(site, "an integer power needs a constant exponent that is not negative; cast the base to a float: cast(x, f32)");
  const Shape shape = common_shape(operands, site);
  if (NodePtr same = without_neutral(op, operands, shape)) return same;
  if (NodePtr one = with_one_constant(op, operands, shape, site)) return one;
  return operation(op, result_type(op, type), shape, std::move(operands));
}

}  // namespace detail

using namespace detail;

namespace {

Array signed_pair(Op op, const char* sign, const Operand& a, const Operand& b) {
  return of_node(elementwise(op, {node_of(a.array), node_of(b.array)}, {sign, a.at}));
}

}  // namespace

Array operator+(const Operand& a, const Operand& b) { return signed_pair(Op::add, "+", a, b); }
Array operator-(const Operand& a, const Operand& b) { return signed_pair(Op::sub, "-", a, b); }
Array operator*(const Operand& a, const Operand& b) { return signed_pair(Op::mul, "*", a, b); }
Array operator/(const Operand& a, const Operand& b) { return signed_pair(Op::div, "/", a, b); }
Array operator%(const Operand& a, const Operand& b) { return signed_pair(Op::mod, "%", a, b); }
Array operator==(const Operand& a, const Operand& b) { return signed_pair(Op::eq, "==", a, b); }
Array operator!=(const Operand& a, const Operand& b) { return signed_pair(Op::ne, "!=", a, b); }
Array operator<(const Operand& a, const Operand& b) { return signed_pair(Op::lt, "<", a, b); }
Array operator<=(const Operand& a, const Operand& b) { return signed_pair(Op::le, "<=", a, b); }
Array operator>(const Operand& a, const Operand& b) { return signed_pair(Op::lt, ">", b, a); }
Array operator>=(const Operand& a, const Operand& b) { return signed_pair(Op::le, ">=", b, a); }
Array operator&&(const Operand& a, const Operand& b) { return signed_pair(Op::land, "&&", a, b); }
Array operator||(const Operand& a, const Operand& b) { return signed_pair(Op::lor, "||", a, b); }
Array operator-(const Operand& a) { return of_node(elementwise(Op::neg, {node_of(a.array)}, {"-", a.at})); }
Array operator!(const Operand& a) { return of_node(elementwise(Op::lnot, {node_of(a.array)}, {"!", a.at})); }

Array function(const char* name, std::span<const Array> operands, const Location& at) {
  const Site site{name, at};
  const Op* op = function_named(name);
  if (!op) fail(site, "there is no such function in the table of operations");
  if (info(*op).arity != static_cast<int>(operands.size()))
    fail(site, fmt::format("takes {} operands, and was given {}", info(*op).arity, operands.size()));
  NodeList nodes;
  for (const Array& x : operands) nodes.push_back(node_of(x));
  if (*op != Op::random) return of_node(elementwise(*op, std::move(nodes), site));
  const auto shape = broadcast(nodes[0]->shape, nodes[1]->shape);
  if (!shape) fail(site, fmt::format("shapes {} and {} do not broadcast", text(nodes[0]->shape), text(nodes[1]->shape)));
  for (NodePtr& n : nodes) n = cast_node(n, DType::i64);
  NodePtr drawn = make(Kind::elementwise, DType::f32, *shape, std::move(nodes));
  drawn->op = Op::random;
  return of_node(drawn);
}

Array pow(const Array& x, const Array& exponent, const Location& at) {
  return of_node(elementwise(Op::pow, {node_of(x), node_of(exponent)}, {"pow", at}));
}
Array clamp(const Array& x, const Array& low, const Array& high, const Location& at) {
  return of_node(elementwise(Op::clamp, {node_of(x), node_of(low), node_of(high)}, {"clamp", at}));
}
Array maximum(const Array& a, const Array& b, const Location& at) {
  return of_node(elementwise(Op::maximum, {node_of(a), node_of(b)}, {"maximum", at}));
}
Array minimum(const Array& a, const Array& b, const Location& at) {
  return of_node(elementwise(Op::minimum, {node_of(a), node_of(b)}, {"minimum", at}));
}
Array square(const Array& x) { return of_node(elementwise(Op::mul, {node_of(x), node_of(x)}, {"square", Location::current()})); }

Array where(const Array& condition, const Array& then, const Array& otherwise, const Location& at) {
  const Site site{"where", at};
  NodePtr c = node_of(condition), x = node_of(then), y = node_of(otherwise);
  if (c->type != DType::boolean) fail(site, fmt::format("the condition must be bool, and is {}; compare it: x != 0", name_of(c->type)));
  const DType type = common_type({x, y}, site);
  const Shape shape = common_shape({c, x, y}, site);
  x = cast_node(x, type);
  y = cast_node(y, type);
  if (is_plain(c)) return of_node(expanded(c->integer ? x : y, shape));
  return of_node(operation(Op::select, type, shape, {c, x, y}));
}

Array cast(const Array& x, DType type) {
  const NodePtr& n = node_of(x);
  if (n->type != type) return of_node(cast_node(n, type));
  if (!n->weak) return x;
  return of_node(is_float(type) ? constant(type, n->value, n->shape) : constant_integer(type, n->integer, n->shape));
}

}  // namespace xhat::lazy
