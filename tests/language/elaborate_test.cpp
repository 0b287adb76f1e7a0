// What the text means: types, numbers without a type, ranges, dims, preconditions, calls, custom gradients.
#include "expr/text/elaborate.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <ranges>

#include "ad/check/random_inputs.h"
#include "expr/core/uses.h"
#include "expr/eval/evaluate.h"
#include "expr/index/dims.h"

namespace xhat::elaborate_test {
namespace {

// The definition of y in `op f(params) -> (y) { statements }`, printed: the canonical text shows what was understood.
Program op_of(const std::string& params, const std::string& statements) {
  return parse_op("op f(" + params + ") -> (y) {\n" + statements + "\n}");
}

std::string y_of(const std::string& params, const std::string& statements) {
  Program p = op_of(params, statements);
  verify(p);
  return print(p, *p.definition_of(p.outputs[0]));
}

DType type_of_y(const std::string& params, const std::string& statements) {
  Program p = op_of(params, statements);
  return p.tensors[p.outputs[0]].type;
}

const Node& body_of_y(const Program& p) { return (*p.arena)[p.definition_of(p.outputs[0])->body]; }

std::string preconditions(const Program& p) {
  std::string text;
  for (const Precondition& c : p.preconditions) text += (text.empty() ? "" : "; ") + print(p, c.condition);
  return text;
}

std::string shape_of_y(const Program& p) {
  std::string text;
  for (Id extent : p.tensors[p.outputs[0]].shape) text += (text.empty() ? "" : ",") + print(p, extent);
  return text;
}

TEST(ElaborateNumbersTest, TakeTheOtherOperandsType) {
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = 1/2*x[i]"), "y[i] = 0.5 * x[i]");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = 2^-1*x[i]"), "y[i] = 0.5 * x[i]");
  EXPECT_EQ(y_of("x: i32[N]", "y[i] = 7/2*x[i]"), "y[i] = 3 * x[i]");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = x[7/2]*x[i]"), "y[i] = x[3] * x[i]");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = if i < 5/2 then x[i] else 0"), "y[i] = if i < 2 then x[i] else 0");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = sqrt(4)*x[i]"), "y[i] = 2 * x[i]");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = 1/0 + -1/0 + x[i]"), "y[i] = nan + x[i]");
}

TEST(ElaborateNumbersTest, ConstantsKeepTheirDoubleValue) {
  Program p = op_of("x: f32[N]", "y[i] = x[i] + 0.1");
  const Node& constant = (*p.arena)[body_of_y(p).arg(1)];
  EXPECT_EQ(constant.type, DType::f32);
  EXPECT_EQ(constant.value, 0.1);
}

TEST(ElaborateNumbersTest, DimsAreFoldedInF64) {
  Program p = op_of("x: f32[N,M]", "y = sum(i,j: x[i,j]) / (N*M)");
  Arena& a = *p.arena;
  Id n = a.cast(DType::f64, a.dim("N")), m = a.cast(DType::f64, a.dim("M"));
  EXPECT_EQ(body_of_y(p).arg(1), a.cast(DType::f32, a.mul(n, m)));
  Program q = op_of("x: f32[N]", "y = f32(N)");
  EXPECT_EQ(q.definition_of(q.outputs[0])->body,
            q.arena->cast(DType::f32, q.arena->cast(DType::f64, q.arena->dim("N"))));
}

TEST(ElaborateNumbersTest, DimsBesideIntegersFloor) {
  Program p = op_of("ids: i64[N]", "y[i] = ids[i] + N/2");
  Arena& a = *p.arena;
  EXPECT_EQ(body_of_y(p).arg(1), a.div(a.dim("N"), a.integer(2)));
  EXPECT_EQ(body_of_y(p).type, DType::i64);
}

TEST(ElaborateNumbersTest, UntypedBranchesTakeTheTypeAround) {
  Program p = op_of("x: f64[N]", "y[i] = (if x[i] > 0 then 1 else 1/2) * x[i]");
  const Node& select = (*p.arena)[body_of_y(p).arg(0)];
  EXPECT_EQ(select.op, Op::select);
  EXPECT_EQ(select.type, DType::f64);
  EXPECT_EQ(type_of_y("x: f16[N]", "y[i] = sum(k if x[k] > 0: 1) * x[i]"), DType::f16);
  EXPECT_EQ(type_of_y("x: f16[N]", "y = sum(k if x[k] > 0: 1)"), DType::f32);
  EXPECT_EQ(type_of_y("x: i32[N]", "y[i] = sum(k if x[k] > 0: 1) + x[i]"), DType::i64);
}

