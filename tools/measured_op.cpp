#include "tools/measured_op.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ad/check/random_inputs.h"
#include "expr/index/size_limits.h"
#include "tools/memory.h"

namespace xhat::tool {
namespace {

// Shorter calls are timed several at a time: the clock and the threads' waking would be what is measured.
constexpr double kSampleMs = 0.05;
constexpr double kSlowMs = 2000;  // of one call, of which five more would tell little

struct Stopped {};  // by MeasuredOp::limit_ms

// What small data had to be for the outputs to be finite; nothing is known of an op that runs at some sizes only, or on few data.
Arrays small_data(const Program& op, uint64_t seed) {
  try {
    return random_inputs(op, sample_dims(op, seed), seed);
  } catch (const Error&) {
    return {};
  }
}

// Normals of the op's own size; positive, or between 0 and 1, where small ones had to be
// (the evaluator would take too long to try it at this size).
Arrays data_of(const Program& op, const DimValues& dims, uint64_t seed) {
  const Arrays small = small_data(op, seed);
  bool positive = !small.empty(), below_one = true;
  for (const auto& [name, array] : small)
    for (double v : array.reals) {
      positive &= v > 0;
      below_one &= v < 1;
    }
  RandomOptions as_it_comes;
  as_it_comes.finite = false;
  Arrays data = random_inputs(op, dims, seed, as_it_comes);
  if (!positive) return data;
  for (auto& [name, array] : data) {
    for (double& v : array.reals) {
      v = std::fabs(v) + 0.1;
      if (below_one) v = v / (1 + v);
    }
    array = rounded(std::move(array));
  }
  return data;
}

}  // namespace

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double Times::least() const { return *std::ranges::min_element(ms); }
double Times::median() const {
  std::vector<double> sorted = ms;
  std::ranges::sort(sorted);
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

void Timer::warm_up(bool compiled) {
  if (after && after->stopped) {
    once = true;
    return;
  }
  auto start = Clock::now();
  call();
  if (const double first = since(start); stopped || (compiled && first >= kSlowMs)) {
    once = true;
    times.ms = {first};
    return;
  }
  start = Clock::now();
  call();
  const double second = since(start);
  calls = second >= kSampleMs ? 1 : static_cast<int>(std::min(1000.0, std::ceil(kSampleMs / std::max(second, 1e-4))));
}

double Timer::sample() {
  if (once) return 0;
  auto start = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  double ms = since(start);
  times.ms.push_back(ms / calls);
  return ms;
}

DimValues all_dims(const Command& c, const Program& op) {
  DimValues given = dims_of(c);
  std::vector<std::string> missing;
  for (const Dim& d : op.dims)
    if (d.definition == kNone && !given.contains(op.arena->name(d.dim)))
      missing.push_back(op.arena->name(d.dim));
  if (!missing.empty())
    throw UsageError(fmt::format("{} needs all sizes of op {}; missing: {}. give them as --dims {}=...", c.name,
                                 op.name, fmt::join(missing, ", "), fmt::join(missing, "=...,")));
  return solve_dims(op, {}, given);
}

Buffers random_data(const Command& c, const Program& op, const Program& derived, const DimValues& dims) {
  check_kernel_sizes(derived, dims);
  // The data are drawn as the evaluator's arrays; then, with no fusion, there is every tensor of the program.
  std::vector<TensorId> given = derived.inputs;
  given.insert(given.end(), derived.cotangents.begin(), derived.cotangents.end());
  check_memory(c, op, dims, std::max(bytes_of(derived, given, dims) + bytes_of(derived, given, dims, 8), bytes_of_all(derived, dims)));
  Buffers data;
  for (auto& [name, array] : data_of(op, dims, c.seed)) data.emplace(name, Buffer(array));
  for (const auto& [name, value] : scalars_of(c, op)) data[name] = Buffer(value);
  for (auto& [name, array] : random_cotangents(derived, dims, c.seed)) data.emplace(name, Buffer(array));
  return data;
}

MeasuredOp::MeasuredOp(const Program& op, CompileOptions options, const DimValues& dims, const Buffers& shared,
                       Stash* shared_stash)
    : compiled(compile(op, timed(std::move(options)))), stash_(shared_stash ? shared_stash : &stash) {
  const Program& p = compiled.program(dims);
  auto argument = [&](TensorId t) {
    const std::string& name = p.tensors[t].name;
    if (auto it = shared.find(name); it != shared.end()) return Argument{name, it->second.view()};
    return Argument{name, own_.try_emplace(name, p.tensors[t].type, shape_of(p, t, dims)).first->second.view()};
  };
  for (const auto* list : {&p.inputs, &p.outputs})
    for (TensorId t : *list) forward_.push_back(argument(t));
  for (const std::string& name : compiled.kept(dims)) backward_.push_back(*std::ranges::find(forward_, name, &Argument::name));
  for (const auto* list : {&p.cotangents, &p.gradients})
    for (TensorId t : *list) backward_.push_back(argument(t));
  auto timed_call = [this](Timer& timer, KernelTimes& kernels, auto f) {
    return [this, &timer, &kernels, f] {
      running_ = &kernels;
      began_ = Clock::now();
      try {
        f();
      } catch (const Stopped&) {
        timer.stopped = true;
      }
      running_ = nullptr;
    };
  };
  infer.call = timed_call(infer, infer_kernels, [this] { compiled.infer(forward_); });
  forward.call = timed_call(forward, forward_kernels, [this] { compiled.forward(forward_, *stash_); });
  backward.call = timed_call(backward, backward_kernels, [this] { compiled.backward(backward_, *stash_); });
  backward.after = &forward;
}

CompileOptions MeasuredOp::timed(CompileOptions options) {
  options.on_kernel = [this](const Kernel& k, double ns) {
    if (running_) (*running_)[k.name].ms.push_back(ns / 1e6);
    if (limit_ms > 0 && since(began_) > limit_ms) throw Stopped();
  };
  options.on_checks = [this](double ns) {
    if (running_) (*running_)[kChecks].ms.push_back(ns / 1e6);
  };
  return options;
}

}  // namespace xhat::tool
