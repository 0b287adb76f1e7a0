// Ops of bench/spellings, written otherwise at random (bench/respelling.h): the same results and gradients after all passes, and mostly
// the same plan. No kernel is compiled. XHAT_PROPERTY_SEED and XHAT_PROPERTY_COUNT as in property_test.cpp.
#include <gtest/gtest.h>

#include "bench/respelling.h"
#include "bench/spelling_costs.h"
#include "tests/helpers/random_program.h"

namespace xhat::kernel_respelling_test {
namespace {

using namespace xhat::testing;

TEST(Respelling, KeepsResultsAndMostPlans) {
  constexpr int kSteps = 12;
  const std::vector<bench::Function> functions = bench::read_functions();
  const int count = property_count(static_cast<int>(functions.size()), 20 * static_cast<int>(functions.size()));
  const uint64_t first = property_seed();
  int worse = 0;
  for (int k = 0; k < count; ++k) {
    const uint64_t seed = first + static_cast<uint64_t>(k);
    const bench::Function& f = functions[static_cast<size_t>(k) % functions.size()];
    const Program& plain = *f.spellings[0];
    const Program other = parse_op(bench::Respelling(plain, seed).text(kSteps));
    const Arrays data = bench::data_for(plain, f.small);
    const std::string differs = bench::difference(bench::results_of(plain, data, f.small), bench::results_of(other, data, f.small));
    EXPECT_EQ(differs, "") << f.name << ", seed " << seed << "\n" << print(other);
    worse += bench::worse(bench::cost_of(other, f.sizes), bench::cost_of(plain, f.sizes));
  }
  RecordProperty("worse", worse);
  // 13 of 216 today (build/bench/spellings --random 216).
  EXPECT_LE(worse, std::max(1, count / 8));
}

// What differs at ties only is another function (build/bench/spellings marks it), and so is nothing else.
TEST(Respelling, OtherFunctionsAtTiesAreTold) {
  auto like = [](const std::string& function) {
    const bench::Function f = bench::read_functions({function}).at(0);
    std::map<std::string, int> numbers;
    const std::vector<int> found = bench::functions_at_ties(f);
    for (size_t i = 0; i < found.size(); ++i) numbers[f.spellings[i]->name] = found[i];
    return numbers;
  };
  auto relu = like("relu");
  EXPECT_EQ(relu.at("by_if"), relu.at("plain"));
  EXPECT_NE(relu.at("max_way"), relu.at("plain"));   // half a slope at 0
  EXPECT_NE(relu.at("at_least"), relu.at("plain"));  // a whole one
  EXPECT_NE(relu.at("at_least"), relu.at("max_way"));
  EXPECT_EQ(relu.at("halves"), relu.at("max_way"));
  for (const auto& [name, number] : like("softmax_sink")) EXPECT_EQ(number, 0) << name;
  for (const auto& [name, number] : like("squared_relu")) EXPECT_EQ(number, 0) << name;
}

// Gradients after all passes keep the digits that the derived formula keeps.
TEST(Respelling, DigitsStay) {
  constexpr double kTimes = 16;
  for (const bench::Function& f :
       bench::read_functions({"softmax_sink", "poly_loss", "rotary", "reglu", "generalized_mean", "squared_relu", "sinkhorn_step"}))
    for (const auto& op : f.spellings) {
      const bench::LostDigits lost = bench::lost_digits(*op, f.small);
      EXPECT_LE(lost.factor, kTimes) << f.name << " " << op->name << " " << lost.where;
    }
}

// What is stacked by an `if` on a position leaves no sum, nor do terms that are known together. A mean that is written twice and taken from
// another one is not a sum of its own, nor is a sum of the gradient that one sum reads, by groups.
TEST(Respelling, SumsAreThoseOfThePlainSpelling) {
  for (const bench::Function& f : bench::read_functions(
           {"concordance", "correlation", "grouped_query_attention", "hellinger", "residual_layer_norm", "rotary_pairs", "skewness"}))
    for (const auto& op : f.spellings) {
      const bench::SpellingCost cost = bench::cost_of(*op, f.sizes), plain = bench::cost_of(*f.spellings[0], f.sizes);
      EXPECT_EQ(cost.values[0], plain.values[0]) << f.name << " " << op->name;
      EXPECT_EQ(cost.values[1], plain.values[1]) << f.name << " " << op->name;
    }
}

// The steps do change ops, and change them in every way that bench/respelling.h lists.
TEST(Respelling, WritesOpsOtherwise) {
  const Program plain =
      parse_op("op f(x: f32[N,M], w: f32[M]) -> (y) { y[n] = sum(m: (x[n,m] + w[m])*x[n,m])/sqrt(sum(m: x[n,m]*x[n,m]) + 1) }");
  std::set<std::string> texts;
  bool named = false, power = false, reversed = false;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const std::string text = bench::Respelling(plain, seed).text(12);
    EXPECT_NO_THROW(verify(parse_op(text))) << text;
    named = named || text.find("part[") != std::string::npos;
    reversed = reversed || text.find("M - 1 - m") != std::string::npos || text.find("M-1-m") != std::string::npos;
    power = power || text.find("^0.5") != std::string::npos || text.find("^ 0.5") != std::string::npos;
    texts.insert(text);
  }
  EXPECT_GE(texts.size(), 35u);
  EXPECT_TRUE(named && power && reversed);
}

}  // namespace
}  // namespace xhat::kernel_respelling_test
