#include "runtime/call/derivatives.h"

#include <algorithm>
#include <map>

#include "cse/algebra/empty_sums.h"
#include "cse/algebra/equal_reductions.h"
#include "cse/algebra/joined_sums.h"
#include "cse/algebra/idle_sums.h"
#include "cse/algebra/reduction_algebra.h"
#include "cse/algebra/whole_differences.h"
#include "cse/share/cse_optimizer.h"
#include "expr/core/watch.h"

namespace xhat::runtime {
namespace {

// In turns: 0 written, 1 derived of it, 2 written of that (a step of an optimizer, a norm of a gradient), 3 derived of that, …
std::vector<int> turns(const Program& p) {
  std::map<TensorId, int> turn;
  std::vector<int> found;
  for (const Definition& d : p.forward.definitions) {
    int at = 0;
    for (TensorId t : tensors_read(*p.arena, d.body))
      if (auto it = turn.find(t); it != turn.end()) at = std::max(at, it->second);
    if ((at % 2 == 1) != d.derived) ++at;
    turn[d.target()] = at;
    found.push_back(at);
  }
  return found;
}

// What is derived in this turn as the backward of what comes before. Later turns are left out; what they read are results.
std::pair<Program, std::vector<Definition>> apart(const Program& p, const std::vector<int>& turn, int derived) {
  Program q = p;
  std::vector<Definition> later;
  q.forward = {};
  q.outputs.clear();
  std::vector<TensorId> results = p.outputs;
  for (size_t i = 0; i < turn.size(); ++i) {
    const Definition& d = p.forward.definitions[i];
    if (turn[i] > derived) {
      later.push_back(d);
      for (TensorId t : tensors_read(*p.arena, d.body)) results.push_back(t);
    } else {
      (turn[i] == derived ? q.backward : q.forward).definitions.push_back(d);
    }
  }
  auto are_results = [&](const Region& r, std::vector<TensorId>& list) {
    for (const Definition& d : r.definitions)
      if (has_tensor(results, d.target())) list.push_back(d.target());
  };
  are_results(q.forward, q.outputs);
  are_results(q.backward, q.gradients);
  q.gradient_of.assign(q.gradients.size(), kNoTensor);
  return {std::move(q), std::move(later)};
}

}  // namespace

bool has_derivatives(const Program& p) { return std::ranges::any_of(p.forward.definitions, &Definition::derived); }

Program with_simple_derivatives(const Program& source, const NormalForm& normal_form) {
  Program p = ordered(source);
  for (int derived = 1;; derived += 2) {
    const std::vector<int> turn = turns(p);
    if (std::ranges::find(turn, derived) == turn.end()) return p;
    auto [q, later] = apart(p, turn, derived);
    auto with_the_rest = [&, &later = later](Program simple) {
      for (Definition& d : simple.backward.definitions) d.derived = true;
      for (auto* list : {&simple.backward.definitions, &later})
        simple.forward.definitions.insert(simple.forward.definitions.end(), list->begin(), list->end());
      simple.backward = {};
      simple.outputs = p.outputs;
      simple.gradients.clear();
      simple.gradient_of.clear();
      return ordered(simple);
    };
    q = normal_form(q);
    step_done("normal_form", with_the_rest(q));
    q = without_idle_sums(simplify_reductions(reuse_equal_reductions(q)));
    step_done("reduction_algebra", with_the_rest(q));
    q = reuse_stored(q, q.outputs);
    step_done("shared", with_the_rest(q));
    if (Program joined = with_joined_sums(q); joined.tensors.size() > q.tensors.size()) q = simplify_reductions(joined);
    std::set<TensorId> written;
    for (const Definition& d : q.forward.definitions) written.insert(d.targets.begin(), d.targets.end());
    p = with_the_rest(with_whole_differences(guard_empty_sums(q), written));
  }
}

}  // namespace xhat::runtime