TEST(ElaborateTypesTest, Promotion) {
  const std::tuple<const char*, const char*, DType> rows[] = {
      {"f16", "bf16", DType::f32}, {"f16", "f32", DType::f32}, {"f32", "f64", DType::f64},
      {"u8", "i32", DType::i32},   {"i32", "u32", DType::i64}, {"i32", "i64", DType::i64},
      {"f16", "f16", DType::f16}};
  for (auto [a, b, wide] : rows) {
    std::string params = std::string("a: ") + a + "[N], b: " + b + "[N]";
    EXPECT_EQ(type_of_y(params, "y[i] = a[i] + b[i]"), wide) << params;
    EXPECT_EQ(type_of_y(params, "y[i] = b[i] * a[i]"), wide) << params;
    EXPECT_EQ(type_of_y(params, "y[i] = if a[i] > b[i] then a[i] else b[i]"), wide) << params;
  }
  EXPECT_EQ(y_of("a: f32[N], b: f64[N]", "y[i] = a[i] * b[i]"), "y[i] = f64(a[i]) * b[i]");
  EXPECT_EQ(y_of("a: i32[N]", "y[i] = a[i] + i"), "y[i] = i64(a[i]) + i");
}

TEST(ElaborateTypesTest, Reductions) {
  EXPECT_EQ(type_of_y("x: i32[N]", "y = sum(k: x[k])"), DType::i64);
  EXPECT_EQ(type_of_y("x: u8[N]", "y = prod(k: x[k])"), DType::i64);
  EXPECT_EQ(type_of_y("x: i32[N]", "y = max(k: x[k])"), DType::i32);
  EXPECT_EQ(type_of_y("x: f16[N]", "y = sum(k: x[k])"), DType::f16);
  EXPECT_EQ(type_of_y("x: bf16[N]", "y = mean(k: x[k])"), DType::bf16);
  EXPECT_EQ(type_of_y("x: f16[N]", "y = argmax(k: x[k])"), DType::i64);
  EXPECT_EQ(type_of_y("x: f32[N]", "y = any(k: x[k] > 0)"), DType::boolean);
  EXPECT_EQ(type_of_y("", "y = 3"), DType::f32);
  EXPECT_EQ(type_of_y("x: f64[N]", "y = random(1, 2)"), DType::f32);
}

TEST(ElaborateTest, MeanIsSumOverCount) {
  EXPECT_EQ(y_of("x: f32[N,D]", "y[n] = mean(k: x[n,k])"), "y[n] = sum(k: x[n,k]) / D");
  EXPECT_EQ(y_of("x: f32[N,D]", "y = mean(n,k: x[n,k])"), "y = sum(n,k: x[n,k]) / (N * D)");
  EXPECT_EQ(y_of("x: f32[N]", "y = mean(k in 1..N: x[k])"), "y = sum(k in 1..N: x[k]) / f32(i64(N - 1))");
  EXPECT_EQ(y_of("x: f64[D]", "y = mean(k if x[k] > 0: x[k])"),
            "y = sum(k if 0 < x[k]: x[k]) / f64(i64(sum(k if 0 < x[k]: 1)))");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = mean(k in 0..i+1: x[k]) + x[i]"),
            "y[i] = sum(k in 0..i+1: x[k]) / f32(i + 1) + x[i]");
  EXPECT_EQ(y_of("x: f16[N]", "y = mean(k: x[k])"), "y = f16(sum(k: f32(x[k])) / N)");
}

