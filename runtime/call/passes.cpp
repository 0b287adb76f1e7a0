// The passes, in order. Each is a pure function Program -> Program; this is the only place that knows the order.
#include "runtime/call/passes.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "ad/common/opaque_ops.h"
#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/algebra/collected_maps.h"
#include "cse/normalize/added_sums.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/axis_order.h"
#include "cse/normalize/few_terms.h"
#include "cse/normalize/flattened_axes.h"
#include "cse/normalize/lift_reductions.h"
#include "cse/normalize/narrow.h"
#include "cse/normalize/nested_sums.h"
#include "cse/normalize/only_places.h"
#include "cse/normalize/orientation.h"
#include "cse/normalize/outer_factors.h"
#include "cse/normalize/repeated_reductions.h"
#include "cse/normalize/simple_indices.h"
#include "expr/core/watch.h"
#include "expr/index/expand_calls.h"
#include "expr/index/without_points.h"
#include "expr/rules/simplify.h"
#include "expr/text/import.h"
#include "fusion/plan/running_extremes.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/call/debug.h"
#include "runtime/call/derivatives.h"
#include "runtime/call/machine.h"
#include "runtime/host/thread_pool.h"

namespace xhat {
namespace runtime {

struct Passes::Pipeline {
  explicit Pipeline(const Program& op) : debug_(debug_options()) { current_ = op; }

  template <class F>
  void step(const std::string& name, F&& pass) {
    if (!open()) return;
    auto start = std::chrono::steady_clock::now();
    watched([&] { current_ = pass(current_); });
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (debug_.check) verify(current_);
    if (debug_.time) fprintf(stderr, "xhat: %-12s %8.3f ms  %zu nodes\n", name.c_str(), ms, current_.arena->size());
    const std::string file = current_.name + "." + std::to_string(steps_.size()) + "." + name + ".xh";
    if (debug_.passes) show_text(file + "\n" + print(current_));
    if (!debug_.dump.empty()) write_dump(debug_, file, print(current_));
    inner_ = 1;
    steps_.push_back({name, current_, ms});
  }

  // Runs part of the step that comes next: its own steps are dumped as <op>.<number>.<part>.<name>.xh.
  template <class F>
  void watched(F&& part) {
    WatchSteps watch(debug_.dump.empty() ? WatchSteps::Watcher() : [&](const std::string& name, const Program& after) {
      const std::string number = std::to_string(steps_.size()) + "." + std::to_string(inner_++);
      write_dump(debug_, current_.name + "." + number + "." + name + ".xh", print(after));
    });
    part();
  }

  bool open() const { return static_cast<int>(steps_.size()) < debug_.limit; }
  const Program& current() const { return current_; }
  std::vector<PassStep> take() { return std::move(steps_); }

