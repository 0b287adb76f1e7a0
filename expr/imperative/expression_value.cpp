// The value of an expression at a position.
#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/core/syntax.h"
#include "expr/imperative/expression.h"
#include "expr/index/simplify_index.h"
#include "expr/rules/simplify.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Ref;

namespace {

std::string other_type(const std::string& name, DType holds, DType given) {
  return fmt::format("{0} holds {1}, and this is {2}; cast it, as in {1}(…), or let {0} begin as {2}, as in var {0} = {2}(0)", name,
                     name_of(holds), name_of(given));
}

std::optional<Op> infix_op(std::string_view sign) {
  if (sign == "+") return Op::add;
  if (sign == "-") return Op::sub;
  if (sign == "*") return Op::mul;
  if (sign == "/") return Op::div;
  if (sign == "%") return Op::mod;
  if (sign == "^") return Op::pow;
  if (sign == "==") return Op::eq;
  if (sign == "!=") return Op::ne;
  if (sign == "<" || sign == ">") return Op::lt;
  if (sign == "<=" || sign == ">=") return Op::le;
  if (sign == "&&") return Op::land;
  if (sign == "||") return Op::lor;
  return std::nullopt;
}

}  // namespace

Value Expression::at(Ref ref, std::span<const Id> positions) {
  const Shape s = shape(ref);
  if (positions.size() < s.size()) throw Bug("an expression has more dimensions than its place");
  std::vector<Id> p(positions.end() - static_cast<std::ptrdiff_t>(s.size()), positions.end());
  for (size_t i = 0; i < s.size(); ++i)
    if (is_constant(a_, s[i], 1)) p[i] = a_.integer(0);
  return value_of(ref, node(ref), std::move(p));
}

Value Expression::value_of(Ref ref, const ast::Node& n, std::vector<Id> p) {
  switch (n.kind) {
    case Kind::number: return literal_value(a_, n);
    case Kind::boolean: return typed_value(a_.boolean(n.text == "true"));
    case Kind::name: return name_value(ref, n, p);
    case Kind::unary: {
      Value v = at(n.args[0], p);
      return apply_value(a_, n.text == "-" ? Op::neg : Op::lnot, {&v, 1}, n.pos, n.text);
    }
    case Kind::binary: return binary(ref, p);
    case Kind::choose: {
      const Value c = at(n.args[0], p);
      const Id condition = as_condition(a_, c, node(n.args[0]).pos, "the condition of if");
      // Indices in a branch are inside where its condition holds.
      const std::vector<Id> before = c_.state.conditions;
      c_.state.conditions.push_back(condition);
      const Value then = at(n.args[1], p);
      c_.state.conditions.back() = negation(a_, condition);
      const Value otherwise = at(n.args[2], p);
      c_.state.conditions = before;
      Value chosen = choose_value(a_, c, then, otherwise, n.pos);
      // A condition on variables of loops that are written out may be known.
      for (Id* part : {&chosen.typed, &chosen.as_int, &chosen.as_float}) {
        if (*part == kNone || a_[*part].op != Op::select || !a_[condition].free_axes().empty()) continue;
        const Id known = simplify(a_, a_[*part].arg(0));
        if (is_true(a_, known) || is_false(a_, known)) *part = a_[*part].arg(is_true(a_, known) ? 1 : 2);
      }
      return chosen;
    }
    case Kind::let: {
      lets_[n.text] = n.args[0];
      Value v = at(n.args[1], p);
      lets_.erase(n.text);
      return v;
    }
    case Kind::read:
    case Kind::index: return read_value(ref, n, p);
    case Kind::method: {
      const Mapping m = mapping(ref, n);
      Replacements to;
      for (size_t k = 0; k < p.size(); ++k) to[m.axes[k].axis] = p[k];
      std::vector<Id> q;
      for (Id index : m.indices) q.push_back(c_.tidy(substitute(a_, index, to)));
      return at(n.args[0], q);
    }
    case Kind::call: return call_value(ref, n, p);
    case Kind::reduce: return reduction_value(ref, n, p);
    case Kind::filled: {
      const DType type = *dtype_from_name(n.text);
      if (n.args[0] == ast::kAbsent) return typed_value(type == DType::boolean ? a_.boolean(false) : a_.constant(type, 0));
      const Value v = at(n.args[0], {});
      if (!v.untyped() && a_[v.typed].type != type && promote(a_[v.typed].type, type) != type)
        throw Error(fmt::format("full makes {}, and its value is {}; cast it, as in {}(…)", name_of(type), name_of(a_[v.typed].type),
                                name_of(type)),
                    node(n.args[0]).pos);
      return typed_value(a_.to(type, materialise(a_, v, type, node(n.args[0]).pos)));
    }
    case Kind::slice:
    case Kind::range: break;
  }
  throw Bug("no value");
}

