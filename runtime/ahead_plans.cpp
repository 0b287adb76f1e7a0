// What a library must know of its op, from the program; its plans, by asking the planner (runtime/plan_ranges.h).
#include "runtime/ahead_plans.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "fusion/relay_kernels.h"
#include "runtime/kernel_compile.h"
#include "runtime/plan_ranges.h"
#include "runtime/run_time_checks.h"

namespace xhat::runtime {
namespace {

constexpr size_t kMostKernels = 400;  // of a side's: a dim that asks for more is not open
constexpr int64_t kMostElements = INT32_MAX;

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

struct Direction {
  Program program;
  FusionOptions fusion;
  Checks checks;
};

Direction direction_of(Program program, const CompileOptions& options) {
  Direction d{std::move(program), options.fusion, {}};
  group_by_policy(d.program, d.fusion);
  d.checks = run_time_checks(d.program);
  return d;
}

// What a rule says of an axis that no tile takes a part of does not count.
void forget_idle_rules(WalkKernel& k) {
  for (size_t p = 0; p < k.planned.size(); ++p) {
    bool used = std::ranges::any_of(k.shared, [&](const WalkAxis& x) {
      return x.kind == AxisKind::part && std::ranges::find(x.planned, p) != x.planned.end();
    });
    if (!used) k.planned[p].rule = {};
  }
}

WalkPlan plan_at(const Program& p, const FusionOptions& fusion, const DimValues& sizes, AheadKernels& kernels) {
  KernelPlan plan = plan_kernels(p, sizes, fusion);
  WalkPlan walk{{}, temporaries_of(p, plan, sizes), static_cast<int64_t>(p.tensors.size())};
  const std::vector<bool> dense(p.tensors.size(), true);
  for (const Kernel& k : plan.kernels) {
    KernelSpec spec = make_spec(p, k, sizes, dense);
    if (writes_nothing(spec)) continue;
    size_t code = kernels.add(spec);
    WalkKernel w = walk_of(p, k, spec, kernels.arguments(code));
    w.code = code;
    std::vector<int64_t> tiles = tiles_by_rule(w);
    for (size_t i = 0; i < tiles.size(); ++i)
      if (w.shared[i].kind != AxisKind::whole && tiles[i] != w.shared[i].tile)
        throw Bug("the tiles of kernel " + k.name + " do not follow the planner's rule");
    forget_idle_rules(w);
    walk.kernels.push_back(std::move(w));
  }
  return walk;
}

// Ways of planning: as the engine does; then such that code depends less on sizes.
constexpr int kWays = 3;
FusionOptions planned_so(FusionOptions fusion, int way) {
  fusion.cut_small = way > 0;
  if (way > 1) fusion.policy = FusePolicy::off;  // what is fused with a sum over a batch has all of it in a tile
  return fusion;
}

Slots slots_at(const Direction& d, const CompileOptions& options, const DimValues& sizes, AheadKernels& kernels, int way = 0) {
  SlotWriter writer;
  WalkPlan walk = plan_at(d.program, way == 0 ? d.fusion : planned_so(d.fusion, way), sizes, kernels);
  transfer_plan(writer, walk);
  if (d.checks.of_data) {
    WalkPlan checks = plan_at(*d.checks.of_data, planned_so(options.fusion, std::max(way, 1)), sizes, kernels);
    transfer_plan(writer, checks);
  }
  return std::move(writer.slots);
}

// --- the whole ---------------------------------------------------------------------------------------------

class Planner {
 public:
  Planner(const Derivation& derivation, const AheadOptions& options)
      : p_(derivation.program), options_(options) {
    for (bool defined : {false, true})
      for (const Dim& d : p_.dims)
        if ((d.definition != kNone) == defined) {
          dims_.push_back(std::string(p_.arena->name(d.dim)));
          arguments_ += !defined;
        }
    directions_.push_back(direction_of(infer_program(p_), options.compile));
    if (options.compile.differentiate) {
      directions_.push_back(direction_of(forward_program(p_), options.compile));
      directions_.push_back(direction_of(backward_program(p_), options.compile));
    }
  }

