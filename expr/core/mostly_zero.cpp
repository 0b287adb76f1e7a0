#include "expr/core/mostly_zero.h"

#include <algorithm>

#include "expr/core/conditions.h"

namespace xhat {
namespace {

struct NotZero {
  Arena& a;
  const std::function<bool(TensorId)>& is_zero;

  bool from_memory(Id id) const {
    const auto all = reachable(a, std::vector<Id>{id});
    return std::ranges::any_of(all, [&](Id x) { return is_read(a[x].op) && !a[x].free_axes().empty() && is_float(a[x].type); });
  }

  // Of two parts of which both are other than 0 where the whole is; one is enough to say where.
  Id both(Id x, Id y) const {
    if (x == kNone || y == kNone) return x == kNone ? y : x;
    return x == y ? x : a.land(x, y);
  }
  Id either(Id x, Id y) const {
    if (x == kNone || y == kNone) return kNone;
    return x == y ? x : a.binary(Op::lor, x, y);
  }

  Id of(Id id) const {
    const Node n = a[id];
    const bool truth = n.type == DType::boolean;
    switch (n.op) {
      case Op::eq: return is_float(a[n.arg(0)].type) && from_memory(n.arg(0)) && from_memory(n.arg(1)) ? id : kNone;
      case Op::read: return !is_zero(n.symbol) ? kNone : truth ? id : a.binary(Op::ne, id, a.constant(n.type, 0));
      case Op::land: return of(n.arg(0)) != kNone || of(n.arg(1)) != kNone ? id : kNone;
      case Op::lor: return of(n.arg(0)) != kNone && of(n.arg(1)) != kNone ? id : kNone;
      case Op::select: return of_choice(n, truth);
      case Op::mul: return both(of(n.arg(0)), of(n.arg(1)));
      case Op::add:
      case Op::sub: return either(of(n.arg(0)), of(n.arg(1)));
      case Op::div: return of(n.arg(0));
      case Op::neg: return of(n.arg(0));
      case Op::cast: return is_float(n.type) && is_float(a[n.arg(0)].type) ? of(n.arg(0)) : kNone;
      default: return kNone;
    }
  }

  Id of_choice(const Node& n, bool truth) const {
    auto zero = [&](Id x) { return truth ? is_false(a, x) : a[x].op == Op::constant && a[x].value == 0; };
    if (zero(n.arg(2))) return both(of(n.arg(0)), of(n.arg(1)));
    return zero(n.arg(1)) ? of(n.arg(2)) : kNone;
  }
};

}  // namespace

Id where_not_zero(Arena& a, Id value, const std::function<bool(TensorId)>& is_zero) { return NotZero{a, is_zero}.of(value); }

void mark_mostly_zero(Program& p) {
  const auto known = [&](TensorId t) { return p.tensors[t].mostly_zero; };
  for (const Region* region : {&p.forward, &p.backward})
    for (const Definition& d : region->definitions) {
      if (d.is_call() || is_reduction((*p.arena)[d.body].op)) continue;
      p.tensors[d.target()].mostly_zero = where_not_zero(*p.arena, d.body, known) != kNone;
    }
}

}  // namespace xhat
