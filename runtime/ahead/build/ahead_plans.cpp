// Makes a library's table: the description of its op from the program, its plans from the planner (runtime/ahead/build/plan_ranges.h).
#include "runtime/ahead/build/ahead_plans.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "expr/index/affine.h"
#include "fusion/plan/for_sizes.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/ahead/build/ahead_sizes.h"
#include "runtime/ahead/build/open_plans.h"
#include "runtime/call/passes.h"
#include "runtime/call/run_time_checks.h"
#include "runtime/cpu/kernel_compile.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

constexpr size_t kMaxKernels = 400;  // kernels of a side: a dim that needs more cannot stay open

// --- expressions over dims as formulas ---------------------------------------------------------------------

class Formulas {
 public:
  Formulas(const Program& p, const std::vector<std::string>& dims) : p_(p) {
    for (size_t i = 0; i < dims.size(); ++i) position_[dims[i]] = static_cast<int64_t>(i);
  }

  Formula of(Id root) const {
    const Arena& a = *p_.arena;
    Formula f;
    std::unordered_map<Id, int64_t> at;
    for (Id id : reachable(a, root)) {
      const Node& n = a[id];
      if (is_float(n.type)) throw Error(p_.name + ": a size is computed in floats, which libraries cannot do yet: " + print(p_, root));
      FormulaNode node{n.op, 0, {}};
      if (n.op == Op::constant) node.number = n.integer;
      if (n.op == Op::dim) node.number = position_.at(std::string(a.name(id)));
      for (Id x : n.args()) node.args.push_back(at.at(x));
      at[id] = static_cast<int64_t>(f.size());
      f.push_back(std::move(node));
    }
    return f;
  }

 private:
  const Program& p_;
  std::map<std::string, int64_t> position_;
};

// --- a direction at one size -------------------------------------------------------------------------------

struct PlannedDirection {
  Program program;
  PlanRequest request;
  Checks checks;
};

PlannedDirection direction_of(Program program, const CompileOptions& options, const Derivation& derivation) {
  PlannedDirection d{std::move(program), request_of(options, Target::cpu), {}};
  group_by_policy(d.program, d.request, derivation.opaque_nodes);
  d.checks = run_time_checks(d.program);
  return d;
}

// Clears the tile rules of axes that are not cut into tiles, so that they do not make plans differ.
void forget_idle_rules(WalkKernel& k) {
  for (size_t p = 0; p < k.planned.size(); ++p) {
    bool used = std::ranges::any_of(
        k.shared, [&](const WalkAxis& x) { return x.kind == AxisKind::tiled && std::ranges::find(x.planned, p) != x.planned.end(); });
    if (!used) k.planned[p].rule = {};
  }
}

// dense: per tensor; in_rows: how the others lie.
WalkPlan plan_at(const Program& direction, const PlanRequest& request, const DimValues& sizes, std::vector<bool> dense, bool in_rows,
                 AheadKernels& kernels, PlanWay way) {
  const auto [p, plan] = planned_so(direction, sizes, request, way);
  WalkPlan walk{{}, temporaries_of(p, plan, sizes), static_cast<int64_t>(p.tensors.size())};
  dense.resize(p.tensors.size(), true);
  for (const Kernel& k : plan.kernels) {
    KernelSpec spec = make_spec(p, k, sizes, dense, in_rows);
    if (writes_nothing(spec)) continue;
    size_t code = kernels.add(spec);
    WalkKernel w = walk_of(p, k, spec, kernels.arguments(code));
    w.code = code;
    std::vector<int64_t> tiles = tiles_by_rule(w);
    for (size_t i = 0; i < tiles.size(); ++i)
      if (w.shared[i].kind != AxisKind::untiled && tiles[i] != w.shared[i].tile)
        throw Bug("the tiles of kernel " + k.name + " do not follow the planner's rule");
    forget_idle_rules(w);
    walk.kernels.push_back(std::move(w));
  }
  return walk;
}

Slots slots_at(const PlannedDirection& d, const CompileOptions& options, const DimValues& sizes, const std::vector<bool>& dense,
               bool in_rows, AheadKernels& kernels, PlanWay way) {
  SlotWriter writer;
  WalkPlan walk = plan_at(d.program, d.request, sizes, dense, in_rows, kernels, way);
  transfer_plan(writer, walk);
  if (d.checks.of_data) {
    way.cut_small = true;
    WalkPlan checks = plan_at(*d.checks.of_data, request_of(options, Target::cpu), sizes, dense, in_rows, kernels, way);
    transfer_plan(writer, checks);
  }
  return std::move(writer.slots);
}

// --- the whole ---------------------------------------------------------------------------------------------

class Planner {
 public:
  Planner(const Derivation& derivation, const AheadOptions& options)
      : p_(derivation.program), options_(options), sizes_(p_, options.sizes, "--dims") {
    directions_.push_back(direction_of(infer_program(p_), options.compile, derivation));
    if (options.compile.differentiate) {
      directions_.push_back(direction_of(forward_program(p_), options.compile, derivation));
      directions_.push_back(direction_of(backward_program(p_), options.compile, derivation));
    }
  }

