// xhat bench: times of infer, forward and backward, beside those without stash and without fusion.
//
// Variants take turns in every round, so that what disturbs the machine disturbs them alike. What is
// reported is the least time (of the machine at its best) and the median.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ad/random_inputs.h"
#include "runtime/explain.h"
#include "runtime/kernel_cache.h"
#include "tools/commands.h"
#include "tools/data.h"

namespace xhat::tool {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using Phase = CompiledOp::Phase;

constexpr double kBudgetMs = 3000;  // for all samples together
constexpr int kFewest = 5, kMost = 200;
// Shorter calls are timed several at a time: the clock and the threads' waking would be what is measured.
constexpr double kSampleMs = 0.05;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Times {
  std::vector<double> ms;
  double least() const { return *std::ranges::min_element(ms); }
  double median() const {
    std::vector<double> sorted = ms;
    std::ranges::sort(sorted);
    size_t half = sorted.size() / 2;
    return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  Json json() const { return {{"min", least()}, {"median", median()}}; }
};

// One call to be timed, as often as makes a sample.
struct Timer {
  std::function<void()> call;
  int calls = 1;
  Times times;

  void warm_up() {
    call();
    auto start = Clock::now();
    call();
    double once = since(start);
    calls = once >= kSampleMs
                ? 1
                : static_cast<int>(std::min(1000.0, std::ceil(kSampleMs / std::max(once, 1e-4))));
  }
  double sample() {
    auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    double ms = since(start);
    times.ms.push_back(ms / calls);
    return ms;
  }
};

// Normals of the op's own size; positive, or between 0 and 1, where small ones had to be for the outputs to
// be finite
// (the evaluator would take too long to try it at this size).
Arrays data_of(const Program& op, const DimValues& dims, uint64_t seed) {
  bool positive = true, below_one = true;
  for (const auto& [name, array] : random_inputs(op, sample_dims(op, seed), seed))
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

// An op compiled one way, with memory for all it writes.
class Variant {
 public:
  Variant(const Program& op, CompileOptions options, const DimValues& dims, const Buffers& shared)
      : compiled(compile(op, timed(std::move(options)))) {
    const Program& p = compiled.program();
    for (TensorId t : p.outputs) own_[p.tensors[t].name] = Buffer(p.tensors[t].type, shape_of(p, t, dims));
    for (TensorId t : p.gradients)
      gradients_[p.tensors[t].name] = Buffer(p.tensors[t].type, shape_of(p, t, dims));
    for (TensorId t : p.inputs) forward_.push_back({p.tensors[t].name, shared.at(p.tensors[t].name).view()});
    for (const Argument& a : arguments_of(own_)) forward_.push_back(a);
    std::vector<std::string> kept = compiled.kept();
    for (const Argument& a : forward_)
      if (std::ranges::find(kept, a.name) != kept.end()) backward_.push_back(a);
    for (TensorId t : p.cotangents)
      backward_.push_back({p.tensors[t].name, shared.at(p.tensors[t].name).view()});
    for (const Argument& a : arguments_of(gradients_)) backward_.push_back(a);
    infer.call = [this] { compiled.infer(forward_); };
    forward.call = [this] {
      running_ = &forward_kernels;
      compiled.forward(forward_, stash);
      running_ = nullptr;
    };
    backward.call = [this] {
      running_ = &backward_kernels;
      compiled.backward(backward_, stash);
      running_ = nullptr;
    };
  }
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  CompiledOp compiled;
  Stash stash;
  Timer infer, forward, backward;
  std::map<std::string, Times> forward_kernels, backward_kernels;  // by name, every call

 private:
  CompileOptions timed(CompileOptions options) {
    options.on_kernel = [this](const Kernel& k, double ns) {
      if (running_) (*running_)[k.name].ms.push_back(ns / 1e6);
    };
    return options;
  }

  std::map<std::string, Times>* running_ = nullptr;
  Buffers own_, gradients_;
  std::vector<Argument> forward_, backward_;
};

DimValues all_dims(const Command& c, const Program& op) {
  DimValues given = dims_of(c);
  std::vector<std::string> missing;
  for (const Dim& d : op.dims)
    if (d.definition == kNone && !given.contains(op.arena->name(d.dim)))
      missing.push_back(op.arena->name(d.dim));
  if (!missing.empty())
    throw UsageError(fmt::format("bench needs all sizes of op {}; missing: {}. give them as --dims {}=...",
                                 op.name, fmt::join(missing, ", "), fmt::join(missing, "=...,")));
  return solve_dims(op, {}, given);
}

class Bench {
 public:
  Bench(const Command& c, const Program& op) : c_(c), op_(op), options_(compile_options(c)) {
    dims_ = all_dims(c, op);
    options_.dims = dims_of(c);
  }

  int run() {
    Derivation derivation = derive(op_, options_);
    progress("making data");
    Buffers shared;
    for (auto& [name, array] : data_of(op_, dims_, c_.seed)) shared.emplace(name, Buffer(array));
    for (const auto& [name, value] : scalars_of(c_, op_)) shared[name] = Buffer(value);
    for (auto& [name, array] : random_cotangents(derivation.program, dims_, c_.seed))
      shared.emplace(name, Buffer(array));

    Variant main(op_, options_, dims_, shared);
    CompileOptions o = options_;
    o.stash.policy = StashOptions::Policy::none;
    Variant no_stash(op_, o, dims_, shared);
    o.stash = options_.stash;
    o.fusion.policy = FusePolicy::off;
    Variant no_fusion(op_, o, dims_, shared);

    compile_all();
    measure({&main.infer, &main.forward, &main.backward, &no_stash.forward, &no_stash.backward,
             &no_fusion.forward, &no_fusion.backward});
    progress("");
    Json json = result(main, no_stash, no_fusion);
    if (c_.json)
      std::cout << json.dump(2) << "\n";
    else
      print(json);
    return kFine;
  }

 private:
  const Command& c_;
  const Program& op_;
  CompileOptions options_;
  DimValues dims_;
  double startup_ms_ = 0;
  std::vector<double> compile_ms_;
  int repeats_ = 0;

  // Each phase as if it were the first: what infer and forward share counts in both. The compiler's own
  // start is
  // told apart, for it is paid once per process, whatever is compiled.
  void compile_all() {
    progress("compiling");
    auto start = Clock::now();
    compile(parse_op("op start(x: f32[8]) -> (y) { y[i] = x[i] + 1 }")).prepare(Phase::infer, {});
    startup_ms_ = since(start);
    for (Phase phase : {Phase::infer, Phase::forward, Phase::backward}) {
      CompileOptions cold = options_;
      cold.cache = std::make_shared<runtime::KernelCache>();
      compile_ms_.push_back(compile(op_, cold).prepare(phase, dims_));
    }
  }

  // One line, rewritten, where somebody looks on; a line per stage elsewhere.
  static void progress(const std::string& what, bool often = false) {
    bool terminal = isatty(STDERR_FILENO) != 0;
    if (terminal)
      std::cerr << "\r\033[K" << (what.empty() ? "" : "xhat bench: " + what) << std::flush;
    else if (!what.empty() && !often)
      std::cerr << "xhat bench: " << what << std::endl;
  }

  void measure(std::vector<Timer*> timers) {
    double round = 0;
    for (size_t i = 0; i < timers.size(); ++i) {
      progress(fmt::format("warming up {} of {}", i + 1, timers.size()), true);
      timers[i]->warm_up();
      round += timers[i]->sample();
      timers[i]->times.ms.clear();
    }
    double fit = std::clamp(kBudgetMs / std::max(round, 1e-3), double{kFewest}, double{kMost});
    repeats_ = c_.repeats > 0 ? c_.repeats : static_cast<int>(fit);
    progress(fmt::format("timing, {} rounds", repeats_));
    auto shown = Clock::now();
    for (int i = 0; i < repeats_; ++i) {
      for (Timer* t : timers) t->sample();
      if (since(shown) < 200) continue;
      progress(fmt::format("round {} of {}", i + 1, repeats_), true);
      shown = Clock::now();
    }
  }

  static Json kernels(const KernelPlan& plan, const std::map<std::string, Times>& times) {
    Json list = Json::array();
    for (const Kernel& k : plan.kernels) {
      auto it = times.find(k.name);
      if (it == times.end()) continue;  // of empty tensors
      double ns = it->second.median() * 1e6;
      list.push_back({{"name", k.name},
                      {"ms", it->second.json()},
                      {"bytes", k.bytes_moved},
                      {"gbps", static_cast<double>(k.bytes_moved) / ns},
                      {"gflops", static_cast<double>(k.flops) / ns}});
    }
    return list;
  }

  Json result(const Variant& main, const Variant& no_stash, const Variant& no_fusion) const {
    KernelPlan forward = main.compiled.plan(Phase::forward, dims_),
               backward = main.compiled.plan(Phase::backward, dims_);
    // Bytes or operations per nanosecond are G per second; of the median, what one gets most of the time.
    auto per_second = [](int64_t amount, const Timer& t) {
      return static_cast<double>(amount) / (t.times.median() * 1e6);
    };
    auto ablation = [](const Variant& v) {
      return Json{{"forward_ms", v.forward.times.json()}, {"backward_ms", v.backward.times.json()}};
    };
    int threads =
        c_.threads > 0 ? c_.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    return {{"op", op_.name},
            {"target", c_.target},
            {"threads", threads},
            {"dims", dims_.empty() ? Json::object() : Json(dims_)},
            {"infer_ms", main.infer.times.json()},
            {"forward_ms", main.forward.times.json()},
            {"backward_ms", main.backward.times.json()},
            {"forward_gbps", per_second(forward.bytes_unavoidable, main.forward)},
            {"backward_gbps", per_second(backward.bytes_unavoidable, main.backward)},
            {"forward_gflops", per_second(forward.flops, main.forward)},
            {"backward_gflops", per_second(backward.flops, main.backward)},
            {"kernels", {{"forward", kernels(forward, main.forward_kernels)}, {"backward", kernels(backward, main.backward_kernels)}}},
            {"stash_bytes", main.stash.bytes()},
            {"compile_ms",
             {{"infer", compile_ms_[0]}, {"forward", compile_ms_[1]}, {"backward", compile_ms_[2]}}},
            {"compiler_start_ms", startup_ms_},
            {"ablations", {{"no_stash", ablation(no_stash)}, {"no_fusion", ablation(no_fusion)}}},
            {"repeats", repeats_}};
  }

  static void print(const Json& j) {
    DimValues dims = j["dims"].get<DimValues>();
    std::cout << fmt::format("op {}{}{}, {} thread{}, {} rounds\n\n", j["op"].get<std::string>(),
                             dims.empty() ? "" : ", ", dims_text(dims), j["threads"].get<int>(),
                             j["threads"].get<int>() == 1 ? "" : "s", j["repeats"].get<int>());
    std::vector<std::vector<std::string>> rows = {{"", "min", "median", "GB/s", "Gflop/s", "to compile"}};
    auto row = [&](const std::string& name, const Json& times) {
      rows.push_back({name, time_text(times["min"].get<double>() * 1e6),
                      time_text(times["median"].get<double>() * 1e6)});
    };
    row("infer", j["infer_ms"]);
    rows.back().insert(rows.back().end(), {"", "", time_text(j["compile_ms"]["infer"].get<double>() * 1e6)});
    for (const std::string phase : {"forward", "backward"}) {
      row(phase, j[phase + "_ms"]);
      rows.back().push_back(fmt::format("{:.1f}", j[phase + "_gbps"].get<double>()));
      rows.back().push_back(fmt::format("{:.1f}", j[phase + "_gflops"].get<double>()));
      rows.back().push_back(time_text(j["compile_ms"][phase].get<double>() * 1e6));
    }
    for (const std::string ablation : {"no_stash", "no_fusion"})
      for (const std::string phase : {"forward", "backward"})
        row((ablation == "no_stash" ? "without stash: " : "without fusion: ") + phase,
            j["ablations"][ablation][phase + "_ms"]);
    std::cout << table_text(rows, {1, 2, 3, 4, 5}, "  ") << "\n";
    rows = {{"kernel", "min", "median", "GB/s", "Gflop/s", "moves"}};
    for (const std::string phase : {"forward", "backward"})
      for (const Json& k : j["kernels"][phase]) {
        row(phase + ": " + k["name"].get<std::string>(), k["ms"]);
        rows.back().push_back(fmt::format("{:.1f}", k["gbps"].get<double>()));
        rows.back().push_back(fmt::format("{:.1f}", k["gflops"].get<double>()));
        rows.back().push_back(bytes_text(k["bytes"].get<double>()));
      }
    std::cout << table_text(rows, {1, 2, 3, 4, 5}, "  ");
    std::cout << fmt::format(
        "\nstash {}; GB/s counts what cannot be avoided: each input read once, each result written "
        "once; of a kernel, what it moves; medians\n",
        bytes_text(static_cast<double>(j["stash_bytes"].get<int64_t>())));
  }
};

}  // namespace

int bench_command(const Command& c, const Source& source) { return Bench(c, source.op).run(); }

}  // namespace xhat::tool
