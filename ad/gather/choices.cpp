#include "ad/gather/choices.h"

#include "expr/core/scalar.h"

namespace xhat {

Choice choice_in(Arena& a, Op reduction, Id value) {
  auto changes_nothing = [&](Id x) {
    const Node& c = a[x];
    if (c.op != Op::constant) return false;
    return is_float(c.type) ? is_constant(a, x, identity_of(reduction)) : c.integer == identity_of(reduction, c.type);
  };
  Choice made{{}, value};
  for (bool more = true; more;) {
    const Node n = a[made.value];
    more = n.op == Op::select && (changes_nothing(n.arg(2)) || changes_nothing(n.arg(1)));
    if (!more) break;
    const bool holds = changes_nothing(n.arg(2));
    for (Id c : holds ? std::vector<Id>{n.arg(0)} : negated_conjuncts(a, n.arg(0))) add_literals(a, made.conditions, c);
    made.value = n.arg(holds ? 1 : 2);
  }
  const Node n = a[made.value];
  if (reduction == Op::sum && n.op == Op::cast && is_float(n.type) && a[n.arg(0)].type == DType::boolean) {
    add_literals(a, made.conditions, n.arg(0));
    made.value = a.constant(n.type, 1);
  }
  return made;
}

}  // namespace xhat