Value Expression::read(TensorId t, std::span<const Id> indices, Ref ref) {
  const Id read = a_.read(t, c_.program.tensors[t].type, indices);
  reads_[read].push_back({ref, Chains::kEmpty});
  return typed_value(read);
}

Value Expression::read(const View& v, std::span<const Id> p, Ref ref) {
  const Id value = c_.element(v, p);
  for (Id x : reachable(a_, value))
    if (a_[x].op == Op::read) reads_[x].push_back({ref, Chains::kEmpty});
  return typed_value(value);
}

// Of a name, or of one with indices; p are the positions in what it names.
Value Expression::name_value(Ref ref, const ast::Node& n, std::span<const Id> p) {
  if (auto it = lets_.find(n.text); it != lets_.end()) {
    // A reduction in it may have the axis of one around: let m = max(k: x[k]) in sum(k: x[k] * m).
    Value v = at(it->second, p);
    std::vector<Id> open;
    for (const BoundAxis& axis : axes_) open.push_back(axis.range.axis);
    for (Id* part : {&v.typed, &v.as_int, &v.as_float})
      if (*part != kNone) *part = substitute(a_, *part, {}, open);
    return v;
  }
  for (size_t i = axes_.size(); i-- > 0;)
    if (axes_[i].name == n.text) return typed_value(axes_[i].range.axis);
  if (auto it = c_.state.numbers.find(n.text); it != c_.state.numbers.end()) return typed_value(it->second);
  for (const LoopVariable& l : c_.state.loops)
    if (l.name == n.text) return typed_value(l.range.axis);
  if (auto it = c_.state.names.find(n.text); it != c_.state.names.end()) {
    const Value v = read(it->second.view, p, ref);
    const std::optional<TensorId> whole = c_.whole_value(it->second.view);
    const auto known = whole ? c_.decided.find(*whole) : c_.decided.end();
    if (known == c_.decided.end()) return v;
    Value number = known->second;
    if (!number.untyped()) return decided_names_ ? number : v;
    number.typed = v.typed;
    return number;
  }
  if (auto it = c_.scope.dims.find(n.text); it != c_.scope.dims.end()) return dim_value(a_, it->second);
  unknown(n);
}

Value Expression::binary(Ref ref, std::span<const Id> p) {
  std::vector<Ref> spine;
  std::vector<std::vector<Id>> positions;
  std::vector<Id> here(p.begin(), p.end());
  Ref at_ref = ref;
  for (;;) {
    const Shape s = shape(at_ref);
    here.erase(here.begin(), here.end() - static_cast<std::ptrdiff_t>(s.size()));
    for (size_t i = 0; i < s.size(); ++i)
      if (is_constant(a_, s[i], 1)) here[i] = a_.integer(0);
    if (node(at_ref).kind != Kind::binary) break;
    spine.push_back(at_ref);
    positions.push_back(here);
    at_ref = node(at_ref).args[0];
  }
  Value left = at(at_ref, here);
  while (!spine.empty()) {
    const ast::Node& n = node(spine.back());
    std::vector<Value> v = {left, at(n.args[1], positions.back())};
    const auto op = infix_op(n.text);
    if (!op) throw Error("unknown operator " + n.text, n.pos);
    for (size_t k = 0; k < 2; ++k) check_chosen(n.args[k], v[1 - k], n.text, n.pos);
    if (n.text == ">" || n.text == ">=") std::swap(v[0], v[1]);
    left = apply_value(a_, *op, v, n.pos, n.text);
    // What stands behind && is evaluated only where what stands before it holds, if it may read outside otherwise.
    if (*op == Op::land && reads_behind(c_.file, n.args[1])) left = typed_value(a_.select(v[0].typed, v[1].typed, a_.boolean(false)));
    if (*op == Op::lor && reads_behind(c_.file, n.args[1])) left = typed_value(a_.select(v[0].typed, a_.boolean(true), v[1].typed));
    spine.pop_back();
    positions.pop_back();
  }
  return left;
}

