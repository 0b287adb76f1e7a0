// Which sums a library computes, and that the call computes the same: by plain loops over what the call says.
#include <gtest/gtest.h>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/stash/stash_planner.h"
#include "expr/eval/evaluate.h"
#include "fusion/library/library_operands.h"
#include "fusion/library/library_plan.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/reference_library.h"

namespace xhat::library_calls_test {
namespace {

using namespace xhat::testing;

Program with_backward(const std::string& text) {
  return inline_injective(plan_stash(inline_injective(gather(gradient(parse_op(text))))).program);
}

// The values of every tensor, with what the candidates' operands are.
void expect_same(const Program& p, const DimValues& dims) {
  auto candidates = fusion::library_candidates(p, dims);
  Program q = with_operands(candidates, std::vector<bool>(candidates.all.size(), true));
  verify(q);
  Arrays data = random_data(p, dims, 3);
  EvaluateOptions options{Rounding::exact, true};
  Arrays want = evaluate(p, data, dims, options), all = evaluate(q, data, dims, options);
  for (auto& [name, values] : data) all[name] = values;
  for (auto& [name, values] : want) {
    ASSERT_EQ(values.shape, all.at(name).shape) << name;
    for (size_t i = 0; i < values.reals.size(); ++i) ASSERT_NEAR(values.reals[i], all.at(name).reals[i], 1e-9) << name << " at " << i;
  }
  for (const auto& c : candidates.all) {
    SCOPED_TRACE(to_text(c.call));
    auto values = [&](TensorId t) -> const Array& { return all.at(q.tensors[t].name); };
    const Array& expected = values(result_of(c.call).tensor);
    std::vector<double> made(expected.size(), -777);
    auto read = [&](const LibrarySide& s, int64_t i) { return values(s.tensor).reals.at(static_cast<size_t>(i)); };
    auto write = [&](const LibrarySide&, int64_t i, double v) { made.at(static_cast<size_t>(i)) = v; };
    if (const auto* m = std::get_if<MatrixProduct>(&c.call)) compute(*m, read, write);
    else compute(std::get<Convolution>(c.call), static_cast<int64_t>(made.size()), read, write);
    for (size_t i = 0; i < made.size(); ++i) ASSERT_NEAR(made[i], expected.reals[i], 1e-9) << "at " << i;
  }
}

std::vector<std::string> calls_of(const Program& p, const DimValues& dims) {
  std::vector<std::string> texts;
  for (const auto& c : fusion::library_candidates(p, dims).all)
    texts.push_back(p.tensors[result_of(c.call).tensor].name + ": " + to_text(c.call) + (c.operands.empty() ? "" : " of operands"));
  return texts;
}

struct Case {
  const char* name;
  const char* text;
  DimValues dims;
  std::vector<std::string> forward, backward;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class LibraryCalls : public ::testing::TestWithParam<Case> {};

TEST_P(LibraryCalls, AreFoundAndMeanTheSame) {
  const Case& c = GetParam();
  Program p = with_backward(c.text);
  Program forward = forward_program(p), backward = backward_program(p);
  EXPECT_EQ(calls_of(forward, c.dims), c.forward) << print(forward);
  EXPECT_EQ(calls_of(backward, c.dims), c.backward) << print(backward);
  expect_same(forward, c.dims);
  expect_same(backward, c.dims);
}

const char* const kConv2d = R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3]) -> (y) {
  y[n,k, i in 0..H, j in 0..W] = sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s])
})";
const char* const kConv2dRelu = R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
  y[n,k, i in 0..H, j in 0..W] = max(0, b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]))
})";
const char* const kStrided = R"(op f(x: f32[N,C,H], w: f32[K,C,3]) -> (y) {
  dim OH = (H + 2 - 3)/2 + 1
  y[n,k, i in 0..OH] = sum(c,r: x[n,c,2*i+r-1 else 0] * w[k,c,r])
})";

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"plain",
       "op f(x: f32[N,K], w: f32[K,M]) -> (y) { y[n,m] = 0.5 * sum(k: x[n,k] * w[k,m]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {"y_sum: product 5 x 3 x 7"},
       {"grad_x: product 7 x 5 x 3",
        "grad_w: product 7 x 3 x 5"}},
      {"both_turned",
       "op f(x: f32[K,N], w: f32[M,K]) -> (y) { y[n,m] = sum(k: x[k,n] * w[m,k]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {"y: product 5 x 3 x 7"},
       {"grad_x: product 7 x 5 x 3",
        "grad_w: product 7 x 3 x 5"}},
      {"result_turned",
       "op f(x: f32[N,K], w: f32[K,M]) -> (y) { y[m,n] = sum(k: x[n,k] * w[k,m]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {"y: product 5 x 3 x 7"},
       {"grad_x: product 7 x 5 x 3",
        "grad_w: product 7 x 3 x 5"}},
      {"batched",
       "op f(x: f32[B,H,S,D], w: f32[B,H,T,D]) -> (y) { y[b,h,s,t] = sum(d: x[b,h,s,d] * w[b,h,t,d]) }",
       {{"B", 2}, {"H", 3}, {"S", 5}, {"T", 4}, {"D", 6}},
       {"y: product 5 x 4 x 6, 6 times"},
       {"grad_x: product 6 x 5 x 4, 6 times",
        "grad_w: product 6 x 4 x 5, 6 times"}},
      {"heads_between",
       "op f(x: f32[B,S,H,D], w: f32[B,T,H,D]) -> (y) { y[b,h,s,t] = sum(d: x[b,s,h,d] * w[b,t,h,d]) }",
       {{"B", 2}, {"H", 3}, {"S", 5}, {"T", 4}, {"D", 6}},
       {"y: product 5 x 4 x 6, 2 times, 3 times"},
       {"grad_x: product 6 x 5 x 4, 2 times, 3 times",
        "grad_w: product 6 x 4 x 5, 2 times, 3 times"}},
      {"rows_of_two_axes",
       "op f(x: f32[B,T,I], w: f32[I,O]) -> (y) { y[b,t,o] = sum(i: x[b,t,i] * w[i,o]) }",
       {{"B", 2}, {"T", 3}, {"I", 5}, {"O", 4}},
       {"y: product 6 x 4 x 5"},
       {"grad_x: product 5 x 6 x 4",
        "grad_w: product 5 x 4 x 6"}},
      {"activation_and_bias",
       "op f(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i] * w[i,o]) + b[o]) }",
       {{"N", 5}, {"I", 7}, {"O", 3}},
       {"y_sum: product 5 x 3 x 7"},
       {"grad_x: product 7 x 5 x 3 of operands",
        "grad_w: product 7 x 3 x 5 of operands"}},
      {"part_of_a_tensor",
       "op f(x: f32[N,K], w: f32[2*M,K+1]) -> (y) { y[n, m in 0..M] = sum(k: x[n,k] * w[m+M,k+1]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {"y: product 5 x 3 x 7"},
       {"grad_w_sum_1: product 7 x 3 x 5", "grad_x: product 5 x 7 x 3"}},
      {"masked",
       "op f(x: f32[N,K], w: f32[K,M]) -> (y) { y[n,m] = sum(k if k <= n: x[n,k] * w[k,m]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {},
       {"grad_x_sum: product 7 x 5 x 3"}},
      {"conv2d",
       kConv2d,
       {{"N", 2}, {"C", 3}, {"H", 5}, {"W", 7}, {"K", 4}},
       {"y: convolution of 2 images, 3 -> 4 channels, 5 by 3 pad 1, 7 by 3 pad 1"},
       {"grad_w: convolution by filter of 2 images, 3 -> 4 channels, 5 by 3 pad 1, 7 by 3 pad 1",
        "grad_x: convolution by data of 2 images, 3 -> 4 channels, 5 by 3 pad 1, 7 by 3 pad 1"}},
      {"conv2d_relu",
       kConv2dRelu,
       {{"N", 2}, {"C", 3}, {"H", 5}, {"W", 7}, {"K", 4}},
       {"y_sum: convolution of 2 images, 3 -> 4 channels, 5 by 3 pad 1, 7 by 3 pad 1"},
       {"grad_w: convolution by filter of 2 images, 3 -> 4 channels, 5 by 3 pad 1, 7 by 3 pad 1 of operands",
        "grad_x: convolution by data of 2 images, 3 -> 4 channels, 5 by 3 pad 1, 7 by 3 pad 1 of operands"}},
      {"strided",
       kStrided,
       {{"N", 2}, {"C", 3}, {"H", 9}, {"K", 4}, {"OH", 5}},
       {"y: convolution of 2 images, 3 -> 4 channels, 9 by 3 pad 1 stride 2"},
       {"grad_w: convolution by filter of 2 images, 3 -> 4 channels, 9 by 3 pad 1 stride 2",
        "grad_x: convolution by data of 2 images, 3 -> 4 channels, 9 by 3 pad 1 stride 2"}},
      {"dilated",
       "op f(x: f32[C,H], w: f32[K,C,3]) -> (y) { y[k, i in 0..H] = sum(c,r: x[c,i+2*r-2 else 0] * w[k,c,r]) }",
       {{"C", 3}, {"H", 9}, {"K", 4}},
       {"y: convolution of 1 images, 3 -> 4 channels, 9 by 3 pad 2 dilation 2"},
       {"grad_w: convolution by filter of 1 images, 3 -> 4 channels, 9 by 3 pad 2 dilation 2",
        "grad_x: convolution by data of 1 images, 3 -> 4 channels, 9 by 3 pad 2 dilation 2"}},
      {"depthwise",
       "op f(x: f32[N,C,H,W], w: f32[C,3,3]) -> (y) { y[n,c, i in 0..H, j in 0..W] = sum(r,s: x[n,c,i+r-1,j+s-1 else 0] * w[c,r,s]) }",
       {{"N", 2}, {"C", 3}, {"H", 5}, {"W", 7}},
       {"y: convolution of 2 images, 3 -> 3 channels in 3 groups, 5 by 3 pad 1, 7 by 3 pad 1"},
       {"grad_w: convolution by filter of 2 images, 3 -> 3 channels in 3 groups, 5 by 3 pad 1, 7 by 3 pad 1",
        "grad_x: convolution by data of 2 images, 3 -> 3 channels in 3 groups, 5 by 3 pad 1, 7 by 3 pad 1"}},
      {"valid",
       "op f(x: f32[N,C,H+2], w: f32[K,C,3]) -> (y) { y[n,k, i in 0..H] = sum(c,r: x[n,c,i+r] * w[k,c,r]) }",
       {{"N", 2}, {"C", 3}, {"H", 7}, {"K", 4}},
       {"y: convolution of 2 images, 3 -> 4 channels, 9 by 3"},
       {"grad_w: convolution by filter of 2 images, 3 -> 4 channels, 9 by 3",
        "grad_x: convolution by data of 2 images, 3 -> 4 channels, 9 by 3"}},
      {"flipped",
       "op f(x: f32[N,C,H+2], w: f32[K,C,3]) -> (y) { y[n,k, i in 0..H] = sum(c,r: x[n,c,i+2-r] * w[k,c,r]) }",
       {{"N", 2}, {"C", 3}, {"H", 7}, {"K", 4}},
       {"y: convolution of 2 images, 3 -> 4 channels, 9 by 3 flipped"},
       {"grad_w: convolution by filter of 2 images, 3 -> 4 channels, 9 by 3 flipped",
        "grad_x: convolution by data of 2 images, 3 -> 4 channels, 9 by 3 flipped"}},
      {"more_border_behind",
       "op f(x: f32[N,C,H], w: f32[K,C,3]) -> (y) { y[n,k, i in 0..H] = sum(c,r: x[n,c,i+r else 0] * w[k,c,r]) }",
       {{"N", 2}, {"C", 3}, {"H", 7}, {"K", 4}},
       {},
       {}},
      {"border_of_ones",
       "op f(x: f32[N,C,H], w: f32[K,C,3]) -> (y) { y[n,k, i in 0..H] = sum(c,r: x[n,c,i+r-1 else 1] * w[k,c,r]) }",
       {{"N", 2}, {"C", 3}, {"H", 7}, {"K", 4}},
       {},
       {"grad_x: convolution by data of 2 images, 3 -> 4 channels, 7 by 3 pad 1"}},
      {"triangle",
       "op f(x: f32[N,K], w: f32[K,M]) -> (y) { y[n,m] = sum(k in 0..min(n+1,K): x[n,k] * w[k,m]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {},
       {"grad_x_sum: product 7 x 5 x 3"}},
      {"gathered",
       "op f(x: f32[V,K], ids: i64[N], w: f32[K,M]) -> (y) { y[n,m] = sum(k: x[clamp(ids[n], 0, V-1),k] * w[k,m]) }",
       {{"N", 5}, {"K", 7}, {"M", 3}, {"V", 4}},
       {},
       {}},
      {"of_halves",
       "op f(x: f16[N,K], w: f16[K,M]) -> (y) { y[n,m] = sum(k: f32(x[n,k]) * f32(w[k,m])) }",
       {{"N", 5}, {"K", 7}, {"M", 3}},
       {"y: product 5 x 3 x 7"},
       {}},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sums, LibraryCalls, ::testing::ValuesIn(cases()), [](const auto& c) { return std::string(c.param.name); });