// What a let names may be a reduction over an axis that a reduction around its use has the name of.
TEST(ElaborateTest, LetsKeepTheirAxes) {
  EXPECT_EQ(y_of("x: f32[N,D]", "y[n,d] = let m = mean(k: x[n,k]) in x[n,d] - m + mean(k: (x[n,k]-m)^2)"),
            "y[n,d] = let t1 = sum(k: x[n,k]) / D in x[n,d] - t1 + sum(k_1: (x[n,k_1] - t1)^2) / D");
  EXPECT_EQ(y_of("x: f32[N]", "y = let m = max(k: x[k]) in sum(k, l in 0..k+1 if k > l: m*x[k])"),
            "y = sum(k_1, l in 0..k_1+1 if l < k_1: max(k: x[k]) * x[k_1])");
  EXPECT_EQ(y_of("x: f32[N], k_1: f32", "y = let m = max(k: x[k]) in let s = sum(k: x[k]*m) in sum(k: x[k]*s*k_1)"),
            "y = sum(k_3: x[k_3] * sum(k_2: x[k_2] * max(k: x[k])) * k_1)");
  EXPECT_EQ(y_of("x: f32[N]", "y = let two = sum(k in 0..3: 2) in sum(k in 0..4: two) * x[0]"),
            "y = sum(k_1 in 0..4: sum(k in 0..3: 2)) * x[0]");
  EXPECT_EQ(y_of("x: f32[N]", "y = let m = argmax(k: x[k]) in sum(k: x[k]*x[m])"), "y = sum(k_1: x[k_1] * x[argmax(k: x[k])])");
  EXPECT_EQ(y_of("x: f32[N]", "y = let m = sum(k: x[k]) in m + sum(k: x[k])"), "y = let t1 = sum(k: x[k]) in t1 + t1");
}
// A condition on the one axis proves nothing of the other.
TEST(ElaborateBoundsTest, AxesOfLetsAreTheirOwn) {
  EXPECT_THROW(op_of("x: f32[N]", "y = let m = sum(k in 0..N: x[k-3]) in sum(k if k > 2: m*x[k])"), Error);
}

TEST(ElaborateTest, ComparisonsAreLess) {
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = x[i] > 1"), "y[i] = 1 < x[i]");
  EXPECT_EQ(y_of("x: f32[N]", "y[i] = x[i] >= 1"), "y[i] = 1 <= x[i]");
}

TEST(ElaborateRangesTest, FollowFromIndices) {
  EXPECT_EQ(shape_of_y(op_of("x: f32[N,2*M]", "y[j,i] = x[i,j]")), "2 * M,N");
  EXPECT_EQ(shape_of_y(op_of("x: f32[N], w: f32[3]", "y[i] = x[i] + w[i else 0]")), "N");
  EXPECT_EQ(shape_of_y(op_of("w: f32[3]", "y[i] = w[i else 0]")), "3");
  EXPECT_EQ(shape_of_y(op_of("x: f32[2*N+2], z: f32[2*(N+1)]", "y[i] = x[i] + z[i]")), "2 * N + 2");
  EXPECT_EQ(shape_of_y(op_of("x: f32[N]", "z[i in 0..N/2] = x[2*i]\ny[i] = z[i]")), "N / 2");
  EXPECT_EQ(shape_of_y(op_of("x: f32[N]", "y[i] = z[i]\nz[i in 0..N/2] = x[2*i]")), "N / 2");
}

TEST(ElaborateRangesTest, RangeOnlyDimsComeFromOutside) {
  Program p = op_of("x: f32[N]", "y[i in 0..K] = x[i else 0] / K");
  ASSERT_EQ(p.dims.size(), 2u);
  EXPECT_EQ(p.arena->name(p.dims[1].dim), "K");
  EXPECT_EQ(p.dims[1].definition, kNone);
}

TEST(ElaborateBoundsTest, Preconditions) {
  EXPECT_EQ(preconditions(op_of("x: f32[N,C]", "y[n] = x[n,0]")), "1 <= C");
  EXPECT_EQ(op_of("x: f32[N,C]", "y[n] = x[n,0]").preconditions[0].reason,
            "x[n,0] reads element 0 of x's dimension 1 (C)");
  EXPECT_EQ(preconditions(op_of("x: f32[N]", "y = x[N-1]")), "1 <= N");
  EXPECT_EQ(preconditions(op_of("x: f32[N]", "y = x[4]")), "5 <= N");
  EXPECT_EQ(preconditions(op_of("x: f32[N-2]", "y[i] = x[i]")), "2 <= N");
  EXPECT_EQ(preconditions(op_of("x: f32[N]", "y[i in 0..N-1] = x[i+1] - x[i]")), "1 <= N");
  EXPECT_EQ(preconditions(op_of("x: f32[N]", "y[i in 0..N] = x[N-1-i]")), "");
}