// A name of a number that data choose, beside an integer: says where it could have become one.
void Expression::check_chosen(Ref ref, const Value& beside, const std::string& sign, Pos pos) const {
  if (node(ref).kind != Kind::name || beside.untyped() || beside.as_int != kNone || !is_integer(a_[beside.typed].type)) return;
  const std::string& name = node(ref).text;
  const auto it = c_.state.names.find(name);
  const std::optional<TensorId> whole = it == c_.state.names.end() ? std::nullopt : c_.whole_value(it->second.view);
  if (!whole || !c_.chosen.contains(*whole)) return;
  throw Error(fmt::format("{0} beside f32 in {1}: nothing at {2} gives {3} a type, which makes it f32; write {3} = {0}(…) there",
                          name_of(a_[beside.typed].type), sign, place(it->second.pos), name),
              pos);
}

Value Expression::reduction_value(Ref ref, const ast::Node& n, std::span<const Id> p) {
  const std::vector<AxisRange>& ranges = reduced_.at(ref);
  const size_t outer = axes_.size();
  for (size_t i = 0; i < ranges.size(); ++i) axes_.push_back({n.axes[i].name, ranges[i], n.axes[i].pos});
  Id condition = kNone;
  if (n.condition != ast::kAbsent) condition = as_condition(a_, at(n.condition, {}), node(n.condition).pos, "the condition of a reduction");
  const Value body = at(n.args[0], p);
  axes_.resize(outer);
  return reduce_value(a_, n.text, ranges, condition, body, n.pos);
}

Value Expression::read_value(Ref ref, const ast::Node& n, std::span<const Id> p) {
  const Mapping m = mapping(ref, n);
  Replacements to;
  for (size_t k = 0; k < p.size(); ++k) to[m.axes[k].axis] = p[k];
  std::vector<Id> q;
  for (Id index : m.indices) q.push_back(c_.tidy(substitute(a_, index, to)));
  auto inside = [&] { return n.kind == Kind::index ? at(n.args[0], q) : name_value(ref, n, q); };
  if (n.otherwise == ast::kAbsent) return inside();
  const Shape base = n.kind == Kind::index ? shape(n.args[0]) : name_shape(n);
  Id condition = kNone;
  for (size_t d = 0; d < q.size(); ++d)
    for (Id part : {a_.binary(Op::le, a_.integer(0), q[d]), a_.binary(Op::lt, q[d], base[d])})
      condition = condition == kNone ? part : a_.select(condition, part, a_.boolean(false));
  const Value v = inside(), other = at(n.otherwise, {});
  const Node& read = a_[v.typed];
  // Of a whole tensor it is the read of the language itself.
  if (read.op == Op::read && c_.program.tensors[read.symbol].shape == base && std::ranges::equal(read.args(), q)) {
    const DType type = read.type;
    const Pos pos = node(n.otherwise).pos;
    if (!other.untyped() && a_[other.typed].type != type && promote(a_[other.typed].type, type) != type)
      throw Error(fmt::format("{} holds {}, and the value outside it is {}; cast it, as in {}(…)", n.text, name_of(type),
                              name_of(a_[other.typed].type), name_of(type)),
                  pos);
    return typed_value(a_.read_or(read.symbol, type, q, materialise(a_, other, type, pos)));
  }
  return choose_value(a_, typed_value(condition), v, other, n.pos);
}

// Element i of flip is element K-1-i; of roll by n, element i-n, counted around.
Value Expression::moved(const ast::Node& n, std::vector<Id> p) {
  const bool roll = n.text == "roll";
  const Ref base = n.args[roll ? 2 : 1];
  const Shape s = shape(base);
  const size_t d = dimension(n.args[0], s.size(), n.text.c_str());
  if (roll) {
    const Id by = number(n.args[1], false, "roll");
    p[d] = a_.binary(Op::mod, c_.tidy(a_.sub(p[d], by)), s[d]);
  } else {
    p[d] = c_.tidy(a_.sub(a_.sub(s[d], a_.integer(1)), p[d]));
  }
  return at(base, p);
}

Value Expression::concatenated(const ast::Node& n, std::vector<Id> p) {
  const size_t d = dimension(n.args[0], p.size(), "concat");
  struct Part {
    Id end;
    Value value;
  };
  std::vector<Part> parts;
  Id begin = a_.integer(0);
  for (size_t i = 1; i < n.args.size(); ++i) {
    std::vector<Id> q = p;
    q[d] = c_.tidy(a_.sub(p[d], begin));
    begin = c_.tidy(a_.add(begin, shape(n.args[i])[d]));
    parts.push_back({begin, at(n.args[i], q)});
  }
  Value result = parts.back().value;
  for (size_t i = parts.size() - 1; i-- > 0;)
    result = choose_value(a_, typed_value(a_.binary(Op::lt, p[d], parts[i].end)), parts[i].value, result, n.pos);
  return result;
}

