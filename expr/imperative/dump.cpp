#include <fmt/format.h>

#include <set>

#include "expr/imperative/functionalize.h"

namespace xhat::imperative {

namespace {

class Dump {
 public:
  explicit Dump(const Program& p) : p_(p) {}

  std::string items(const Items& list) {
    items(list, 0);
    return std::move(out_);
  }

 private:
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
};

}  // namespace

// Tensors get their last names at the end; here they are told apart.
std::string dump(Program p, const Items& items) {
  std::set<std::string> taken;
  for (Tensor& t : p.tensors) {
    const std::string base = t.name;
    for (int i = 1; !taken.insert(t.name).second; ++i) t.name = fmt::format("{}_{}", base, i);
  }
  return Dump(p).items(items);
}

}  // namespace xhat::imperative
