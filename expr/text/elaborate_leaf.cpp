// What a finished surface node becomes: names, reads, operators and calls.
#include <fmt/format.h>

#include <algorithm>

#include "expr/core/syntax.h"
#include "expr/text/elaborate_walk.h"

namespace xhat {

using ast::Kind;
using ast::Ref;

namespace {

const std::map<std::string, Op, std::less<>>& infix_signs() {
  static const std::map<std::string, Op, std::less<>> signs = {
      {"+", Op::add}, {"-", Op::sub}, {"*", Op::mul}, {"/", Op::div}, {"%", Op::mod}, {"^", Op::pow},   {"==", Op::eq},
      {"!=", Op::ne}, {"<", Op::lt},  {"<=", Op::le}, {">", Op::lt},  {">=", Op::le}, {"&&", Op::land}, {"||", Op::lor}};
  return signs;
}

}  // namespace

void Walk::unknown(const ast::Node& n) const {
  std::vector<std::string> known;
  for (const auto& [name, pos] : s_.declared)
    if (name != request_.target) known.push_back(name);
  for (const auto& [name, dim] : s_.dims) known.push_back(name);
  for (const OpenAxis& axis : axes_) known.push_back(axis.name);
  for (const auto& [name, value] : lets_) known.push_back(name);
  std::string hint = did_you_mean(ast::Stranger::name, n.text, known);
  if (hint.empty() && n.kind == Kind::name) hint = fmt::format("; bind an axis on the left or in a reduction, as in sum({}: …)", n.text);
  throw Error(fmt::format("{} is not a tensor, dim or axis in scope{}", n.text, hint), n.pos);
}

Value Walk::name_value(Ref ref, const ast::Node& n) {
  if (auto it = lets_.find(n.text); it != lets_.end()) return it->second;
  for (size_t i = axes_.size(); i-- > 0;)
    if (axes_[i].name == n.text) return typed_value(axes_[i].range.axis);
  if (auto it = s_.dims.find(n.text); it != s_.dims.end()) return dim_value(a_, it->second);
  if (auto it = s_.tensors.find(n.text); it != s_.tensors.end() && !only_dims_) return tensor_value(it->second, ref, n);
  if (only_dims_ && s_.declared.contains(n.text))
    throw Error(fmt::format("{} is a tensor; an extent may use integers and dims only", n.text), n.pos);
  if (new_dims_) return dim_value(a_, s_.declare_dim(n.text, n.pos));
  unknown(n);
}

Value Walk::tensor_value(TensorId t, Ref ref, const ast::Node& n) {
  const Tensor& tensor = s_.program.tensors[t];
  std::vector<Id> indices;
  if (request_.whole) {
    // The trailing dimensions; an extent of 1 is read at 0 everywhere.
    size_t skip = request_.whole->size() - tensor.shape.size();
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      indices.push_back(is_constant(a_, tensor.shape[i], 1) ? a_.integer(0) : (*request_.whole)[skip + i].axis);
  } else if (!tensor.shape.empty()) {
    std::string example;
    for (size_t i = 0; i < tensor.shape.size(); ++i) example += (i ? ", " : "") + std::string(1, static_cast<char>('i' + i % 16));
    throw Error(fmt::format("{} has {} dimension{}, and stands here without indices; write {}[{}]", n.text, tensor.shape.size(),
                            tensor.shape.size() == 1 ? "" : "s", n.text, example),
                n.pos);
  }
  Id read = a_.read(t, tensor.type, indices);
  result_.reads[read].push_back({ref, conditions_});
  return typed_value(read);
}

Value Walk::read_value(Ref ref, const ast::Node& n) {
  Value otherwise;
  if (n.otherwise != ast::kAbsent) otherwise = pop_one();
  std::vector<Value> values = pop(n.args.size());
  auto it = s_.tensors.find(n.text);
  if (it == s_.tensors.end()) {
    bool other = s_.dims.contains(n.text) || lets_.contains(n.text) ||
                 std::ranges::any_of(axes_, [&](const OpenAxis& x) { return x.name == n.text; });
    if (other) throw Error(fmt::format("{} is not a tensor, so it takes no indices", n.text), n.pos);
    unknown(n);
  }
  if (only_dims_) throw Error(fmt::format("{} is a tensor; an extent may use integers and dims only", n.text), n.pos);
  const Tensor& tensor = s_.program.tensors[it->second];
  if (tensor.shape.size() != values.size())
    throw Error(fmt::format("{} has {} dimension{}, and {} {} given; write one index for each", n.text, tensor.shape.size(),
                            tensor.shape.size() == 1 ? "" : "s", values.size(), values.size() == 1 ? "index is" : "indices are"),
                n.pos);
  std::vector<Id> indices;
  for (size_t i = 0; i < values.size(); ++i) {
    indices.push_back(as_index(a_, values[i], s_.file.nodes[n.args[i]].pos, "an index"));
    if (a_[indices[i]].op != Op::axis) continue;
    for (OpenAxis& axis : axes_)
      if (axis.range.axis == indices[i] && axis.range.end == kNone)
        axis.evidence.push_back({tensor.shape[i], ref, n.otherwise != ast::kAbsent});
  }
  if (n.otherwise == ast::kAbsent) {
    Id read = a_.read(it->second, tensor.type, indices);
    result_.reads[read].push_back({ref, conditions_});
    return typed_value(read);
  }
  Pos pos = s_.file.nodes[n.otherwise].pos;
  Id outside = materialise(a_, otherwise.untyped() ? otherwise : typed_value(otherwise.typed), tensor.type, pos);
  if (!otherwise.untyped()) {
    DType given = a_[otherwise.typed].type;
    if (given != tensor.type && promote(given, tensor.type) != tensor.type)
      throw Error(fmt::format("{} holds {}, and the value outside it is {}; cast it, as in {}(…)", n.text, name_of(tensor.type),
                              name_of(given), name_of(tensor.type)),
                  pos);
  }
  return typed_value(a_.read_or(it->second, tensor.type, indices, outside));
}

Value Walk::operation_value(const ast::Node& n) {
  std::vector<Value> v = pop(n.args.size());
  if (n.kind == Kind::unary) return apply_value(a_, n.text == "-" ? Op::neg : Op::lnot, v, n.pos, n.text);
  auto it = infix_signs().find(n.text);
  if (it == infix_signs().end()) throw Error("unknown operator " + n.text, n.pos);
  if (n.text == ">" || n.text == ">=") std::swap(v[0], v[1]);
  Value result = apply_value(a_, it->second, v, n.pos, n.text);
  // Both operands of && are evaluated wherever it stands, a branch only where it is taken: `i > 0 && x[i-1] > 0` must
  // not read x[-1], so it is `if i > 0 then x[i-1] > 0 else false`.
  if (it->second == Op::land && reads_behind(s_.file, n.args[1])) return typed_value(a_.select(v[0].typed, v[1].typed, a_.boolean(false)));
  if (it->second == Op::lor && reads_behind(s_.file, n.args[1])) return typed_value(a_.select(v[0].typed, a_.boolean(true), v[1].typed));
  return result;
}

// Before its operands: they may be whole tensors, which would be the second error.
void Walk::check_callable(const ast::Node& n) const {
  if (dtype_from_name(n.text) || function_named(n.text)) return;
  if (const auto op = s_.ops.find(n.text); op != s_.ops.end()) {
    if (is_function_of_numbers(*op->second)) return;
    throw Error(fmt::format("{} is an op, and works on whole tensors; call it in a statement of its own, as in y = {}(x)", n.text, n.text),
                n.pos);
  }
  if (s_.declared.contains(n.text))
    throw Error(fmt::format("{} is a tensor; its elements are written in brackets, as in {}[i,j]", n.text, n.text), n.pos);
  std::vector<std::string> known = {"f32", "f64", "i64", "i32"};
  for (auto i = static_cast<size_t>(Op::neg); i <= static_cast<size_t>(Op::random); ++i) known.emplace_back(info(static_cast<Op>(i)).text);
  for (const auto& [name, program] : s_.ops) known.push_back(name);
  throw Error(fmt::format("there is no function {}{}", n.text, did_you_mean(ast::Stranger::function, n.text, known)), n.pos);
}

Value Walk::call_value(Ref, const ast::Node& n) {
  std::vector<Value> v = pop(n.args.size());
  if (s_.ops.contains(n.text) && !function_named(n.text)) {
    std::vector<Id> in_scope;
    for (const OpenAxis& x : axes_) in_scope.push_back(x.range.axis);
    return number_of_op(s_, n, v, in_scope);
  }
  if (std::optional<DType> t = dtype_from_name(n.text)) {
    if (v.size() != 1) throw Error(fmt::format("a cast takes one operand, not {}", v.size()), n.pos);
    return cast_value(a_, *t, v[0], n.pos);
  }
  const Op* op = function_named(n.text);
  if (static_cast<int>(v.size()) != info(*op).arity)
    throw Error(fmt::format("{} takes {} operand{}, not {}{}", n.text, info(*op).arity, info(*op).arity == 1 ? "" : "s", v.size(),
                            ast::is_reduction_name(n.text) ? "; of all elements write " + n.text + "(i: x[i])" : ""),
                n.pos);
  return apply_value(a_, *op, v, n.pos, n.text);
}

}  // namespace xhat
