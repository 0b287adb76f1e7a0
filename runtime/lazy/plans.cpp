#include "runtime/lazy/plans.h"

#include <fmt/format.h>

#include <bit>
#include <list>
#include <unordered_map>

#include "expr/core/array.h"
#include "expr/core/steps.h"
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

struct Variant {
  Wants wants;
  std::vector<char> varying;
  std::vector<std::unique_ptr<Plan>> plans;
};
struct SeenGraph {
  std::shared_ptr<Asked> asked;
  std::vector<Variant> variants;  // by what is kept for later
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

// What tells one program from another: calls are printed by the name of what is called, which others may have as well.
std::string whole_text(const Program& p) {
  std::string text = print(p);
  for (const Definition& d : p.forward.definitions) {
    text += d.derived ? 'd' : 'w';
    if (d.is_call()) text += whole_text(*d.callee);
  }
  if (p.custom_gradient) text += whole_text(*p.custom_gradient);
  if (p.steps) for_each_block(*p.steps, [&](const Block& b) { text += whole_text(*b.op); });
  return text;
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

// What the program keeps, in the numbers of the lowered program; it gets further outputs.
std::optional<Later> later_of(Lowered& l, const Wants& wants) {
  std::vector<uint32_t> results, by;
  for (size_t r = 0; r < wants.roots.size(); ++r)
    if (wants.roots[r]) results.push_back(l.outputs[r]);
  std::ranges::sort(results);
  results.erase(std::unique(results.begin(), results.end()), results.end());
  for (size_t i = 0; i < l.leaves.size(); ++i)
    if (l.leaves[i] < wants.leaves.size() && wants.leaves[l.leaves[i]]) by.push_back(static_cast<uint32_t>(i));
  DimValues dims;
  for (auto& [name, value] : l.dims) dims[name] = value;
  return keep_for_later(l.program, results, by, options().compile, dims);
}

std::unique_ptr<Plan> make_plan(const Walk& w, const Variant& v, const std::vector<char>& parts) {
  ++known().counts.plans;
  const std::vector<char>& varying = v.varying;
  Lowered l = lower(w, varying, parts);
  std::optional<Later> later = later_of(l, v.wants);
  const Program& p = l.program;
  auto plan = std::make_unique<Plan>();
  plan->later = std::move(later);
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
  if (!s.asked) {
    s.asked = std::make_shared<Asked>();
    s.asked->roots.resize(w.roots.size());
    s.asked->leaves.resize(w.leaves.size());
  }
  Wants wants = wants_of(w, *s.asked);
  auto variant = std::ranges::find(s.variants, wants, &Variant::wants);
  if (variant == s.variants.end()) variant = s.variants.insert(variant, {std::move(wants), std::vector<char>(w.numbers.size()), {}});
  Variant& v = *variant;
  for (auto& plan : v.plans) {
    bool same = true;
    for (size_t i = 0; same && i < w.numbers.size(); ++i) same = v.varying[i] || plan->fixed[i] == bits_of(*w.numbers[i]);
    if (same) return *plan;
  }
  if (!v.plans.empty()) {
    for (size_t i = 0; i < w.numbers.size(); ++i) v.varying[i] |= v.plans.back()->fixed[i] != bits_of(*w.numbers[i]);
    v.plans.clear();
  }
  v.plans.push_back(make_plan(w, v, parts));
  v.plans.back()->asked = s.asked;
  return *v.plans.back();
}

CompiledOp compiled(const Program& p, const std::vector<std::string>& wrt) {
  Known& k = known();
  std::string text = fmt::format("{}{}", whole_text(p), fmt::join(wrt, ","));
  if (auto it = k.programs.find(text); it != k.programs.end()) return it->second;
  CompileOptions wanted = options().compile;
  wanted.differentiate = !wrt.empty();
  wanted.wrt = wrt;
  ++k.counts.compiles;
  if (k.programs.size() >= kPrograms) k.programs.clear();
  return k.programs.emplace(std::move(text), compile(p, wanted)).first->second;
}

PlanCounts plan_counts() { return known().counts; }

}  // namespace xhat::lazy::detail
