// xhat viz: the page of runtime/viz/viz.h, with the timeline of a run where all sizes are given.
#include "runtime/viz/viz.h"

#include <algorithm>
#include <fstream>
#include <ostream>
#include <limits>

#include <fmt/format.h>

#include "tools/commands.h"
#include "tools/measured_op.h"

namespace xhat::tool {
namespace {

// Runs the op a few times and tells of the quickest: the first has the memory to fetch, and others may use the machine.
constexpr int kRuns = 5;

VizOptions run_once(const Command& c, const Program& op, CompileOptions options) {
  VizOptions made;
  made.listed_kernels = c.listed;
  if (c.no_run) return made;
  const DimValues given = dims_of(c);
  for (const Dim& d : op.dims)
    if (d.definition == kNone && !given.contains(op.arena->name(d.dim))) return made;
  const DimValues dims = solve_dims(op, {}, given);
  std::string direction;
  Clock::time_point start;
  options.dims = given;
  options.on_kernel = [&](const Kernel& k, double ns) {
    const double end = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    made.timeline.push_back({direction, k.name, std::max(0.0, end - ns), ns});
  };
  CompiledOp compiled = compile(op, options);
  const Program& p = compiled.program(dims);
  Buffers data = random_data(c, op, p, dims);
  std::vector<Argument> forward, backward;
  for (const auto* list : {&p.inputs, &p.outputs, &p.cotangents, &p.gradients})
    for (TensorId t : *list) {
      const std::string& name = p.tensors[t].name;
      const Argument argument{name, data.try_emplace(name, p.tensors[t].type, shape_of(p, t, dims)).first->second.view()};
      if (list == &p.inputs || list == &p.outputs)
        forward.push_back(argument);
      else
        backward.push_back(argument);
    }
  if (options.differentiate)
    for (const std::string& name : compiled.kept(dims)) backward.push_back(*std::ranges::find(forward, name, &Argument::name));
  Stash stash;
  std::vector<VizEvent> quickest;
  double least = std::numeric_limits<double>::infinity();
  for (int again = 0; again < kRuns; ++again) {
    made.timeline.clear();
    start = Clock::now();
    direction = "forward";
    options.differentiate ? compiled.forward(forward, stash) : compiled.infer(forward);
    direction = "backward";
    if (options.differentiate && !p.gradients.empty()) compiled.backward(backward, stash);
    if (const double ms = since(start); ms < least) least = ms, quickest = made.timeline;
  }
  made.timeline = std::move(quickest);
  made.timeline_of = fmt::format(
      "The quickest of {} runs of the op on random data, seed {}. Kernels that are timed run one after the other.", kRuns, c.seed);
  return made;
}

}  // namespace

int viz_command(const Command& c, const Source& source) {
  const CompileOptions options = compile_options(c);
  const VizOptions run = run_once(c, source.op, options);
  if (c.json) {
    *c.answer << viz_data(source.op, options, dims_of(c), run) << "\n";
    return kFine;
  }
  const std::string path = c.out.empty() ? source.op.name + ".html" : c.out, page = viz(source.op, options, dims_of(c), run);
  if (path == "-") {
    *c.answer << page;
    return kFine;
  }
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  if (!file) throw UsageError(path + ": it cannot be written");
  return kFine;
}

}  // namespace xhat::tool