  AheadPlans run() {
    check_sizes();
    describe();
    DimValues given;
    every_size(0, given);
    drop_unused();
    made_.table.known_sizes = known_sizes();
    made_.table.levels = options_.levels;
    for (const KernelSpec& k : made_.kernels) made_.table.streams.push_back(k.streams);
    return std::move(made_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error("op " + p_.name + ": " + what); }

  void check_sizes() {
    for (const auto& [name, values] : options_.sizes) {
      auto at = std::ranges::find(dims_, name);
      if (at == dims_.end()) fail(fmt::format("there is no dim {}; it has {}", name, fmt::join(dims_, ", ")));
      if (at - dims_.begin() >= static_cast<std::ptrdiff_t>(arguments_))
        fail("dim " + name + " follows from the others by its definition; it cannot be given");
      if (values.empty()) fail("dim " + name + " has no value");
    }
    std::vector<std::string> open;
    for (size_t i = 0; i < arguments_; ++i)
      if (!options_.sizes.contains(dims_[i])) open.push_back(dims_[i]);
    if (open.size() > 1)
      fail(fmt::format("the sizes {} are not given; all but one must be, as --dims {}=VALUE or, for several, --dims {}=64,{}=128: code is "
                       "made for them. one that is a batch may stay open",
                       fmt::join(open, ", "), open.back(), open.back(), open.back()));
    if (!open.empty()) made_.open = open[0];
  }

  void describe() {
    AheadTable& t = made_.table;
    Formulas formulas(p_, dims_);
    t.op = p_.name;
    for (const std::string& name : dims_) {
      t.dims.push_back({name, {}});
      for (const Dim& d : p_.dims)
        if (p_.arena->name(d.dim) == name && d.definition != kNone) t.dims.back().definition = formulas.of(d.definition);
    }
    for (const Precondition& c : p_.preconditions) t.preconditions.push_back({formulas.of(c.condition), c.reason});
    std::set<TensorId> bound;
    for (const Direction& d : directions_)
      for (const auto* list : {&d.program.inputs, &d.program.outputs}) bound.insert(list->begin(), list->end());
    for (TensorId i = 0; i < p_.tensors.size(); ++i) {
      t.tensors.push_back({p_.tensors[i].name, p_.tensors[i].type, {}});
      if (!bound.contains(i)) continue;
      for (Id e : p_.tensors[i].shape) t.tensors.back().shape.push_back(formulas.of(e));
    }
    std::vector<TensorId> kept = directions_.size() > 1 ? stashes(p_) : std::vector<TensorId>();
    t.stash.assign(kept.begin(), kept.end());
    for (const Direction& d : directions_) {
      AheadSide& side = t.sides.emplace_back();
      for (TensorId i : d.program.inputs)
        if (std::ranges::find(kept, i) == kept.end()) side.inputs.push_back(i);
      for (TensorId i : d.program.outputs)
        if (std::ranges::find(kept, i) == kept.end()) side.outputs.push_back(i);
      for (Id test : d.checks.of_sizes) side.fails.push_back({formulas.of(test), "argmax or argmin runs over nothing"});
      if (d.checks.of_data) describe_checks(d, side);
    }
  }

  std::string known_sizes() const {
    std::vector<std::string> known;
    for (size_t i = 0; i < arguments_; ++i) {
      auto it = options_.sizes.find(dims_[i]);
      if (it == options_.sizes.end() && most_served_ < INT64_MAX) known.push_back(fmt::format("any {} up to {}", dims_[i], most_served_));
      else if (it == options_.sizes.end()) known.push_back("any " + dims_[i]);
      else known.push_back(fmt::format("{} = {}", dims_[i], fmt::join(it->second, " or ")));
    }
    return fmt::format("{}", fmt::join(known, ", "));
  }

  static void describe_checks(const Direction& d, AheadSide& side) {
    const Program& checks = *d.checks.of_data;
    side.check_tensors = static_cast<int64_t>(checks.tensors.size());
    for (TensorId c : checks.outputs) {
      std::string target = checks.tensors[c].name.substr(std::string("fails_").size());
      const Arena& a = *d.program.arena;
      std::string text;
      for (const Definition& def : d.program.body.definitions) {
        if (d.program.tensors[def.target()].name != target) continue;
        std::set<std::string> read;
        for (Id id : reachable(a, def.body))
          if (a[id].op == Op::read)
            for (Id index : a[id].args())
              if (std::ranges::any_of(reachable(a, index), [&](Id x) { return is_read(a[x].op); }))
                read.insert(d.program.tensors[a[id].symbol].name);
        text = read.empty() ? "an argmax or argmin runs over nothing"
                            : fmt::format("an index into {} is out of range (negative, or its extent or more)", fmt::join(read, " or "));
        text += " in " + print(d.program, def);
      }
      if (text.empty()) text = "an index in the data is out of range, for " + target;
      side.checks.push_back({int64_t{c}, text});
    }
  }

  // For each choice of the given sizes.
  void every_size(size_t dim, DimValues& given) {
    if (dim == arguments_) return at_sizes(given);
    auto it = options_.sizes.find(dims_[dim]);
    if (it == options_.sizes.end()) return every_size(dim + 1, given);
    for (int64_t value : it->second) {
      given[dims_[dim]] = value;
      every_size(dim + 1, given);
    }
    given.erase(dims_[dim]);
  }

  // All dims; none if the op cannot run at these sizes, or needs tensors that are too large.
  std::optional<DimValues> sizes_of(const DimValues& given) const {
    DimValues all;
    try {
      all = solve_dims(p_, {}, given);
    } catch (const Error&) {
      return {};
    }
    for (const Tensor& t : p_.tensors) {
      double elements = 1;
      for (Id e : t.shape) elements *= static_cast<double>(evaluate_extent(*p_.arena, e, all));
      if (elements > static_cast<double>(kMostElements)) return {};
    }
    return all;
  }

  AheadVariant variant(const DimValues& given, const PlanRange& r) const {
    AheadVariant v;
    for (size_t i = 0; i < arguments_; ++i) {
      auto it = given.find(dims_[i]);
      v.fixed.push_back(it == given.end() ? -1 : it->second);
      if (dims_[i] == made_.open) v.open = static_cast<int64_t>(i);
    }
    v.first = r.first;
    v.last = r.last;
    v.base = r.fit.base;
    for (size_t i = 0; i < r.fit.slope.size(); ++i)
      if (r.fit.slope[i] != 0) v.slopes.emplace_back(static_cast<int64_t>(i), r.fit.slope[i]);
    v.reals = r.fit.reals;
    return v;
  }

  void at_sizes(const DimValues& given) {
    if (made_.open.empty()) {
      auto sizes = sizes_of(given);
      if (!sizes) solve_dims(p_, {}, given), fail("a tensor has more than 2^31-1 elements with " + dims_text(given) + "; split it into pieces");
      for (size_t s = 0; s < directions_.size(); ++s) {
        Slots slots = slots_at(directions_[s], options_.compile, *sizes, kernels_);
        add(s, given, range_of_one(slots), slots);
      }
      return;
    }
    auto with_open = [&](int64_t n) {
      DimValues all = given;
      all[made_.open] = n;
      return sizes_of(all);
    };
    int64_t first = 0, last = 1;
    while (first < 4096 && !with_open(first)) ++first;
    if (!with_open(first)) fail("no value of " + made_.open + " up to 4096 meets the preconditions with " + dims_text(given));
    for (last = std::max<int64_t>(1, first); last < kMostElements && with_open(2 * last);) last *= 2;
    for (int64_t step = last; step > 0; step /= 2)
      if (last + step <= kMostElements && with_open(last + step)) last += step;
    for (size_t s = 0; s < directions_.size(); ++s) {
      auto at = [&](int64_t n, int way) {
        if (options_.progress)
          options_.progress(fmt::format("planning {}, {} = {}", kSideNames[s], made_.open, n), true);
        auto sizes = with_open(n);
        if (!sizes) throw TooManyPlans();  // preconditions leave gaps
        size_t before = kernels_.size();
        Slots slots = slots_at(directions_[s], options_.compile, *sizes, kernels_, way);
        new_kernels_[s] += kernels_.size() - before;
        if (new_kernels_[s] > kMostKernels) throw TooManyPlans();
        return slots;
      };
      try {
        int64_t served = 0;
        for (const PlanRange& r : find_ranges(at, kWays, first, last)) {
          add(s, given, r, at(r.first, r.way));
          served = r.last;
        }
        if (served < last) most_served_ = std::min(most_served_, served);
      } catch (const TooManyPlans&) {
        fail(fmt::format("the size {} must be given, as --dims {}=VALUE or, for several, --dims {}=64,{}=128: code is made for it. only a "
                         "batch, the slowest dimension of all tensors that have it, may stay open",
                         made_.open, made_.open, made_.open, made_.open));
      }
    }
  }

  void add(size_t side, const DimValues& given, const PlanRange& r, const Slots& slots) {
    made_.table.sides[side].variants.push_back(variant(given, r));
    kinds_.push_back({side, slots.kinds});
  }

  // Looking for ranges has met kernels that no range has.
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
  std::vector<std::string> dims_;  // arguments first
  size_t arguments_ = 0;
  std::vector<Direction> directions_;
  AheadKernels kernels_;
  size_t new_kernels_[3] = {};
  int64_t most_served_ = INT64_MAX;  // of the open dim, if not all that tensors allow
  std::vector<std::pair<size_t, std::vector<SlotKind>>> kinds_;  // per variant, in the order in which they were added
  AheadPlans made_;
};

}  // namespace

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