TEST(ElaborateBoundsTest, ConditionsProveReads) {
  for (const char* body :
       {"if i > 0 then x[i-1] else 0", "if i == 0 then 0 else x[i-1]", "if !(i == 0) then x[i-1] else 0",
        "if i >= 1 && i < N then x[i-1] else 0", "if i < 1 || i > N then 0 else x[i-1]",
        "if i > 0 && x[i-1] > 0 then 1 else 0", "if i == 0 || x[i-1] > 0 then 1 else 0",
        "sum(k if k > i: x[k-1]*x[k])", "x[max(i-1, 0)]", "x[clamp(i+3, 0, N-1)]", "x[i/2]", "x[i-1 else 0]",
        "if i > 0 then (let a = x[i-1] in a*a) else 0", "let a = x[i-1] in if i > 0 then a else 0",
        "(if i > 0 then x[i-1] else 0) + (if i > 3 then x[i-1] else 1)"}) {
    EXPECT_EQ(preconditions(op_of("x: f32[N]", std::string("y[i in 0..N] = ") + body)), "") << body;
  }
}

// Nothing is read where a range is empty, whatever the index; where only some sizes make it so, it is an error as ever
// (errors/out_of_range_in_a_sum.xh).
TEST(ElaborateBoundsTest, EmptyRangesReadNothing) {
  EXPECT_TRUE(parse_op("op f(x: f32[3]) -> (y) { y = sum(k in 0..0: x[0-1]) }").preconditions.empty());
  EXPECT_TRUE(parse_op("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in i..i: x[N+k]) }").preconditions.empty());
}

// A read under forty choices by data, one after the other, and under one of places: asked once each way, and not under 2^40 conditions.
TEST(ElaborateBoundsTest, ChoicesByDataAreNoContexts) {
  std::string lets = "y[i in 0..N] = let a0 = (if i > 0 then x[i-1] else x[i]) in ";
  for (int k = 1; k <= 40; ++k) lets += fmt::format("let a{0} = if a{1} > t then a{1} * 0.5 else a{1} + 0.25 in ", k, k - 1);
  const Program p = op_of("x: f32[N], t: f32", lets + "a40");
  EXPECT_TRUE(p.preconditions.empty());
  std::string truths = "y[i in 0..N] = let a0 = b[i] in ";
  for (int k = 1; k <= 40; ++k) truths += fmt::format("let a{0} = if a{1} then a{1} || c[i] else !a{1} && c[i] in ", k, k - 1);
  EXPECT_TRUE(op_of("b: bool[N], c: bool[N]", truths + "if a40 then 1 else 2").preconditions.empty());
}

TEST(ElaborateBoundsTest, DefinedDimsCountByTheirDefinition) {
  Program p = op_of("x: f32[N]", "dim M = N/2\ny[i in 0..M] = x[2*i+1]");
  EXPECT_EQ(preconditions(p), "");
  EXPECT_THROW(op_of("x: f32[N]", "dim M = N/2\ny[i in 0..M] = x[2*i+2]"), Error);
}

// What cannot be decided for all sizes is decided when they are known, and named until then.
TEST(ElaborateBoundsTest, OpenReadsAreDecidedBySizes) {
  const std::string flat = "op f(x: f32[K], z: f32[N,M]) -> (y) { y[i in 0..N, j in 0..M] = x[i*M+j]*z[i,j] }\n";
  Program p = parse_op(flat);
  verify(p);
  EXPECT_EQ(open_reads(p), (std::vector<std::string>{"x[i*M+j] reads element i * M + j of x's dimension 0 (K)"}));
  EXPECT_NO_THROW(solve_dims(p, {}, {{"K", 20}, {"N", 4}, {"M", 5}}));
  EXPECT_NO_THROW(solve_dims(p, {}, {{"K", 0}, {"N", 0}, {"M", 5}}));
  try {
    solve_dims(p, {}, {{"K", 19}, {"N", 4}, {"M", 5}});
    ADD_FAILURE() << "19 elements are too few for 4 x 5";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("x[i*M+j] reads element i * M + j of x's dimension 0 (K), and falls outside: i = 3, j = 4 with K = 19, M = 5, "
                               "N = 4: index 19"),
              std::string::npos)
        << e.message();
  }
  // Through a call, and with a condition on positions and one on data, which counts as true.
  Program caller = parse_op(flat + "op g(x: f32[2*L], z: f32[N,M]) -> (y) { y = f(x, z) }");
  verify(caller);
  EXPECT_EQ(open_reads(caller).size(), 1u);
  EXPECT_NO_THROW(solve_dims(caller, {}, {{"L", 3}, {"N", 2}, {"M", 3}}));
  EXPECT_THROW(solve_dims(caller, {}, {{"L", 2}, {"N", 2}, {"M", 3}}), Error);
  Program guarded = op_of("x: f32[K], z: f32[N,M]", "y[i in 0..N, j in 0..M] = if z[i,j] > 0 && i*M+j < 7 then x[i*M+j] else 0");
  EXPECT_NO_THROW(solve_dims(guarded, {}, {{"K", 7}, {"N", 4}, {"M", 5}}));
  EXPECT_THROW(solve_dims(guarded, {}, {{"K", 6}, {"N", 4}, {"M", 5}}), Error);
  for (const char* proved : {"y[p in 0..N*M] = z[p/M, p%M]", "y[p in 0..N*M] = if p%M > 0 then z[p/M, p%M-1] else 0",
                             "y[p in 0..N*M, k in 0..3] = z[p/M, (p%M+k)%M]", "y[i in 0..N, j in 0..M] = x[(i*M+j) % max(K, 1) else 0]*z[i,j]"})
    EXPECT_EQ(open_reads(op_of("x: f32[K], z: f32[N,M]", proved)), std::vector<std::string>()) << proved;
}

