// if x == 0 then max(x, 0)*d else 0: where a value is equal to a number, what is made of it alone is a number.
#include <array>
#include <cmath>

#include "cse/match/tensor_expr_tree.h"
#include "expr/core/scalar.h"

namespace xhat {

// What a value is that is made of x and numbers alone, where x has this one.
std::optional<double> TensorExprTree::value_at(Id id, Id x, double number, int depth) const {
  const Node& n = a_[id];
  if (id == x) return number;
  if (n.op == Op::constant && is_float(n.type)) return n.value;
  const bool other = is_read(n.op) || is_reduction(n.op) || n.op == Op::random || n.op == Op::select || n.op == Op::cast || n.op == Op::constant;
  if (depth == 0 || other || !is_float(n.type) || !scalar(n.op).reals) return std::nullopt;
  std::array<double, 3> args{};
  for (size_t i = 0; i < n.arg_count; ++i) {
    const auto known = is_float(a_[n.arg(i)].type) ? value_at(n.arg(i), x, number, depth - 1) : std::nullopt;
    if (!known) return std::nullopt;
    args[i] = *known;
  }
  return scalar(n.op).reals.at(args.data());
}

// The product where a float is equal to a number, if that is the condition: what is made of it alone is a number there.
Product TensorExprTree::where_equal(const Node& condition, const Product& p) {
  constexpr int kDepth = 8;
  if (condition.op != Op::eq || !is_float(a_[condition.arg(0)].type)) return p;
  const size_t side = a_[condition.arg(0)].op == Op::constant ? 0 : 1;
  const Node& number = a_[condition.arg(side)];
  if (number.op != Op::constant || !std::isfinite(number.value)) return p;
  const Id x = condition.arg(1 - side);
  Product there{p.coefficient, {}};
  for (const Factor& f : p.factors) {
    const auto known = value_at(f.atom, x, number.value, kDepth);
    const double value = known ? std::pow(*known, f.halves / 2.0) : std::nan("");
    multiply_in(there, std::isfinite(value) ? Product{value, {}} : Product{1, {f}});
  }
  return there;
}

}  // namespace xhat
