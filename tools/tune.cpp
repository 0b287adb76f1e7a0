// xhat tune: searches tiles and vectors by measuring, and keeps what is faster in a file for --tuned.
//
// A direction's kernels are searched side by side: in a variant every kernel has the same choice, and each is timed by itself.
// Variants take turns in every round, so that what disturbs the machine disturbs them alike; the least time counts. First
// tiles, then vectors with the best tiles; then the best of both runs against the rules once more, for of many that are
// equal one looks best by chance. What is not faster by more than kNoise stays with the rules.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include <fmt/format.h>

#include "runtime/explain/explain.h"
#include "runtime/explain/tuning.h"
#include "runtime/host/thread_pool.h"
#include "tools/commands.h"
#include "tools/measured_op.h"
#include "tools/progress.h"

namespace xhat::tool {
namespace {

using Phase = CompiledOp::Phase;

constexpr double kNoise = 0.03;
constexpr int kMinRounds = 5, kMaxRounds = 50;
// After these rounds a variant that is far from the best with every kernel is given up.
constexpr int kFirstRounds = 3;
constexpr double kFar = 1.15;
// Of the time for a direction, until when the tiles and the vectors have theirs.
constexpr double kTilesUntil = 0.5, kVectorsUntil = 0.75;

volatile std::sig_atomic_t interrupted = 0;

// The first Ctrl-C ends the search, the second one the program.
class CatchInterrupt {
 public:
  CatchInterrupt() : before_(std::signal(SIGINT, caught)) {}
  ~CatchInterrupt() { std::signal(SIGINT, before_); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  static void caught(int) {
    interrupted = 1;
    std::signal(SIGINT, SIG_DFL);
  }
  void (*before_)(int);
};

std::string default_file() {
  auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::string folder = set("XDG_CACHE_HOME");
  if (folder.empty() && !set("HOME").empty()) folder = set("HOME") + "/.cache";
  if (folder.empty()) throw UsageError("there is no home to keep choices in; name a file with -o");
  return folder + "/xhat/tuned.json";
}

const char* name_of_phase(Phase phase) {
  switch (phase) {
    case Phase::infer: return "infer";
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
  }
  throw Bug("unknown direction");
}

// Tiles to try, what is likeliest first.
std::vector<KernelChoice> tile_choices(int threads) {
  constexpr int64_t kKiB = 1024;
  std::vector<KernelChoice> all;
  for (int64_t kib : {512, 128, 1024, 64, 256, 2048, 32, 4096, 16}) all.push_back({kib * kKiB, 0, 0});
  for (int64_t kib : {256, 1024})
    for (int64_t tiles : {4 * threads, threads, 32 * threads}) all.push_back({kib * kKiB, tiles, 0});
  all.push_back({KernelChoice::kOneTile, 1, 0});
  return all;
}

// Where a choice makes no difference to a kernel, it is the same candidate.
std::string code_of(const Kernel& k) {
  std::string text = fmt::format("v{}", k.choice.vectors);
  for (const KernelAxis& axis : k.axes) text += fmt::format(",{}", axis.tile);
  return text;
}

class Tune {
 public:
  Tune(const Command& c, const Program& op) : c_(c), op_(op), options_(compile_options(c)) {
    dims_ = all_dims(c, op);
    options_.dims = dims_of(c);
    options_.disk_cache = false;  // most of what is tried is not wanted again
    path_ = c.out.empty() ? default_file() : c.out;
    threads_ = runtime::threads_or_all(c.threads);
  }

  int run() {
    before();  // a file that cannot be added to is better known before the search
    CatchInterrupt guard;
    progress_.show("making data");
    Derivation derivation = derive(op_, options_, dims_);
    const Program& p = derivation.program;
    shared_ = random_data(c_, op_, p, dims_);
    for (const auto* list : {&p.outputs, &p.gradients})
      for (TensorId t : *list) shared_.try_emplace(p.tensors[t].name, p.tensors[t].type, shape_of(p, t, dims_));
    progress_.show("compiling");
    base_ = std::make_unique<MeasuredOp>(op_, options_, dims_, shared_);
    search(!p.gradients.empty());
    progress_.show("");
    write();
    report();
    return interrupted ? kInterrupted : kFine;
  }

 private:
  struct Variant {
    KernelChoices choices;  // beside those of the options
    std::vector<Kernel> kernels;
    std::unique_ptr<MeasuredOp> op;
  };
  // Least milliseconds of a kernel, per variant; infinite where it was not measured often enough.
  using Least = std::vector<std::vector<double>>;