TEST(ElaborateCallsTest, ShapesFollowFromTheCallee) {
  const std::string callee =
      "op g(x: f32[N,2*D]) -> (a, b) {\n a[n,d in 0..D] = x[n,2*d]\n b[n] = x[n,0]\n}\n";
  Program p = parse_op(callee + "op f(x: f32[4*M,6*K]) -> (y) {\n (y, z) = g(2*x)\n}");
  verify(p);
  EXPECT_EQ(shape_of_y(p), "4 * M,6 * K / 2");
  ASSERT_EQ(p.forward.definitions.size(), 2u);
  EXPECT_EQ(print(p, p.forward.definitions[0]), "g_arg1[i0,i1] = 2 * x[i0,i1]");
  EXPECT_EQ(print(p, p.forward.definitions[1]), "(y, z) = g(g_arg1)");
  EXPECT_EQ(preconditions(p), "1 <= 6 * K / 2");
}

TEST(ElaborateCallsTest, ArgumentsBroadcast) {
  const std::string callee = "op g(x: f32[N,M], s: f32) -> (y) { y[i,j] = x[i,j]*s }\n";
  Program p = parse_op(callee + "op f(a: f32[N,1], b: f32[M]) -> (y) { y = g(exp(a) + b, 2) }");
  verify(p);
  EXPECT_EQ(print(p, p.forward.definitions[0]), "g_arg1[i0,i1] = exp(a[i0,0]) + b[i1]");
  EXPECT_EQ(print(p, p.forward.definitions[1]), "g_arg2 = 2");
}

TEST(ElaborateGradientTest, CustomGradientsAndBackwardBlocks) {
  Program p = parse_op(
      "op f(x: f32[N], ids: i32[N], w: f32[N] const) -> (y) { y[i] = x[i]*w[i] }\n"
      "grad f(x, ids, w, y, dy) -> (dx) { dx[i] = dy[i]*w[i] }");
  ASSERT_TRUE(p.custom_gradient);
  EXPECT_EQ(p.custom_gradient->inputs.size(), 5u);
  EXPECT_EQ(p.custom_gradient->outputs.size(), 1u);
  Program q = parse_op(
      "op f(x: f32[N]) -> (y) { y[i] = exp(x[i]) } backward (dy: f32[N]) -> (grad_x) { grad_x[i] = "
      "y[i]*dy[i] }");
  verify(q);
  EXPECT_EQ(q.cotangents.size(), 1u);
  ASSERT_EQ(q.gradients.size(), 1u);
  EXPECT_EQ(q.gradient_of, q.inputs);
  EXPECT_EQ(q.backward.definitions.size(), 1u);
}

