// Checks of data cost one pass over the indices, whatever loops stand around the reads, and fail exactly where the evaluator does.
#include <gtest/gtest.h>

#include <random>

#include "ad/check/random_inputs.h"
#include "ad/reverse/gradient.h"
#include "fusion/plan/plan.h"
#include "runtime/call/run_time_checks.h"
#include "tests/helpers/error_of.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing::checks_test {
namespace {

using runtime::Checks;
using runtime::run_time_checks;

// The most axes that any definition of the program walks.
size_t most_axes(const Program& p) {
  size_t most = 0;
  for (const Definition& d : p.definitions()) {
    const Node& n = (*p.arena)[d.body];
    most = std::max(most, d.axes.size() + (is_reduction(n.op) ? reduce_axes(n).size() : 0));
  }
  return most;
}

int sweeps(const Program& p) {
  DimValues sizes;
  for (const Dim& d : p.dims) sizes[p.arena->name(d.dim)] = 64;
  return plan_kernels(p, sizes).sweeps();
}

std::string text_of(const Program& p) {
  std::string text;
  for (const Definition& d : p.definitions()) text += print(p, d) + "\n";
  return text;
}

struct Row {
  const char* name;
  const char* text;     // of the op
  size_t forward_axes;  // that the checks walk at once; 0: there is nothing to check
  size_t backward_axes;
  int passes;  // over data, of the forward's checks
};

const Row kRows[] = {
    {"neighbours", "op f(z: f32[N,D], nbr: i32[N,K]) -> (e) { e[n,k] = sum(d: z[nbr[n,k],d]^2) }", 2, 0, 1},
    {"under_a_condition", "op f(z: f32[N,D], nbr: i32[N,K]) -> (e) { e[n,k] = if nbr[n,k] >= 0 then sum(d: z[nbr[n,k],d]) else 0 }", 2, 0,
     1},
    {"affine", "op f(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[2*ids[b]+1,d]^2 }", 1, 0, 1},
    {"affine_with_an_axis", "op f(t: f32[V], ids: i32[B]) -> (y) { y[b,r in 0..3] = t[3*ids[b]+r]^2 }", 1, 0, 1},
    {"windows", "op f(x: f32[N], start: i32[B]) -> (y) { y[b,k in 0..K] = x[start[b]+k]^2 }", 1, 0, 1},
    {"windows_backwards", "op f(x: f32[N], start: i32[B]) -> (y) { y[b] = sum(k in 0..b: x[start[b]-2*k]^2) }", 1, 0, 1},
    {"windows_moved_by_numbers", "op f(x: f32[M,T], d: f32[M]) -> (y) { y[m,t in 0..T-16] = x[m,t+i64(floor(sigmoid(d[m])*14))] }", 1, 0, 1},
    {"at_the_place_that_it_falls_on", "op f(x: f32[M,T], d: f32[M]) -> (y) { y[m,t in 0..T-16] = x[m,t+i64(floor(d[m]))]^2 }", 1, 0, 1},
    {"a_product", "op f(t: f32[V], a: i32[B], c: i32[B]) -> (y) { y[b] = t[a[b]*c[b]]^2 }", 1, 0, 1},
    {"nested", "op f(t: f32[V,D], a: i32[B], c: i32[M]) -> (y) { y[b,d] = t[c[a[b]],d]^2 }", 1, 1, 1},
    {"two_lists", "op f(t: f32[V], u: f32[W], a: i32[B], c: i32[M]) -> (y) { y[i,j] = t[a[i]]*u[c[j]] }", 1, 1, 1},
    {"a_sum_of_two_lists", "op f(t: f32[V], a: i32[B], c: i32[M]) -> (y) { y[i,j] = t[a[i]+c[j]]^2 }", 2, 0, 1},
    {"one_list_read_by_three",
     "op f(t: f32[V,D], u: f32[V], ids: i32[B]) -> (y, z, w) { y[b,d] = t[ids[b],d]^2; z[i] = u[ids[i]]^2; w[j,d] = t[ids[j],d]^3 }", 1, 0,
     1},
    {"a_mask_over_other_axes",
     "op f(t: f32[V], ids: i32[B], mask: bool[T]) -> (y) { y[b,t0 in 0..T] = if mask[t0] then t[ids[b]]^2 else 0 }", 1, 0, 1},
    {"a_product_as_condition",
     "op f(t: f32[V], ids: i32[J], q: f32[I,C], k: f32[J,C]) -> (y) { y[i] = sum(j if sum(c: q[i,c]*k[j,c]) > 0: t[ids[j]]) }", 1, 0, 1},
    {"proved_by_remainder", "op f(t: f32[V+1], ids: i32[B]) -> (y) { y[b] = t[ids[b] % (V+1)]^2 }", 0, 0, 0},
    {"proved_by_clamp", "op f(t: f32[V+1], ids: i32[B]) -> (y) { y[b] = t[clamp(ids[b], 0, V)]^2 }", 0, 0, 0},
    {"proved_by_type", "op f(t: f32[256], ids: u8[B]) -> (y) { y[b] = t[ids[b]]^2 }", 0, 0, 0},
    {"proved_by_conditions", "op f(t: f32[V], ids: i32[B]) -> (y) { y[b] = if ids[b] >= 0 && i64(ids[b]) < V then t[ids[b]]^2 else 0 }", 0,
     0, 0},
    {"a_table_of_positions_proved",
     "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = x[0]*f32(k); y[b] = if ids[b] >= 0 && i64(ids[b]) < V then p[ids[b]] else 0 }",
     0, 0, 0},
    {"bits_proved", "op f(x: f32[N+1]) -> (y) { y[i in 0..N] = x[clamp(bit_xor(i, 1), 0, N)]^2 }", 0, 0, 0},
    {"bits", "op f(x: f32[N]) -> (y) { y[i in 0..N] = x[bit_xor(i, 1)]^2 }", 1, 0, 1},
    {"a_list_of_positions", "op f(x: f32[N]) -> (y) { at[i in 0..N] = 2*i; y[i in 0..N] = x[at[i]]^2 }", 1, 0, 1},
    {"a_list_of_positions_proved", "op f(x: f32[N]) -> (y) { at[i in 0..N] = N-1-i; y[i in 0..N] = x[at[i]]^2 }", 0, 0, 0},
    {"an_argmax_is_inside", "op f(x: f32[N,4], z: f32[N,4]) -> (y) { y[n] = z[n, argmax(k: x[n,k])]^2 }", 0, 0, 0},
};

TEST(RuntimeChecks, WalkTheIndicesOnce) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    CompiledOp op = compile(parse_op(row.text));
    const Checks forward = run_time_checks(forward_program(op.program())), backward = run_time_checks(backward_program(op.program()));
    EXPECT_EQ(forward.of_data.has_value(), row.forward_axes > 0);
    EXPECT_EQ(backward.of_data.has_value(), row.backward_axes > 0);
    if (forward.of_data) {
      EXPECT_EQ(most_axes(forward.first()), row.forward_axes) << text_of(forward.first());
      EXPECT_EQ(sweeps(forward.first()), row.passes) << text_of(forward.first());
    }
    if (backward.of_data) {
      EXPECT_EQ(most_axes(backward.first()), row.backward_axes) << text_of(backward.first());
    }
  }
}

