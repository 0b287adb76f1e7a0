// The invariants of a Program. A pass that breaks one has a Bug, and the message cites the number.
//
//   1  a child's id is smaller than its parent's, and all ids are the arena's
//   2  types fit: operands by ops.def, conditions bool, indices i64 or i32, branches and else values of one type
//   3  free axes are bound: by the definition's left axes or a reduction; ranges use outer axes, in order
//   4  a read has one index per dimension, and the tensor's type
//   5  every tensor is defined at most once, inputs and cotangents never, and before it is read
//   6  forward never reads backward; backward definitions only after a gradient pass
//   7  names are unique among tensors and dims, valid in the language, and no axis in scope has one of them or is bound
//      twice
//   8  outputs, gradients and what is read exist: each is a parameter or has a definition
//   9  left axes are distinct, begin at 0, and end at the tensor's shape; the body has the tensor's type
//  10  shapes, dim definitions and preconditions use dims of the program only
//  11  a call has its callee's number and types of arguments and results
//  12  gradients belong to inputs, one each, of their type and rank; cotangents to the float outputs, in order
//  13  of steps: every value is given once, and before it is used; blocks have operands and results of the types that their ops want, loops
//      and branches hand on values of one type
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "expr/core/program.h"
#include "expr/core/steps.h"
#include "expr/core/syntax.h"