 private:
  Debug debug_;
  Program current_;
  std::vector<PassStep> steps_;
  int inner_ = 1;
};

PlanRequest request_of(const CompileOptions& options, Target target) {
  PlanRequest request{options.fusion, target == Target::cpu ? options.machine : for_gpu(options.machine), options.choices};
  request.one_thread = target == Target::cpu && threads_or_all(options.threads) == 1;
  return request;
}

// What a user may write in several ways, in one of them.
Program written_alike(const Program& p) {
  const Program one =
      without_flattened_axes(without_neutral_terms(recognize(in_one_direction(without_nested_divisions(with_plain_positions(p))))));
  const Program summed = gather(without_nested_sums(without_added_sums(without_repeated_reductions(one))));
  return without_repeated_reductions(with_numbers_outside(summed));
}

namespace {

Program lifted(const Program& p) { return lift_reductions(ordered(p), true); }
Program gathered(const Program& p) { return without_nested_sums(with_few_terms(gather(without_flattened_axes(p)))); }
// Inlining brings choices into sums over few places, which then have an axis less each time.
Program inlined(const Program& p) {
  Program now = inline_injective(p), fewer = with_few_terms(now);
  while (!std::ranges::equal(now.definitions(), fewer.definitions(), {}, &Definition::body, &Definition::body)) {
    now = inline_injective(fewer);
    fewer = with_few_terms(now);
  }
  return now;
}
// Inlining brings constants together: reads at fixed places, what the user named.
Program simplified(const Program& p) {
  return with_decided_choices(simplify(in_closed_form(recognize_derived(with_simple_indices(at_only_places(without_flattened_axes(p)))))));
}
Program in_normal_form(const Program& p) { return simplified(inlined(gathered(lifted(p)))); }

}  // namespace

Program with_gradients(const Program& op, const std::vector<std::string>& wrt) {
  return gradient(written_alike(expand_calls(own_copy(op), true)), {wrt});
}

Passes::Passes(const Program& op, const CompileOptions& options)
    : options_(options), source_(op), first_half_(std::make_unique<Pipeline>(op)) {
  // What looks at one list of passes, plans or kernels for the whole has none to look at.
  if (op.steps) throw op_error(op, "not yet for programs with loops or branches that stay; explain shows their blocks");
  Pipeline& pipeline = *first_half_;
  if (options_.differentiate && options_.differentiated) {
    pipeline.step("grad", [](const Program& p) { return own_copy(p); });
  } else if (options_.differentiate) {
    pipeline.step("grad", [&](const Program& p) { return with_gradients(p, options_.wrt); });
  } else {
    pipeline.step("calls", [](const Program& p) { return written_alike(expand_calls(own_copy(p))); });
    if (has_derivatives(pipeline.current())) {
      expanded_ = pipeline.current();
      pipeline.step("derivatives", [](const Program& p) { return with_simple_derivatives(p, in_normal_form); });
    }
  }
  pipeline.step("lift", lifted);
  pipeline.step("gather", gathered);
  written_ = pipeline.current();
  if (options_.fusion.policy == FusePolicy::relay) opaque_nodes_ = opaque_nodes(own_copy(op), options_.fusion.relay.opaque);
  pipeline.step("inline", inlined);
  pipeline.step("simplify", simplified);
  if (options_.differentiate && pipeline.open())
    // The half of step "stash" that knows no sizes.
    pipeline.watched([&] { stash_.emplace(pipeline.current(), options_.stash, options_.machine); });
}

Passes::~Passes() = default;

const Program& Passes::halfway() const { return first_half_->current(); }

StashChoice Passes::choose(const DimValues& sizes) const { return stash_ ? stash_->choose(sizes) : StashChoice{sizes, {}, "", false}; }

bool Passes::without_points(const DimValues& sizes) const {
  const bool all_known = std::ranges::all_of(written_.dims, [&](const Dim& d) { return sizes.contains(written_.arena->name(d.dim)); });
  return all_known && (has_range_without_points(written_, sizes) || (expanded_ && has_range_without_points(*expanded_, sizes)));
}

void Passes::require_budget(const StashChoice& choice) const {
  if (stash_) stash_->require_budget(choice);
}

Derivation Passes::derive(const StashChoice& choice) const {
  Pipeline pipeline = *first_half_;
  Derivation d;
  if (stash_) {
    pipeline.step("stash", [&](const Program&) {
      d.stash = stash_->plan(choice);
      return d.stash.program;
    });
    // What the stash planner copied or named anew is brought into normal form again; what it keeps stays.
    pipeline.step("tidy", [](const Program& p) {
      return with_collected_maps(with_simple_indices(inline_injective(simplify(with_decided_choices(p, Decisions::all)), stashes(p))));
    });
  }
  auto own = [&](const Program& p) { return stash_ ? p : own_copy(p); };
  // The classic policy groups the definitions that somebody wrote; all steps before worked on another form.
  if (options_.fusion.policy == FusePolicy::relay) {
    d.opaque_nodes = opaque_nodes_;
    pipeline.step("ops", [&](const Program& p) {
      const Program planned = own(p);
      return with_written_ops(planned, copy_into(planned.arena, written_));
    });
  }
  const bool as_written = options_.fusion.policy == FusePolicy::relay;
  // Last, for it cuts tensors to what the definitions that are there read of them: with others, one could be written beyond its end.
  pipeline.step("narrow",
                [&](const Program& p) { return recompute_running_extremes(narrow(as_written ? own(p) : axes_in_one_order(own(p)))); });
  d.program = pipeline.current();
  d.steps = pipeline.take();
  d.source = source_;
  return d;
}

}  // namespace runtime

Derivation derive(const Program& op, const CompileOptions& options, const DimValues& sizes) {
  runtime::Passes passes(op, options);
  StashChoice choice = passes.choose(sizes);
  passes.require_budget(choice);
  return passes.derive(choice);
}

}  // namespace xhat
