#include "expr/rules/simplify.h"

#include <algorithm>

#include "expr/core/error.h"
#include "expr/rules/rewriter.h"

namespace xhat {
namespace {

const char* const kFold = "fold";

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
  return made;
}

template <class R>
Program rewritten(Program p, R&& rewriter) {
  for (Definition& d : p.definitions())
    if (!d.is_call()) d.body = rewriter.run(d.body);
  return p;
}

}  // namespace

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
  std::vector<std::string> names = {kFold};
  for (const Rule& rule : rules()) names.push_back(rule.name);
  return names;
}

}  // namespace xhat