  AheadPlans run() {
    made_.open = fmt::format("{}", fmt::join(sizes_.open(), ", "));
    describe();
    for (AheadLayout layout : layouts())
      for (size_t s = 0; s < directions_.size(); ++s) find_plans(s, layout);
    drop_unused();
    made_.table.known_sizes = sizes_.known();
    made_.table.levels = options_.levels;
    for (const KernelSpec& k : made_.kernels) made_.table.streams.push_back(k.streams);
    return std::move(made_);
  }

 private:
  std::vector<AheadLayout> layouts() const {
    if (options_.strided.empty()) return {AheadLayout::dense};
    return {AheadLayout::dense, AheadLayout::rows, AheadLayout::any};
  }

  std::vector<bool> dense_tensors(AheadLayout layout) const {
    std::vector<bool> dense(p_.tensors.size(), true);
    if (layout != AheadLayout::dense)
      for (int64_t t : made_.table.strided) dense[static_cast<size_t>(t)] = false;
    return dense;
  }

  void describe() {
    AheadTable& t = made_.table;
    Formulas formulas(p_, sizes_.dims());
    t.op = p_.name;
    for (const std::string& name : sizes_.dims()) {
      t.dims.push_back({name, {}});
      for (const Dim& d : p_.dims)
        if (p_.arena->name(d.dim) == name && d.definition != kNone) t.dims.back().definition = formulas.of(d.definition);
    }
    for (const Precondition& c : p_.preconditions) {
      if (!is_open_question(*p_.arena, c.condition)) t.preconditions.push_back({formulas.of(c.condition), c.reason});
      // At given sizes the condition was decided when the dims were solved, and the library serves no others.
      else if (!sizes_.open().empty())
        throw Error(fmt::format("{}: {}, which is not proved for every {}; give the size, as --dims {}=VALUE", p_.name, c.reason,
                                made_.open, sizes_.open().back()));
    }
    std::vector<TensorId> kept = directions_.size() > 1 ? stashes(p_) : std::vector<TensorId>();
    std::set<TensorId> bound;
    for (const PlannedDirection& d : directions_)
      for (const auto* list : {&d.program.inputs, &d.program.outputs}) bound.insert(list->begin(), list->end());
    for (TensorId i = 0; i < p_.tensors.size(); ++i) {
      t.tensors.push_back({p_.tensors[i].name, p_.tensors[i].type, {}});
      if (!bound.contains(i)) continue;
      // A library refuses negative extents of the caller's tensors. A stashed tensor may have them: it then has no elements.
      Arena& a = *p_.arena;
      const bool inside = std::ranges::find(kept, i) != kept.end();
      for (Id e : p_.tensors[i].shape) t.tensors.back().shape.push_back(formulas.of(inside ? a.binary(Op::maximum, a.integer(0), e) : e));
    }
    t.stash.assign(kept.begin(), kept.end());
    for (const PlannedDirection& d : directions_) {
      AheadSide& side = t.sides.emplace_back();
      for (TensorId i : d.program.inputs)
        if (std::ranges::find(kept, i) == kept.end()) side.inputs.push_back(i);
      for (TensorId i : d.program.outputs)
        if (std::ranges::find(kept, i) == kept.end()) side.outputs.push_back(i);
      for (Id test : d.checks.of_sizes) side.fails.push_back({formulas.of(test), "argmax or argmin runs over nothing"});
      if (d.checks.of_data) describe_checks(d, side);
    }
    find_strided();
  }

  static void describe_checks(const PlannedDirection& d, AheadSide& side) {
    side.check_tensors = static_cast<int64_t>(d.checks.of_data->tensors.size());
    for (const DataCheck& check : d.checks.checks) {
      const Arena& a = *d.program.arena;
      const Definition& def = d.program.forward.definitions[check.definition];
      std::set<std::string> read;
      for (Id id : reachable(a, def.body))
        if (a[id].op == Op::read)
          for (Id index : a[id].args())
            if (std::ranges::any_of(reachable(a, index), [&](Id x) { return is_read(a[x].op); }))
              read.insert(d.program.tensors[a[id].symbol].name);
      std::string text = read.empty()
                             ? "an argmax or argmin runs over nothing"
                             : fmt::format("an index into {} is out of range (negative, or its extent or more)", fmt::join(read, " or "));
      side.checks.push_back({int64_t{check.fails}, text + " in " + print(d.program, def)});
    }
  }

