// Sums of products as einsum text, and random numbers of other distributions (expr/dsl/formulas.h).
#include "expr/dsl/formulas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "expr/core/error.h"
#include "expr/core/program.h"
#include "expr/eval/evaluate.h"

namespace xhat::formulas_test {
namespace {

using namespace dsl;

struct Operand {
  const char* name;
  std::vector<const char*> dims;
};

// The definition that the text makes.
std::string written(const std::string& subscripts, const std::vector<Operand>& operands) {
  dsl::Op op("f");
  std::vector<dsl::Tensor> tensors;
  for (const Operand& o : operands) {
    std::vector<Expr> extents;
    for (const char* d : o.dims) extents.emplace_back(dsl::Dim(d));
    tensors.push_back(op.input(o.name, f32, extents));
  }
  dsl::Tensor y("y");
  einsum(y, subscripts, tensors);
  op.output(y);
  const std::string text = print(op.build());
  const size_t at = text.find("  y");
  return text.substr(at + 2, text.find('\n', at) - at - 2);
}

TEST(Einsum, IsASumOfProducts) {
  EXPECT_EQ(written("bik,bkj->bij", {{"x", {"B", "N", "K"}}, {"w", {"B", "K", "M"}}}), "y[b,i,j] = sum(k: x[b,i,k] * w[b,k,j])");
  EXPECT_EQ(written("ij,jk", {{"x", {"N", "K"}}, {"w", {"K", "M"}}}), "y[i,k] = sum(j: x[i,j] * w[j,k])");
  EXPECT_EQ(written("ij -> ji", {{"x", {"N", "K"}}}), "y[j,i] = x[i,j]");
  EXPECT_EQ(written("ii", {{"x", {"N", "N"}}}), "y = sum(i: x[i,i])");
  EXPECT_EQ(written("ii->i", {{"x", {"N", "N"}}}), "y[i] = x[i,i]");
  EXPECT_EQ(written("i,i,i->", {{"u", {"N"}}, {"v", {"N"}}, {"w", {"N"}}}), "y = sum(i: u[i] * v[i] * w[i])");
  EXPECT_EQ(written("ij,kl->", {{"x", {"N", "K"}}, {"w", {"M", "L"}}}), "y = sum(i,j,k,l: x[i,j] * w[k,l])");
  EXPECT_EQ(written(",i->i", {{"s", {}}, {"x", {"N"}}}), "y[i] = s * x[i]");
  EXPECT_EQ(written("...ij,...jk->...ik", {{"x", {"A", "B", "N", "K"}}, {"w", {"B", "K", "M"}}}),
            "y[batch0,batch1,i,k] = sum(j: x[batch0,batch1,i,j] * w[batch1,j,k])");
  EXPECT_EQ(written("i...,i->...", {{"x", {"N", "B"}}, {"w", {"N"}}}), "y[batch0] = sum(i: x[i,batch0] * w[i])");
  EXPECT_EQ(written("xy,xw->yw", {{"x", {"N", "K"}}, {"w", {"N", "M"}}}), "y[y_,w_] = sum(x_: x[x_,y_] * w[x_,w_])");  // names of tensors
}

TEST(Einsum, SaysWhatIsWrong) {
  const struct {
    const char *subscripts, *message;
  } rows[] = {
      {"ij->i", "it has 1 operands, and 2 are given"},
      {"ij,jk->im", "m of the result is in no operand"},
      {"ij,jk->ii", "i is twice in the result"},
      {"ijk,jk->i", "x has 2 dimensions, and \"ijk\" has 3 letters"},
      {"i,jk->i", "x has 2 dimensions, and \"i\" has 1 letter"},
      {"i1,jk->i", "1 is no letter"},
      {"...i,jk->ik", "the result lacks the \"...\""},
      {"......ij,jk->ik", "\"...\" stands twice"},
  };
  for (const auto& r : rows) {
    try {
      written(r.subscripts, {{"x", {"N", "K"}}, {"w", {"K", "M"}}});
      ADD_FAILURE() << r.subscripts;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(r.message), std::string::npos) << r.subscripts << ": " << e.message();
      EXPECT_NE(e.message().find(std::string("einsum \"") + r.subscripts), std::string::npos) << e.message();
    }
  }
}

// The moments of 100,000 draws, within 5 standard deviations of what they are for the distribution.
TEST(RandomNumbers, HaveTheMomentsOfTheirDistribution) {
  dsl::Op op("f");
  dsl::Dim N("N");
  Axis i("i");
  dsl::Tensor z("z"), k("k");
  dsl::Tensor seed = op.input("seed", i64);
  z(in(i, 0, N)) = random_normal(seed, i);
  k(in(i, 0, N)) = random_int(seed, i, -3, 7);
  op.output(z);
  op.output(k);
  constexpr size_t kCount = 100000;
  const Arrays out = evaluate(op.build(), {{"seed", scalar_of(DType::i64, 11)}}, {{"N", kCount}});
  double sums[5] = {}, largest = 0;
  for (double v : out.at("z").reals) {
    for (int p = 1; p <= 4; ++p) sums[p] += std::pow(v, p) / kCount;
    largest = std::max(largest, std::abs(v));
  }
  const double unit = 5 / std::sqrt(double{kCount});
  EXPECT_NEAR(sums[1], 0, unit);
  EXPECT_NEAR(sums[2], 1, unit * std::sqrt(2.0));
  EXPECT_NEAR(sums[3], 0, unit * std::sqrt(15.0));
  EXPECT_NEAR(sums[4], 3, unit * std::sqrt(96.0));
  EXPECT_GT(largest, 3.5);
  EXPECT_LT(largest, 5.43);
  std::map<int64_t, int> counts;
  for (int64_t v : out.at("k").integers) ++counts[v];
  ASSERT_EQ(counts.size(), 10U);
  EXPECT_EQ(counts.begin()->first, -3);
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, kCount / 10.0, 5 * std::sqrt(kCount * 0.09)) << value;
}

}  // namespace
}  // namespace xhat::formulas_test
