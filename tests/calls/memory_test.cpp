// Kernels touch no memory but their tensors', write every element of what they make, and rest on no promise that is broken. The helpers
// run everything between guard pages (tests/helpers/runtime_helper.h); here are the programs whose kernels once did not, others of
// their kind, and what the guards leave in memory. (What they see: kernels/guard_test.cpp.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ad/reverse/gradient.h"
#include "runtime/cpu/assumptions.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::memory_test {
namespace {

using namespace xhat::testing;
using Policy = StashOptions::Policy;

struct Case {
  const char* name;
  const char* text;
  std::vector<DimValues> sizes;
};

std::vector<DimValues> each(const char* dim, std::initializer_list<int64_t> values) {
  std::vector<DimValues> sizes;
  for (int64_t v : values) sizes.push_back({{dim, v}});
  return sizes;
}

// A result that is another one's rows, shifted, under a condition on the shift: in the gradients, squares that are turned over under that
// condition. Their blocks began where the condition holds first, and left elements of the result out.
const char* const kShifted = "op f(x: f32[N,N]) -> (t) { t[j in 0..N-1, i in 0..N] = prod(p in 0..3: 1 + x[j+1,i]) }";

std::vector<Case> cases() {
  const auto odd = each("N", {1, 2, 15, 16, 17, 33});
  const std::vector<DimValues> nothing = {{{"N", 0}, {"M", 1}}, {{"N", 0}, {"M", 70}}};
  const std::vector<DimValues> rows = {{{"J", 6}, {"M", 64}}, {{"J", 3}, {"M", 33}}, {{"J", 1}, {"M", 1}}, {{"J", 0}, {"M", 5}}};
  return {
      {"shifted_products", kShifted, odd},
      {"shifted_f64", "op f(x: f64[N,N]) -> (t) { t[j in 0..N-1, i in 0..N] = prod(p in 0..5: 1 + tanh(x[j+1,i])) }", odd},
      {"shifted_by_two", "op f(x: f32[N,N]) -> (t) { t[j in 0..N-2, i in 0..N] = sum(p in 0..3: sin(x[j+2,i] * f32(p+1))) }",
       each("N", {2, 15, 17, 33})},
      {"shifted_both", "op f(x: f32[N,N]) -> (t) { t[j in 0..N-1, i in 0..N-1] = max(p in 0..4: x[j+1,i+1] * f32(p-1)) }", odd},
      {"shifted_and_turned", "op f(x: f32[N,M]) -> (t) { t[j in 0..M-1, i in 0..N] = prod(p in 0..3: 1 + x[i,j+1]) }",
       {{{"N", 17}, {"M", 18}}, {{"N", 40}, {"M", 16}}, {{"N", 3}, {"M", 33}}}},
      {"shifted_else", "op f(x: f32[N,N]) -> (t) { t[j in 0..N-1, i in 0..N+1] = prod(p in 0..3: 1 + x[j+1,i-1 else 0.5]) }", odd},
      {"every_other_row", "op f(x: f32[N,N]) -> (t) { t[j in 0..N/2, i in 0..N] = prod(p in 0..3: 1 + x[2*j+1,i]) }",
       each("N", {2, 16, 17, 33})},
      // A row that is summed up in the loop over the rows of what reads it: as vectors along that loop it began before its memory.
      {"rows_of_f16", "op f(x: f16[M]) -> (y) { y[j in 0..J, k in 0..M, i in 0..M+1] = 1 - sum(q in 0..j: log1p(x[k]^2)) }", rows},
      {"rows_of_bf16", "op f(x: bf16[M]) -> (y) { y[j in 0..J, k in 0..M, i in 0..M+1] = 1 - sum(q in 0..j: log1p(x[k]^2)) }", rows},
      {"rows_of_f64", "op f(x: f64[M]) -> (y) { y[j in 0..J, k in 0..M, i in 0..M+1] = 1 - sum(q in 0..j: log1p(x[k]^2)) }", rows},
      {"rows_of_bytes", "op f(x: u8[M]) -> (y) { y[j in 0..J, k in 0..M, i in 0..M+1] = 1.0 - sum(q in 0..j: log1p(f32(x[k]))) }", rows},
      {"rows_of_maxima", "op f(x: f16[M]) -> (y) { y[j in 0..J, k in 0..M, i in 0..M+2] = max(q in 0..j+1: sin(x[k])) }", rows},
      {"rows_last", "op f(x: f16[M]) -> (y) { y[k in 0..M, i in 0..M+1, j in 0..J] = 1 - sum(q in 0..j: log1p(x[k]^2)) }", rows},
      {"rows_of_windows", "op f(x: f32[M]) -> (y) { y[k in 0..M, i in 0..M+1] = exp(sum(q in 0..3: x[k+q-1 else 0])) + f32(i) }",
       each("M", {1, 16, 33, 70})},
      // Of which only a part is read: as planned, and as it was written.
      {"sums_in_part", "op f(x: f32[N,5]) -> (y) { s[i] = sum(k: x[i,k]); y[i in 0..2] = tanh(s[i]) }", each("N", {2, 17, 40, 300, 17, 40})},
      // Beside inputs without elements, whatever chooses between what is read there and something else.
      {"nothing_in_products", "op f(x: f64[N,M]) -> (y) { y[j in 0..M] = prod(i in 0..3: x[2*i-1,j else 0.3]) }", nothing},
      {"nothing_in_windows", "op f(x: f32[N,M], w: f32[3]) -> (y) { y[i in 0..4, j in 0..M] = sum(r in 0..3: x[i+r-1,j else 1] * w[r]) }",
       nothing},
      {"nothing_in_rows", "op f(x: f16[N,M]) -> (y) { y[i in 0..3] = max(j in 0..M: tanh(x[i,j else -1])) }", nothing},
      {"nothing_made_here",
       "op f(x: f32[N], w: f32[M]) -> (y) { t[n] = sin(x[n]); y[i in 0..M] = w[i] * t[i-1 else 0.5] + max(r in 0..3: t[i+r else -1]) }", nothing},
      {"nothing_if", "op f(x: bf16[N], w: bf16[M]) -> (y) { y[i in 0..M] = if i < N then x[i] * w[i] else 2 * w[i] }", nothing},
      {"nothing_that_says_where", "op f(w: f32[M], id: i32[N]) -> (y) { y[i in 0..M] = 2 * w[id[i else 1] % M] }", nothing},
      {"nothing_of_bools",
       "op f(b: bool[N], w: f32[M]) -> (y) { y[i in 0..M] = if (if i < N then b[i] else false) then w[i] else -w[i] }", nothing},
  };
}

class MemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryTest, NothingBesideTheTensorsIsTouchedAndAllIsWritten) {
  const Program op = parse_op(GetParam().text), derived = gradient(op);
  const bool narrow = std::ranges::any_of(op.tensors, [](const Tensor& t) { return byte_size(t.type) == 2; });
  size_t turn = 0;
  for (const DimValues& dims : GetParam().sizes) {
    CompileOptions options;
    options.threads = 1;
    options.stash.policy = std::array{Policy::cost, Policy::none, Policy::largest}[turn % 3];
    options.fusion.policy = turn / 3 % 2 == 1 ? FusePolicy::relay : FusePolicy::full;
    ++turn;
    for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
    SCOPED_TRACE(dims_text(dims));
    const Arrays data = random_data(derived, dims, 5);
    EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(compile(op, options), data, dims), narrow ? 3e-2 : 5e-5), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, MemoryTest, ::testing::ValuesIn(cases()), [](const auto& c) { return std::string(c.param.name); });

