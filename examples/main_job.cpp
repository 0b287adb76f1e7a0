// xhat's main job: BatchNorm in training mode on 32 x 64 x 56 x 56 floats, from its definition to timed
// kernels.
//
//   ./run            all of it, some ten seconds
//   ./run --quick    a batch of 4 and few repetitions
//
// Shows the op, the gradients derived from it, what the forward keeps for the backward and why, and the
// kernels; checks values and gradients against the evaluator, finite differences and a hand-written Eigen
// implementation; times them. Exits non-zero if anything disagrees; times are only shown.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "batch_norm_eigen.h"
#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

namespace {

using Policy = StashOptions::Policy;

Program batch_norm() {
  Op op("batch_norm");
  Dim N("N"), C("C"), H("H"), W("W");
  Axis n("n"), c("c"), h("h"), w("w");
  Tensor x = op.input("x", f32, {N, C, H, W});
  Tensor gamma = op.input("gamma", f32, {C}), beta = op.input("beta", f32, {C});
  Tensor mean("mean"), var("var"), y("y");
  mean(c) = sum({n, h, w}, x(n, c, h, w)) / (N * H * W);
  var(c) = sum({n, h, w}, pow(x(n, c, h, w) - mean(c), 2)) / (N * H * W);
  y(n, c, h, w) = gamma(c) * (x(n, c, h, w) - mean(c)) / sqrt(var(c) + 1e-5) + beta(c);
  op.output(y);
  return op.build();
}

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Floats on huge pages, touched before anything is timed.
class Buffer {
 public:
  explicit Buffer(const std::vector<int64_t>& shape) : shape_(shape), size_(xhat::element_count(shape)) {
    constexpr size_t page = 2 << 20;
    size_t bytes = (static_cast<size_t>(size_) * sizeof(float) + page - 1) / page * page;
    data_.reset(static_cast<float*>(std::aligned_alloc(page, bytes)));
    if (!data_) throw Error("out of memory");
    madvise(data_.get(), bytes, MADV_HUGEPAGE);  // a hint: whether it is taken changes only times
    std::fill_n(data_.get(), size_, 0.0f);
  }
  explicit Buffer(const Array& values) : Buffer(values.shape) {
    std::ranges::transform(values.reals, data(), [](double v) { return static_cast<float>(v); });
  }
  float* data() { return data_.get(); }
  TensorView view() { return TensorView(data(), shape_); }
  int64_t size() const { return size_; }

  // The largest difference, relative to the largest value.
  double distance(const std::vector<double>& want) const {
    double apart = 0, scale = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      double d = std::fabs(static_cast<double>(data_.get()[i]) - want[i]);
      if (!(d <= apart)) apart = d;  // NaN stays
      scale = std::max(scale, std::fabs(want[i]));
    }
    return apart / scale;
  }
  std::vector<double> values() const { return {data_.get(), data_.get() + size_}; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::vector<int64_t> shape_;
  int64_t size_ = 0;
  std::unique_ptr<float, Free> data_;
};

struct Data {
  Arrays exact;  // inputs and dy for the evaluator; every value is a float's
  Buffer x, gamma, beta, dy;
  Buffer y, dx, dgamma, dbeta;

  explicit Data(const Arrays& in)
      : exact(in),
        x(in.at("x")),
        gamma(in.at("gamma")),
        beta(in.at("beta")),
        dy(in.at("dy")),
        y(in.at("x").shape),
        dx(in.at("x").shape),
        dgamma(in.at("gamma").shape),
        dbeta(in.at("beta").shape) {}

