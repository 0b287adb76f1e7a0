// A stash is planned for the sizes at hand: one planner asked at many sizes says what planning anew for each would, budgets hold for
// actual bytes, and sizes beyond all memory are errors of the user's.
#include <gtest/gtest.h>

#include <set>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/lift_reductions.h"
#include "cse/stash/stash_planner.h"
#include "expr/rules/simplify.h"

namespace xhat::stash_sizes_test {
namespace {

using Policy = StashOptions::Policy;

Program prepared(const std::string& text) {
  Program p = gather(lift_reductions(ordered(gradient(recognize(parse_op(text)))), true));
  return simplify(recognize_derived(inline_injective(p)));
}

int64_t bytes_of_stash(const Program& p, const DimValues& sizes) {
  int64_t bytes = 0;
  for (TensorId t : stashes(p)) {
    int64_t n = static_cast<int64_t>(byte_size(p.tensors[t].type));
    for (int64_t e : shape_of(p, t, sizes)) n *= e;
    bytes += n;
  }
  return bytes;
}

const char* const kOps[] = {
    // Keeps a product where that has many terms, and computes it again where it has few.
    "op f(x: f32[N,K], w: f32[K,D]) -> (y) { p[n,d] = sum(k: x[n,k] * w[k,d]); y[n,d] = exp(p[n,d] - sum(i: p[i,d]) / N) * p[n,d] }",
    "op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] * e[n,d] / sum(k: e[n,k]) }",
    "op f(x: f32[N,D], g: f32[D]) -> (y) { y[n,d] = g[d] * tanh(x[n,d]) / sqrt(sum(k: x[n,k]^2) / D + 1) }",
    "op f(x: f32[N,D]) -> (y) { y = sum(n,d: relu(sin(x[n,d])) * sum(k: x[n,k])) }",
};
const int64_t kExtents[] = {1, 3, 64, 100'000};

std::vector<DimValues> sizes_of(const Program& p) {
  std::vector<DimValues> all = {{}};
  for (const Dim& d : p.dims) {
    std::vector<DimValues> more;
    for (const DimValues& chosen : all)
      for (int64_t n : kExtents) {
        more.push_back(chosen);
        more.back()[p.arena->name(d.dim)] = n;
      }
    all = std::move(more);
  }
  return all;
}

class StashSizes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ops, StashSizes, ::testing::ValuesIn(kOps));

// Asked in any order, one planner gives the program that a fresh one gives, and equal keys are equal programs.
TEST_P(StashSizes, OnePlannerIsAsGoodAsAFreshOne) {
  const Program p = prepared(GetParam());
  for (Policy policy : {Policy::cost, Policy::budget, Policy::largest, Policy::none}) {
    StashOptions options;
    options.policy = policy;
    options.budget = int64_t{1} << 40;
    const StashPlanner planner(p, options);
    std::map<std::string, std::string> programs;
    for (const DimValues& sizes : sizes_of(p)) {
      const StashChoice choice = planner.choose(sizes);
      const StashPlan plan = planner.plan(choice);
      StashOptions fresh = options;
      fresh.nominal = sizes;
      const StashPlan anew = plan_stash(p, fresh);
      ASSERT_EQ(print(plan.program), print(anew.program)) << dims_text(sizes);
      EXPECT_EQ(plan.stash_bytes, anew.stash_bytes);
      EXPECT_EQ(plan.stash_bytes, bytes_of_stash(plan.program, sizes));
      EXPECT_EQ(plan.cost_ns, anew.cost_ns);
      auto [known, fresh_key] = programs.emplace(choice.key, print(plan.program));
      EXPECT_EQ(known->second, print(plan.program)) << "one key, two programs: " << choice.key;
    }
  }
}

// What is worth keeping does depend on sizes, or none of this would be needed.
TEST(StashSizesTest, OtherSizesMakeOtherChoices) {
  const Program p = prepared(kOps[0]);
  const StashPlanner planner(p);
  std::set<std::string> keys;
  for (const DimValues& sizes : sizes_of(p)) keys.insert(planner.choose(sizes).key);
  EXPECT_GT(keys.size(), 1u);
}

// A budget is for the bytes of the call: kept, or refused with the least possible, which then can be had.
TEST_P(StashSizes, ABudgetIsKeptOrRefused) {
  const Program p = prepared(GetParam());
  for (std::vector<std::string> dropped : {std::vector<std::string>{}, std::vector<std::string>{"x"}})
    for (int64_t budget : {0, 300, 5000, 1'000'000}) {
      StashOptions options;
      options.policy = Policy::budget;
      options.budget = budget;
      options.dropped = dropped;
      const StashPlanner planner(p, options);
      for (const DimValues& sizes : sizes_of(p)) {
        const StashChoice choice = planner.choose(sizes);
        const int64_t bytes = bytes_of_stash(planner.plan(choice).program, sizes);
        if (!choice.over_budget) {
          EXPECT_LE(bytes, budget) << dims_text(sizes);
          EXPECT_NO_THROW(planner.require_budget(choice));
          continue;
        }
        EXPECT_GT(bytes, budget);
        EXPECT_THROW(planner.require_budget(choice), Error);
        StashOptions least = options;
        least.budget = choice.cut.bytes;
        const StashPlanner again(p, least);
        EXPECT_FALSE(again.choose(sizes).over_budget) << dims_text(sizes);
        EXPECT_LE(bytes_of_stash(again.plan(again.choose(sizes)).program, sizes), least.budget);
      }
    }
}

// Nominal sizes that somebody gives fix what is priced; bytes stay those of the call.
TEST(StashSizesTest, NominalSizesFixThePrices) {
  const Program p = prepared(kOps[0]);
  StashOptions options;
  options.nominal = {{"N", 64}, {"K", 3}, {"D", 3}};
  const StashPlanner planner(p, options);
  std::set<std::string> keys;
  for (const DimValues& sizes : sizes_of(p)) {
    keys.insert(planner.choose(sizes).key);
    const StashPlan plan = planner.plan(planner.choose(sizes));
    EXPECT_EQ(plan.stash_bytes, bytes_of_stash(plan.program, sizes));
  }
  EXPECT_EQ(keys.size(), 1u);
}

TEST(StashSizesTest, SizesBeyondAllNumbersAreRefused) {
  const int64_t most = INT64_MAX;
  for (const char* text :
       {"op f(x: f32[N]) -> (y) { y[n] = tanh(x[n]) * sin(x[n]) }", "op f(x: f32[N,N]) -> (y) { y[n] = sum(m: sin(x[n,m])) }",
        "op f(x: f32[N], w: f64[N,N,N]) -> (y) { y[n] = sum(a,b: w[n,a,b] * x[a]) * sin(x[n]) }",
        "op f(x: u8[N], z: f32) -> (y) { y = sum(n: f32(x[n])) * z }"}) {
    const Program p = prepared(text);
    for (int64_t n : {most, most - 1, most / 2, int64_t{1} << 62}) {
      try {
        StashPlanner(p).choose({{"N", n}});
        EXPECT_LT(n, most) << text;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("bytes"), std::string::npos) << e.what();
      }
    }
    for (int64_t n = 1; n < (int64_t{1} << 20); n *= 4) EXPECT_NO_THROW(StashPlanner(p).choose({{"N", n}})) << text << n;
  }
}

}  // namespace
}  // namespace xhat::stash_sizes_test
