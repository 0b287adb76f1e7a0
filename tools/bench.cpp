// xhat bench: times of infer, forward and backward, beside those without stash and without fusion.
//
// Variants take turns in every round, so that what disturbs the machine disturbs them alike. What is
// reported is the least time (of the machine at its best) and the median.
#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ad/reverse/gradient.h"
#include "runtime/cpu/kernel_cache.h"
#include "runtime/explain/explain.h"
#include "runtime/host/thread_pool.h"
#include "tools/commands.h"
#include "tools/measured_op.h"
#include "tools/progress.h"

namespace xhat::tool {
namespace {

using Json = nlohmann::ordered_json;
using Phase = CompiledOp::Phase;

constexpr double kBudgetMs = 3000;  // for all samples together
constexpr int kMin = 5, kMax = 200;
// By which a direction must be faster unfused before it is said: least times of two runs of the same code differ by a few percent.
constexpr double kWorthSaying = 1.1;
// A median by which the least time is exceeded so far is that of a busy machine: on an idle one the two are within a tenth.
constexpr double kNoisy = 1.3;
Json json(const Times& t) { return {{"min", t.least()}, {"median", t.median()}}; }
Json json(const Timer& t) {
  if (!t.is_timed()) return {};
  Json times = json(t.times);
  if (t.stopped) times["at_least"] = true;
  return times;
}

class Bench {
 public:
  Bench(const Command& c, const Program& op) : c_(c), op_(op), options_(compile_options(c)) {
    dims_ = all_dims(c, op);
    options_.dims = dims_of(c);
  }

  int run() {
    const Program derived = op_.steps ? gradient(op_, {options_.wrt}) : derive(op_, options_, dims_).program;
    progress_.show("making data");
    Buffers shared = random_data(c_, op_, derived, dims_);
    if (c_.infer_only) return infer_alone(shared);

    MeasuredOp main(op_, options_, dims_, shared);
    CompileOptions o = options_;
    o.stash.policy = StashOptions::Policy::none;
    MeasuredOp no_stash(op_, o, dims_, shared);
    o.stash = options_.stash;
    o.fusion.policy = FusePolicy::off;
    MeasuredOp no_fusion(op_, o, dims_, shared);
    no_stash.limit_ms = no_fusion.limit_ms = c_.limit * 1e3;  // a loop whose every iteration calls kernels may take a thousand times as long

    compile_all();
    for (MeasuredOp* m : {&main, &no_stash, &no_fusion})
      for (Phase phase : {Phase::infer, Phase::forward, Phase::backward}) {
        if (phase == Phase::infer && m != &main) continue;
        m->compiled.prepare(phase, dims_);
      }
    measure({&main.infer, &main.forward, &main.backward, &no_stash.forward, &no_stash.backward,
             &no_fusion.forward, &no_fusion.backward});
    progress_.show("");
    Json found = result(main, no_stash, no_fusion);
    if (c_.json)
      std::cout << found.dump(2) << "\n";
    else
      print(found);
    return kFine;
  }

 private:
  int infer_alone(const Buffers& shared) {
    MeasuredOp main(op_, options_, dims_, shared);
    main.compiled.prepare(Phase::infer, dims_);
    measure({&main.infer});
    progress_.show("");
    const KernelPlan plan = main.compiled.plan(Phase::infer, dims_);
    Json found = {{"op", op_.name},
                  {"target", c_.target},
                  {"threads", runtime::threads_or_all(c_.threads)},
                  {"dims", dims_.empty() ? Json::object() : Json(dims_)},
                  {"infer_ms", json(main.infer.times)},
                  {"infer_gbps", static_cast<double>(plan.bytes_unavoidable) / (main.infer.times.median() * 1e6)},
                  {"infer_gflops", static_cast<double>(plan.flops) / (main.infer.times.median() * 1e6)},
                  {"kernels", {{"infer", kernels(plan, main.infer_kernels)}}},
                  {"refused", refused(main, {{"infer", Phase::infer}})},
                  {"noisy", noisy({{"infer", &main.infer}})},
                  {"repeats", repeats_}};
    if (c_.json) {
      std::cout << found.dump(2) << "\n";
      return kFine;
    }
    std::vector<std::vector<std::string>> rows = {{"", "min", "median", "GB/s", "Gflop/s"}};
    auto row = [&](const std::string& name, const Json& times, double gbps, double gflops) {
      rows.push_back({name, time_text(times["min"].get<double>() * 1e6), time_text(times["median"].get<double>() * 1e6),
                      fmt::format("{:.1f}", gbps), fmt::format("{:.1f}", gflops)});
    };
    row("infer", found["infer_ms"], found["infer_gbps"].get<double>(), found["infer_gflops"].get<double>());
    for (const Json& k : found["kernels"]["infer"])
      row("kernel " + k["name"].get<std::string>(), k["ms"], k["gbps"].get<double>(), k["gflops"].get<double>());
    std::cout << fmt::format("op {}, {} rounds\n\n", op_.name, repeats_) << table_text(rows, {1, 2, 3, 4}, "  ");
    print_refused(found["refused"]);
    return kFine;
  }