  const Command& c_;
  const Program& op_;
  CompileOptions options_;
  DimValues dims_;
  std::string path_;
  int threads_ = 1;
  Progress progress_{"tune"};
  Buffers shared_;
  std::unique_ptr<MeasuredOp> base_;
  Clock::time_point start_;
  std::vector<TunedKernel> found_;

  Tuning before() const {
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return {this_machine(), {}};
    try {
      return read_tuning(path_);
    } catch (const Error& e) {
      throw UsageError(e.message());
    }
  }

  static Timer& timer(MeasuredOp& op, Phase phase) {
    return phase == Phase::infer ? op.infer : phase == Phase::forward ? op.forward : op.backward;
  }
  static MeasuredOp::KernelTimes& kernels(MeasuredOp& op, Phase phase) {
    return phase == Phase::infer ? op.infer_kernels : phase == Phase::forward ? op.forward_kernels : op.backward_kernels;
  }

  void search(bool trained) {
    std::vector<Phase> phases = {Phase::infer};
    if (trained) phases = {Phase::forward, Phase::backward, Phase::infer};
    std::set<std::string> seen;
    std::erase_if(phases, [&](Phase phase) {  // what infer does, forward mostly does too
      bool fresh = false;
      for (const Kernel& k : base_->compiled.plan(phase, dims_).kernels) fresh |= seen.insert(k.key).second;
      return !fresh;
    });
    if (trained) base_->forward.call();
    for (Phase phase : phases) timer(*base_, phase).call();
    start_ = Clock::now();
    for (size_t i = 0; i < phases.size() && !interrupted; ++i) {
      double left = seconds() * 1e3 - since(start_);
      search(phases[i], since(start_) + left / static_cast<double>(phases.size() - i));
    }
  }

  double seconds() const { return c_.seconds; }

  // until: milliseconds from the start.
  void search(Phase phase, double until) {
    const double from = since(start_), time = until - from;
    const std::string name = name_of_phase(phase);
    std::vector<Variant> variants;
    add(variants, phase, {});
    const std::vector<Kernel> rules = variants[0].kernels;
    const size_t n = rules.size();
    std::vector<KernelChoice> best(n);
    Least least;  // of the last race that was long enough
    auto measure = [&](const std::string& what, double end) {
      if (interrupted) return false;
      Least now = race(variants, phase, name + ", " + what, end);
      if (std::ranges::none_of(now[0], [](double ms) { return std::isfinite(ms); })) return false;
      least = std::move(now);
      return true;
    };
    auto take_best = [&] {
      for (size_t k = 0; k < n; ++k) {
        size_t at = 0;
        for (size_t v = 1; v < least.size(); ++v)
          if (least[v][k] < least[at][k]) at = v;
        best[k] = variants[at].kernels[k].choice;
      }
    };
    auto all = [&](auto&& choice) {
      KernelChoices c;
      for (size_t k = 0; k < n; ++k)
        if (KernelChoice x = choice(best[k]); x != KernelChoice{}) c[rules[k].key] = x;
      return c;
    };
    auto same = [](const KernelChoice& c) { return c; };

    for (const KernelChoice& tile : tile_choices(threads_)) add(variants, phase, all([&](const KernelChoice&) { return tile; }));
    if (!measure("tiles", from + kTilesUntil * time)) return;
    take_best();

    variants.resize(1);
    add(variants, phase, all(same));
    for (int vectors : {2, 4, 1, 8, 3})
      add(variants, phase, all([&](KernelChoice c) {
            c.vectors = vectors;
            return c;
          }));
    if (measure("vectors", from + kVectorsUntil * time)) take_best();

    variants.resize(1);
    add(variants, phase, all(same));
    if (variants.size() == 1 || !measure("the best against the rules", until)) {
      // What was found so far stands for it.
      std::vector<double> fastest = least[0];
      for (const auto& times : least)
        for (size_t k = 0; k < n; ++k) fastest[k] = std::min(fastest[k], times[k]);
      least = {least[0], fastest};
    }
    for (size_t k = 0; k < n; ++k) {
      double before = least[0][k], after = least.back()[k];
      bool known = std::ranges::find(found_, rules[k].key, &TunedKernel::key) != found_.end();
      if (!std::isfinite(before) || known) continue;
      bool gain = best[k] != KernelChoice{} && after < before * (1 - kNoise);
      found_.push_back({rules[k].key, rules[k].name, name, gain ? best[k] : KernelChoice{}, before, gain ? after : before});
    }
  }

