// Lesson 2: what a forward keeps for its backward is a choice, and xhat makes it by cost.
//
// BatchNorm's forward and backward share xhat = (x - mean) / sqrt(var + eps), as large as x itself. Keeping
// it costs a write and a read of all of it; reading x again and two numbers per channel costs half of that.
#include <cstdio>

#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

namespace {

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

}  // namespace

int main() {
  using Policy = StashOptions::Policy;
  Program program = batch_norm();
  std::printf("%s\n", print(program).c_str());

  // Sizes to decide for. They are a hint: what is compiled works for all sizes.
  DimValues sizes = {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}};
  std::map<Policy, Explanation> by_policy;
  for (auto [policy, name] : {std::pair(Policy::none, "none"), std::pair(Policy::largest, "largest"),
                              std::pair(Policy::cost, "cost")}) {
    CompileOptions options;
    options.stash.policy = policy;
    Explanation e = explain(program, options, sizes);
    std::printf("policy %-8s forward moves %5.1f MB; backward moves %5.1f MB in %d sweep(s); kept:", name,
                static_cast<double>(e.forward.bytes_moved) / 1e6,
                static_cast<double>(e.backward.bytes_moved) / 1e6, e.backward.kernel_count);
    for (const auto& s : e.stash)
      std::printf(" %s (%s)", s.name.c_str(), xhat::bytes_text(static_cast<double>(s.bytes)).c_str());
    std::printf("%s\n", e.stash.empty() ? " nothing" : "");
    by_policy[policy] = e;
  }

  const Explanation& best = by_policy[Policy::cost];
  std::printf("\nwhy, for policy cost:\n");
  for (const auto& v : best.values)
    if (v.verdict != xhat::StashCandidate::Verdict::free)
      std::printf("  %-9s to keep %8s, to recompute %8s: %s\n", v.name.c_str(),
                  xhat::time_text(v.keep_ns).c_str(), xhat::time_text(v.recompute_ns).c_str(),
                  v.reason.c_str());
  std::printf("\nthe backward it gives\n%s\n", lesson::backward(compile(program).program()).c_str());

  lesson::Checks check;
  check.that(equal(program, lesson::from_file("batch_norm.xh")),
             "the C++ above and examples/batch_norm.xh are the same program");
  check.that(by_policy[Policy::none].stash.empty(), "policy none keeps nothing");
  int64_t large = 0, small = 0;
  for (const auto& s : by_policy[Policy::largest].stash) large = std::max(large, s.bytes);
  for (const auto& s : best.stash) small = std::max(small, s.bytes);
  check.that(large == 4LL * 32 * 64 * 56 * 56, "policy largest keeps xhat, as large as x");
  check.that(best.stash.size() == 2 && small == 4 * 64, "policy cost keeps two numbers per channel");
  check.that(best.optimal, "and proves that no choice among these is cheaper by its prices");
  check.that(best.backward.reductions == 2,
             "the backward needs two sums: those of the mean and of the variance fell out");
  GradcheckReport report = check_gradient(gradient(program), sample_dims(program, 1));
  check.that(report.passed, "the gradient agrees with finite differences");
  return check.status();
}
