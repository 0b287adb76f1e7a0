#include "expr/rules/simplify.h"

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/core/error.h"
#include "expr/rules/rewriter.h"

namespace xhat {
namespace {

const char* const kFold = "fold";
const char* const kOrder = "order";

// What depends on more axes comes first, x[n,c] - mean[c]; of as many, what depends on earlier ones.
bool comes_before(const Arena& a, Id x, Id y) {
  const Node &m = a[x], &n = a[y];
  if (m.axes_count != n.axes_count) return m.axes_count > n.axes_count;
  if (!std::ranges::equal(m.free_axes(), n.free_axes())) return std::ranges::lexicographical_compare(m.free_axes(), n.free_axes());
  return x < y;
}

// Of what may be written in two ways with the same bits, one: x[i] - x[j] for x[j] - x[i] below even functions and in squares, i != j for
// j != i, and no condition twice.
Id in_order(Arena& a, Id id) {
  const Node n = a[id];
  auto no_data = [&](Id x) {
    return std::ranges::none_of(reachable(a, x), [&](Id y) { return is_read(a[y].op) || is_reduction(a[y].op); });
  };
  const bool square = is_float(n.type) && ((n.op == Op::mul && n.arg(0) == n.arg(1)) || (n.op == Op::pow && is_constant(a, n.arg(1), 2)));
  if (square || info(n.op).parity == Parity::even) {
    std::vector<Id> args;
    for (Id x : n.args()) args.push_back(is_float(a[x].type) ? difference_in_order(a, x) : x);
    return a.with_args(id, args);
  }
  if ((n.op == Op::eq || n.op == Op::ne) && a[n.arg(0)].op == Op::axis && a[n.arg(1)].op == Op::axis && n.arg(1) < n.arg(0))
    return a.binary(n.op, n.arg(1), n.arg(0));
  if (n.op == Op::land && no_data(n.arg(1))) {
    const std::vector<Id> known = conjuncts(a, n.arg(0));
    auto is_known = [&](Id x) { return std::ranges::find(known, x) != known.end(); };
    if (std::ranges::all_of(conjuncts(a, n.arg(1)), is_known)) return n.arg(0);
  }
  return kNone;
}

void check_names(const std::set<std::string>& names) {
  std::vector<std::string> known = simplification_rules();
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      throw Error("there is no simplification rule " + name + "; see expr/rules/rules.def");
}

Rewriter simplifier(Arena& arena, const SimplifyOptions& options) {
  check_names(options.without);
  check_names(options.only);
  auto on = [&](const std::string& name) {
    return !options.without.contains(name) && (options.only.empty() || options.only.contains(name));
  };
  std::vector<const Rule*> rows;
  for (const Rule& rule : rules())
    if (on(rule.name)) rows.push_back(&rule);
  Rewriter made(arena, rows);
  if (on(kFold)) made.fold_constants();
  if (on(kOrder)) made.then([&arena](Id id) { return in_order(arena, id); });
  return made;
}

template <class R>
Program rewritten(Program p, R&& rewriter) {
  for (Definition& d : p.definitions())
    if (!d.is_call()) d.body = rewriter.run(d.body);
  return p;
}

}  // namespace

Id difference_in_order(Arena& a, Id id) {
  const Node n = a[id];
  return n.op == Op::sub && comes_before(a, n.arg(1), n.arg(0)) ? a.sub(n.arg(1), n.arg(0)) : id;
}

Id simplify(Arena& a, Id root, const SimplifyOptions& options) { return simplifier(a, options).run(root); }

Program simplify(const Program& p, const SimplifyOptions& options) { return rewritten(p, simplifier(*p.arena, options)); }

Program recognize_derived(const Program& p) { return rewritten(p, Rewriter(*p.arena, idioms())); }

Program in_closed_form(const Program& p) {
  Program found = p;
  for (const Rule& row : closed_forms()) {
    const std::vector<Rule> only = {row};
    found = rewritten(found, Rewriter(*found.arena, only));
  }
  return found;
}

std::vector<std::string> simplification_rules() {
  std::vector<std::string> names = {kFold, kOrder};
  for (const Rule& rule : rules()) names.push_back(rule.name);
  return names;
}

}  // namespace xhat
