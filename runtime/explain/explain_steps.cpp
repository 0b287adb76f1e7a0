#include "runtime/explain/explain_steps.h"

#include <algorithm>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "ad/reverse/gradient.h"
#include "expr/index/steps_blocks.h"
#include "expr/text/print_steps.h"
#include "runtime/call/block_ops.h"
#include "runtime/call/whole_loops.h"

namespace xhat {
namespace {

void add(ExplainedDirection& to, const ExplainedDirection& block, const std::string& name, int64_t runs) {
  for (ExplainedKernel k : block.kernels) {
    k.name = name + "." + k.name;
    for (std::string& computed : k.computes) computed = name + "." + computed;
    k.bytes_moved *= runs;
    k.bytes_unavoidable *= runs;
    k.flops *= runs;
    if (runs != 1) k.reason = fmt::format("runs {} times{}", runs, k.reason.empty() ? "" : "; " + k.reason);
    to.kernels.push_back(std::move(k));
  }
  for (ExplainedCheck c : block.checks) {
    c.definition = name + "." + c.definition;
    to.checks.push_back(std::move(c));
  }
  to.kernel_count += block.kernel_count;
  to.bytes_moved += runs * block.bytes_moved;
  to.flops += runs * block.flops;
  to.reductions += block.reductions;
}

// Of a block in a loop: where the loop is one function, a part of that.
void add_to_loop(ExplainedDirection& to, const ExplainedDirection& block, const std::string& name, const std::string& loop, int64_t runs) {
  auto whole = std::ranges::find(to.kernels, loop, &ExplainedKernel::name);
  if (whole == to.kernels.end()) return add(to, block, name, runs);
  for (const ExplainedKernel& part : block.kernels)
    for (const std::string& computed : part.computes) whole->computes.push_back(name + "." + computed);
  whole->flops += runs * block.flops;
  to.flops += runs * block.flops;
  to.reductions += block.reductions;
}

// What is added up once for many runs.
void add_sums(ExplainedDirection& to, const runtime::BlockOp& block, const std::string& name, int64_t runs) {
  DimValues dims = block.sums_options.dims;
  dims[block.deferred->runs] = block.runs_at_once;
  CompileOptions own = block.sums_options;
  own.dims.clear();
  ExplainedDirection sums = explain(block.deferred->sums, own, dims).infer;
  for (ExplainedKernel& k : sums.kernels)
    k.reason = fmt::format("over {} iterations at once{}", block.runs_at_once, k.reason.empty() ? "" : "; " + k.reason);
  add(to, sums, name, (runs + block.runs_at_once - 1) / block.runs_at_once);
}

int64_t bytes_of(const Program& p, const std::vector<TensorId>& tensors, const DimValues& dims) {
  int64_t bytes = 0;
  for (TensorId t : tensors) bytes += xhat::bytes_of(p, t, dims);
  return bytes;
}

}  // namespace

Explanation explain_steps(const Program& op, const CompileOptions& options, const DimValues& given) {
  const Program p = options.differentiate ? gradient(op, {options.wrt}) : op;
  Explanation e;
  e.op = p.name;
  e.text = print(op);
  e.inputs = tensors_of(p, p.inputs);
  e.outputs = tensors_of(p, p.outputs);
  e.gradients = tensors_of(p, p.gradients);
  e.sizes = choose_sizes(op, options.stash, given);
  for (const Dim& d : p.dims)
    if (const std::string& name = p.arena->name(d.dim); d.definition == kNone && !given.contains(name)) e.nominal[name] = e.sizes.at(name);
  e.optimal = true;
  const auto ops = runtime::block_ops(p, options, e.sizes);
  std::vector<std::vector<int64_t>> shapes;
  for (TensorId t = 0; t < p.tensors.size(); ++t) shapes.push_back(shape_of(p, t, e.sizes));
  const runtime::WholeLoops whole = runtime::whole_loops(p, options, e.sizes, shapes);
  const auto in_whole = runtime::blocks_of(whole);
  for (const auto& [loop, code] : whole)
    for (auto [d, phase] : {std::pair(&e.infer, runtime::LoopPhase::infer), std::pair(&e.forward, runtime::LoopPhase::forward),
                            std::pair(&e.backward, runtime::LoopPhase::backward)}) {
      if (!code->has(phase) || (phase != runtime::LoopPhase::infer && !options.differentiate)) continue;
      ExplainedKernel k;
      k.name = runtime::name_of(p, *loop, *code);
      k.bytes_moved = k.bytes_unavoidable = runtime::bytes_of(p, *loop, *code, shapes);
      k.reason = "one function: calling kernels for its blocks would take longer than what they compute";
      d->bytes_moved += k.bytes_moved;
      ++d->kernel_count;
      d->kernels.push_back(std::move(k));
    }
  for (const BlockAt& at : blocks_at(p, e.sizes)) {
    const runtime::BlockOp& made = ops.at(runtime::key(*at.block));
    CompileOptions own = made.options;
    own.dims.clear();
    const Explanation block = explain(made.op, own, runtime::given_dims(made.op, at.dims));
    const std::string& name = at.block->op->name;
    auto it = in_whole.find(at.block);
    const std::string loop = it == in_whole.end() ? "" : runtime::name_of(p, *it->second, *whole.at(it->second));
    add_to_loop(e.infer, block.infer, name, loop, at.runs);
    add_to_loop(e.forward, own.differentiate ? block.forward : block.infer, name, loop, at.runs);
    if (!own.differentiate) continue;
    add_to_loop(e.backward, block.backward, name, loop, at.runs);
    if (made.deferred && std::ranges::find(e.backward.kernels, loop, &ExplainedKernel::name) == e.backward.kernels.end())
      add_sums(e.backward, made, name, at.runs);
    for (ExplainedStash s : block.stash) {
      s.name = name + "." + s.name;
      s.bytes *= at.runs;
      e.stash.push_back(std::move(s));
    }
    for (ExplainedValue v : block.values) {
      v.name = name + "." + v.name;
      e.values.push_back(std::move(v));
    }
    e.cost_ns += static_cast<double>(at.runs) * block.cost_ns;
    e.lower_bound_ns += static_cast<double>(at.runs) * block.lower_bound_ns;
    e.optimal &= block.optimal;
  }
  const int64_t forward = bytes_of(p, p.inputs, e.sizes) + bytes_of(p, p.outputs, e.sizes);
  e.infer.text = e.forward.text = print_steps(op);
  e.infer.bytes_unavoidable = e.forward.bytes_unavoidable = forward;
  if (options.differentiate) {
    e.backward.text = "the steps that ran, the other way round, each block by its own gradient\n";
    e.backward.bytes_unavoidable = bytes_of(p, p.inputs, e.sizes) + bytes_of(p, p.cotangents, e.sizes) + bytes_of(p, p.gradients, e.sizes);
    e.kept_by_caller = names_of(p, p.inputs);
  } else {
    e.forward = e.infer;
  }
  return e;
}

}  // namespace xhat