TEST(Guard, WhatNobodyWroteIsNotANumber) {
  const runtime::GuardedEngine engine(Edge::back);
  const runtime::OwnedMemory block = runtime::allocate(16);
  EXPECT_TRUE(std::isnan(static_cast<float*>(block.get())[0]));
  EXPECT_TRUE(std::isnan(static_cast<double*>(block.get())[1]));
  EXPECT_EQ(static_cast<uint16_t*>(block.get())[7], runtime::kPoison);
}

// A block of 8 elements of `inner` is promised, and 9 are needed.
TEST(Assumptions, ABrokenPromiseIsRefused) {
  const Halide::Target target = Halide::get_host_target().with_feature(Halide::Target::NoAsserts);
  for (int further : {0, 1}) {
    Halide::ImageParam in(Halide::Float(32), 1, "in");
    in.dim(0).set_min(0);
    Halide::Func inner("inner"), outer("outer");
    Halide::Var x("x"), xo("xo"), xi("xi");
    inner(x) = in(x) * 2;
    outer(x) = inner(x) + inner(x + further);
    outer.split(x, xo, xi, 8).vectorize(xi);
    inner.compute_at(outer, xo).bound_extent(x, 8);
    Halide::Pipeline pipeline(outer);
    runtime::refuse_broken_assumptions(pipeline, {{{}, {{"in", {100}}, {outer.name(), {64}}}}}, true);
    auto lower = [&] { runtime::lowered_with_assertions(pipeline, pipeline.infer_arguments(), "f", target); };
    if (further == 0) {
      EXPECT_NO_THROW(lower());
    } else {
      EXPECT_THROW(lower(), Halide::CompileError);
    }
  }
}

}  // namespace
}  // namespace xhat::memory_test