// What is planned: which kernels there are, and which are calls.
std::string kernels(const LibraryPlan& made) {
  std::string text;
  for (size_t i = 0; i < made.plan.kernels.size(); ++i) {
    const Kernel& k = made.plan.kernels[i];
    EXPECT_TRUE(!made.calls[i] || (!k.combines_partials && k.bytes_moved == k.bytes_unavoidable)) << k.name;
    text += (i ? "; " : "") + k.name + (made.calls[i] ? " = " + to_text(*made.calls[i]) : "");
  }
  return text;
}

TEST(LibraryPlans, SplitTheCallFromWhatFollowsIt) {
  Program p = with_backward("op f(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i] * w[i,o]) + b[o]) }");
  const DimValues dims = {{"N", 512}, {"I", 256}, {"O", 1024}};
  Program forward = forward_program(p), backward = backward_program(p);
  EXPECT_EQ(kernels(plan_with_libraries(forward, dims, {}, {LibraryUse::off, {}})), "y");
  EXPECT_EQ(kernels(plan_with_libraries(forward, dims, {}, {LibraryUse::on, {}})), "y_sum = product 512 x 1024 x 256; y");
  LibraryOptions none{LibraryUse::on, [](const LibraryCall&) { return false; }};
  EXPECT_EQ(kernels(plan_with_libraries(forward, dims, {}, none)), "y");
  EXPECT_EQ(kernels(plan_with_libraries(backward, dims, {}, {LibraryUse::on, {}})),
            "grad_b_operand; grad_x = product 256 x 512 x 1024; grad_w = product 256 x 1024 x 512");
}

