#include "cse/stash/stash_prepare.h"

#include <fmt/format.h>

#include "cse/algebra/equal_reductions.h"
#include "cse/algebra/idle_sums.h"
#include "cse/algebra/reduction_algebra.h"
#include "cse/match/bodies.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/share/cse_optimizer.h"
#include "expr/core/watch.h"

namespace xhat {
namespace {

std::set<TensorId> retained_in(const Program& p, const StashOptions& o) {
  auto find = [&](const std::string& name) {
    auto t = p.find(name);
    if (!t || !(has_tensor(p.inputs, *t) || has_tensor(p.outputs, *t))) {
      std::string known;
      for (TensorId x : p.inputs) known += (known.empty() ? "" : ", ") + p.tensors[x].name;
      for (TensorId x : p.outputs) known += ", " + p.tensors[x].name;
      throw Error("'" + name + "' is no input or output of " + p.name +
                  "; these can be kept or dropped: " + known);
    }
    return *t;
  };
  std::set<TensorId> retained;
  if (o.kept_by_caller) {
    for (const std::string& name : *o.kept_by_caller) retained.insert(find(name));
  } else {
    retained.insert(p.inputs.begin(), p.inputs.end());
    retained.insert(p.outputs.begin(), p.outputs.end());
  }
  for (const std::string& name : o.dropped) retained.erase(find(name));
  return retained;
}

// Forward reductions whose values decide something in the backward, also by way of maps.
std::set<TensorId> compared_in(const Program& p) {
  const Arena& a = *p.arena;
  std::set<TensorId> found;
  std::set<TensorId> decide = feeds_control(p, Through::maps);
  for (const Definition& d : p.forward.definitions) {
    if (!is_reduction(a[d.body].op)) continue;
    bool extreme = a[d.body].op != Op::sum && a[d.body].op != Op::prod;
    if (extreme || decide.contains(d.target())) found.insert(d.target());
  }
  return found;
}

}  // namespace

PreparedStash prepare_stash(const Program& p, const StashOptions& o) {
  if (o.store_as && *o.store_as != DType::bf16 && *o.store_as != DType::f16)
    throw Error(fmt::format("kept values can be stored as bf16 or f16, not as {}", name_of(*o.store_as)));
  PreparedStash made;
  RememberBounds remember(*p.arena);
  made.retained = retained_in(p, o);
  Program simple = reuse_equal_reductions(p);
  step_done("equal_reductions", simple);
  simple = without_idle_sums(simplify_reductions(simple));
  step_done("reduction_algebra", simple);
  for (const Definition& d : simple.forward.definitions) made.written.insert(d.targets.begin(), d.targets.end());
  if (o.policy != StashOptions::Policy::none) made.strict = compared_in(simple);
  std::vector<TensorId> stored, dropped;
  for (const auto& list : {simple.inputs, simple.outputs})
    for (TensorId t : list)
      if (!made.retained.contains(t)) dropped.push_back(t);
  for (TensorId t : simple.outputs)
    if (goes_by_prices(o) || made.retained.contains(t)) stored.push_back(t);
  if (o.policy == StashOptions::Policy::none) {
    made.program = reuse_stored(simple, stored, dropped);
  } else {
    Shared shared = share_largest(simple, stored, dropped, o.policy == StashOptions::Policy::largest);
    made.program = shared.program;
    made.all_shared = shared.all;
    made.compared = shared.compared;
  }
  step_done("shared", made.program);
  made.exact = feeds_control(made.program);
  return made;
}

}  // namespace xhat