  // Adds a variant, unless its kernels are those of another one.
  void add(std::vector<Variant>& variants, Phase phase, KernelChoices choices) const {
    CompileOptions o = options_;
    o.choices = choices;
    Variant v;
    v.kernels = compile(op_, o).plan(phase, dims_).kernels;
    v.choices = std::move(choices);
    auto same = [&](const Variant& other) { return std::ranges::equal(v.kernels, other.kernels, {}, code_of, code_of); };
    if (std::ranges::none_of(variants, same)) variants.push_back(std::move(v));
  }

  Least race(std::vector<Variant>& variants, Phase phase, const std::string& what, double until) {
    const size_t n = variants[0].kernels.size();
    Least least(variants.size(), std::vector<double>(n, INFINITY));
    std::vector<bool> running(variants.size(), false);
    std::vector<int> rounds(variants.size(), 0);
    progress_.show(fmt::format("{}: {} variants", what, variants.size()));
    auto time_left = [&] { return !interrupted && since(start_) < until; };
    for (size_t v = 0; v < variants.size() && (v < 2 || time_left()); ++v) {
      show(fmt::format("{}: compiling {} of {}", what, v + 1, variants.size()));
      prepare(variants[v], phase);
      running[v] = true;
    }
    for (int round = 1; round <= kMaxRounds && !interrupted && (round <= kMinRounds || time_left()); ++round) {
      for (size_t v = 0; v < variants.size() && !interrupted; ++v) {
        if (!running[v]) continue;
        timer(*variants[v].op, phase).sample();
        ++rounds[v];
        show(fmt::format("{}: round {}, variant {} of {}", what, round, v + 1, variants.size()));
        collect(variants[v], phase, least[v]);
      }
      if (round == kFirstRounds)
        for (size_t v = 1; v < variants.size(); ++v) running[v] = running[v] && may_win(least, v);
    }
    for (size_t v = 0; v < variants.size(); ++v) {
      if (rounds[v] < kMinRounds) least[v].assign(n, INFINITY);
      variants[v].op.reset();
    }
    return least;
  }

  void prepare(Variant& v, Phase phase) const {
    CompileOptions o = options_;
    o.choices = v.choices;
    v.op = std::make_unique<MeasuredOp>(op_, o, dims_, shared_, &base_->stash);
    timer(*v.op, phase).warm_up();
    kernels(*v.op, phase).clear();
  }

  static void collect(Variant& v, Phase phase, std::vector<double>& least) {
    auto& times = kernels(*v.op, phase);
    for (size_t k = 0; k < least.size(); ++k)
      if (auto it = times.find(v.kernels[k].name); it != times.end()) least[k] = std::min(least[k], it->second.least());
    times.clear();
  }

  static bool may_win(const Least& least, size_t v) {
    for (size_t k = 0; k < least[v].size(); ++k) {
      double best = INFINITY;
      for (const auto& times : least) best = std::min(best, times[k]);
      if (least[v][k] < best * kFar) return true;
    }
    return false;
  }

  void show(const std::string& what) {
    constexpr int kWidth = 24;
    double done = std::clamp(since(start_) / std::max(1.0, seconds() * 1e3), 0.0, 1.0);
    std::string bar(static_cast<size_t>(done * kWidth), '#');
    bar.resize(kWidth, '.');
    progress_.show(fmt::format("[{}] {:3.0f} %  {}", bar, 100 * done, what), true);
  }

  void write() const {
    Tuning all = before();  // again: somebody else may have added to it
    merge(all, {op_.name, dims_, threads_, found_});
    try {
      write_tuning(path_, all);
    } catch (const Error& e) {
      throw UsageError(e.message());
    }
  }

  void report() const {
    std::vector<std::vector<std::string>> rows = {{"kernel", "default", "tuned", "times", "choice"}};
    double product = 0;
    for (const TunedKernel& k : found_) {
      double gain = k.default_ms / k.tuned_ms;
      product += std::log(gain);
      rows.push_back({k.direction + ": " + k.name, time_text(k.default_ms * 1e6), time_text(k.tuned_ms * 1e6),
                      fmt::format("{:.2f}", gain), k.choice == KernelChoice{} ? "the rules" : choice_text(k.choice)});
    }
    std::cout << table_text(rows, {1, 2, 3}, "  ");
    if (!found_.empty())
      std::cout << fmt::format("\ngeometric mean: {:.3f} times as fast as the rules, over {} kernel{}\n",
                               std::exp(product / static_cast<double>(found_.size())), found_.size(), found_.size() == 1 ? "" : "s");
    if (interrupted) std::cout << "interrupted: what was found by then is kept\n";
    std::cout << fmt::format("written to {}; use it with --tuned {}\n", path_, path_);
  }
};

}  // namespace

int tune_command(const Command& c, const Source& source) { return Tune(c, source.op).run(); }

}  // namespace xhat::tool