Value Expression::call_value(Ref ref, const ast::Node& n, std::span<const Id> p) {
  if (auto it = calls_.find(ref); it != calls_.end()) return read(it->second.tensor, p, ref);
  std::vector<Id> positions(p.begin(), p.end());
  if (n.text == "clone") return at(n.args[0], p);
  if (n.text == "flip" || n.text == "roll") return moved(n, positions);
  if (n.text == "concat") return concatenated(n, positions);
  std::vector<Value> v;
  for (Ref arg : n.args) v.push_back(at(arg, p));
  if (std::optional<DType> t = dtype_from_name(n.text)) {
    if (v.size() != 1) throw Error(fmt::format("a cast takes one operand, not {}", v.size()), n.pos);
    return cast_value(a_, *t, v[0], n.pos);
  }
  const Op* op = function_named(n.text);
  if (!op) {
    std::vector<Id> avoid;
    for (Id position : p) avoid.insert(avoid.end(), a_[position].free_axes().begin(), a_[position].free_axes().end());
    return number_of_op(c_.scope, n, v, avoid);
  }
  if (static_cast<int>(v.size()) != info(*op).arity)
    throw Error(fmt::format("{} takes {} operand{}, not {}{}", n.text, info(*op).arity, info(*op).arity == 1 ? "" : "s", v.size(),
                            ast::is_reduction_name(n.text) ? "; of all elements write " + n.text + "(i: x[i])" : ""),
                n.pos);
  return apply_value(a_, *op, v, n.pos, n.text);
}

Id Expression::number(Ref ref, bool new_dims, const char* what) {
  const bool before = std::exchange(new_dims_, new_dims);
  if (!shape(ref).empty()) throw Error(fmt::format("{} is a scalar, and {} is a tensor; index it", what, text(ref)), node(ref).pos);
  const Id id = c_.tidy(integer(ref, what));
  new_dims_ = before;
  return id;
}

Id Expression::integer(Ref ref, const char* what) {
  const Value v = at(ref, {});
  if (!v.untyped() && v.as_int == kNone && is_float(a_[v.typed].type))
    if (const std::optional<Ref> found = float_name(ref)) {
      const std::string& name = node(*found).text;
      const Binding& b = c_.state.names.at(name);
      throw Error(fmt::format("{0} must be an integer, and {1} is {2}; let it {3}, or cast it, as in i32({1})", what, name,
                              name_of(c_.state.storages[b.view.storage].type),
                              b.variable ? fmt::format("begin as one, as in var {} = i64(0)", name)
                                         : fmt::format("be one, as in {} = i64(…)", name)),
                  node(ref).pos);
    }
  return a_.to(DType::i64, as_index(a_, v, node(ref).pos, what));
}

// A name that holds a float, among those of an expression: what makes it one, most often.
std::optional<Ref> Expression::float_name(Ref ref) const {
  const ast::Node& n = node(ref);
  if (n.kind == Kind::name) {
    const auto it = c_.state.names.find(n.text);
    if (it == c_.state.names.end() || !it->second.view.axes.empty()) return std::nullopt;
    const Storage& s = c_.state.storages[it->second.view.storage];
    return is_float(s.type) && !s.parameter ? std::optional(ref) : std::nullopt;
  }
  if (n.kind != Kind::binary && n.kind != Kind::unary) return std::nullopt;
  for (Ref part : n.args)
    if (std::optional<Ref> found = float_name(part)) return found;
  return std::nullopt;
}

std::optional<Value> Expression::decided(Ref ref) {
  if (!shape(ref).empty()) return std::nullopt;
  const Value v = at(ref, {});
  auto is_data = [&](Id x) {
    const Node& n = a_[x];
    return is_read(n.op) && std::ranges::none_of(c_.state.storages, [&](const Storage& s) { return s.loop_variable && s.value == n.symbol; });
  };
  // A number that data choose is f32, as any definition that nothing gives a type.
  if (v.as_int != kNone) return std::ranges::any_of(reachable(a_, v.as_int), is_data) ? std::nullopt : std::optional(v.among_integers());
  if (v.untyped()) return std::nullopt;
  const DType type = a_[v.typed].type;
  const bool plain = (type == DType::i64 || type == DType::boolean) &&
                     std::ranges::none_of(reachable(a_, v.typed), [&](Id x) { return is_read(a_[x].op) || is_reduction(a_[x].op); });
  return plain ? std::optional(v) : std::nullopt;
}

