#include "expr/text/elaborate_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_set>

#include "expr/core/scalar.h"
#include "expr/index/affine.h"

namespace xhat {
namespace {

using Limits = std::numeric_limits<double>;

// Both bounds are exact in double, unlike the largest i64.
bool fits_int64(double v) { return v >= -0x1p63 && v < 0x1p63; }

Id integer_of_type(Arena& a, int64_t v, DType t, Pos pos) {
  if (v < lowest_of(t) || v > highest_of(t))
    throw Error(fmt::format("{} does not fit in {}, which holds {} to {}; cast the other operand to a wider type", v, name_of(t),
                            lowest_of(t), highest_of(t)),
                pos);
  return a.integer(v, t);
}

// The nodes that carry an untyped value, root included, ascending: through arithmetic, the branches of selects and the
// bodies of reductions, never into a condition or a range, whose types stand already.
std::vector<Id> spine(const Arena& a, Id root) {
  std::unordered_set<Id> seen = {root};
  std::vector<Id> found = {root};
  auto add = [&](Id x) {
    if (seen.insert(x).second) found.push_back(x);
  };
  for (size_t at = 0; at < found.size(); ++at) {
    const Node& n = a[found[at]];
    if (is_reduction(n.op))
      add(reduce_body(n));
    else if (n.op == Op::select)
      add(n.arg(1)), add(n.arg(2));
    else if (n.op != Op::cast)
      for (Id x : n.args()) add(x);
  }
  std::ranges::sort(found);
  return found;
}

// Built from constants and dims alone: stands as one number at every point.
std::unordered_set<Id> pure_below(const Arena& a, Id root) {
  std::unordered_set<Id> pure;
  for (Id id : reachable(a, root)) {
    const Node& n = a[id];
    if (n.op == Op::axis || is_read(n.op) || is_reduction(n.op)) continue;
    if (std::ranges::all_of(n.args(), [&](Id x) { return pure.contains(x); })) pure.insert(id);
  }
  return pure;
}

Id pure_as(Arena& a, Id id, DType t, Pos pos) {
  const Node& n = a[id];
  if (n.op != Op::constant) return a.to(t, id);
  return is_float(t) ? a.constant(t, n.value) : integer_of_type(a, n.integer, t, pos);
}

// Rebuilds the spine below root in type t.
Id rebuild(Arena& a, Id root, DType t, Pos pos) {
  std::unordered_set<Id> pure = pure_below(a, root);
  std::unordered_map<Id, Id> done;
  std::vector<Id> args;
  for (Id id : spine(a, root)) {
    if (pure.contains(id)) {
      done[id] = pure_as(a, id, t, pos);
      continue;
    }
    args.assign(a[id].args().begin(), a[id].args().end());
    bool reduction = is_reduction(a[id].op);
    for (size_t i = 0; i < args.size(); ++i)
      if (reduction ? i == 0 : !(a[id].op == Op::select && i == 0)) args[i] = done.at(args[i]);
    done[id] = a.with_args(id, args);
  }
  return done.at(root);
}

bool has_integer_sum(const Arena& a, Id root) {
  for (Id id : spine(a, root))
    if (a[id].op == Op::sum || a[id].op == Op::prod) return true;
  return false;
}

Id folded(Arena& a, Op op, std::span<const Id> args) {
  bool constant = std::ranges::all_of(args, [&](Id x) { return a[x].op == Op::constant; });
  const ScalarOp& row = scalar(op);
  if (constant && is_float(a[args[0]].type) && row.reals) {
    std::vector<double> v;
    for (Id x : args) v.push_back(a[x].value);
    return a.constant(DType::f64, row.reals.at(v.data()));
  }
  if (constant && !is_float(a[args[0]].type) && row.integers) {
    std::vector<int64_t> v;
    for (Id x : args) v.push_back(a[x].integer);
    return a.integer(row.integers.at(v.data()));
  }
  return a.apply(op, args);
}

// Of two constants, or one.
bool leaves_64_bits(const Arena& a, Op op, std::span<const Id> args) {
  if (!std::ranges::all_of(args, [&](Id x) { return a[x].op == Op::constant; })) return false;
  const int64_t x = a[args[0]].integer, y = args.size() > 1 ? a[args[1]].integer : 0;
  int64_t result = 0;
  switch (op) {
    case Op::add: return __builtin_add_overflow(x, y, &result);
    case Op::sub: return __builtin_sub_overflow(x, y, &result);
    case Op::mul: return __builtin_mul_overflow(x, y, &result);
    case Op::neg: return __builtin_sub_overflow(int64_t{0}, x, &result);
    case Op::pow: return std::fabs(std::pow(static_cast<double>(x), static_cast<double>(y))) >= 0x1p63;
    default: return false;
  }
}

bool is_division(Op op) { return op == Op::div || op == Op::mod; }

bool zero_divisor(const Arena& a, Op op, std::span<const Id> args) {
  return is_division(op) && !is_float(a[args[1]].type) && is_constant(a, args[1], 0);
}

// An operation on numbers that have no type yet: both readings side by side.
Value apply_untyped(Arena& a, Op op, std::span<const Value> operands) {
  Value result;
  result.pure = true;
  std::vector<Id> floats, ints;
  for (const Value& v : operands) {
    result.pure &= v.pure;
    floats.push_back(v.as_float);
    if (v.as_int == kNone && result.no_int.empty()) result.no_int = v.no_int;
    ints.push_back(v.as_int);
  }
  result.as_float = folded(a, op, floats);
  if (!result.no_int.empty()) return result;
  if (info(op).type == TypeRule::same_float) {
    result.no_int = fmt::format("{}(…) is a float", info(op).text);
  } else if (zero_divisor(a, op, ints)) {
    result.no_int = "it divides by zero";
  } else if (op == Op::pow && (a[ints[1]].op != Op::constant || a[ints[1]].integer < 0)) {
    result.no_int = "an integer power needs a constant exponent that is not negative";
  } else if (leaves_64_bits(a, op, ints)) {
    result.no_int = "it leaves 64 bits";
  } else {
    result.as_int = folded(a, op, ints);
  }
  return result;
}

DType common_type(Arena& a, std::span<const Value> operands, Pos pos, const std::string& sign) {
  std::optional<DType> type;
  for (const Value& v : operands) {
    if (v.untyped()) continue;
    DType t = a[v.typed].type;
    if (!type) {
      type = t;
      continue;
    }
    std::optional<DType> wider = *type == t ? t : promote(*type, t);
    if (!wider) {
      DType to = is_float(t) ? t : is_float(*type) ? *type : DType::f32;
      bool with_bool = t == DType::boolean || *type == DType::boolean;
      throw Error(fmt::format("{} beside {} in {}; these do not mix by themselves: {}", name_of(*type), name_of(t), sign,
                              with_bool ? "compare, or cast one, as in f32(c)" : fmt::format("cast the integer, as in {}(i)", name_of(to))),
                  pos);
    }
    type = wider;
  }
  return *type;
}

// Beside an integer all that can be one is.
std::vector<Value> read_among(const Arena& a, std::span<const Value> operands) {
  std::vector<Value> read(operands.begin(), operands.end());
  if (std::ranges::any_of(operands, [&](const Value& v) { return !v.untyped() && is_integer(a[v.typed].type); }))
    for (Value& v : read) v = v.among_integers();
  return read;
}

// A typed value that is an integer too, if all that it is made of are.
Value with_integer(Value typed, const Value& integer) {
  typed.as_int = integer.as_int;
  typed.as_float = integer.as_float;
  return typed;
}

bool all_among_integers(std::span<const Value> operands) {
  return std::ranges::all_of(operands, [](const Value& v) { return v.as_int != kNone; });
}

std::vector<Value> among_integers(std::span<const Value> operands) {
  std::vector<Value> read;
  for (const Value& v : operands) read.push_back(v.among_integers());
  return read;
}

// All operands in one type; untyped ones take the typed ones' type.
std::vector<Id> unified(Arena& a, std::span<const Value> given, Pos pos, const std::string& sign) {
  const std::vector<Value> operands = read_among(a, given);
  DType type = common_type(a, operands, pos, sign);
  std::vector<Value> nodes;
  for (const Value& v : operands) {
    if (v.untyped() && type == DType::boolean)
      throw Error(fmt::format("a number beside bool in {}; write true or false, or compare first", sign), pos);
    nodes.push_back(v.untyped() ? typed_value(materialise(a, v, type, pos)) : v);
  }
  type = common_type(a, nodes, pos, sign);
  std::vector<Id> ids;
  for (const Value& v : nodes) ids.push_back(a.to(type, v.typed));
  return ids;
}

bool all_untyped(std::span<const Value> operands) { return std::ranges::all_of(operands, &Value::untyped); }

bool all_pure(std::span<const Value> operands) { return std::ranges::all_of(operands, &Value::pure); }

Value typed_pure(Id node, bool pure) {
  Value v = typed_value(node);
  v.pure = pure;
  return v;
}

Value apply_compare(Arena& a, Op op, std::span<const Value> operands, Pos pos, const std::string& sign) {
  std::vector<Id> ids;
  if (all_untyped(operands)) {
    bool ints = std::ranges::all_of(operands, [](const Value& v) { return v.as_int != kNone; });
    for (const Value& v : operands) ids.push_back(ints ? v.as_int : v.as_float);
  } else {
    ids = unified(a, operands, pos, sign);
  }
  if ((op == Op::lt || op == Op::le) && a[ids[0]].type == DType::boolean)
    throw Error(fmt::format("{} orders numbers, and these are bool; use ==, !=, && or ||", sign), pos);
  return typed_pure(a.apply(op, ids), all_pure(operands));
}

Value apply_numbers(Arena& a, Op op, std::span<const Value> operands, Pos pos, const std::string& sign) {
  if (all_untyped(operands) && info(op).type == TypeRule::whole) {
    std::vector<Value> whole;
    for (const Value& v : operands) whole.push_back(typed_pure(as_index(a, v, pos, ("an operand of " + sign).c_str()), v.pure));
    return apply_numbers(a, op, whole, pos, sign);
  }
  if (all_untyped(operands)) return apply_untyped(a, op, operands);
  std::vector<Id> ids = unified(a, operands, pos, sign);
  DType type = a[ids[0]].type;
  TypeRule rule = info(op).type;
  if (rule == TypeRule::same_float && !is_float(type))
    throw Error(fmt::format("{} takes floats, not {}; cast first, as in {}(f32(…))", sign, name_of(type), sign), pos);
  if (rule == TypeRule::same && type == DType::boolean)
    throw Error(fmt::format("{} takes numbers, not bool; write if c then 1 else 0, or f32(c)", sign), pos);
  if (rule == TypeRule::whole && !is_integer(type))
    throw Error(
        fmt::format("{} takes integers, not {}{}", sign, name_of(type), type == DType::boolean ? "; of bools there are && || != !" : ""),
        pos);
  if (zero_divisor(a, op, ids)) throw Error(fmt::format("integer {} by the constant 0", sign), pos);
  if (op == Op::pow && !is_float(type)) ids[1] = collected(a, ids[1]);
  if (op == Op::pow && !is_float(type) && (a[ids[1]].op != Op::constant || a[ids[1]].integer < 0))
    throw Error("an integer power needs a constant exponent that is not negative; cast the base to a float", pos);
  if (op == Op::polygamma) {
    const Node& order = a[ids[0]];
    if (order.op != Op::constant || order.value < 0 || order.value > 20 || std::trunc(order.value) != order.value)
      throw Error("the order of polygamma, its first operand, is a constant: 0 (digamma), 1, ... 20", pos);
  }
  // A power of numbers is a number: indices and ranges divide by it.
  const bool known_power = op == Op::pow && type == DType::i64 && a[ids[0]].op == Op::constant && !leaves_64_bits(a, op, ids);
  const Value result = typed_pure(known_power ? folded(a, op, ids) : a.apply(op, ids), all_pure(operands));
  return all_among_integers(operands) && is_float(type) ? with_integer(result, apply_untyped(a, op, among_integers(operands))) : result;
}

}  // namespace

Value typed_value(Id node) {
  Value v;
  v.typed = node;
  return v;
}

Value integer_value(Arena& a, int64_t v) {
  Value result;
  result.as_int = a.integer(v);
  result.as_float = a.constant(DType::f64, static_cast<double>(v));
  result.pure = true;
  return result;
}

Value dim_value(Arena& a, Id dim) {
  Value v;
  v.as_int = dim;
  v.as_float = a.cast(DType::f64, dim);
  v.pure = true;
  return v;
}

Value literal_value(Arena& a, const ast::Node& number) {
  Value v;
  v.pure = true;
  double x = 0;
  if (number.text == "inf")
    x = Limits::infinity();
  else if (number.text == "nan")
    x = Limits::quiet_NaN();
  else
    x = std::strtod(number.text.c_str(), nullptr);
  v.as_float = a.constant(DType::f64, x);
  if (number.text.find_first_not_of("0123456789") == std::string::npos) {
    // All digits: exact in i64, where the f64 reading may have rounded.
    errno = 0;
    int64_t exact = std::strtoll(number.text.c_str(), nullptr, 10);
    if (errno == 0)
      v.as_int = a.integer(exact);
    else
      v.no_int = number.text + " does not fit in i64";
  } else if (std::trunc(x) == x && fits_int64(x)) {
    v.as_int = a.integer(static_cast<int64_t>(x));
  } else {
    v.no_int = std::isfinite(x) ? number.text + " is a fraction" : number.text + " is a float";
  }
  return v;
}

Id materialise(Arena& a, const Value& v, DType t, Pos pos) {
  if (!v.untyped()) return a.to(t, v.typed);
  if (t == DType::boolean) throw Error("a number stands where a bool is needed; compare it, as in x != 0", pos);
  if (is_float(t)) return rebuild(a, v.as_float, t, pos);
  if (v.as_int == kNone)
    throw Error(fmt::format("{}, and it stands beside an integer ({}); cast the integer, as in f32(i)", v.no_int, name_of(t)), pos);
  return rebuild(a, v.as_int, has_integer_sum(a, v.as_int) ? DType::i64 : t, pos);
}

Id as_index(Arena& a, const Value& v, Pos pos, const char* what) {
  if (v.untyped()) {
    if (v.as_int == kNone) throw Error(fmt::format("{} must be an integer, but {}", what, v.no_int), pos);
    return v.as_int;
  }
  if (v.as_int != kNone) return v.as_int;
  DType t = a[v.typed].type;
  if (!is_integer(t)) throw Error(fmt::format("{} must be an integer, and this is {}; cast it, as in i32(x)", what, name_of(t)), pos);
  return t == DType::i64 || t == DType::i32 ? v.typed : a.cast(DType::i64, v.typed);
}

Id settled(Arena& a, const Value& v, Pos pos) { return v.untyped() ? materialise(a, v, DType::f32, pos) : v.typed; }

Id as_condition(Arena& a, const Value& v, Pos pos, const char* what) {
  if (v.untyped()) throw Error(fmt::format("{} must be bool, and this is a number; compare it, as in x != 0", what), pos);
  if (a[v.typed].type != DType::boolean)
    throw Error(fmt::format("{} must be bool, and this is {}; compare it, as in x != 0", what, name_of(a[v.typed].type)), pos);
  return v.typed;
}

Value apply_value(Arena& a, Op op, std::span<const Value> operands, Pos pos, const std::string& sign) {
  switch (info(op).type) {
    case TypeRule::same_float:
    case TypeRule::whole:
    case TypeRule::same: return apply_numbers(a, op, operands, pos, sign);
    case TypeRule::compare: return apply_compare(a, op, operands, pos, sign);
    case TypeRule::logic: {
      std::vector<Id> ids;
      for (const Value& v : operands) ids.push_back(as_condition(a, v, pos, ("an operand of " + sign).c_str()));
      return typed_pure(a.apply(op, ids), all_pure(operands));
    }
    case TypeRule::classify: {
      Id x = operands[0].untyped() ? materialise(a, operands[0], DType::f64, pos) : operands[0].typed;
      if (!is_float(a[x].type)) throw Error(fmt::format("{} takes a float, not {}", sign, name_of(a[x].type)), pos);
      return typed_pure(a.apply(op, {{x}}), all_pure(operands));
    }
    case TypeRule::same_or_bool: {
      if (operands[0].untyped() && operands[0].pure) return operands[0];  // a number has no gradient to stop
      if (operands[0].untyped()) return apply_untyped(a, op, operands);
      return typed_pure(a.apply(op, {{operands[0].typed}}), operands[0].pure);
    }
    case TypeRule::any: {
      std::vector<Id> ids;
      for (const Value& v : operands) ids.push_back(a.to(DType::i64, as_index(a, v, pos, ("an operand of " + sign).c_str())));
      return typed_value(a.apply(op, ids));
    }
  }
  throw Bug("unreachable type rule");
}

Value cast_value(Arena& a, DType t, const Value& v, Pos pos) {
  if (!v.untyped()) return typed_pure(a.cast(t, v.typed), v.pure);
  bool whole = v.as_int != kNone;
  if (t == DType::boolean) return typed_pure(a.cast(t, whole ? v.as_int : v.as_float), v.pure);
  if (!is_float(t) && !whole) return typed_pure(a.cast(t, v.as_float), v.pure);
  Id node = materialise(a, v, t, pos);
  return typed_pure(a.to(t, node), v.pure);
}

Value choose_value(Arena& a, const Value& condition, const Value& then, const Value& otherwise, Pos pos) {
  Id c = as_condition(a, condition, pos, "the condition of if");
  Value branches[] = {then, otherwise};
  bool pure = condition.pure && all_pure(branches);
  if (!all_untyped(branches)) {
    std::vector<Id> ids = unified(a, branches, pos, "the branches of if");
    const Value result = typed_pure(a.select(c, ids[0], ids[1]), pure);
    return all_among_integers(branches)
               ? with_integer(result, choose_value(a, condition, then.among_integers(), otherwise.among_integers(), pos))
               : result;
  }
  Value result;
  result.pure = pure;
  result.as_float = a.select(c, then.as_float, otherwise.as_float);
  if (then.as_int != kNone && otherwise.as_int != kNone)
    result.as_int = a.select(c, then.as_int, otherwise.as_int);
  else
    result.no_int = then.as_int == kNone ? then.no_int : otherwise.no_int;
  return result;
}

}  // namespace xhat
