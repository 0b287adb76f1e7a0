// Choices that were measured: values agree whatever they are.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::tuning_test {
namespace {

using namespace xhat::testing;

// All kernels of both directions with one choice.
CompileOptions with_choice(const Program& op, const DimValues& dims, const KernelChoice& choice) {
  CompiledOp rules = compile(op);
  CompileOptions options;
  for (CompiledOp::Phase phase : {CompiledOp::Phase::forward, CompiledOp::Phase::backward})
    for (const Kernel& k : rules.plan(phase, dims).kernels) options.choices[k.key] = choice;
  return options;
}

std::vector<KernelChoice> some_choices() {
  return {{16 << 10, 0, 0}, {64 << 10, 64, 0}, {KernelChoice::kOneTile, 1, 0}, {0, 0, 1}, {0, 0, 3}, {32 << 10, 3, 8}};
}

TEST(Tuning, ValuesAgreeWhateverTheChoice) {
  struct Case {
    const char* text;
    DimValues dims;
  };
  for (const auto& [text, dims] : std::vector<Case>{
           {"op softmax(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
            {{"N", 150}, {"D", 133}}},
           {"op norm(x: f32[N,D], g: f32[D]) -> (y) { v[n] = mean(d: x[n,d]^2); y[n,d] = g[d] * x[n,d] / sqrt(v[n] + 1e-5) }",
            {{"N", 333}, {"D", 65}}},
           {"op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = max(0, sum(i: x[n,i]*w[i,o]) + b[o]) }",
            {{"N", 70}, {"I", 48}, {"O", 72}}},
           {"op blur(x: f32[H,W]) -> (y) { y[i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[i+r-1,j+s-1 else 0]) }",
            {{"H", 97}, {"W", 130}}},
           {"op bag(t: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l],d]) }",
            {{"V", 500}, {"D", 24}, {"B", 60}, {"L", 3}}}}) {
    SCOPED_TRACE(text);
    Program op = parse_op(text), derived = gradient(op);
    Arrays data = random_data(derived, dims, 3), wanted = evaluate_on(derived, data, dims);
    for (const KernelChoice& choice : some_choices())
      EXPECT_EQ(difference(wanted, run_both(compile(op, with_choice(op, dims, choice)), data, dims), 1e-4), "")
          << choice.tile_bytes << " " << choice.least_tiles << " " << choice.vectors;
  }
}

// Only sums across tiles are added in another order.
TEST(Tuning, WithoutSumsAcrossTilesTheBitsStay) {
  for (const auto& [text, dims] : std::vector<std::pair<const char*, DimValues>>{
           {"op f(x: f32[N,D]) -> (y) { s[n] = sum(d: exp(x[n,d])); y[n,d] = exp(x[n,d]) / s[n] }", {{"N", 200}, {"D", 301}}},
           {"op g(a: f32[M,K], b: f32[K,P]) -> (y) { y[i,j] = tanh(sum(k: a[i,k]*b[k,j])) }", {{"M", 61}, {"K", 77}, {"P", 96}}}}) {
    Program op = parse_op(text);
    Arrays data = random_data(gradient(op), dims, 5), rules = run_infer(compile(op), data, dims);
    for (const KernelChoice& choice : some_choices()) {
      Arrays tuned = run_infer(compile(op, with_choice(op, dims, choice)), data, dims);
      for (const auto& [name, array] : rules) EXPECT_EQ(array.reals, tuned.at(name).reals) << text << name;
    }
  }
}

}  // namespace
}  // namespace xhat::tuning_test
