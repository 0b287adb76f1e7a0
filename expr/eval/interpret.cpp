#include "expr/eval/interpret.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "expr/eval/evaluate.h"
#include "expr/eval/memory.h"
#include "expr/eval/written_type.h"
#include "expr/text/elaborate.h"

namespace xhat {
namespace memory {
namespace {

class Interpreter {
  static constexpr ast::Ref kAbsent = ast::kAbsent;
  using Kind = ast::Kind;
  using Node = ast::Node;
  using Ref = ast::Ref;
  using Statement = ast::Statement;

 public:
  Interpreter(const ast::File& file, const ast::Op& program, const DimValues& dims) : file_(file), program_(program), dims_(dims) {}

  Arrays run(const Arrays& inputs) {
    enter();
    for (const ast::Parameter& p : program_.body.parameters) {
      const auto given = inputs.find(p.name);
      if (given == inputs.end()) throw Error("the parameter " + p.name + " is missing");
      here().emplace(p.name, Variable{of(given->second), true});
    }
    list(program_.body.statements);
    Arrays results;
    for (const ast::Name& name : program_.body.outputs) results[name.text] = array_of(variable(name.text, name.pos).view);
    for (const ast::Parameter& p : program_.body.parameters)
      if (p.inout) results[p.name] = array_of(scopes_[0].at(p.name).view);
    return results;
  }

 private:
  struct Variable {
    View view;
    bool is_var = false;                // by `var`, or a parameter
    std::optional<int64_t> meant = {};  // beside integers and as an index: of a scalar that was untyped when it was named
  };
  using Scope = std::map<std::string, Variable>;

  const ast::File& file_;
  const ast::Op& program_;
  DimValues dims_;
  std::vector<Scope> scopes_;
  std::map<std::string, int64_t> axes_;  // axes and loop variables
  std::map<std::string, View> lets_;
  std::optional<Module> ops_;

  void enter() { scopes_.emplace_back(); }
  Scope& here() { return scopes_.back(); }
  const Node& node(Ref r) const { return file_.nodes[r]; }

  Variable* find(const std::string& name) {
    for (size_t i = scopes_.size(); i-- > 0;)
      if (auto it = scopes_[i].find(name); it != scopes_[i].end()) return &it->second;
    return nullptr;
  }
  Variable& variable(const std::string& name, Pos pos) {
    if (Variable* v = find(name)) return *v;
    throw Error("there is no " + name + " here", pos);
  }
  // A name that stands for something already: no new axis.
  bool is_known(const std::string& name) { return axes_.contains(name) || dims_.contains(name) || find(name); }

  // Runs f, and gives its errors the place of a node.
  template <class F>
  auto at(Pos pos, F f) {
    try {
      return f();
    } catch (const Error& e) {
      if (e.pos().line > 0) throw;
      throw Error(e.message(), pos);
    }
  }

  // Statements.
  void block(const std::vector<Statement>& statements) {
    enter();
    list(statements);
    scopes_.pop_back();
  }
  void list(const std::vector<Statement>& statements) {
    for (const Statement& s : statements) at(s.pos, [&] { run(s); });
  }

  void run(const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::definition: throw Bug("a program has no definitions of ops");
      case Statement::Kind::call: return call(s);
      case Statement::Kind::dim: dims_[s.targets[0].text] = integer(s.body); return;
      case Statement::Kind::variable: here().insert_or_assign(s.targets[0].text, Variable{initial(s.body), true}); return;
      case Statement::Kind::assign: return assign(s);
      case Statement::Kind::loop: return loop(s);
      case Statement::Kind::repeat: return repeat(s);
      case Statement::Kind::branch:
        if (truth(s.body))
          block(s.statements);
        else if (s.has_otherwise)
          block(s.otherwise);
        return;
    }
  }

  // A view names the memory that is there; anything else is a value of its own.
  View initial(Ref body) {
    View v = eval(body);
    if (v.weak) v = to_type(v, DType::f32);
    return is_view(body) ? v : of(array_of(v));
  }
  bool is_view(Ref r) {
    const Node& n = node(r);
    if (n.kind == Kind::name || n.kind == Kind::read) return n.otherwise == kAbsent && !lets_.contains(n.text) && find(n.text);
    return (n.kind == Kind::index || n.kind == Kind::method) && is_view(n.args[0]);
  }

  bool truth(Ref r) {
    const View v = eval(r);
    if (!v.is_scalar() || v.type() != DType::boolean) throw Error("a condition must be a bool scalar", node(r).pos);
    return integer_of(v) != 0;
  }