TEST(RuntimeChecks, LookAtConditionsOnlyWhereTheFirstLookFails) {
  const char* text =
      "op f(t: f32[V], ids: i32[J], q: f32[I,C], k: f32[J,C]) -> (y) { y[i] = sum(j if sum(c: q[i,c]*k[j,c]) > 0: t[ids[j]]) }";
  CompiledOp op = compile(parse_op(text));
  const Checks checks = run_time_checks(forward_program(op.program()));
  ASSERT_TRUE(checks.at_first.has_value());
  EXPECT_EQ(checks.at_first->inputs.size(), checks.of_data->inputs.size());
  EXPECT_EQ(checks.at_first->definitions().size(), 2u) << text_of(*checks.at_first);  // indices; is there a result at all
  EXPECT_EQ(most_axes(*checks.at_first), 1u);
  EXPECT_EQ(most_axes(*checks.of_data), 3u) << text_of(*checks.of_data);  // the product
}

// Of a condition that also asks for what must be computed, the first look takes what it can: x[i-1] is read where i > 0 alone.
TEST(RuntimeChecks, TakeWhatTheyCanOfAConditionFirst) {
  const char* text =
      "op f(x: f64[N], t: i64[N], i: i64) -> (y) {\n"
      "  s = sum(n: x[n])\n"
      "  y = if i > 0 && s > 0 then x[i-1] else if i > 0 && s < 1 then 2*x[i-1] else 0\n}";
  const Checks checks = run_time_checks(forward_program(CompiledOp(compile(parse_op(text))).program()));
  ASSERT_TRUE(checks.of_data.has_value());
  EXPECT_NE(text_of(checks.first()).find("0 < i"), std::string::npos) << text_of(checks.first());
  EXPECT_EQ(text_of(checks.first()).find("sum("), std::string::npos) << text_of(checks.first());
}

