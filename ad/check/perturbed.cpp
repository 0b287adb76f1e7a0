#include "ad/check/perturbed.h"

#include <algorithm>
#include <map>

#include "ad/common/differentiation.h"
#include "expr/core/steps.h"
#include "expr/index/expand_calls.h"

namespace xhat {
namespace {

bool stops_gradients(const Program& p) {
  return std::ranges::any_of(p.forward.definitions, [&](const Definition& d) {
    return std::ranges::any_of(reachable(*p.arena, d.body), [&](Id id) { return (*p.arena)[id].op == Op::stop_gradient; });
  });
}

class Freezer {
 public:
  explicit Freezer(const Program& p) : p_(p), a_(*p.arena) {}

  Program run() {
    const std::vector<TensorId> inputs = p_.inputs;
    for (TensorId t : inputs)
      if (is_float(p_.tensor(t).type)) {
        frozen_[t] = copy_of(t);
        p_.tensors[frozen_[t]].role = Role::input;
        p_.inputs.push_back(frozen_[t]);
      }
    std::vector<Definition> definitions;
    for (Definition d : p_.forward.definitions) {
      Definition still = d;
      still.targets = {copy_of(d.target())};
      still.body = frozen(d.body);
      d.body = rewrite(a_, d.body, [&](Id id) { return a_[id].op == Op::stop_gradient ? frozen(id) : id; });
      frozen_[d.target()] = still.target();
      definitions.push_back(still);
      definitions.push_back(d);
    }
    p_.forward.definitions = std::move(definitions);
    return without_dead(p_);
  }

  const std::map<TensorId, TensorId>& copies() const { return frozen_; }

 private:
  Program p_;
  Arena& a_;
  std::map<TensorId, TensorId> frozen_;  // by tensor: the one that stays where it is

  TensorId copy_of(TensorId t) {
    return p_.add_tensor(p_.tensor(t).name + "_frozen", p_.tensor(t).type, p_.tensor(t).shape);
  }

  // The expression at the point that inputs are moved from.
  Id frozen(Id root) {
    return rewrite(a_, root, [&](Id id) {
      const Node n = a_[id];
      auto copy = is_read(n.op) ? frozen_.find(n.symbol) : frozen_.end();
      if (copy == frozen_.end()) return id;
      if (n.op == Op::read) return a_.read(copy->second, n.type, n.args());
      return a_.read_or(copy->second, n.type, read_indices(n), n.args().back());
    });
  }
};

}  // namespace

Perturbed::Perturbed(const Program& p, const Arrays& point) : program_(expand_calls(as_forward(p))) {
  if (!stops_gradients(program_)) return;
  Freezer freezer(program_);
  Program apart = freezer.run();
  for (TensorId t : program_.inputs)
    if (auto copy = freezer.copies().find(t); copy != freezer.copies().end())
      frozen_[apart.tensor(copy->second).name] = point.at(program_.tensor(t).name);
  program_ = std::move(apart);
}

bool moves_what_is_stopped(const Program& p) {
  bool found = false;
  if (p.steps) for_each_block(*p.steps, [&](const Block& b) { found |= stops_gradients(expand_calls(*b.op)); });
  return found;
}

Arrays Perturbed::evaluate(const Arrays& moved, const DimValues& dims) const {
  if (frozen_.empty()) return xhat::evaluate(program_, moved, dims, kExact);
  Arrays inputs = moved;
  inputs.insert(frozen_.begin(), frozen_.end());
  return xhat::evaluate(program_, inputs, dims, kExact);
}

}  // namespace xhat