  void loop(const Statement& s) {
    const int64_t begin = integer(s.first), end = integer(s.last);
    for (int64_t i = begin; i < end; ++i) {
      axes_[s.targets[0].text] = i;
      block(s.statements);
    }
    axes_.erase(s.targets[0].text);
  }
  void repeat(const Statement& s) {
    const int64_t most = integer(s.last);
    for (int64_t i = 0; i < most && truth(s.body); ++i) block(s.statements);
  }

  void call(const Statement& s) {
    std::vector<View> results = call_op(node(s.body));
    if (results.size() != s.targets.size()) throw Error(fmt::format("{} results for {} names", results.size(), s.targets.size()));
    for (size_t k = 0; k < results.size(); ++k) rebind(s.targets[k].text, results[k]);
  }

  void rebind(const std::string& name, const View& value) {
    View v = of(array_of(value));
    v.weak = value.weak;
    if (Variable* known = find(name)) {
      if (known->is_var) {
        v = expanded(to_type(v, known->view.type()), known->view.shape);
        known->view = of(array_of(v));
        return;
      }
    }
    if (v.weak) v = to_type(v, DType::f32);
    here().insert_or_assign(name, Variable{v, false});
  }

  void assign(const Statement& s) {
    const Node& place = node(s.place);
    const std::string op = s.sign.size() == 2 ? s.sign.substr(0, 1) : "";
    if (place.kind == Kind::name) {
      if (!op.empty()) {
        variable(place.text, place.pos).meant.reset();
        return update(variable(place.text, place.pos).view, op, s.body);
      }
      const View value = eval(s.body);
      const bool number = value.is_scalar() && ((value.weak && !reduces(file_, s.body)) || names_integer(s.body));
      const View meant = number ? eval(s.body, true) : value;
      rebind(place.text, value);
      if (!meant.weak && is_integer(meant.type()) && !is_integer(value.type())) variable(place.text, place.pos).meant = integer_of(meant);
      return;
    }
    const std::vector<std::string> fresh_axes = new_axes(place);
    if (fresh_axes.empty()) return update(eval(s.place), op, s.body);
    define(s, place, fresh_axes, op);
  }
  void update(const View& to, const std::string& op, Ref body) {
    const View value = beside(eval(body), body, to);
    write(to, op.empty() ? value : apply(infix(op), {of(array_of(to)), value}));
  }

  std::vector<std::string> new_axes(const Node& place) {
    std::vector<std::string> found;
    if (place.kind != Kind::read) return found;
    for (Ref r : place.args)
      if (node(r).kind == Kind::range || (node(r).kind == Kind::name && !is_known(node(r).text))) found.push_back(node(r).text);
    return found;
  }

  // name[axes] = body, at every point of the axes; places among them that are no new axes are those of a view.
  void define(const Statement& s, const Node& place, const std::vector<std::string>& fresh_axes, const std::string& op) {
    Variable* known = find(place.text);
    const bool rebinds = fresh_axes.size() == place.args.size() && op.empty();
    if (!known && !rebinds) throw Error("there is no " + place.text + " to write into", place.pos);
    std::vector<int64_t> extents;
    for (size_t k = 0; k < place.args.size(); ++k) {
      const Node& n = node(place.args[k]);
      if (n.kind == Kind::range) {
        if (integer(n.args[0]) != 0 && rebinds) throw Error("an axis on the left begins at 0", n.pos);
        extents.push_back(integer(n.args[1]));
      } else if (std::ranges::find(fresh_axes, n.text) != fresh_axes.end() && n.kind == Kind::name) {
        extents.push_back(known && known->is_var ? known->view.shape.at(k) : extent_of(n.text, s.body));
      }
    }
    // The right side whole, before anything is written.
    std::vector<View> values;
    std::vector<View> targets;
    const auto count = static_cast<size_t>(element_count(extents));
    for (size_t i = 0; i < count; ++i) {
      const std::vector<int64_t> position = position_of(i, extents);
      for (size_t k = 0; k < fresh_axes.size(); ++k) axes_[fresh_axes[k]] = position[k];
      values.push_back(eval(s.body));
      if (!values.back().is_scalar()) throw Error("a definition's right side is a number at each point, not a tensor", node(s.body).pos);
      if (rebinds) continue;
      View to = subscripted(known->view, place, 0);
      if (!to.is_scalar()) throw Error("indices for all dimensions are needed beside new axes", place.pos);
      if (!op.empty()) values.back() = apply(infix(op), {of(array_of(to)), values.back()});
      targets.push_back(to);
    }
    for (const std::string& a : fresh_axes) axes_.erase(a);
    if (!rebinds) {
      for (size_t i = 0; i < count; ++i) write(targets[i], values[i]);
      return;
    }
    DType type = known && known->is_var ? known->view.type() : DType::f32;
    if (!(known && known->is_var) && !values.empty() && !values[0].weak) type = values[0].type();
    View made = fresh(type, extents);
    for (size_t i = 0; i < count; ++i) write(element(made, i), values[i]);
    if (known && known->is_var) {
      if (extents != known->view.shape) throw Error(place.text + " has another shape: " + shape_text(known->view.shape), place.pos);
      known->view = made;
    } else {
      here().insert_or_assign(place.text, Variable{made, false});
    }
  }

