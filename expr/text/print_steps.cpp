#include "expr/text/print_steps.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace xhat {
namespace {

class Printer {
 public:
  explicit Printer(const Program& p) : p_(p) {}

  std::string run() {
    text_ = head();
    list(*p_.steps, 1);
    text_ += "}\n";
    for (const Program* op : ops_) {
      Program named = *op;
      named.name = name_of(op);
      text_ += "\n" + print(named);
    }
    return text_;
  }

 private:
  const Program& p_;
  std::string text_;
  std::vector<const Program*> ops_;

  // "prog f(x: f32[N]) -> (y) {" and a newline.
  std::string head() const {
    Program signature = p_;
    signature.steps = nullptr;
    signature.forward = signature.backward = {};
    signature.cotangents.clear();
    signature.gradients.clear();
    signature.gradient_of.clear();
    const std::string op = print(signature);
    return "prog" + op.substr(2, op.find('\n') - 1);
  }

  const std::string& name(TensorId t) const { return p_.tensors[t].name; }
  std::string expression(Id id) const { return print(p_, id); }
  std::string row(const std::vector<Id>& ids) const {
    std::vector<std::string> texts;
    for (Id id : ids) texts.push_back(id == kNone ? ":" : expression(id));
    return ids.empty() ? "" : fmt::format("[{}]", fmt::join(texts, ", "));
  }
  // Ops of one name are told apart by a number.
  std::string name_of(const Program* op) {
    auto at = std::ranges::find(ops_, op);
    if (at == ops_.end()) at = ops_.insert(ops_.end(), op);
    const auto same = std::count_if(ops_.begin(), at, [&](const Program* other) { return other->name == op->name; });
    return same == 0 ? op->name : fmt::format("{}_{}", op->name, same + 1);
  }

  void line(int depth, const std::string& s) { text_ += std::string(static_cast<size_t>(2 * depth), ' ') + s + "\n"; }

  void list(const Steps& steps, int depth) {
    for (const Step& s : steps) std::visit([&](const auto& x) { show(x, depth); }, s.is);
  }

  void show(const Block& b, int depth) {
    std::vector<std::string> results, operands;
    for (TensorId t : b.results) results.push_back(name(t));
    for (const Operand& o : b.operands) operands.push_back(o.scalar != kNone ? expression(o.scalar) : name(o.value) + row(o.row));
    const std::string left = results.size() == 1 ? results[0] : fmt::format("({})", fmt::join(results, ", "));
    line(depth, fmt::format("{} = {}({})", left, name_of(b.op.get()), fmt::join(operands, ", ")));
  }

  void show(const Update& u, int depth) {
    line(depth, fmt::format("{} = {} with {} = {}", name(u.result), name(u.base), row(u.row), name(u.value)));
  }

  void show(const Loop& l, int depth) {
    std::vector<std::string> carried, next, results;
    for (const Carried& c : l.carried) {
      carried.push_back(fmt::format("{} = {}", name(c.entering), name(c.initial)));
      next.push_back(fmt::format("{} = {}", name(c.entering), name(c.leaving)));
      results.push_back(fmt::format("{} = {}", name(c.result), name(c.entering)));
    }
    const std::string range = fmt::format("{} in {}..{}{}", p_.arena->name(l.variable), expression(l.begin), expression(l.end),
                                          l.stride == 1 ? "" : fmt::format(" by {}", l.stride));
    line(depth, fmt::format("for {} carrying {} {{{}", range, fmt::join(carried, ", "), l.why.empty() ? "" : "  # " + l.why));
    list(l.test, depth + 1);
    if (l.condition) line(depth + 1, fmt::format("stop unless {}", name(*l.condition)));
    list(l.body, depth + 1);
    line(depth + 1, fmt::format("next {}", fmt::join(next, ", ")));
    line(depth, fmt::format("}} then {}", fmt::join(results, ", ")));
  }

  void show(const Branch& b, int depth) {
    line(depth, fmt::format("if {} {{", name(b.condition)));
    list(b.then, depth + 1);
    merge(b, depth + 1, &Branch::Merge::then);
    line(depth, "} else {");
    list(b.otherwise, depth + 1);
    merge(b, depth + 1, &Branch::Merge::otherwise);
    line(depth, "}");
  }
  void merge(const Branch& b, int depth, TensorId Branch::Merge::*side) {
    for (const Branch::Merge& m : b.merges) line(depth, fmt::format("{} = {}", name(m.result), name(m.*side)));
  }
};

}  // namespace

std::string print_steps(const Program& p) { return Printer(p).run(); }

}  // namespace xhat
