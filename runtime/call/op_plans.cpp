#include "runtime/call/op_plans.h"

#include <algorithm>
#include <atomic>

#include "expr/index/without_points.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/cpu/output_over.h"

namespace xhat::runtime {

void signature_of(const Program& direction, const std::vector<TensorId>& bound, const std::vector<TensorView>& views,
                  std::vector<int64_t>& s) {
  s.clear();
  for (TensorId t : bound) {
    const TensorView& v = views[t];
    s.push_back(v.rank * 2 + v.dense());
    s.insert(s.end(), v.shape.begin(), v.shape.begin() + v.rank);
  }
  for_each_over(direction, views, [&](OutputOver o) { s.insert(s.end(), {-1, int64_t{o.output}, int64_t{o.input}}); });
}

std::vector<std::string> OpPlan::kept() const {
  std::vector<std::string> names;
  const Program& p = program();
  for (TensorId t : backward.program.inputs) {
    bool caller = std::ranges::find(p.inputs, t) != p.inputs.end() || std::ranges::find(p.outputs, t) != p.outputs.end();
    if (caller) names.push_back(p.tensors[t].name);
  }
  return names;
}

namespace {

int64_t next_id() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

}  // namespace

OpPlans::OpPlans(const Program& op, const CompileOptions& options) : id_(next_id()), options_(options), passes_(op, options) {}

Side OpPlans::side_of(Program direction, Checks checks, const Derivation& derivation) const {
  Side side;
  side.request = request_of(options_, options_.target);
  group_by_policy(direction, side.request, derivation.opaque_nodes);
  side.program = std::move(direction);
  side.checks = std::move(checks);
  side.bound = side.program.inputs;
  side.bound.insert(side.bound.end(), side.program.outputs.begin(), side.program.outputs.end());
  return side;
}

std::shared_ptr<OpPlan> OpPlans::make(const StashChoice& choice, bool without_points) const {
  auto plan = std::make_shared<OpPlan>();
  plan->made_by = id_;
  plan->derivation = passes_.derive(choice);
  plan->without_points = without_points;
  const Program strict = plan->derivation.program;
  if (without_points) plan->derivation.program = with_reads_anywhere(strict);
  auto side = [&](auto direction) {
    Checks checks = run_time_checks(direction(strict));
    for (std::optional<Program>* program : {&checks.of_data, &checks.at_first})
      if (without_points && *program) *program = with_reads_anywhere(**program);
    return side_of(direction(plan->program()), std::move(checks), plan->derivation);
  };
  const Program& p = plan->program();
  if (p.inputs != op().inputs || p.outputs != op().outputs || p.cotangents != op().cotangents || p.gradients != op().gradients)
    throw Bug("a pass numbered the tensors of " + p.name + " anew");
  plan->infer = side(infer_program);
  if (!options_.differentiate) return plan;
  plan->stash = stashes(p);
  plan->forward = side(forward_program);
  plan->backward = side(backward_program);
  return plan;
}

std::shared_ptr<OpPlan> OpPlans::at(const DimValues& sizes, bool stash) {
  std::lock_guard lock(mutex_);
  auto known = by_sizes_.find(sizes);
  if (known == by_sizes_.end()) {
    Sized made{passes_.choose(sizes), nullptr};
    const bool without_points = passes_.without_points(sizes);
    auto& plan = by_key_[{made.choice.key, without_points}];
    if (!plan) plan = make(made.choice, without_points);
    made.plan = plan;
    known = by_sizes_.emplace(sizes, std::move(made)).first;
  }
  if (stash) passes_.require_budget(known->second.choice);
  return known->second.plan;
}

}  // namespace xhat::runtime