  void find_strided() {
    std::set<std::string> known;
    for (const AheadSide& side : made_.table.sides)
      for (const auto* list : {&side.inputs, &side.outputs})
        for (int64_t t : *list) {
          const std::string& name = made_.table.tensors[static_cast<size_t>(t)].name;
          const bool wanted = std::ranges::find(options_.strided, name) != options_.strided.end();
          if (p_.tensors[static_cast<size_t>(t)].shape.empty()) continue;
          if (wanted && known.insert(name).second) made_.table.strided.push_back(t);
          known.insert(name);
        }
    for (const std::string& name : options_.strided)
      if (!known.contains(name))
        throw Error(fmt::format("op {}: there is no array {} that could have strides; it has {}", p_.name, name, fmt::join(known, ", ")));
    if (!options_.strided.empty() && !options_.devices.empty())
      throw Error(p_.name + ": arrays with strides are for the CPU; on a GPU they are dense");
  }

  void find_plans(size_t side, AheadLayout layout) {
    const std::vector<bool> dense = dense_tensors(layout);
    size_t new_kernels[std::size(kWaysToPlan)] = {};
    auto at = [&](const DimValues& sizes, int way) {
      if (options_.progress && !made_.open.empty())
        options_.progress(fmt::format("planning {}, {} = {}", kSideNames[side], made_.open, sizes.at(sizes_.open()[0])), true);
      size_t before = kernels_.size();
      Slots slots = slots_at(directions_[side], options_.compile, sizes, dense, layout == AheadLayout::rows, kernels_,
                             kWaysToPlan[way]);
      new_kernels[way] += kernels_.size() - before;
      if (new_kernels[way] > kMaxKernels && !made_.open.empty()) throw TooManyPlans();
      return slots;
    };
    const size_t variants = made_.table.sides[side].variants.size(), kinds = kinds_.size();
    auto found = [&](AheadVariant v, const Slots& slots) {
      v.layout = layout;
      made_.table.sides[side].variants.push_back(std::move(v));
      kinds_.push_back({side, slots.kinds});
    };
    try {
      return sizes_.find(at, std::size(kWaysToPlan), found);
    } catch (const TooManyPlans&) {
      made_.table.sides[side].variants.resize(variants);
      kinds_.resize(kinds);
    }
    find_open(side, layout, dense, found);
  }

  // Where code for each size would be too much, or several dims are open.
  void find_open(size_t side, AheadLayout layout, std::vector<bool> dense, const FoundOpen& found) {
    const PlannedDirection& d = directions_[side];
    if (options_.progress) options_.progress(fmt::format("planning {} for all {}", kSideNames[side], made_.open), true);
    std::vector<OpenPart> parts = {{d.program, requested_so(d.request, kPlannedForAllSizes), dense}};
    if (d.checks.of_data) {
      dense.resize(d.checks.of_data->tensors.size(), true);
      parts.push_back({*d.checks.of_data, requested_so(request_of(options_.compile, Target::cpu), kPlannedForAllSizes), dense});
    }
    try {
      find_open_plans(parts, sizes_, options_.compile.stash.nominal, kernels_, layout, found);
    } catch (const SizesInCode& e) {
      sizes_.fail_must_be_given("code that serves all of them cannot be made, since there would be " + e.why);
    }
  }

  // Removes kernels that were planned during the search for ranges but belong to no range.
  void drop_unused() {
    std::unordered_map<int64_t, int64_t> number;
    std::vector<size_t> next(made_.table.sides.size(), 0);
    for (const auto& [side, kinds] : kinds_) {
      AheadVariant& v = made_.table.sides[side].variants[next[side]++];
      for (size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i] != SlotKind::code) continue;
        auto [it, fresh] = number.emplace(v.base[i], static_cast<int64_t>(number.size()));
        if (fresh) made_.kernels.push_back(kernels_.spec(static_cast<size_t>(v.base[i])));
        v.base[i] = it->second;
      }
    }
  }

  static constexpr const char* kSideNames[] = {"infer", "forward", "backward"};
  const Program& p_;
  const AheadOptions& options_;
  AheadSizes sizes_;
  std::vector<PlannedDirection> directions_;
  AheadKernels kernels_;
  std::vector<std::pair<size_t, std::vector<SlotKind>>> kinds_;  // per variant, in the order in which they were added
  AheadPlans made_;
};

}  // namespace

PlanRequest requested_so(PlanRequest request, PlanWay way) {
  request.options.cut_small |= way.cut_small;
  if (!way.fused) request.options.policy = FusePolicy::off;
  return request;
}

DirectionPlan planned_so(const Program& direction, const DimValues& sizes, PlanRequest request, PlanWay way) {
  request = requested_so(std::move(request), way);
  DirectionPlan made{way.for_sizes ? rewritten_for_sizes(direction, sizes, request) : direction, {}};
  made.plan = plan_kernels(made.program, sizes, request);
  return made;
}

size_t AheadKernels::add(KernelSpec spec) {
  auto [it, fresh] = numbers_.emplace(spec.key(), specs_.size());
  if (fresh) {
    arguments_.push_back(arguments_of(spec));
    specs_.push_back(std::move(spec));
  }
  return it->second;
}

AheadPlans plan_ahead(const Derivation& derivation, const AheadOptions& options) { return Planner(derivation, options).run(); }

}  // namespace xhat::runtime