// The same verdict as the evaluator's, for forward and backward, on data of which about half fail.
struct Case {
  const char* name;
  const char* text;
  DimValues dims;
  int low, high;  // of integers in the data
};

const Case kCases[] = {
    {"neighbours", "op f(z: f32[N,D], nbr: i32[N,K]) -> (e) { e[n,k] = sum(d: z[nbr[n,k],d]^2) }", {{"N", 9}, {"D", 3}, {"K", 2}}, 0, 9},
    {"padding",
     "op f(z: f32[N,D], nbr: i32[N,K]) -> (e) { e[n,k,d] = if nbr[n,k] >= 0 then z[nbr[n,k],d]^2 else 0 }",
     {{"N", 9}, {"D", 3}, {"K", 2}},
     -3,
     9},
    {"affine", "op f(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[2*ids[b]+1,d]^2 }", {{"V", 12}, {"D", 2}, {"B", 7}}, 0, 6},
    {"nested", "op f(t: f32[V], a: i32[B], c: i32[M]) -> (y) { y[b] = t[c[a[b]]]^2 }", {{"V", 8}, {"B", 4}, {"M", 8}}, 0, 8},
    {"two_lists",
     "op f(t: f32[V], u: f32[W], a: i32[B], c: i32[M]) -> (y) { y[i,j] = t[a[i]]*u[c[j]] }",
     {{"V", 9}, {"W", 9}, {"B", 4}, {"M", 5}},
     0,
     9},
    // A definition that reads no tensor where it is read: the check is its own.
    {"of_positions", "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = f32(k)*2; y[b] = p[ids[b]]*x[0] }", {{"V", 8}, {"B", 4}}, -1, 8},
    {"of_one_element", "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = x[0]; y = sum(b: p[ids[b]]^2) }", {{"V", 8}, {"B", 4}}, 0, 9},
    {"of_padding", "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = x[k+1 else 0]*2; y[b] = p[ids[b]] }", {{"V", 8}, {"B", 4}}, 0, 9},
    {"of_a_guard",
     "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = if k > 1 then x[k] else 0; y[b] = p[ids[b]]^2 }",
     {{"V", 8}, {"B", 4}},
     -1,
     7},
    {"of_two_axes",
     "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V, l in 0..V] = x[k]*f32(l); y[b] = p[ids[b], ids[b]+1]^2 }",
     {{"V", 8}, {"B", 4}},
     0,
     8},
    {"through_two_maps",
     "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = f32(k)*x[0]; q[k in 0..V] = p[k]+1; y[b] = exp(-q[ids[b]])*q[ids[b]] }",
     {{"V", 8}, {"B", 4}},
     0,
     9},
    {"of_a_closed_form",
     "op f(x: f32[V], ids: i32[B]) -> (y) { p[k in 0..V] = sum(j in 0..k+1: x[0]); y[b] = p[ids[b]]^2 }",
     {{"V", 8}, {"B", 4}},
     0,
     9},
    {"by_a_mask",
     "op f(t: f32[V], ids: i32[B], mask: i32[T]) -> (y) { y[b,s in 0..T] = if mask[s] > 9 then t[ids[b]]^2 else 0 }",
     {{"V", 8}, {"B", 4}, {"T", 5}},
     0,
     10},
    {"by_a_product",
     "op f(t: f32[V], ids: i32[J], q: f32[I,C], k: f32[J,C]) -> (y) { y[i] = sum(j if sum(c: q[i,c]*k[j,c]) > 2: t[ids[j]]) }",
     {{"V", 8}, {"J", 3}, {"I", 2}, {"C", 2}},
     0,
     10},
    {"by_a_mask_of_pairs",
     "op f(t: f32[V], ids: i32[B], near: i32[T,B]) -> (y) { y[s] = sum(b if near[s,b] > 8: t[ids[b]]^2) }",
     {{"V", 7}, {"B", 4}, {"T", 2}},
     0,
     9},
    {"triangle", "op f(t: f32[V], ids: i32[T]) -> (y) { y[i in 0..T] = sum(j in 0..i: t[ids[j]]^2) }", {{"V", 6}, {"T", 5}}, 0, 6},
    {"either_of_two",
     "op f(t: f32[V], a: i32[B], c: i32[B]) -> (y) { y[v in 0..V] = sum(b if i64(a[b]) == v || i64(c[b]) == v: t[a[b]]^2) }",
     {{"V", 6}, {"B", 3}},
     0,
     7},
    {"shifted_target",
     "op f(t: f32[V], a: i32[B]) -> (y) { y[v in 0..V] = sum(b if i64(a[b]) + 2 == v + 1: t[a[b]+1]*t[a[b]]) }",
     {{"V", 6}, {"B", 4}},
     -1,
     6},
    {"windows", "op f(x: f32[N], start: i32[B]) -> (y) { y[b] = sum(k in 0..b: x[start[b]-2*k+1]^2) }", {{"N", 9}, {"B", 3}}, 0, 9},
    {"beyond_the_largest_number",
     "op f(x: f32[N], d: i64[B]) -> (y) { y[b,k in 0..3] = x[k+d[b]*9223372036854775806]^2 }",
     {{"N", 9}, {"B", 1}},
     0,
     1},
    {"rows_of_nothing", "op f(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[ids[b],d]^2 }", {{"V", 6}, {"D", 0}, {"B", 4}}, 0, 9},
    {"behind_an_argmax",
     "op f(x: f32[B,4], t: f32[V], ids: i32[4]) -> (y) { y[b] = t[ids[argmax(k: x[b,k])]]^2 }",
     {{"B", 2}, {"V", 6}},
     0,
     7},
};