namespace xhat {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& p) : p_(p), a_(*p.arena) {}

  void run() {
    names();
    dims();
    for (TensorId t : p_.inputs) parameter(t, Role::input);
    for (TensorId t : p_.cotangents) parameter(t, Role::cotangent);
    backward_.insert(p_.cotangents.begin(), p_.cotangents.end());
    for (const Definition& d : p_.backward.definitions) backward_.insert(d.targets.begin(), d.targets.end());
    if (p_.steps) {
      check(p_.forward.definitions.empty() && p_.backward.definitions.empty(), 13, "a program of steps has definitions, too");
      steps(*p_.steps);
      for (TensorId t : p_.gradients) defined_.insert(t);  // found by going back along the steps
    }
    region(p_.forward);
    backward_.clear();
    region(p_.backward);
    for (TensorId t : p_.outputs) check(defined_.contains(t), 8, "output without a definition: " + name(t));
    for (TensorId t : p_.gradients)
      check(defined_.contains(t), 8, "gradient without a definition: " + name(t));
    gradients();
    if (p_.custom_gradient) verify(*p_.custom_gradient);
  }

 private:
  std::string name(TensorId t) const {
    return t < p_.tensors.size() ? p_.tensors[t].name : fmt::format("#{}", t);
  }

  void check(bool fine, int number, const std::string& message) const {
    if (!fine) throw Bug(fmt::format("invariant {} of op {}: {}", number, p_.name, message));
  }
  void check(bool fine, int number, const char* message, const Definition& d) const {
    if (!fine) check(fine, number, std::string(message), d);
  }
  void check(bool fine, int number, const std::string& message, const Definition& d) const {
    if (!fine)
      check(false, number,
            message + ", in the definition of " + (d.targets.empty() ? "nothing" : name(d.target())));
  }

  void names() {
    std::set<std::string> seen;
    for (const Dim& d : p_.dims) {
      check(d.dim < a_.size() && a_[d.dim].op == Op::dim, 10, "a dim is another node");
      check(seen.insert(a_.name(d.dim)).second, 7, "dim " + a_.name(d.dim) + " stands twice");
      check(ast::is_valid_name(a_.name(d.dim)), 7, "dim " + a_.name(d.dim) + " is no name of the language");
    }
    for (const Tensor& t : p_.tensors) {
      check(seen.insert(t.name).second, 7, "the name " + t.name + " stands twice");
      check(ast::is_valid_name(t.name), 7, t.name + " is no name of the language");
    }
    taken_ = std::move(seen);
  }

  void dims() {
    std::set<Id> known;
    for (const Dim& d : p_.dims) known.insert(d.dim);
    auto only_dims = [&](Id root, DType type, const std::string& what) {
      check(root < a_.size() && a_[root].type == type, 10, what + " has another type");
      check(a_[root].free_axes().empty(), 10, what + " uses an axis");
      for (Id id : reachable(a_, root)) {
        check(!is_read(a_[id].op), 10, what + " uses a tensor");
        check(type == DType::boolean || !is_reduction(a_[id].op), 10, what + " has a reduction");
        check(a_[id].op != Op::dim || known.contains(id), 10, what + " uses a dim that is not the program's");
      }
    };
    for (const Dim& d : p_.dims)
      if (d.definition != kNone) only_dims(d.definition, DType::i64, "dim " + a_.name(d.dim));
    for (const Tensor& t : p_.tensors)
      for (Id extent : t.shape) only_dims(extent, DType::i64, "the shape of " + t.name);
    for (const Precondition& c : p_.preconditions) only_dims(c.condition, DType::boolean, "a precondition");
    dims_ = std::move(known);
  }

  void parameter(TensorId t, Role role) {
    check(t < p_.tensors.size(), 8, "an unknown parameter");
    check(p_.tensors[t].role == role, 5, name(t) + " is a parameter, and its role is another");
    check(defined_.insert(t).second, 5, name(t) + " is a parameter twice");
  }

  void region(const Region& r) {
    for (const Definition& d : r.definitions) {
      check(!d.targets.empty(), 5, "a definition without a target", d);
      for (TensorId t : d.targets) check(t < p_.tensors.size(), 8, "an unknown tensor is defined", d);
      if (d.is_call())
        call(d);
      else
        definition(d);
      for (TensorId t : d.targets) check(defined_.insert(t).second, 5, p_.tensors[t].name + " is defined twice", d);
    }
  }

  void reads(TensorId t, const Definition& d) const {
    check(t < p_.tensors.size(), 8, "an unknown tensor is read", d);
    check(!backward_.contains(t), 6, name(t) + " is read by forward", d);
    check(defined_.contains(t), 5, name(t) + " is read before it is defined", d);
  }

  void definition(const Definition& d) {
    check(d.body < a_.size(), 1, "the body is no node", d);
    const Tensor& target = p_.tensors[d.target()];
    check(d.targets.size() == 1, 5, "several targets, and no call", d);
    check(a_[d.body].type == target.type, 9, "the body has another type than the tensor", d);
    check(d.axes.size() == target.shape.size(), 9, "another number of axes than dimensions", d);
    std::set<Id> bound;
    for (size_t i = 0; i < d.axes.size(); ++i) {
      const AxisRange& r = d.axes[i];
      check(a_[r.axis].op == Op::axis, 9, "a left axis is another node", d);
      check(bound.insert(r.axis).second, 9, "a left axis stands twice", d);
      check(is_constant(a_, r.begin, 0) && r.end == target.shape[i], 9,
            "a left axis has another range than the shape", d);
      check(!taken_.contains(a_.name(r.axis)) && ast::is_valid_name(a_.name(r.axis)), 7,
            "axis " + a_.name(r.axis) + " has a taken name", d);
    }
    for (Id id : reachable(a_, d.body)) node(id, d);
    for (Id x : a_[d.body].free_axes())
      check(bound.contains(x), 3, "axis " + a_.name(x) + " is not bound", d);
    shadowed(d, bound);
  }

  // No reduction binds an axis that is bound around it: looked for among the axes bound below each node.
  void shadowed(const Definition& d, const std::set<Id>& left) const {
    std::unordered_map<Id, std::set<Id>> below;
    for (Id id : reachable(a_, d.body)) {
      const Node& n = a_[id];
      std::set<Id> bound;
      for (Id x : n.args())
        if (auto it = below.find(x); it != below.end()) bound.insert(it->second.begin(), it->second.end());
      if (is_reduction(n.op))
        for (const AxisRange& r : reduce_axes(n))
          check(!left.contains(r.axis) && bound.insert(r.axis).second, 7,
                "axis " + a_.name(r.axis) + " is bound inside its own scope", d);
      if (!bound.empty()) below[id] = std::move(bound);
    }
  }

  void node(Id id, const Definition& d) const {
    const Node& n = a_[id];
    for (Id x : n.args()) check(x < id, 1, "a child's id is not smaller than its parent's", d);
    if (n.op == Op::dim) check(dims_.contains(id), 10, "dim " + a_.name(id) + " is not the program's", d);
    if (is_read(n.op))
      read(n, d);
    else if (is_reduction(n.op))
      reduction(n, d);
    else if (n.op == Op::select)
      check(a_[n.arg(0)].type == DType::boolean && a_[n.arg(1)].type == n.type && a_[n.arg(2)].type == n.type,
            2, "the types of if do not fit", d);
    else if (n.arg_count > 0 && n.op != Op::cast)
      operation(n, d);
  }

  void read(const Node& n, const Definition& d) const {
    reads(n.symbol, d);
    const Tensor& t = p_.tensors[n.symbol];
    check(n.type == t.type, 4, t.name + " is read with another type", d);
    check(read_indices(n).size() == t.shape.size(), 4, t.name + " is read with another number of indices", d);
    for (Id x : read_indices(n))
      check(a_[x].type == DType::i64 || a_[x].type == DType::i32, 2,
            "an index of " + t.name + " is neither i64 nor i32", d);
    if (n.op == Op::read_or)
      check(a_[n.args().back()].type == n.type, 2, "the else value of " + t.name + " does not fit", d);
  }

  void reduction(const Node& n, const Definition& d) const {
    check(n.arg_count >= 5 && n.arg_count % 3 == 2, 2, "a reduction without axes", d);
    check(a_[reduce_condition(n)].type == DType::boolean, 2, "the condition of a reduction is not bool", d);
    bool logic = n.op == Op::any || n.op == Op::all;
    bool index = n.op == Op::argmax || n.op == Op::argmin;
    DType body = a_[reduce_body(n)].type;
    check(logic == (body == DType::boolean), 2, "the body of a reduction has a wrong type", d);
    check(n.type == (index ? DType::i64 : body), 2, "a reduction has another type than its body", d);
    bool total = n.op == Op::sum || n.op == Op::prod;
    check(!total || !is_integer(body) || body == DType::i64, 2, "an integer sum that is not i64", d);
    std::vector<AxisRange> axes = reduce_axes(n);
    check(!index || axes.size() == 1, 2, "argmax takes one axis", d);
    for (size_t i = 0; i < axes.size(); ++i) {
      const AxisRange& r = axes[i];
      check(a_[r.axis].op == Op::axis, 3, "a reduction over another node than an axis", d);
      check(!taken_.contains(a_.name(r.axis)) && ast::is_valid_name(a_.name(r.axis)), 7,
            "axis " + a_.name(r.axis) + " has a taken name", d);
      for (Id end : {r.begin, r.end}) {
        check(a_[end].type == DType::i64, 2, "the range of " + a_.name(r.axis) + " is not i64", d);
        check(tensors_read(a_, end).empty(), 3, "the range of " + a_.name(r.axis) + " reads a tensor", d);
        for (size_t j = i; j < axes.size(); ++j)
          check(!std::ranges::count(a_[end].free_axes(), axes[j].axis), 3,
                "the range of " + a_.name(r.axis) + " uses a later axis", d);
      }
    }
  }

  void operation(const Node& n, const Definition& d) const {
    const OpInfo& row = info(n.op);
    DType first = a_[n.arg(0)].type;
    bool uniform = std::ranges::all_of(n.args(), [&](Id x) { return a_[x].type == first; });
    bool fine = static_cast<int>(n.arg_count) == row.arity && (uniform || row.type == TypeRule::any);
    switch (row.type) {
      case TypeRule::same_float: fine &= is_float(first) && n.type == first; break;
      case TypeRule::same: fine &= first != DType::boolean && n.type == first; break;
      case TypeRule::same_or_bool: fine &= n.type == first; break;
      case TypeRule::whole: fine &= is_integer(first) && n.type == first; break;
      case TypeRule::compare: fine &= n.type == DType::boolean; break;
      case TypeRule::logic: fine &= first == DType::boolean && n.type == DType::boolean; break;
      case TypeRule::classify: fine &= is_float(first) && n.type == DType::boolean; break;
      case TypeRule::any:
        fine &=
            std::ranges::all_of(n.args(), [&](Id x) { return is_integer(a_[x].type); }) && is_float(n.type);
        break;
    }
    check(fine, 2, fmt::format("the operands of {} do not fit", row.id), d);
  }

  void call(const Definition& d) const {
    const Program& callee = *d.callee;
    check(d.arguments.size() == callee.inputs.size() && d.targets.size() == callee.outputs.size(), 11,
          "another number of arguments or results than op " + callee.name + " has", d);
    auto fits = [&](TensorId ours, TensorId theirs) {
      const Tensor& x = p_.tensors[ours];
      const Tensor& y = callee.tensors[theirs];
      check(x.type == y.type && x.shape.size() == y.shape.size(), 11,
            fmt::format("{} does not fit {} of op {}", x.name, y.name, callee.name), d);
    };
    for (size_t i = 0; i < d.arguments.size(); ++i) {
      reads(d.arguments[i], d);
      fits(d.arguments[i], callee.inputs[i]);
    }
    for (size_t i = 0; i < d.targets.size(); ++i) fits(d.targets[i], callee.outputs[i]);
  }

  void used(TensorId t, const char* by) { check(t < p_.tensors.size() && defined_.contains(t), 13, name(t) + " is used before it is given, by " + by); }
  void given(TensorId t) { check(t < p_.tensors.size() && defined_.insert(t).second, 13, name(t) + " is given twice"); }
  void alike(TensorId x, TensorId y) {
    const Tensor &s = p_.tensors[x], &t = p_.tensors[y];
    check(s.type == t.type && s.shape.size() == t.shape.size(), 13, s.name + " and " + t.name + " stand for each other, and are of another type or rank");
  }
  void indices(const std::vector<Id>& list) {
    for (Id x : list) {
      if (x == kNone) continue;
      check(a_[x].type == DType::i64, 13, "an index or a bound of steps is no i64");
      check(is_step_index(a_, x), 13, "an index or a bound of steps is made of floats or reductions");
      for (TensorId t : tensors_read(a_, x)) used(t, "an index");
    }
  }

  void steps(const Steps& list) {
    for (const Step& s : list) std::visit([&](const auto& x) { step(x); }, s.is);
  }
  void step(const Block& b) {
    verify(*b.op);
    if (b.with_gradient) verify(*b.with_gradient);
    check(b.operands.size() == b.op->inputs.size() && b.results.size() == b.op->outputs.size(), 13,
          "a call of " + b.op->name + " has another number of operands or results");
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const Operand& o = b.operands[k];
      const Tensor& want = b.op->tensors[b.op->inputs[k]];
      if (o.scalar != kNone) {
        indices({o.scalar});
        check(want.type == DType::i64 && want.shape.empty(), 13, want.name + " of " + b.op->name + " is handed a number");
        continue;
      }
      used(o.value, "a block");
      indices(o.row);
      const Tensor& value = p_.tensors[o.value];
      check(value.type == want.type && of_row(value.shape, o.row).size() == want.shape.size(), 13,
            want.name + " of " + b.op->name + " is handed another type or rank: " + value.name);
    }
    for (TensorId t : b.results) given(t);
  }
  void step(const Update& u) {
    for (TensorId t : {u.base, u.value}) used(t, "an update");
    indices(u.row);
    alike(u.base, u.result);
    check(p_.tensors[u.value].type == p_.tensors[u.base].type &&
              p_.tensors[u.value].shape.size() == of_row(p_.tensors[u.base].shape, u.row).size(),
          13, "a row of " + name(u.base) + " becomes a value of another type or rank");
    given(u.result);
  }
  void step(const Loop& l) {
    indices({l.begin, l.end});
    for (const Carried& c : l.carried) used(c.initial, "a loop");
    for (const Carried& c : l.carried) given(c.entering);
    steps(l.test);
    if (l.condition) used(*l.condition, "a loop's condition");
    steps(l.body);
    for (const Carried& c : l.carried) {
      used(c.leaving, "the next iteration");
      for (TensorId t : {c.initial, c.leaving, c.result}) alike(c.entering, t);
    }
    for (const Carried& c : l.carried) given(c.result);
  }
  void step(const Branch& b) {
    used(b.condition, "a branch");
    steps(b.then);
    steps(b.otherwise);
    for (const Branch::Merge& m : b.merges) {
      for (TensorId t : {m.then, m.otherwise}) used(t, "a merge"), alike(t, m.result);
      given(m.result);
    }
  }

  void gradients() const {
    check(p_.gradients.size() == p_.gradient_of.size(), 12, "gradients and their inputs differ in number");
    for (size_t i = 0; i < p_.gradients.size(); ++i) {
      TensorId input = p_.gradient_of[i];
      if (input == kNoTensor) continue;
      check(std::ranges::count(p_.inputs, input) == 1, 12,
            name(p_.gradients[i]) + " is the gradient of no input");
      const Tensor& g = p_.tensors[p_.gradients[i]];
      check(g.type == p_.tensors[input].type && g.shape.size() == p_.tensors[input].shape.size(), 12,
            g.name + " has another type or rank than its input");
    }
    if (p_.cotangents.empty()) return;
    std::vector<TensorId> wanted;
    for (TensorId t : p_.outputs)
      if (is_float(p_.tensors[t].type)) wanted.push_back(t);
    check(p_.cotangents.size() == wanted.size(), 12, "another number of cotangents than float outputs");
    for (size_t i = 0; i < wanted.size(); ++i)
      check(p_.tensors[p_.cotangents[i]].type == p_.tensors[wanted[i]].type &&
                p_.tensors[p_.cotangents[i]].shape == p_.tensors[wanted[i]].shape,
            12, name(p_.cotangents[i]) + " has another type or shape than its output");
  }

  const Program& p_;
  const Arena& a_;
  std::set<std::string> taken_;
  std::set<Id> dims_;
  std::set<TensorId> defined_;
  std::set<TensorId> backward_;  // while the forward is looked at: what it may not read
};

}  // namespace

void verify(const Program& p) { Verifier(p).run(); }

}  // namespace xhat
