// What a reduction of the language is as a node: mean is a sum over a count, integer sums run in i64.
#include <fmt/format.h>

#include <algorithm>

#include "expr/text/elaborate_number.h"

namespace xhat {
namespace {

Value quotient(Arena& a, Id sum, const Value& count, Pos pos) {
  Value operands[] = {typed_value(sum), count};
  return apply_value(a, Op::div, operands, pos, "mean");
}

// How many points the reduction visits. A product of plain extents stays a number, so that it prints as `/ (N * H)`.
Value count_of(Arena& a, std::span<const AxisRange> axes, Id condition, DType type, Pos pos) {
  bool independent = condition == kNone;
  for (const AxisRange& r : axes)
    for (const AxisRange& other : axes)
      for (Id end : {r.begin, r.end}) independent &= !std::ranges::count(a[end].free_axes(), other.axis);
  if (!independent) return typed_value(a.cast(type, a.reduce(Op::sum, axes, condition, a.integer(1))));
  Value count;
  for (const AxisRange& r : axes) {
    Id extent =
        is_constant(a, r.begin, 0) ? r.end : a.sub(a.to(DType::i64, r.end), a.to(DType::i64, r.begin));
    const Node& n = a[extent];
    Value one = n.op == Op::dim        ? dim_value(a, extent)
                : n.op == Op::constant ? integer_value(a, n.integer)
                                       : typed_value(a.cast(type, extent));
    Value both[] = {count, one};
    count = &r == &axes.front() ? one : apply_value(a, Op::mul, both, pos, "mean");
  }
  return count;
}

Value mean_value(Arena& a, std::span<const AxisRange> axes, Id condition, const Value& body, Pos pos) {
  Id x = settled(a, body, pos);
  DType type = a[x].type;
  if (!is_float(type))
    throw Error(
        fmt::format("mean takes floats, and this is {}; cast it, as in mean(k: f32(x[k]))", name_of(type)),
        pos);
  // The f32 sum of a half type is divided before it is rounded: both the sum and the count may not fit in f16.
  DType wide = accumulator_of(type);
  Id sum = a.reduce(Op::sum, axes, condition, a.to(wide, x));
  Value mean = quotient(a, sum, count_of(a, axes, condition, wide, pos), pos);
  return typed_value(a.to(type, mean.typed));
}

bool is_logic(Op op) { return op == Op::any || op == Op::all; }

void check_body_type(Op op, DType type, Pos pos) {
  if (is_logic(op) && type != DType::boolean)
    throw Error(
        fmt::format("{} takes bool, and this is {}; compare it, as in x != 0", info(op).text, name_of(type)),
        pos);
  if (!is_logic(op) && type == DType::boolean)
    throw Error(fmt::format("{} takes numbers, and this is bool; use any or all, or cast it, as in i64(c)",
                            info(op).text),
                pos);
}

}  // namespace

Value reduce_value(Arena& a, const std::string& name, std::span<const AxisRange> axes, Id condition,
                   const Value& body, Pos pos) {
  if (name == "mean") return mean_value(a, axes, condition, body, pos);
  const Op* op = reduction_named(name);
  if (!op)
    throw Error(
        fmt::format("{} is not a reduction; there are sum prod max min any all argmax argmin mean", name),
        pos);
  bool index = *op == Op::argmax || *op == Op::argmin;
  if (index && axes.size() != 1)
    throw Error(fmt::format("{} takes one axis, not {}", name, axes.size()), pos);
  if (body.untyped() && !index && !is_logic(*op)) {
    Value v = body;
    v.pure = false;
    v.as_float = a.reduce(*op, axes, condition, body.as_float);
    if (body.as_int != kNone) v.as_int = a.reduce(*op, axes, condition, body.as_int);
    return v;
  }
  Id x = is_logic(*op) ? as_condition(a, body, pos, ("the body of " + name).c_str()) : settled(a, body, pos);
  check_body_type(*op, a[x].type, pos);
  bool total = *op == Op::sum || *op == Op::prod;
  if (total && is_integer(a[x].type)) x = a.to(DType::i64, x);
  return typed_value(a.reduce(*op, axes, condition, x));
}

}  // namespace xhat
