#include "runtime/lazy/extents.h"

#include <utility>

namespace xhat::lazy::detail {

using Term = Extents::Term;

Term Extents::entry(Entry e) {
  const auto t = static_cast<Term>(terms_.size());
  e.parent = t;
  terms_.push_back(e);
  return t;
}

Term Extents::find(Term a) {
  while (terms_[a].parent != a) a = terms_[a].parent = terms_[terms_[a].parent].parent;
  return a;
}

Term Extents::number(int64_t value) { return entry({What::number, value}); }

Term Extents::unknown(int64_t value, bool solvable) {
  if (value == 0 || value == 1) return number(value);
  Entry e{What::unknown, value};
  e.solvable = solvable;
  return entry(e);
}

Term Extents::offset(Term a, int64_t by) {
  if (by == 0) return a;
  if (is_number(a)) return number(value(a) + by);
  a = find(a);
  if (terms_[a].what == What::add && terms_[a].b == a) return offset(terms_[a].a, terms_[a].constant + by);
  Entry e{What::add, value(a) + by};
  e.a = a;
  e.constant = by;
  const Term t = entry(e);
  terms_[t].b = t;  // no second operand
  return t;
}

Term Extents::add(Term a, Term b) {
  if (is_number(b)) return offset(a, value(b));
  if (is_number(a)) return offset(b, value(a));
  Entry e{What::add, value(a) + value(b)};
  e.a = find(a);
  e.b = find(b);
  return entry(e);
}

Term Extents::multiply(Term a, Term b) {
  if (is_number(a) && value(a) == 1) return b;
  if (is_number(b) && value(b) == 1) return a;
  if (is_number(a) && is_number(b)) return number(value(a) * value(b));
  Entry e{What::multiply, value(a) * value(b)};
  e.a = find(a);
  e.b = find(b);
  return entry(e);
}

Term Extents::divide(Term a, int64_t by) {
  if (by == 1) return a;
  if (is_number(a)) return number(value(a) / by);
  Entry e{What::divide, value(a) / by};
  e.a = find(a);
  e.constant = by;
  return entry(e);
}

Term Extents::broadcast(Term a, Term b) {
  if (is_one(a)) return b;
  if (!is_one(b)) equate(a, b);
  return a;
}

bool Extents::contains(Term root, Term unknown) {
  const Term t = find(root);
  if (t == unknown) return true;
  const Entry& e = terms_[t];
  if (e.what == What::number || e.what == What::unknown) return false;
  return contains(e.a, unknown) || (e.what != What::divide && e.b != t && contains(e.b, unknown));
}

void Extents::fix(Term a) {
  const Term t = find(a);
  Entry& e = terms_[t];
  if (e.what == What::number) return;
  if (e.what != What::unknown) {
    fix(e.a);
    if (e.what != What::divide && terms_[t].b != t) fix(terms_[t].b);
  }
  terms_[t].what = What::number;
}

void Extents::equate(Term a, Term b) {
  a = find(a), b = find(b);
  if (a == b) return;
  Entry &x = terms_[a], &y = terms_[b];
  if (x.what == What::unknown && y.what == What::unknown) {
    // The older one stays, so that names do not depend on what came in between.
    const auto [keep, gone] = a < b ? std::pair{a, b} : std::pair{b, a};
    terms_[keep].solvable |= terms_[gone].solvable;
    terms_[gone].parent = keep;
    return;
  }
  if (x.what == What::number || y.what == What::number) {
    fix(a);
    fix(b);
    return;
  }
  if (x.what == What::unknown || y.what == What::unknown) {
    const auto [unknown, term] = x.what == What::unknown ? std::pair{a, b} : std::pair{b, a};
    if (!contains(term, unknown)) {
      // Memory whose extent follows from other memory's: the unknown is the expression.
      terms_[unknown].parent = term;
      return;
    }
  } else if (x.what == y.what && x.constant == y.constant && find(x.a) == find(y.a) &&
             (x.what == What::divide || (x.b == a && y.b == b) || (x.b != a && y.b != b && find(x.b) == find(y.b)))) {
    terms_[b].parent = a;
    return;
  }
  fix(a);
  fix(b);
}

void Extents::settle() {
  for (Term t = 0; t < terms_.size(); ++t)
    if (find(t) == t && terms_[t].what == What::unknown && !terms_[t].solvable) fix(t);
}

Id Extents::in(Program& p, Term a) {
  const Term t = find(a);
  if (terms_[t].id != kNone) return terms_[t].id;
  Arena& arena = *p.arena;
  const Entry e = terms_[t];
  Id id = kNone;
  const bool known =
      e.what != What::number && e.what != What::unknown && is_number(e.a) && (e.what == What::divide || e.b == t || is_number(e.b));
  switch (known ? What::number : e.what) {
    case What::number: id = arena.integer(e.value); break;
    case What::unknown: {
      const std::string name = "N" + std::to_string(dims_.size());
      dims_[name] = e.value;
      id = arena.dim(name);
      p.dims.push_back({id, kNone, {}});
      break;
    }
    case What::add: id = arena.add(in(p, e.a), e.b == t ? arena.integer(e.constant) : in(p, e.b)); break;
    case What::multiply: id = arena.mul(in(p, e.a), in(p, e.b)); break;
    case What::divide: id = arena.div(in(p, e.a), arena.integer(e.constant)); break;
  }
  return terms_[t].id = id;
}

}  // namespace xhat::lazy::detail
