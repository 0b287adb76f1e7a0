#include "runtime/lazy/plans.h"

#include <bit>
#include <list>
#include <unordered_map>

#include "expr/core/array.h"
#include "expr/index/dims.h"
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
  for (const Definition& d : p.forward.definitions) text += d.derived ? 'd' : 'w';
  if (auto it = k.programs.find(text); it != k.programs.end()) return it->second;
  CompileOptions wanted = options().compile;
  wanted.differentiate = false;
  ++k.counts.compiles;
  if (k.programs.size() >= kPrograms) k.programs.clear();
  return k.programs.emplace(std::move(text), compile(p, wanted)).first->second;
}

// Does it compute a few numbers of nothing but numbers and sizes?
bool is_constant_program(const Program& p, const DimValues& dims) {
  constexpr int64_t kSteps = 4096;  // evaluated in less time than a kernel takes to compile
  int64_t steps = 0;
  for (const Definition& d : p.forward.definitions) {
    if (d.is_call()) return false;
    int64_t terms = 1;  // of its largest reduction
    for (Id id : reachable(*p.arena, d.body)) {
      const xhat::Node& n = (*p.arena)[id];
      if (n.op == Op::random || (is_read(n.op) && std::ranges::find(p.inputs, n.symbol) != p.inputs.end())) return false;
      if (!is_reduction(n.op)) continue;
      int64_t here = 1;
      for (const AxisRange& r : reduce_axes(n))
        if ((*p.arena)[r.end].free_axes().empty()) here *= evaluate_extent(*p.arena, r.end, dims);
      terms = std::max(terms, here);
    }
    steps += terms * element_count(shape_of(p, d.target(), dims));
  }
  return steps <= kSteps;
}

std::unique_ptr<Plan> make_plan(const Walk& w, const std::vector<char>& varying, const std::vector<char>& parts) {
  ++known().counts.plans;
  Lowered l = lower(w, varying, parts);
  const Program& p = l.program;
  auto plan = std::make_unique<Plan>();
  for (auto& [name, value] : l.dims) plan->dims[name] = value;
  if (is_constant_program(p, plan->dims))
    plan->constant = p;
  else
    plan->op = compiled(p);
  for (size_t i = 0; i < p.inputs.size(); ++i)
    (i < l.leaves.size() ? plan->leaf_names : plan->number_names).push_back(p.tensor(p.inputs[i]).name);
  for (TensorId t : p.outputs) plan->output_names.push_back(p.tensor(t).name);
  plan->leaves = std::move(l.leaves);
  plan->numbers = std::move(l.numbers);
  plan->outputs = std::move(l.outputs);
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