  // The extent of the dimensions where an axis stands alone as an index; of reads with `else` if there are no others.
  int64_t extent_of(const std::string& axis, Ref body, Ref condition = kAbsent) {
    std::optional<int64_t> plain, otherwise;
    look_for(axis, body, plain, otherwise);
    look_for(axis, condition, plain, otherwise);
    if (plain) return *plain;
    if (otherwise) return *otherwise;
    throw Error("nothing says how far the axis " + axis + " runs", node(body).pos);
  }
  void look_for(const std::string& axis, Ref r, std::optional<int64_t>& plain, std::optional<int64_t>& otherwise) {
    if (r == kAbsent) return;
    const Node& n = node(r);
    if (n.kind == Kind::reduce && std::ranges::any_of(n.axes, [&](const ast::Axis& a) { return a.name == axis; })) return;
    if (n.kind == Kind::read || n.kind == Kind::index) {
      const size_t first = n.kind == Kind::index ? 1 : 0;
      std::optional<View> base;
      if (n.kind == Kind::read && find(n.text)) base = find(n.text)->view;
      if (n.kind == Kind::index && (is_view(n.args[0]) || node(n.args[0]).kind == Kind::call)) base = eval(n.args[0]);
      for (size_t k = first; base && k < n.args.size(); ++k)
        if (node(n.args[k]).kind == Kind::name && node(n.args[k]).text == axis)
          (n.otherwise == kAbsent ? plain : otherwise) = base->shape.at(k - first);
    }
    for (Ref arg : n.args) look_for(axis, arg, plain, otherwise);
    for (const ast::Axis& a : n.axes) {
      look_for(axis, a.begin, plain, otherwise);
      look_for(axis, a.end, plain, otherwise);
    }
    look_for(axis, n.condition, plain, otherwise);
    look_for(axis, n.otherwise, plain, otherwise);
  }

  int64_t integer(Ref r) { return integer_of(eval(r, true)); }
  // integers: literals and dims are integers, and / floors: in indices, ranges and bounds.
  View eval(Ref r, bool integers = false) {
    const Node& n = node(r);
    return at(n.pos, [&] { return value(n, integers); });
  }

  View value(const Node& n, bool integers) {
    switch (n.kind) {
      case Kind::number: return literal(n.text, integers);
      case Kind::boolean: return boolean_view(n.text == "true");
      case Kind::name: return named(n, integers);
      case Kind::read: return read(n, variable(n.text, n.pos).view, 0);
      case Kind::index: return read(n, eval(n.args[0]), 1);
      case Kind::method: return method(n);
      case Kind::filled: return filled(n);
      case Kind::unary: return apply(n.text == "-" ? Op::neg : Op::lnot, {eval(n.args[0], integers)});
      case Kind::binary: return binary(n, integers);
      case Kind::choose: {
        const View c = eval(n.args[0]);  // means the same, whatever the sides are wanted as
        if (c.is_scalar()) return side(n, integer_of(c) ? 1 : 2, integers);
        return choose(c, eval(n.args[1], integers), eval(n.args[2], integers));
      }
      case Kind::let: {
        auto outer = lets_.find(n.text);
        const std::optional<View> kept = outer == lets_.end() ? std::nullopt : std::optional(outer->second);
        lets_.insert_or_assign(n.text, eval(n.args[0], integers));
        View made = eval(n.args[1], integers);
        kept ? void(lets_.insert_or_assign(n.text, *kept)) : void(lets_.erase(n.text));
        return made;
      }
      case Kind::call: return call(n, integers);
      case Kind::reduce: return reduce(n);
      case Kind::slice:
      case Kind::range: break;
    }
    throw Error("a slice or a range stands only in brackets", n.pos);
  }

