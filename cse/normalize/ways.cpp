#include "cse/normalize/ways.h"

#include <algorithm>
#include <unordered_set>

#include "cse/normalize/path_conditions.h"

namespace xhat {
namespace {

Id shared_of(Arena& a, Id x, Id y) {
  std::unordered_set<Id> outer;
  for (; !is_true(a, x); x = outer_of(a, x)) outer.insert(x);
  while (!is_true(a, y) && !outer.contains(y)) y = outer_of(a, y);
  return y;
}

}  // namespace

Id guarded_by(Arena& a, Id x, Id y) {
  if (is_true(a, x)) return y;
  if (is_true(a, y)) return x;
  if (is_false(a, x)) return x;
  bool partial = std::ranges::any_of(reachable(a, y), [&](Id id) {
    return (a[id].op == Op::read && a[id].arg_count > 0) || a[id].op == Op::argmax || a[id].op == Op::argmin;
  });
  return partial ? a.select(x, y, a.boolean(false)) : a.land(x, y);
}

Id either(Arena& a, Id x, Id y) {
  if (is_true(a, x) || is_false(a, y) || x == y) return x;
  if (is_true(a, y) || is_false(a, x)) return y;
  return a.binary(Op::lor, x, y);
}

bool is_chain(const Arena& a, Id id) {
  return a[id].op == Op::land || (a[id].op == Op::select && is_false(a, a[id].arg(2)));
}

Id outer_of(Arena& a, Id condition) { return is_chain(a, condition) ? a[condition].arg(0) : a.boolean(true); }

std::unordered_map<Id, Ways> ways_to(Arena& a, Id root) {
  const Id always = a.boolean(true);
  auto narrow = [&](Ways p, Id y) { return Ways{guarded_by(a, p.all, y), guarded_by(a, p.shared, y)}; };
  auto join = [&](Ways& known, Ways p) {
    if (known.all == p.all && known.shared == p.shared) return;
    known.shared = shared_of(a, known.shared, p.shared);
    if (known.all == p.all || known.shared == known.all) return;
    known.all = known.shared == p.all ? p.all : either(a, known.all, p.all);
  };
  return known_on_paths(a, root, Ways{always, always}, narrow, join);
}

}  // namespace xhat
