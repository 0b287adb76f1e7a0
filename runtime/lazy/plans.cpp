#include "runtime/lazy/plans.h"

#include <bit>
#include <list>
#include <unordered_map>

#include "runtime/lazy/lower.h"
#include "runtime/lazy/options.h"

namespace xhat::lazy::detail {
namespace {

constexpr size_t kStructures = 4096;  // known at once; of a training loop one or two are used
constexpr size_t kPrograms = 1024;

struct KeyHash {
  size_t operator()(const std::vector<uint64_t>& key) const {
    uint64_t h = 0x9e3779b97f4a7c15;
    for (uint64_t k : key) h = std::rotl(h ^ k, 29) * 0xbf58476d1ce4e5b9;
    return h ^ (h >> 31);
  }
};

struct SeenGraph {
  std::vector<char> varying;
  std::vector<std::unique_ptr<Plan>> plans;
};

struct Known {
  std::unordered_map<std::vector<uint64_t>, SeenGraph, KeyHash> structures;
  std::unordered_map<std::string, CompiledOp> programs;
  PlanCounts counts;
};
Known& known() {
  static auto* held = new Known;
  return *held;
}

uint64_t bits_of(const Node& n) { return is_float(n.type) ? std::bit_cast<uint64_t>(n.value) : static_cast<uint64_t>(n.integer); }

CompiledOp compiled(const Program& p) {
  Known& k = known();
  std::string text = print(p);
  if (auto it = k.programs.find(text); it != k.programs.end()) return it->second;
  CompileOptions wanted = options().compile;
  wanted.differentiate = false;
  ++k.counts.compiles;
  if (k.programs.size() >= kPrograms) k.programs.clear();
  return k.programs.emplace(std::move(text), compile(p, wanted)).first->second;
}

std::unique_ptr<Plan> make_plan(const Walk& w, const std::vector<char>& varying, const std::vector<char>& parts) {
  ++known().counts.plans;
  Lowered l = lower(w, varying, parts);
  const Program& p = l.program;
  auto plan = std::make_unique<Plan>();
  plan->op = compiled(p);
  for (size_t i = 0; i < p.inputs.size(); ++i)
    (i < l.leaves.size() ? plan->leaf_names : plan->number_names).push_back(p.tensor(p.inputs[i]).name);
  for (TensorId t : p.outputs) plan->output_names.push_back(p.tensor(t).name);
  plan->leaves = std::move(l.leaves);
  plan->numbers = std::move(l.numbers);
  plan->outputs = std::move(l.outputs);
  for (auto& [name, value] : l.dims) plan->dims[name] = value;
  for (size_t i = 0; i < w.numbers.size(); ++i) plan->fixed.push_back(varying[i] ? 0 : bits_of(*w.numbers[i]));
  return plan;
}

}  // namespace

Plan& plan_of(Walk& w, const std::vector<char>& parts) {
  Known& k = known();
  w.key.insert(w.key.end(), parts.begin(), parts.end());
  if (k.structures.size() >= kStructures) k.structures.clear();
  SeenGraph& s = k.structures[w.key];
  s.varying.resize(w.numbers.size());
  for (auto& plan : s.plans) {
    bool same = true;
    for (size_t i = 0; same && i < w.numbers.size(); ++i) same = s.varying[i] || plan->fixed[i] == bits_of(*w.numbers[i]);
    if (same) return *plan;
  }
  if (!s.plans.empty()) {
    for (size_t i = 0; i < w.numbers.size(); ++i) s.varying[i] |= s.plans.back()->fixed[i] != bits_of(*w.numbers[i]);
    s.plans.clear();
  }
  s.plans.push_back(make_plan(w, s.varying, parts));
  return *s.plans.back();
}

PlanCounts plan_counts() { return known().counts; }

}  // namespace xhat::lazy::detail
