// Sums that are carried from tile to tile, in kernels of many shapes: the evaluator's values, and the same bits with any number of
// threads.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/in_order_helper.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::in_order_of_many_kernels_test {
namespace {

using namespace xhat::testing;

using Phase = CompiledOp::Phase;

constexpr const char* kColumnSums = R"(op f(x: f32[B,S,K], w: f32[B,K,T], u: f32[B,S,D]) -> (y, z) {
  p[b,i,j] = sum(k: x[b,i,k] * w[b,k,j])
  m[b,i] = max(j: p[b,i,j])
  y[b,j,d] = sum(i: (p[b,i,j] - m[b,i]) * u[b,i,d])
  z[b,j] = sum(i: (p[b,i,j] - m[b,i])^2)
})";

std::string with_type(std::string text, const std::string& type) {
  for (size_t at = 0; (at = text.find("f32[", at)) != std::string::npos; at += type.size()) text.replace(at, 3, type);
  return text;
}

// Kernels of a direction whose sums are carried, over more than one tile.
int carried(const KernelPlan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.kernels, [](const Kernel& k) {
    return k.sequential > 0 && std::ranges::any_of(std::span(k.shared).last(k.sequential), [&](int c) {
             const KernelAxis& axis = k.axes[static_cast<size_t>(c)];
             return axis.tile < axis.extent;
           });
  }));
}

void expect_agreement(const std::string& text, const DimValues& dims, Phase phase, CompileOptions options) {
  SCOPED_TRACE(text + dims_text(dims));
  const Program op = parse_op(text), derived = gradient(op);
  const Arrays data = random_data(derived, dims, 5), right = evaluate_on(derived, data, dims);
  Arrays one;
  for (int threads : {1, 2, 4}) {
    options.threads = threads;
    const CompiledOp compiled = compile(op, options);
    const Arrays found = run_both(compiled, data, dims);
    if (threads == 1) {
      EXPECT_EQ(carried(compiled.plan(phase, dims)), 1);
      EXPECT_EQ(difference(right, found, 1e-4), "");
      one = found;
    }
    for (const auto& [name, array] : one) EXPECT_EQ(found.at(name).reals, array.reals) << name << ", " << threads << " threads";
  }
}

// Columns and rows that are no whole vectors or blocks: each element is added to once.
TEST(InOrderOfManyKernels, AttentionOfAnyShape) {
  for (auto [t, d] : {std::pair{29, 20}, {12, 33}})
    expect_agreement(kAttention, {{"B", 3}, {"S", 41}, {"T", t}, {"D", d}}, Phase::backward, in_small_tiles(16 << 10));
  expect_agreement(with_type(kAttention, "f64"), {{"B", 2}, {"S", 37}, {"T", 19}, {"D", 12}}, Phase::backward, in_small_tiles(16 << 10));
}

// A sum that is no product is carried beside those that are.
TEST(InOrderOfManyKernels, OtherSumsBesideProducts) {
  for (int64_t t : {9, 32})
    expect_agreement(kColumnSums, {{"B", 3}, {"S", 45}, {"K", 11}, {"T", t}, {"D", 24}}, Phase::forward, in_small_tiles(8 << 10));
}

}  // namespace
}  // namespace xhat::in_order_of_many_kernels_test