TEST(Uses, KnowsDefinitionsAndReaders) {
  Program p = parse_op(
      "op g(a: f32[N], b: f32[N]) -> (c) { c[i] = a[i] + b[i] }\n"
      "op f(x: f32[N], u: f32[N]) -> (y) {\n y = g(x, x)\n z[i] = x[i] }\n"
      "backward (dy: f32[N]) -> (grad_x) { t[i] = y[i]*y[i]\n grad_x[i] = t[i]*dy[i] }");
  const Uses uses(p);
  auto names = [&](auto&& definitions) {
    std::string text;
    for (const Definition& d : definitions) text += p.tensor(d.target()).name + " ";
    return text;
  };
  auto readers = [&](const char* tensor) {
    return names(uses.readers(*p.find(tensor)) | std::views::transform([](const Definition* d) { return *d; }));
  };
  EXPECT_EQ(names(p.definitions()), "y z t grad_x ");
  EXPECT_EQ(names(p.definitions() | std::views::reverse), "grad_x t z y ");
  EXPECT_EQ(p.definitions().size(), 4u);
  EXPECT_EQ(uses.definition(*p.find("t")), &p.backward.definitions[0]);
  EXPECT_EQ(uses.definition(*p.find("x")), nullptr);
  EXPECT_EQ(readers("x"), "y z ");  // the call reads it twice
  EXPECT_EQ(readers("y"), "t ");
  EXPECT_EQ(readers("u"), "");
}

TEST(ElaborateTest, LongChainsTakeNoRecursion) {
  std::string sum = "x[i]", choose;
  for (int i = 0; i < 100000; ++i) sum += i % 2 ? " + x[i]" : " - 2";
  EXPECT_EQ(op_of("x: f32[N]", "y[i] = " + sum).inputs.size(), 1u);
  for (int i = 0; i < 3000; ++i) choose += "if x[i] < " + std::to_string(i) + " then x[i] else ";
  EXPECT_EQ(op_of("x: f32[N]", "y[i] = " + choose + "0").inputs.size(), 1u);
}

TEST(ElaborateTest, VerifyCitesTheInvariant) {
  auto broken = [](auto change) {
    Program p = parse_op("op f(x: f32[N]) -> (y) {\n z[i] = x[i]\n y[i] = z[i] + sum(k: x[k])\n}");
    verify(p);
    change(p);
    try {
      verify(p);
    } catch (const Bug& bug) {
      std::string text = bug.what();
      return text.substr(0, text.find(" of op"));
    }
    return std::string("fine");
  };
  EXPECT_EQ(broken([](Program& p) { std::swap(p.forward.definitions[0], p.forward.definitions[1]); }), "xhat bug: invariant 5");
  EXPECT_EQ(broken([](Program& p) {
              p.backward.definitions = {p.forward.definitions[0]};
              p.forward.definitions.erase(p.forward.definitions.begin());
            }),
            "xhat bug: invariant 6");
  EXPECT_EQ(broken([](Program& p) { p.forward.definitions[0].axes.clear(); }), "xhat bug: invariant 9");
  EXPECT_EQ(broken([](Program& p) { p.forward.definitions[1].body = p.arena->axis("i"); }), "xhat bug: invariant 9");
  EXPECT_EQ(broken([](Program& p) { p.tensors[1].name = "x"; }), "xhat bug: invariant 7");
  EXPECT_EQ(broken([](Program& p) { p.tensors[0].name = "k"; }), "xhat bug: invariant 7");
  EXPECT_EQ(broken([](Program& p) { p.dims.clear(); }), "xhat bug: invariant 10");
  EXPECT_EQ(broken([](Program& p) {
              Id k = p.arena->axis("k");
              p.forward.definitions[0].body = p.arena->read(0, DType::f32, {{k}});
            }),
            "xhat bug: invariant 3");
  EXPECT_EQ(broken([](Program& p) { p.forward.definitions[0].body = p.arena->read(0, DType::f32, {}); }), "xhat bug: invariant 4");
  EXPECT_EQ(broken([](Program& p) { p.outputs.push_back(p.add_tensor("w", DType::f32, {})); }),
            "xhat bug: invariant 8");
}