TEST(RuntimeChecks, FailWhereTheEvaluatorDoes) {
  for (const Case& c : kCases) {
    Program p = parse_op(c.text), derived = gradient(p);
    CompiledOp op = compile(p);
    int failed = 0, ran = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(std::string(c.name) + ", seed " + std::to_string(seed));
      Arrays data = random_inputs(derived, c.dims, seed, {.finite = false});
      data.merge(random_cotangents(derived, c.dims, seed));
      std::mt19937_64 random(seed);
      for (auto& [name, array] : data)
        for (int64_t& v : array.integers) v = c.low + static_cast<int64_t>(random() % static_cast<uint64_t>(c.high - c.low + 1));
      Arrays inputs;
      for (TensorId t : p.inputs) inputs[p.tensor(t).name] = data.at(p.tensor(t).name);
      const std::string want = error_of([&] { evaluate(p, inputs, c.dims); }, "");
      Arrays forward;
      const std::string got = error_of([&] { forward = run_infer(op, data, c.dims); }, "");
      EXPECT_EQ(want, got);
      (want.empty() ? ran : failed)++;
      if (!want.empty()) continue;
      EXPECT_EQ(error_of([&] { EXPECT_EQ(difference(evaluate(derived, data, c.dims), run_both(op, data, c.dims), 1e-4), ""); }, ""), "");
    }
    EXPECT_GT(ran, 0) << c.name;
    const bool reads_nothing = c.dims.contains("D") && c.dims.at("D") == 0;
    EXPECT_EQ(failed == 0, reads_nothing) << c.name;
  }
}

// Indices that are no data, and that nothing proves.
TEST(RuntimeChecks, OfPositionsFailWhereTheEvaluatorDoes) {
  for (const char* text :
       {"op f(x: f32[N]) -> (y) { y[i in 0..N] = x[bit_xor(i, 1)]^2 }", "op f(x: f32[N]) -> (y) { y[i in 0..5] = x[i64(f64(i)*1.75)]^2 }",
        "op f(x: f32[N]) -> (y) { y[i in 0..3, j in 0..4] = x[i*j]^2 }",
        "op f(x: f32[N]) -> (y) { at[i in 0..N] = bit_xor(i, 1); y[i in 0..N] = x[at[i]]^2 }",
        "op f(x: f32[N]) -> (y) { at[i in 0..4] = 2*i; y[i] = x[at[i]]^2 }",
        "op f(x: f32[N]) -> (y) { at[i in 0..4] = 2*i; y = sum(i: if at[i] > 2 then x[at[i]]^2 else 0) }"}) {
    const Program p = parse_op(text), derived = gradient(p);
    const CompiledOp op = compile(p);
    int failed = 0;
    for (int64_t n = 6; n <= 8; ++n) {
      SCOPED_TRACE(std::string(text) + ", N = " + std::to_string(n));
      const DimValues dims = {{"N", n}};
      Arrays data = random_inputs(derived, dims, 1, {.finite = false});
      data.merge(random_cotangents(derived, dims, 1));
      const std::string want = error_of([&] { evaluate(p, {{"x", data.at("x")}}, dims); }, "");
      EXPECT_EQ(error_of([&] { run_infer(op, data, dims); }, ""), want);
      failed += !want.empty();
      if (want.empty()) {
        EXPECT_EQ(difference(evaluate(derived, data, dims), run_both(op, data, dims), 1e-4), "");
      }
    }
    EXPECT_TRUE(failed > 0 && failed < 3) << text << ": " << failed;
  }
}

}  // namespace
}  // namespace xhat::testing::checks_test