TEST(LibraryPlans, CallWhereThereIsMuchArithmetic) {
  Program p = with_backward("op f(x: f32[N,K], w: f32[K,M]) -> (y) { y[n,m] = tanh(sum(k: x[n,k] * w[k,m])) }");
  auto calls = [&](int64_t n) {
    auto made = plan_with_libraries(forward_program(p), {{"N", n}, {"K", n}, {"M", n}}, {}, {});
    return std::ranges::count_if(made.calls, [](const auto& c) { return c.has_value(); });
  };
  EXPECT_EQ(calls(64), 0);    // launches are what it takes
  EXPECT_EQ(calls(4096), 1);  // 137 Gflop
  Program thin = with_backward("op f(x: f32[N,4], w: f32[4,8]) -> (y) { y[n,m] = tanh(sum(k: x[n,k] * w[k,m])) }");
  EXPECT_FALSE(plan_with_libraries(forward_program(thin), {{"N", 1 << 20}}, {}, {}).calls[0]);  // memory is
}

TEST(LibraryPlans, EveryOpKeepsItsMeaning) {
  size_t calls = 0;
  for (const auto& path : golden_paths()) {
    Program op = parse_op(read_golden(path).program);
    SCOPED_TRACE(op.name);
    Program p = inline_injective(plan_stash(inline_injective(gather(gradient(op)))).program);
    DimValues dims = sample_dims(op, 3);
    for (const Program& direction : {forward_program(p), backward_program(p)}) {
      expect_same(direction, dims);
      calls += calls_of(direction, dims).size();
    }
  }
  EXPECT_GE(calls, 20u);
}

}  // namespace
}  // namespace xhat::library_calls_test