std::string message_of(const std::string& text) {
  try {
    parse_op(text);
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

TEST(ElaborateErrorsTest, OnlyNearNamesAreSuggested) {
  struct Row {
    const char *written, *known, *suggested;  // "": nothing
  };
  const Row rows[] = {{"ab", "ac", ""},           {"N1", "N2", ""},         {"xs", "ys", ""},          {"mean", "beta", ""},
                      {"abcd", "dcba", ""},       {"input", "output", ""},  {"gamma", "beta", ""},     {"mue", "mui", "mui"},
                      {"gama", "gamma", "gamma"}, {"maen", "mean", "mean"}, {"varianz", "variance", "variance"}};
  for (const Row& r : rows) {
    std::string said = message_of(fmt::format("op f({}: f32[K]) -> (y) {{ y[i in 0..3] = {}[i] }}", r.known, r.written));
    EXPECT_EQ(said.find("did you mean") != std::string::npos, *r.suggested != 0) << said;
    EXPECT_NE(said.find(r.suggested), std::string::npos) << said;
  }
}

// Each op calls the one before twice: `levels` of them.
std::string doubling(int levels) {
  std::string text = "op g0(x: f32[N]) -> (y) { y[i] = x[i] }\n";
  for (int k = 1; k <= levels; ++k) text += fmt::format("op g{0}(x: f32[N]) -> (y) {{ a = g{1}(x)\n y = g{1}(a) }}\n", k, k - 1);
  return text;
}

std::string chain_of_calls(int levels) {
  std::string text = "op g0(x: f32[N]) -> (y) { y[i] = x[i] }\n";
  for (int k = 1; k <= levels; ++k) text += fmt::format("op g{0}(x: f32[N]) -> (y) {{ y = g{1}(x) }}\n", k, k - 1);
  return text;
}

// An op of numbers in an expression is what stands in it.
TEST(ElaborateCallsTest, OpsOfNumbersStandInExpressions) {
  const std::string ops =
      "op half(x: f64) -> (y) { y = x / 2 }\n"
      "op g(x: f64, w: f64) -> (y) {\n y = t * half(w) + t\n t = sum(k in 0..3: x * f64(k))\n}\n";
  for (const auto& [called, written] :
       {std::pair{"op f(x: f64[N]) -> (y) { y[i] = half(x[i] + 1) * half(2) }",
                  "op f(x: f64[N]) -> (y) { y[i] = (x[i] + 1) / 2 * (2.0 / 2) }"},
        std::pair{"op f(x: f64[N,M]) -> (y) { y[n] = sum(k: g(x[n,k], x[n,0])) }",  // k of the sum is not k of g
                  "op f(x: f64[N,M]) -> (y) { y[n] = sum(k: let t = sum(q in 0..3: x[n,k] * f64(q)) in t * (x[n,0] / 2) + t) }"},
        std::pair{"op f(x: f32[N], s: f64) -> (y) { y[i] = half(x[i]) + half(half(s)) }",
                  "op f(x: f32[N], s: f64) -> (y) { y[i] = f64(x[i]) / 2 + s / 2 / 2 }"},
        std::pair{"op f(x: f64) -> (y) { y = -half(x) }", "op f(x: f64) -> (y) { y = -(x / 2) }"}}) {
    const Program p = parse_op(ops + called), q = parse_op(written);
    verify(p);
    const Arrays inputs = random_inputs(p, {{"N", 3}, {"M", 4}}, 1);
    EXPECT_EQ(evaluate(p, inputs).at("y").reals, evaluate(q, inputs).at("y").reals) << print(p);
    EXPECT_EQ(p.forward.definitions.size(), 1U) << print(p);
  }
  auto message = [&](const std::string& op) { return message_of(ops + op); };
  EXPECT_NE(message("op f(x: f64[N]) -> (y) { y[i] = half(x[i], 2) }").find("op half takes 1 arguments, not 2: x"), std::string::npos);
  EXPECT_NE(message("op f(x: i32[N]) -> (y) { y[i] = half(x[i]) }").find("half takes f64 for x, and this is i32; cast it, as in f64(…)"),
            std::string::npos);
}

TEST(ElaborateErrorsTest, CallsThatBecomeTooMuch) {
  EXPECT_EQ(message_of(doubling(16)), "no error");
  EXPECT_EQ(message_of(doubling(17)).substr(0, 77), "op g17 with its calls written out has 131072 definitions; 100000 are the most");
  EXPECT_NE(message_of(doubling(30)).find("has 131072 definitions"), std::string::npos);  // the first that is too large
  EXPECT_EQ(message_of(chain_of_calls(900)), "no error");
  EXPECT_NE(message_of(chain_of_calls(1100)).find("1001 levels deep; 1000 are the most"), std::string::npos);
  // In a stated gradient, too.
  std::string stated = doubling(16) + "op h(x: f32[N]) -> (y) { y[i] = x[i] }\ngrad h(x, dy) -> (dx) { a = g16(dy)\n dx = g16(a) }";
  EXPECT_NE(message_of(stated).find("op h with its calls written out has 131072 definitions"), std::string::npos) << message_of(stated);
}

}  // namespace
}  // namespace xhat::elaborate_test
