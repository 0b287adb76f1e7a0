// with_functions_of_choices (simplify.h): both branches of a choice are computed where vectors run, so a function that both take of something is
// taken once, of what is chosen.
#include <algorithm>
#include <unordered_set>

#include "expr/rules/simplify.h"

namespace xhat {
namespace {

constexpr size_t kLargestBranch = 100;  // nodes
constexpr int kMostRounds = 16;         // functions of functions
constexpr int64_t kDear_ps = 100;       // what a choice of the operand and the rest of it costs is less

using Nodes = std::unordered_set<Id>;

// All that the root is made of, but for one operand of one node.
Nodes met_without(const Arena& a, Id root, Id choice, size_t branch) {
  Nodes met = {root};
  std::vector<Id> open = {root};
  while (!open.empty()) {
    const Id id = open.back();
    open.pop_back();
    const Node& n = a[id];
    for (size_t i = 0; i < n.arg_count; ++i)
      if (n.arg(i) != kNone && !(id == choice && i == branch) && met.insert(n.arg(i)).second) open.push_back(n.arg(i));
  }
  return met;
}

// Functions of one operand that nothing but this branch is made of, outermost only.
std::vector<Id> functions_of(const Arena& a, Id body, Id choice, size_t branch) {
  std::vector<Id> found;
  const std::vector<Id> all = reachable(a, a[choice].arg(branch));
  if (all.size() > kLargestBranch || std::ranges::any_of(all, [&](Id id) { return is_reduction(a[id].op); })) return found;
  const Nodes elsewhere = met_without(a, body, choice, branch);
  Nodes inside;
  for (size_t i = all.size(); i-- > 0;) {  // users before operands
    const Node& n = a[all[i]];
    const bool dear = n.arg_count == 1 && is_float(n.type) && a[n.arg(0)].type == n.type && n.op != Op::cast && cost_ps(a, n) >= kDear_ps;
    const bool own = dear && !elsewhere.contains(all[i]) && !inside.contains(all[i]);
    if (own) found.push_back(all[i]);
    if (own || inside.contains(all[i])) inside.insert(n.args().begin(), n.args().end());
  }
  std::ranges::reverse(found);
  return found;
}

Id replaced(Arena& a, Id root, Id from, Id to) {
  return rewrite(a, root, [&](Id id) { return id == from ? to : id; });
}

// The body with one function taken of what a choice of it chooses; kNone if there is none.
Id once(Arena& a, Id body) {
  for (Id choice : reachable(a, body)) {
    const Node n = a[choice];
    if (n.op != Op::select || !is_float(n.type)) continue;
    const std::vector<Id> yes = functions_of(a, body, choice, 1), no = functions_of(a, body, choice, 2);
    for (Id f : yes)
      for (Id g : no) {
        const Node u = a[f], v = a[g];
        if (u.op != v.op || u.type != v.type) continue;
        const Id of_choice = a.unary(u.op, u.arg(0) == v.arg(0) ? u.arg(0) : a.select(n.arg(0), u.arg(0), v.arg(0)));
        const Id x = replaced(a, n.arg(1), f, of_choice), y = replaced(a, n.arg(2), g, of_choice);
        return replaced(a, body, choice, x == y ? x : a.select(n.arg(0), x, y));
      }
  }
  return kNone;
}

}  // namespace

Program with_functions_of_choices(const Program& given) {
  Program p = given;
  Arena& a = *p.arena;
  for (Definition& d : p.definitions()) {
    if (d.is_call() || (is_reduction(a[d.body].op) && a[d.body].op != Op::sum)) continue;
    const bool sums = is_reduction(a[d.body].op);
    const Node sum = a[d.body];
    Id body = sums ? reduce_body(sum) : d.body;
    for (int round = 0; round < kMostRounds; ++round) {
      const Id next = once(a, body);
      if (next == kNone) break;
      body = next;
    }
    d.body = sums ? a.reduce(sum.op, reduce_axes(sum), reduce_condition(sum), body) : body;
  }
  return p;
}

}  // namespace xhat