bool Expression::is_number(Ref ref) {
  if (!shape(ref).empty()) return false;
  const Value v = at(ref, {});
  return v.untyped() && v.as_int != kNone;
}

Id Expression::condition(Ref ref, const char* what) {
  if (!shape(ref).empty())
    throw Error(fmt::format("{} is a scalar, and {} has the shape {}; reduce it with any or all", what, text(ref),
                            shape_text(c_.scope, shape(ref))),
                node(ref).pos);
  return as_condition(a_, at(ref, {}), node(ref).pos, what);
}

Id Expression::body(Ref ref, std::span<const AxisRange> axes, std::span<const Id> positions, std::optional<DType> type,
                    const std::string& target) {
  return finished(at(ref, positions), axes, type, target, node(ref).pos);
}

Id Expression::updated(Ref place, char op, Ref value, std::span<const AxisRange> axes, std::span<const Id> positions, DType type,
                       const std::string& target) {
  const std::vector<Value> v = {read(*view(place), positions, place), at(value, positions)};
  if (const Value& x = v[1]; is_float(type) && !x.untyped() && x.as_int == kNone && is_integer(a_[x.typed].type))
    throw Error(other_type(target, type, a_[x.typed].type), node(value).pos);
  check_chosen(value, v[0], std::string(1, op) + "=", node(value).pos);
  const Op with = op == '+' ? Op::add : op == '-' ? Op::sub : op == '*' ? Op::mul : Op::div;
  return finished(apply_value(a_, with, v, node(value).pos, std::string(1, op) + "="), axes, type, target, node(value).pos);
}

Id Expression::finished(const Value& v, std::span<const AxisRange> axes, std::optional<DType> type, const std::string& target, Pos pos) {
  const Value given_value = type && is_integer(*type) ? v.among_integers() : v;
  Id id = given_value.untyped() ? materialise(a_, given_value, type.value_or(DType::f32), pos) : v.typed;
  const DType given = a_[id].type;
  if (type && given != *type && promote(given, *type) != *type)
    throw Error(other_type(target, *type, given), pos);
  if (type) id = a_.to(*type, id);
  // Indices of views of views, simplified by the ranges of the axes; a read of a new form stands where the old one did.
  std::vector<AxisRange> around = c_.loop_ranges();
  around.insert(around.end(), axes.begin(), axes.end());
  id = rewrite(a_, id, [&](Id x) {
    const Node n = a_[x];
    if (!is_read(n.op)) return x;
    std::vector<Id> args(n.args().begin(), n.args().end());
    for (size_t d = 0; d < read_indices(n).size(); ++d)
      if (a_[args[d]].op == Op::add || a_[args[d]].op == Op::sub || a_[args[d]].op == Op::div || a_[args[d]].op == Op::mod)
        if (!reads_data(a_, args[d])) args[d] = fusion::simplified_index(a_, args[d], around);
    const Id made = a_.with_args(x, args);
    if (made != x && reads_.contains(x)) reads_[made] = reads_[x];
    return made;
  });
  BodyResult result;
  result.body = id;
  // What is outside guards what is inside, also the conditions there.
  for (size_t i = c_.state.conditions.size(); i-- > 0;)
    result.body =
        a_.select(c_.state.conditions[i], result.body, a_[id].type == DType::boolean ? a_.boolean(false) : a_.constant(a_[id].type, 0));
  result.axes = around;
  result.reads = reads_;
  check_bounds(c_.scope, result);
  return id;
}

Id Expression::checked(Id expression) { return finished(typed_value(expression), {}, std::nullopt, "", {}); }

TensorId Expression::tensor(Ref ref, std::optional<DType> type, const std::string& name) {
  if (auto it = calls_.find(ref); it != calls_.end() && (!type || c_.program.tensors[it->second.tensor].type == *type))
    return it->second.tensor;
  // A value is never written over, so that a copy is the value itself.
  if (node(ref).kind == Kind::call && node(ref).text == "clone" && !is_op(node(ref)) && node(ref).args.size() == 1)
    return tensor(node(ref).args[0], type, name);
  if (std::optional<View> v = view(ref)) {
    if (std::optional<TensorId> t = c_.whole_value(*v); t && (!type || c_.program.tensors[*t].type == *type)) return *t;
  }
  const std::vector<AxisRange> axes = c_.element_axes(shape(ref));
  std::vector<Id> p;
  for (const AxisRange& r : axes) p.push_back(r.axis);
  const Id value = body(ref, axes, p, type, name);
  return c_.define(name, axes, c_.guarded(value), node(ref).pos);
}

}  // namespace xhat::imperative
