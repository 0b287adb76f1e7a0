#include "runtime/call/cpu_direction.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>

#include "expr/index/size_limits.h"
#include "fusion/plan/for_sizes.h"
#include "runtime/cpu/lower.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

std::vector<WalkDimension> dimensions_of(const SpecTensor& t) {
  std::vector<WalkDimension> dims;
  for (size_t d = 0; d < t.shape.size(); ++d) dims.push_back({t.shape[d], t.steps[d], static_cast<size_t>(t.groups[d].second)});
  return dims;
}

WalkResult result_of(const Program& p, const KernelSpec& spec, uint32_t tensor) {
  const SpecTensor& t = spec.tensors[tensor];
  const SpecMember& m = *std::ranges::find_if(spec.members, [&](const SpecMember& x) { return x.tensor == tensor; });
  WalkResult r{t.original, t.type, p.tensors[t.original].type, m.op, t.dense, dimensions_of(t), tile_dimensions(spec, m)};
  for (size_t s = 0; s < spec.shared.size(); ++s) {
    if (spec.axes.at(spec.shared[s]).kind() == AxisKind::untiled) continue;
    for (size_t l = 0; l < m.left.size(); ++l)
      if (m.left[l] == spec.shared[s]) r.moves.emplace_back(s, l);
    const bool reduced = std::ranges::find(m.reduced, spec.shared[s]) != m.reduced.end();
    if (reduced && !spec.axes.at(spec.shared[s]).sequential) r.reduced.push_back(s);
  }
  return r;
}

}  // namespace

WalkKernel walk_of(const Program& p, const Kernel& k, const KernelSpec& spec, const KernelArguments& arguments) {
  WalkKernel w;
  w.epilogue = k.epilogue;
  w.horizontal = k.horizontal;
  for (int c : k.shared) w.planned.push_back({k.axes[static_cast<size_t>(c)].extent, k.axes[static_cast<size_t>(c)].rule});
  for (Id x : spec.shared) {
    const SpecAxis& axis = spec.axes.at(x);
    w.shared.push_back({axis.extent, axis.tile, axis.kind(), axis.planned, axis.divisor});
    w.sequential += axis.sequential;
  }
  for (const auto& [name, count] : arguments.scalars) {
    const SpecAxis& axis = spec.axes.at(spec.arena->axis(name));
    w.scalars.push_back({axis.kind() == AxisKind::untiled ? -1 : axis.shared, count, axis.extent});
  }
  for (uint32_t i : arguments.inputs) {
    const SpecTensor& t = spec.tensors[i];
    w.inputs.push_back({t.is_size() ? -1 : int64_t{t.original}, t.type, t.value, dimensions_of(t)});
  }
  for (uint32_t r : arguments.results) w.results.push_back(result_of(p, spec, r));
  return w;
}

std::vector<WalkTemporary> temporaries_of(const Program& p, const KernelPlan& plan, const DimValues& sizes) {
  std::vector<WalkTemporary> found;
  for (const Kernel& k : plan.kernels)
    for (TensorId t : k.results)
      if (std::ranges::find(p.outputs, t) == p.outputs.end()) {
        check_elements(p, t, sizes);
        found.push_back({t, p.tensors[t].type, shape_of(p, t, sizes)});
      }
  return found;
}

DirectionKernels::DirectionKernels(Program program, DimValues sizes, std::vector<bool> dense, const PlanRequest& request,
                                   std::shared_ptr<KernelCache> cache, const std::vector<OutputOver>& over,
                                   const std::function<void(size_t, size_t)>& progress)
    : Direction(std::move(program), std::move(sizes)) {
  auto start = std::chrono::steady_clock::now();
  program_ = rewritten_for_sizes(program_, sizes_, request);
  dense.resize(program_.tensors.size(), true);  // new tensors are memory of ours
  plan_ = plan_kernels(program_, sizes_, request);
  if (reads_beside(program_, plan_, over)) {  // who else reads what is written over does so before: one kernel after the other
    PlanRequest in_turn = request;
    in_turn.in_turn = true;
    plan_ = plan_kernels(program_, sizes_, in_turn);
  }
  auto made_by = [&](size_t i, OutputOver o) {
    const auto& results = plan_.kernels[i].results;
    return std::ranges::find(results, o.output) != results.end();
  };
  std::vector<WalkTemporary> temporaries = temporaries_of(program_, plan_, sizes_);
  std::vector<KernelSpec> specs;
  for (size_t i = 0; i < plan_.kernels.size(); ++i) {
    std::vector<OutputOver> here;
    std::ranges::copy_if(over, std::back_inserter(here), [&](OutputOver o) { return made_by(i, o); });
    for (OutputOver o : here) write_over(program_, plan_, i, o);
    KernelSpec spec = make_spec(program_, plan_.kernels[i], sizes_, dense);
    if (writes_nothing(spec)) continue;
    for (OutputOver o : here) write_over(program_, spec, o);
    specs.push_back(std::move(spec));
    planned_.push_back(i);
  }
  const auto got = cache->get(specs, threads_or_all(), [&](size_t done) {
    if (progress) progress(done, specs.size());
  });
  for (const KernelCache::Got& g : got) code_.push_back(g.kernel);
  compiled_ = static_cast<int>(std::ranges::count(got, KernelCache::Source::compiler, &KernelCache::Got::source));
  loaded_ = static_cast<int>(std::ranges::count(got, KernelCache::Source::disk, &KernelCache::Got::source));
  WalkPlan walk{{}, std::move(temporaries), static_cast<int64_t>(program_.tensors.size())};
  std::vector<const TileCode*> codes;
  for (size_t i = 0; i < specs.size(); ++i) {
    walk.kernels.push_back(walk_of(program_, plan_.kernels[planned_[i]], specs[i], code_[i]->arguments));
    walk.kernels.back().code = i;
    codes.push_back(code_[i]->code.get());
    if (const std::string& why = code_[i]->arguments.refused; !why.empty()) refused_.push_back(specs[i].name + ": " + why);
  }
  walk_ = std::make_unique<TileWalk>(std::move(walk), std::move(codes));
  compile_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

DirectionKernels::~DirectionKernels() = default;

RunCounts DirectionKernels::run(ThreadPool& pool, std::span<const TensorView> views, const Timed& timed, const DeviceQueue&,
                                std::span<const DeviceSum>) const {
  if (!timed) return walk_->run(pool, views);
  return walk_->run(pool, views, [&](size_t kernel, double ns) { timed(plan_.kernels[planned_[kernel]], ns); });
}

}  // namespace xhat::runtime