  std::vector<Argument> arguments() {
    return {{"x", x.view()},
            {"gamma", gamma.view()},
            {"beta", beta.view()},
            {"y", y.view()},
            {"dy", dy.view()},
            {"grad_x", dx.view()},
            {"grad_gamma", dgamma.view()},
            {"grad_beta", dbeta.view()}};
  }
  void clear() {
    for (Buffer* b : {&y, &dx, &dgamma, &dbeta}) std::fill_n(b->data(), b->size(), NAN);
  }
  std::map<std::string, std::vector<double>> results() const {
    return {{"y", y.values()},
            {"grad_x", dx.values()},
            {"grad_gamma", dgamma.values()},
            {"grad_beta", dbeta.values()}};
  }
  // The largest over all results.
  double distance(const std::map<std::string, std::vector<double>>& want) const {
    return std::max({y.distance(want.at("y")), dx.distance(want.at("grad_x")),
                     dgamma.distance(want.at("grad_gamma")), dbeta.distance(want.at("grad_beta"))});
  }
};

// Normals; every channel of x has a mean and a deviation of its own.
Arrays make_data(const Program& op, const DimValues& sizes) {
  Arrays in = random_inputs(op, sizes, 1, {.finite = false});
  in.merge(random_cotangents(gradient(op), sizes, 2));
  const auto plane = static_cast<size_t>(sizes.at("H") * sizes.at("W")),
             channels = static_cast<size_t>(sizes.at("C"));
  Array& x = in.at("x");
  for (size_t i = 0; i < x.reals.size(); ++i) {
    size_t c = i / plane % channels;
    x.reals[i] = (0.5 + 0.25 * static_cast<double>(c % 7)) * x.reals[i] + static_cast<double>(c % 5) - 2;
  }
  x = rounded(x);
  return in;
}

struct Variant {
  std::string name;
  std::function<void()> forward, backward;
  std::vector<double> forward_ms = {}, backward_ms = {};
};

void heading(const char* title) { std::printf("\n== %s\n", title); }

void show_kernels(const Explanation& e) {
  std::vector<std::vector<std::string>> rows = {
      {"direction", "step", "moved", "unavoidable", "work", "computes"}};
  for (auto [name, d] : {std::pair("forward", &e.forward), std::pair("backward", &e.backward)})
    for (const auto& k : d->kernels) {
      std::string computes;
      for (const auto& t : k.computes) computes += (computes.empty() ? "" : ", ") + t;
      rows.push_back({name, k.finish ? "adds parts" : "sweep",
                      xhat::bytes_text(static_cast<double>(k.bytes_moved)),
                      xhat::bytes_text(static_cast<double>(k.bytes_unavoidable)),
                      xhat::flops_text(static_cast<double>(k.flops)), computes});
    }
  std::printf("%s", xhat::table_text(rows, {2, 3, 4}, "  ").c_str());
}

// What each policy keeps; for `cost` every candidate with its prices.
void show_stash(const std::map<Policy, Explanation>& by_policy) {
  std::vector<std::vector<std::string>> rows = {
      {"policy", "kept for the backward", "bytes", "forward moves", "backward moves", "sweeps"}};
  for (auto [policy, name] : {std::pair(Policy::none, "none"), std::pair(Policy::largest, "largest"),
                              std::pair(Policy::cost, "cost")}) {
    const Explanation& e = by_policy.at(policy);
    std::string kept;
    double bytes = 0;
    for (const auto& s : e.stash) {
      kept += (kept.empty() ? "" : ", ") + s.name;
      bytes += static_cast<double>(s.bytes);
    }
    rows.push_back(
        {name, kept.empty() ? "nothing" : kept, xhat::bytes_text(bytes),
         xhat::bytes_text(static_cast<double>(e.forward.bytes_moved)),
         xhat::bytes_text(static_cast<double>(e.backward.bytes_moved)),
         std::to_string(e.forward.kernel_count) + " + " + std::to_string(e.backward.kernel_count)});
  }
  std::printf("%s\n", xhat::table_text(rows, {2, 3, 4}, "  ").c_str());
  std::printf("  largest keeps what both directions compute, the largest first\n");
  for (const auto& s : by_policy.at(Policy::largest).stash)
    std::printf("    %s = %s\n", s.name.c_str(), s.expression.c_str());
  std::printf("\n");
  const Explanation& e = by_policy.at(Policy::cost);
  std::vector<std::vector<std::string>> why = {{"cost", "to keep", "to recompute", "because", "is"}};
  for (const auto& v : e.values) {
    using Verdict = xhat::StashCandidate::Verdict;
    if (v.verdict == Verdict::free) continue;
    why.push_back({(v.verdict == Verdict::kept ? "keeps " : "drops ") + v.name, xhat::time_text(v.keep_ns),
                   xhat::time_text(v.recompute_ns), v.reason, v.expression});
  }
  std::printf("%s", xhat::table_text(why, {1, 2}, "  ").c_str());
  std::printf("  this choice costs %s; no choice can cost less than %s%s\n", xhat::time_text(e.cost_ns).c_str(),
              xhat::time_text(e.lower_bound_ns).c_str(), e.optimal ? ", so it is the cheapest" : "");
}

// Moves one input at a time along a random direction, in double, and compares how the loss sum(dy * y)
// changes with what the engine's gradients say.
void check_directions(const Program& op, Data& data, const DimValues& sizes, lesson::Checks& check) {
  const std::vector<double>& dy = data.exact.at("dy").reals;
  Arrays inputs = data.exact;
  inputs.erase("dy");
  auto loss = [&] {
    Arrays out = evaluate(op, inputs, sizes, EvaluateOptions{.rounding = Rounding::exact});
    const std::vector<double>& y = out.at("y").reals;
    double total = 0;
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
    return total;
  };
  uint64_t seed = 11;
  for (auto [name, buffer] :
       {std::pair("x", &data.dx), std::pair("gamma", &data.dgamma), std::pair("beta", &data.dbeta)}) {
    std::vector<double>& values = inputs.at(name).reals;
    const std::vector<double> start = values;
    const std::vector<double> direction =
        xhat::random_normals(xhat::DType::f64, inputs.at(name).shape, seed++).reals;
    double derived = 0, change = 0;
    for (size_t i = 0; i < start.size(); ++i)
      derived += static_cast<double>(buffer->data()[i]) * direction[i];
    constexpr double step = 1e-4;  // truncation errs by step^2 = 1e-8, rounding by 1e-16 / step = 1e-12
    for (double side : {1.0, -1.0}) {
      for (size_t i = 0; i < start.size(); ++i) values[i] = start[i] + side * step * direction[i];
      change += side * loss() / (2 * step);
    }
    values = start;
    char line[160];
    std::snprintf(line, sizeof line,
                  "finite differences, all of %-5s at once: %.6f, the engine's gradient says %.6f", name,
                  change, derived);
    check.near(derived / change, 1, 1e-5, line);
  }
}

void show_times(std::vector<Variant>& variants, const Explanation& e) {
  std::vector<std::vector<std::string>> rows = {
      {"", "forward min", "median", "GB/s", "backward min", "median", "GB/s", "both min"}};
  for (Variant& v : variants) {
    std::ranges::sort(v.forward_ms);
    std::ranges::sort(v.backward_ms);
    double f = v.forward_ms.front(), b = v.backward_ms.front();
    auto middle = [](const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; };
    rows.push_back({v.name, fixed(f, 2), fixed(middle(v.forward_ms), 2),
                    fixed(static_cast<double>(e.forward.bytes_unavoidable) / f / 1e6, 1), fixed(b, 2),
                    fixed(middle(v.backward_ms), 2),
                    fixed(static_cast<double>(e.backward.bytes_unavoidable) / b / 1e6, 1), fixed(f + b, 2)});
  }
  std::printf("%s", xhat::table_text(rows, {1, 2, 3, 4, 5, 6, 7}, "  ").c_str());
}

int main_job(bool quick) {
  const DimValues sizes = {{"N", quick ? 4 : 32}, {"C", 64}, {"H", 56}, {"W", 56}};
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  const int repetitions = quick ? 5 : 40;
  lesson::Checks check;
  Program op = batch_norm();

  heading("the op");
  std::printf("%s\n%s, %u threads\n", print(op).c_str(), xhat::dims_text(sizes).c_str(), threads);

  heading("its gradient, as reverse mode derives it");
  std::printf("%s", lesson::backward(gradient(op)).c_str());

  std::map<Policy, Explanation> by_policy;
  std::vector<std::pair<std::string, CompiledOp>> compiled;
  for (auto [policy, name] : {std::pair(Policy::none, "none"), std::pair(Policy::largest, "largest"),
                              std::pair(Policy::cost, "cost")}) {
    CompileOptions options;
    options.stash.policy = policy;
    options.stash.nominal = sizes;
    options.disk_cache = false;  // what compiling takes is shown
    by_policy[policy] = explain(op, options, sizes);
    compiled.emplace_back(name, compile(op, options));
  }
  const Explanation& best = by_policy.at(Policy::cost);
  heading("what the forward keeps for the backward");
  show_stash(by_policy);
  heading("forward and backward as compiled");
  std::printf("%s%s", best.forward.text.c_str(), best.backward.text.c_str());
  heading("kernels");
  show_kernels(best);

  heading("compiling");
  for (auto& [name, run] : compiled) {
    double ms =
        run.prepare(CompiledOp::Phase::forward, sizes) + run.prepare(CompiledOp::Phase::backward, sizes);
    std::printf("  policy %-8s %4.0f ms\n", name.c_str(), ms);
  }

  heading("agreement");
  std::printf("  making data, evaluating in double ...\n");
  std::fflush(stdout);
  Data data(make_data(op, sizes));
  Arrays reference = evaluate(gradient(op), data.exact, sizes, EvaluateOptions{.rounding = Rounding::exact});
  std::map<std::string, std::vector<double>> want;
  for (const char* name : {"y", "grad_x", "grad_gamma", "grad_beta"})
    want[name] = std::move(reference.at(name).reals);
  reference.clear();

  check.that(equal(op, lesson::from_file("batch_norm.xh")),
             "the C++ program and examples/batch_norm.xh are the same");
  // Of the largest value. A float has 6e-8; sums of 100,000 of them lose one or two digits more.
  constexpr double tolerance = 5e-6;
  auto agree = [&](const std::string& who) {
    double apart = data.distance(want);
    check.that(apart <= tolerance, who + " against the evaluator: values and gradients differ by " +
                                       scientific(apart) + " at most");
  };
  by_hand::Sizes s{sizes.at("N"), sizes.at("C"), sizes.at("H") * sizes.at("W")};
  by_hand::BatchNorm hand(s, threads);
  auto hand_forward = [&] {
    hand.forward(data.x.data(), data.gamma.data(), data.beta.data(), data.y.data());
  };
  auto hand_backward = [&] {
    hand.backward(data.x.data(), data.gamma.data(), data.dy.data(), data.dx.data(), data.dgamma.data(),
                  data.dbeta.data());
  };
  data.clear();
  hand_forward();
  hand_backward();
  agree("Eigen by hand");
  auto by_eigen = data.results();
  std::vector<Stash> stashes(compiled.size());
  const std::vector<Argument> arguments = data.arguments();
  for (size_t i = 0; i < compiled.size(); ++i) {
    data.clear();
    compiled[i].second.forward(arguments, stashes[i]);
    compiled[i].second.backward(arguments, stashes[i]);
    agree("policy " + compiled[i].first);
  }
  double apart = data.distance(by_eigen);
  check.that(apart <= 2 * tolerance,
             "policy cost against Eigen: they differ by " + scientific(apart) + " at most");
  check.that(check_gradient(gradient(op), sample_dims(op, 1)).passed,
             "finite differences at small sizes, element by element");
  check_directions(op, data, sizes, check);

  heading("times in ms");
  std::vector<Variant> variants;
  for (size_t i = 0; i < compiled.size(); ++i)
    variants.push_back({"policy " + compiled[i].first,
                        [&, i] { compiled[i].second.forward(arguments, stashes[i]); },
                        [&, i] { compiled[i].second.backward(arguments, stashes[i]); }});
  variants.push_back({"Eigen by hand", hand_forward, hand_backward});
  variants.push_back(
      {"only moving bytes", [&] { by_hand::move_forward(s, threads, data.x.data(), data.y.data()); },
       [&] { by_hand::move_backward(s, threads, data.x.data(), data.dy.data(), data.dx.data()); }});
  for (int r = 0; r < repetitions; ++r)
    for (Variant& v : variants) {
      double start = now_ms();
      v.forward();
      double middle = now_ms();
      v.backward();
      v.forward_ms.push_back(middle - start);
      v.backward_ms.push_back(now_ms() - middle);
    }
  show_times(variants, best);
  std::printf(
      "  %d interleaved repetitions; GB/s counts what is unavoidable: %s forward, %s backward;\n"
      "  \"only moving bytes\" is y = x and dx = x + dy, so no implementation can be much faster\n",
      repetitions, xhat::bytes_text(static_cast<double>(best.forward.bytes_unavoidable)).c_str(),
      xhat::bytes_text(static_cast<double>(best.backward.bytes_unavoidable)).c_str());
  std::printf("\n%s\n", check.status() == 0 ? "all agree" : "SOMETHING DISAGREES, see FAILED above");
  return check.status();
}

}  // namespace

int main(int argc, char** argv) {
#ifdef __AVX512F__
  // This program alone is compiled for the machine it is built on, so that Eigen gets its vectors too.
  if (!__builtin_cpu_supports("avx512f")) {
    std::fprintf(stderr,
                 "main_job was built for a machine with AVX-512, and this one has none; build it here\n");
    return 2;
  }
#endif
  bool quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: main_job [--quick]\n");
    return 2;
  }
  try {
    return main_job(quick);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