  // Of a choice. Literals take the type of the side that is not taken, as anywhere.
  View side(const Node& n, size_t taken, bool integers) {
    const View v = eval(n.args[taken], integers);
    const auto type = v.weak ? type_of(n.args[3 - taken]) : std::nullopt;
    return !type || *type == DType::boolean ? v : to_type(is_integer(*type) ? eval(n.args[taken], true) : v, *type);
  }
  using Type = std::optional<DType>;
  Type type_of(Ref r) {
    auto variable = [&](const std::string& name) {
      if (auto it = lets_.find(name); it != lets_.end()) return it->second.weak ? Type() : it->second.type();
      if (const Variable* v = find(name)) return v->meant ? Type() : v->view.type();
      return dims_.contains(name) ? Type() : DType::i64;  // an axis
    };
    auto called = [&](const std::string& op) { return elaborated().find(op)->tensor(elaborated().find(op)->outputs[0]).type; };
    return written_type(file_, r, {variable, called});
  }
  const Module& elaborated() {
    if (!ops_) ops_ = elaborate(file_);
    return *ops_;
  }

  View named(const Node& n, bool integers) {
    if (auto it = lets_.find(n.text); it != lets_.end()) return it->second;
    if (auto it = axes_.find(n.text); it != axes_.end()) return integer_view(it->second);
    if (Variable* v = find(n.text)) return integers && v->meant ? integer_view(*v->meant) : v->view;
    if (auto it = dims_.find(n.text); it != dims_.end())
      return integers ? integer_view(it->second) : weak_view(static_cast<double>(it->second));
    throw Error("there is no " + n.text + " here", n.pos);
  }

  // Made of names of scalars that were untyped, and of literals and dims.
  bool names_integer(Ref r) {
    const Node& n = node(r);
    if (n.kind == Kind::name) {
      const Variable* v = find(n.text);
      return v && v->meant && !axes_.contains(n.text) && !lets_.contains(n.text);
    }
    if (n.kind != Kind::unary && n.kind != Kind::binary) return false;
    auto is_weak = [&](Ref x) { return names_integer(x) || node(x).kind == Kind::number || dims_.contains(node(x).text); };
    return std::ranges::all_of(n.args, is_weak) && std::ranges::any_of(n.args, [&](Ref x) { return names_integer(x); });
  }

  // Literals and dims beside an integer are integers of its type.
  View beside(View x, Ref r, const View& other) {
    if (other.weak || !is_integer(other.type())) return x;
    return x.weak || names_integer(r) ? to_type(eval(r, true), other.type()) : x;
  }

  View binary(const Node& n, bool integers) {
    View a = eval(n.args[0], integers), b = eval(n.args[1], integers);
    a = beside(a, n.args[0], b);
    b = beside(b, n.args[1], a);
    if (n.text == ">" || n.text == ">=") return apply(n.text == ">" ? Op::lt : Op::le, {b, a});
    return apply(infix(n.text), {a, b});
  }

  // Brackets: an index each, or a slice. first: where the indices begin among the arguments.
  View subscripted(View v, const Node& n, size_t first) {
    size_t d = 0;
    for (size_t k = first; k < n.args.size(); ++k) {
      const Node& i = node(n.args[k]);
      if (i.kind == Kind::slice) {
        auto part = [&](size_t p) { return i.args[p] == kAbsent ? std::nullopt : std::optional(integer(i.args[p])); };
        v = sliced(v, d++, part(0), part(1), part(2).value_or(1));
      } else {
        v = selected(v, d, integer(n.args[k]));
      }
    }
    return v;
  }

  View read(const Node& n, const View& base, size_t first) {
    if (n.otherwise == kAbsent) return subscripted(base, n, first);
    for (size_t k = first; k < n.args.size(); ++k) {
      const int64_t i = integer(n.args[k]);
      if (i < 0 || i >= base.shape.at(k - first)) return eval(n.otherwise);
    }
    return subscripted(base, n, first);
  }
  std::vector<int64_t> integers_of(const Node& n, size_t first) {
    std::vector<int64_t> values;
    for (size_t k = first; k < n.args.size(); ++k) values.push_back(integer(n.args[k]));
    return values;
  }
  View method(const Node& n) {
    const View v = eval(n.args[0]);
    const std::vector<int64_t> args = integers_of(n, 1);
    if (n.text == "transpose") return transposed(v, args.at(0), args.at(1));
    if (n.text == "reshape") return reshaped(v, args);
    if (n.text == "squeeze") return squeezed(v, args.at(0));
    if (n.text == "unsqueeze") return unsqueezed(v, args.at(0));
    if (n.text == "expand") return expanded(v, args);
    return diagonal(v);
  }
  View filled(const Node& n) {
    View made = fresh(*dtype_from_name(n.text), integers_of(n, 1));
    if (n.args[0] != kAbsent) write(made, eval(n.args[0]));
    return made;
  }

