#include <fmt/format.h>

#include "expr/imperative/functionalize.h"

namespace xhat::imperative {

namespace {

class Dump {
 public:
  explicit Dump(const Program& p) : p_(p) {}

  std::string run() {
    out_ = fmt::format("prog {}(", p_.name);
    for (size_t i = 0; i < p_.inputs.size(); ++i) out_ += (i ? ", " : "") + p_.tensor(p_.inputs[i]).name + ": " + type(p_.inputs[i]);
    out_ += ") -> (" + names(p_.outputs) + ") {\n";
    steps(*p_.steps, 1);
    out_ += "}\n";
    for (const std::string& op : ops_) out_ += "\n" + op;
    return std::move(out_);
  }

  std::string items(const Items& list) {
    items(list, 0);
    return std::move(out_);
  }

 private:
  std::string type(TensorId t) const {
    const Tensor& x = p_.tensor(t);
    std::string text(name_of(x.type));
    for (size_t d = 0; d < x.shape.size(); ++d) text += (d ? "," : "[") + print(p_, x.shape[d]);
    return text + (x.shape.empty() ? "" : "]");
  }
  std::string names(const std::vector<TensorId>& list) const {
    std::string text;
    for (TensorId t : list) text += (text.empty() ? "" : ", ") + p_.tensor(t).name;
    return text;
  }
  std::string row(const std::vector<Id>& indices) const {
    std::string text;
    for (Id x : indices) text += (text.empty() ? "[" : ",") + print(p_, x);
    return text.empty() ? text : text + "]";
  }
  void line(int depth, const std::string& text) { out_ += std::string(static_cast<size_t>(2 * depth), ' ') + text + "\n"; }

  template <class List>
  void carried(const List& list, int depth) {
    for (const auto& v : list)
      line(depth, fmt::format("carry {} = {}, then {}, to {}", p_.tensor(v.entering).name, p_.tensor(v.initial).name,
                              p_.tensor(v.leaving).name, p_.tensor(v.result).name));
  }
  template <class L>
  std::string head(const L& loop) const {
    return fmt::format("{} {} in {}..{} {{{}", loop.condition ? "while" : "for", p_.arena->name(loop.variable), print(p_, loop.begin),
                       print(p_, loop.end), loop.why.empty() ? "" : "  # " + loop.why);
  }

  void steps(const std::vector<Step>& list, int depth) {
    for (const Step& s : list) {
      if (const auto* b = std::get_if<Block>(&s.is)) {
        std::string arguments;
        for (const Operand& o : b->operands)
          arguments += (arguments.empty() ? "" : ", ") + (o.scalar != kNone ? print(p_, o.scalar) : p_.tensor(o.value).name + row(o.row));
        line(depth, fmt::format("({}) = {}({})", names(b->results), b->op->name, arguments));
        ops_.push_back(print(*b->op));
      } else if (const auto* u = std::get_if<Update>(&s.is)) {
        line(depth, fmt::format("{} = {} with {} = {}", p_.tensor(u->result).name, p_.tensor(u->base).name, row(u->row),
                                p_.tensor(u->value).name));
      } else if (const auto* l = std::get_if<Loop>(&s.is)) {
        line(depth, head(*l));
        carried(l->carried, depth + 1);
        steps(l->test, depth + 1);
        if (l->condition) line(depth + 1, "test " + p_.tensor(*l->condition).name);
        steps(l->body, depth + 1);
        line(depth, "}");
      } else {
        const auto& c = std::get<Branch>(s.is);
        line(depth, "if " + p_.tensor(c.condition).name + " {");
        steps(c.then, depth + 1);
        line(depth, "} else {");
        steps(c.otherwise, depth + 1);
        line(depth, "}");
        for (const Branch::Merge& m : c.merges)
          line(depth, fmt::format("{} = {} or {}", p_.tensor(m.result).name, p_.tensor(m.then).name, p_.tensor(m.otherwise).name));
      }
    }
  }

  void items(const Items& list, int depth) {
    for (const Item& item : list) {
      if (const auto* d = std::get_if<Definition>(&item.is)) {
        line(depth, d->is_call() ? names(d->targets) + " = " + d->callee->name + "(" + names(d->arguments) + ")" : print(p_, *d));
      } else if (const auto* w = std::get_if<Write>(&item.is)) {
        std::string axes;
        for (const AxisRange& r : w->axes) axes += (axes.empty() ? " for " : ", ") + p_.arena->name(r.axis);
        line(depth, fmt::format("{} = {} with {} = {}{}{}", p_.tensor(w->result).name, p_.tensor(w->base).name, row(w->indices),
                                print(p_, w->body), axes, w->guard == kNone ? "" : " if " + print(p_, w->guard)));
      } else if (const auto* l = std::get_if<LoopItem>(&item.is)) {
        line(depth, head(*l));
        carried(l->carried, depth + 1);
        items(l->test, depth + 1);
        items(l->body, depth + 1);
        line(depth, "}");
      } else {
        const auto& b = std::get<BranchItem>(item.is);
        line(depth, "if " + p_.tensor(b.condition).name + " {");
        items(b.then, depth + 1);
        line(depth, "} else {");
        items(b.otherwise, depth + 1);
        line(depth, "}");
      }
    }
  }

  const Program& p_;
  std::string out_;
  std::vector<std::string> ops_;
};

}  // namespace

std::string dump(const Program& p) { return Dump(p).run(); }
std::string dump(const Program& p, const Items& items) { return Dump(p).items(items); }

}  // namespace xhat::imperative
