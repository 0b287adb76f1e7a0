// Rewrites expressions by rows (rules.h) until none applies: what simplify and recognize have in common.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "expr/rules/rules.h"

namespace xhat {

class Rewriter {
 public:
  // What else may be done with a node; kNone: nothing.
  using Step = std::function<Id(Id)>;

  // The rows live longer.
  Rewriter(Arena& arena, const std::vector<const Rule*>& rows, SeenAs seen_as = {});
  Rewriter(Arena& arena, const std::vector<Rule>& rows, SeenAs seen_as = {});
  void fold_constants() { fold_ = true; }
  // Tried before the rows, and on nodes to which none applies, in order.
  void before(Step step) { first_.push_back(std::move(step)); }
  void then(Step step) { last_.push_back(std::move(step)); }
  // Told of every node what it has become.
  void watch(std::function<void(Id was, Id is)> watcher) { watcher_ = std::move(watcher); }
  // Until nothing changes. Operands come first; what has been rewritten is not looked at again.
  Id run(Id root);

 private:
  Id once(Id root);
  Id applied(Id id);

  Arena& a_;
  bool fold_ = false;
  std::vector<std::vector<const Rule*>> by_root_;
  std::unordered_map<Id, Id> done_;
  SeenAs seen_as_;
  std::vector<Step> first_, last_;
  std::function<void(Id, Id)> watcher_;
};

}  // namespace xhat