  View call(const Node& n, bool integers) {
    auto arg = [&](size_t k) { return eval(n.args[k], integers); };
    if (auto type = dtype_from_name(n.text)) {
      View v = eval(n.args[0]);  // what is cast is no index, wherever the cast stands
      if (v.weak && is_integer(*type)) v = eval(n.args[0], true);
      if (*type == DType::boolean) return apply(Op::ne, {v, scalar_view(v.type(), 0)});
      return to_type(v, *type);
    }
    if (n.text == "clone") return of(array_of(arg(0)));
    if (n.text == "concat") return concat(n);
    if (n.text == "flip" || n.text == "roll") return turned(n);
    if (const Op* op = function_named(n.text)) {
      std::vector<View> operands;
      for (size_t k = 0; k < n.args.size(); ++k) operands.push_back(arg(k));
      return apply(*op, operands);
    }
    return call_op(n).at(0);
  }

  static int64_t axis_of(int64_t axis, const View& v) { return axis < 0 ? axis + static_cast<int64_t>(v.rank()) : axis; }
  View concat(const Node& n) {
    std::vector<View> parts;
    for (size_t k = 1; k < n.args.size(); ++k) parts.push_back(eval(n.args[k]));
    return concatenated(static_cast<size_t>(axis_of(integer(n.args[0]), parts[0])), parts);
  }
  View turned(const Node& n) {
    const View v = eval(n.args.back());
    const auto d = static_cast<size_t>(axis_of(integer(n.args[0]), v));
    return n.text == "flip" ? flipped(v, d) : rolled(v, d, integer(n.args[1]));
  }
  std::vector<View> call_op(const Node& n) {
    const Program* pure = elaborated().find(n.text);
    if (!pure) throw Error("there is no function or op " + n.text, n.pos);
    const auto op = std::ranges::find_if(file_.ops, [&](const ast::Op& x) { return x.name == n.text && x.kind != ast::Op::Kind::grad; });
    std::vector<View> arguments;
    for (size_t k = 0; k < n.args.size(); ++k) {
      const DType type = op->body.parameters.at(k).type;
      const View v = eval(n.args[k], is_integer(type));
      arguments.push_back(v.weak || is_function_of_numbers(*pure) ? to_type(v, type) : v);
    }
    if (!is_function_of_numbers(*pure)) return run_op(*op, *pure, arguments);
    return {at_each_point(pure->tensors[pure->outputs[0]].type, arguments, [&](const auto& x) { return run_op(*op, *pure, x)[0]; })};
  }
  std::vector<View> run_op(const ast::Op& op, const Program& pure, const std::vector<View>& values) {
    Arrays arguments;
    for (const View& v : values) arguments[op.body.parameters[arguments.size()].name] = array_of(v);
    const DimValues dims = dims_of_call(pure, shapes_of(arguments), dims_);
    Arrays made = op.kind == ast::Op::Kind::prog ? interpret(file_, op, arguments, dims) : evaluate(pure, arguments, dims, kExact);
    std::vector<View> results;
    for (const ast::Name& name : op.body.outputs) results.push_back(of(made.at(name.text)));
    for (const ast::Parameter& p : op.body.parameters)
      if (p.inout) results.push_back(of(made.at(p.name)));
    return results;
  }
  View reduce(const Node& n) {
    std::vector<View> values;
    points(n, 0, values);
    return reduced(n.text, values, first_of_argument_, values.empty() ? type_of(n.args[0]) : Type());
  }
  int64_t first_of_argument_ = 0;  // where the axis of an argmax begins

  // The body's values at all points of the axes, in order.
  void points(const Node& n, size_t axis, std::vector<View>& values) {
    if (axis == n.axes.size()) {
      if (n.condition == kAbsent || truth(n.condition)) values.push_back(eval(n.args[0]));
      return;
    }
    const ast::Axis& a = n.axes[axis];
    const int64_t begin = a.begin == kAbsent ? 0 : integer(a.begin);
    const int64_t end = a.end == kAbsent ? extent_of(a.name, n.args[0], n.condition) : integer(a.end);
    if (axis == 0) first_of_argument_ = begin;
    for (int64_t i = begin; i < end; ++i) {
      axes_[a.name] = i;
      points(n, axis + 1, values);
    }
    axes_.erase(a.name);
  }
};

}  // namespace
}  // namespace memory

Arrays interpret(const ast::File& file, const ast::Op& program, const Arrays& inputs, const DimValues& dims) {
  return memory::Interpreter(file, program, dims).run(inputs);
}

}  // namespace xhat