  const Command& c_;
  const Program& op_;
  CompileOptions options_;
  DimValues dims_;
  Progress progress_{"bench"};
  double startup_ms_ = 0;
  std::vector<double> compile_ms_;
  int repeats_ = 0;

  // Each phase as if it were the first: what infer and forward share counts in both. The compiler's own
  // start is
  // told apart, for it is paid once per process, whatever is compiled.
  void compile_all() {
    progress_.show("compiling");
    auto start = Clock::now();
    CompileOptions in_memory;
    in_memory.disk_cache = false;
    compile(parse_op("op start(x: f32[8]) -> (y) { y[i] = x[i] + 1 }"), in_memory).prepare(Phase::infer, {});
    startup_ms_ = since(start);
    for (Phase phase : {Phase::infer, Phase::forward, Phase::backward}) {
      CompileOptions cold = options_;
      cold.cache = std::make_shared<runtime::KernelCache>();
      compile_ms_.push_back(compile(op_, cold).prepare(phase, dims_));
    }
  }

  void measure(std::vector<Timer*> timers) {
    double round = 0;
    for (size_t i = 0; i < timers.size(); ++i) {
      progress_.show(fmt::format("warming up {} of {}", i + 1, timers.size()), true);
      timers[i]->warm_up(true);
      if (timers[i]->once) continue;
      round += timers[i]->sample();
      timers[i]->times.ms.clear();
    }
    double fit = std::clamp(kBudgetMs / std::max(round, 1e-3), double{kMin}, double{kMax});
    repeats_ = c_.repeats > 0 ? c_.repeats : static_cast<int>(fit);
    progress_.show(fmt::format("timing, {} rounds", repeats_));
    for (int i = 0; i < repeats_; ++i) {
      for (Timer* t : timers) t->sample();
      progress_.show(fmt::format("round {} of {}", i + 1, repeats_), true);
    }
  }

  static Json kernels(const KernelPlan& plan, const std::map<std::string, Times>& times) {
    Json list = Json::array();
    for (const Kernel& k : plan.kernels) {
      auto it = times.find(k.name);
      if (it == times.end()) continue;  // of empty tensors
      double ns = it->second.median() * 1e6;
      list.push_back({{"name", k.name},
                      {"ms", json(it->second)},
                      {"bytes", k.bytes_moved},
                      {"gbps", static_cast<double>(k.bytes_moved) / ns},
                      {"gflops", static_cast<double>(k.flops) / ns}});
    }
    return list;
  }

  Json result(const MeasuredOp& main, const MeasuredOp& no_stash, const MeasuredOp& no_fusion) const {
    KernelPlan forward = main.compiled.plan(Phase::forward, dims_),
               backward = main.compiled.plan(Phase::backward, dims_);
    // Bytes or operations per nanosecond are G per second; of the median, what one gets most of the time.
    auto per_second = [](int64_t amount, const Timer& t) {
      return static_cast<double>(amount) / (t.times.median() * 1e6);
    };
    auto ablation = [](const MeasuredOp& v) {
      return Json{{"forward_ms", json(v.forward)}, {"backward_ms", json(v.backward)}};
    };
    Json checks = Json::object();
    for (auto [phase, kernels] : {std::pair{"forward", &main.forward_kernels}, std::pair{"backward", &main.backward_kernels}})
      if (auto it = kernels->find(MeasuredOp::kChecks); it != kernels->end()) checks[phase] = json(it->second);
    return {{"op", op_.name},
            {"target", c_.target},
            {"threads", runtime::threads_or_all(c_.threads)},
            {"dims", dims_.empty() ? Json::object() : Json(dims_)},
            {"infer_ms", json(main.infer.times)},
            {"forward_ms", json(main.forward.times)},
            {"backward_ms", json(main.backward.times)},
            {"forward_gbps", per_second(forward.bytes_unavoidable, main.forward)},
            {"backward_gbps", per_second(backward.bytes_unavoidable, main.backward)},
            {"forward_gflops", per_second(forward.flops, main.forward)},
            {"backward_gflops", per_second(backward.flops, main.backward)},
            {"kernels", {{"forward", kernels(forward, main.forward_kernels)}, {"backward", kernels(backward, main.backward_kernels)}}},
            {"checks_ms", checks},
            {"stash_bytes", main.stash.bytes()},
            {"compile_ms", {{"infer", compile_ms_[0]}, {"forward", compile_ms_[1]}, {"backward", compile_ms_[2]}}},
            {"compiler_start_ms", startup_ms_},
            {"ablations", {{"no_stash", ablation(no_stash)}, {"no_fusion", ablation(no_fusion)}}},
            {"limit_ms", c_.limit * 1e3},
            {"faster_unfused", faster_unfused(main, no_fusion)},
            {"refused", refused(main, {{"infer", Phase::infer}, {"forward", Phase::forward}, {"backward", Phase::backward}})},
            {"noisy", noisy({{"infer", &main.infer}, {"forward", &main.forward}, {"backward", &main.backward}})},
            {"repeats", repeats_}};
  }

  // How many times, of the directions where fusion loses.
  static Json faster_unfused(const MeasuredOp& main, const MeasuredOp& no_fusion) {
    Json found = Json::object();
    auto compare = [&](const char* direction, const Timer& fused, const Timer& unfused) {
      if (unfused.stopped || !unfused.is_timed()) return;
      const double times = fused.times.least() / unfused.times.least();
      if (times > kWorthSaying) found[direction] = times;
    };
    compare("forward", main.forward, no_fusion.forward);
    compare("backward", main.backward, no_fusion.backward);
    return found;
  }

  // Kernels whose code is a slower one than was planned, by direction.
  Json refused(const MeasuredOp& main, const std::vector<std::pair<const char*, Phase>>& phases) const {
    Json found = Json::object();
    for (const auto& [name, phase] : phases)
      if (const auto kernels = main.compiled.refused(phase, dims_); !kernels.empty()) found[name] = kernels;
    return found;
  }

  static void print_refused(const Json& found) {
    for (const auto& [direction, kernels] : found.items())
      for (const Json& why : kernels) std::cout << fmt::format("{}: not as planned: {}\n", direction, why.get<std::string>());
  }

  // How many times its least time the median is, of what is noisy.
  static Json noisy(const std::vector<std::pair<const char*, const Timer*>>& timers) {
    Json found = Json::object();
    for (const auto& [name, timer] : timers)
      if (timer->times.ms.size() > 1 && timer->times.median() > kNoisy * timer->times.least())
        found[name] = timer->times.median() / timer->times.least();
    return found;
  }

  static void print(const Json& j) {
    DimValues dims = j["dims"].get<DimValues>();
    std::cout << fmt::format("op {}{}{}, {} thread{}, {} rounds\n\n", j["op"].get<std::string>(),
                             dims.empty() ? "" : ", ", dims_text(dims), j["threads"].get<int>(),
                             j["threads"].get<int>() == 1 ? "" : "s", j["repeats"].get<int>());
    std::vector<std::vector<std::string>> rows = {{"", "min", "median", "GB/s", "Gflop/s", "to compile"}};
    std::string stopped;
    auto row = [&](const std::string& name, const Json& times) {
      if (times.is_null()) {
        rows.push_back({name, "not timed", ""});
      } else if (times.contains("at_least")) {
        rows.push_back({name, "> " + time_text(times["min"].get<double>() * 1e6), ""});
        stopped = fmt::format("what took more than {} is stopped (--limit), and a backward whose forward was is not begun\n",
                              time_text(j["limit_ms"].get<double>() * 1e6));
      } else {
        rows.push_back({name, time_text(times["min"].get<double>() * 1e6), time_text(times["median"].get<double>() * 1e6)});
      }
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
    std::cout << table_text(rows, {1, 2, 3, 4, 5}, "  ") << stopped << "\n";
    rows = {{"kernel", "min", "median", "GB/s", "Gflop/s", "moves"}};
    for (const std::string phase : {"forward", "backward"}) {
      if (j["checks_ms"].contains(phase)) row(phase + ": " + MeasuredOp::kChecks, j["checks_ms"][phase]);
      for (const Json& k : j["kernels"][phase]) {
        row(phase + ": " + k["name"].get<std::string>(), k["ms"]);
        rows.back().push_back(fmt::format("{:.1f}", k["gbps"].get<double>()));
        rows.back().push_back(fmt::format("{:.1f}", k["gflops"].get<double>()));
        rows.back().push_back(bytes_text(k["bytes"].get<double>()));
      }
    }
    std::cout << table_text(rows, {1, 2, 3, 4, 5}, "  ");
    std::cout << fmt::format(
        "\nstash {}; GB/s counts what cannot be avoided: each input read once, each result written "
        "once; of a kernel, what it moves; medians\n",
        bytes_text(static_cast<double>(j["stash_bytes"].get<int64_t>())));
    for (const auto& [direction, times] : j["faster_unfused"].items())
      std::cout << fmt::format("{} is {:.1f} times faster without fusion: here the planner is wrong; --fuse off goes around it\n", direction,
                               times.get<double>());
    print_refused(j["refused"]);
    for (const auto& [direction, times] : j["noisy"].items())
      std::cout << fmt::format("{} is noisy: its median is {:.1f} times its least time; something else runs here, or sizes are small\n",
                               direction, times.get<double>());
  }
};

}  // namespace

int bench_command(const Command& c, const Source& source) { return Bench(c, source.op).run(); }

}  // namespace xhat::tool
