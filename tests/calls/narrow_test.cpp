// Kernels of f16, bf16 and u32: stored narrow, computed in f32, rounded where stored or compared.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::narrow_test {
namespace {

using namespace xhat::testing;

// Unit roundoff is 2^-11 for f16 and 2^-8 for bf16; the evaluator in exact arithmetic does not round at all, so a few
// roundings of stored values show.
constexpr double kTolerance16 = 4e-3, kToleranceB16 = 3e-2;

void expect_agreement(std::string text, const DimValues& dims) {
  for (std::string type : {"f16", "bf16"}) {
    std::string narrow = text;
    for (size_t at; (at = narrow.find("T[")) != std::string::npos;) narrow.replace(at, 1, type);
    SCOPED_TRACE(narrow + dims_text(dims));
    Program op = parse_op(narrow), derived = gradient(op);
    Arrays data = random_data(derived, dims, 3);
    EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(compile(op), data, dims),
                         type == "f16" ? kTolerance16 : kToleranceB16),
              "");
  }
}

TEST(Narrow, MapsAndRows) {
  for (int64_t n : {1, 7, 33, 1000}) {
    expect_agreement("op f(x: T[N]) -> (y) { y[n] = tanh(x[n]) * 3 + x[n]*x[n] }", {{"N", n}});
    expect_agreement("op softmax(x: T[N,D]) -> (y) { e[n,d] = exp(x[n,d] - max(k: x[n,k])); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
                     {{"N", 3}, {"D", n}});
    expect_agreement("op f(x: T[N,D], w: T[D]) -> (y) { y[n,d] = x[n,d-1 else -0.5] * w[d] }", {{"N", 4}, {"D", n}});
  }
}

TEST(Narrow, SumsAcrossTilesAreRoundedOnce) {
  // 4096 halves of 1: in f16 itself a sum would stop at 2048.
  Program op = parse_op("op f(x: f16[N,D]) -> (s) { s[d] = sum(n: x[n,d]) }");
  CompileOptions options;
  options.machine.serial_bytes = 0;
  options.machine.tile_bytes = 4096;
  Arrays data = random_data(op, {{"N", 4096}, {"D", 40}}, 1);
  for (double& v : data.at("x").reals) v = 1;
  Arrays got = run_infer(compile(op, options), data, {{"N", 4096}, {"D", 40}});
  for (double v : got.at("s").reals) EXPECT_EQ(v, 4096);
}

// What was stored was rounded, so what it is compared with must be: or no element would equal the maximum.
TEST(Narrow, TiesSurviveRounding) {
  expect_agreement("op f(x: T[N,D]) -> (m) { m[n] = max(d: x[n,d] * 1.1 - 0.3) }", {{"N", 20}, {"D", 30}});
  expect_agreement("op f(x: T[N,D]) -> (m) { t[n,d] = exp(x[n,d]); m[n] = min(d: t[n,d]/3) }", {{"N", 20}, {"D", 30}});
}

// A definition has its type's values, whether it is a temporary, stored or kept for the backward.
TEST(Narrow, ASumIsRoundedWhereverItIs) {
  for (const char* text : {
           "op f(x: T[N,D]) -> (y) { s[n] = sum(d: x[n,d]*x[n,d])\n y[n,d] = x[n,d]*s[n] - s[n] }",
           "op f(x: T[N,D], w: T[D]) -> (y) { s[n] = sum(d: x[n,d]*w[d])\n y[n,d] = (x[n,d] - s[n]) * s[n] }",
           "op f(x: T[N,D]) -> (y) { p[d] = prod(n in 0..4: x[n,d])\n y[n,d] = x[n,d]*p[d] - p[d] }",
           "op f(x: T[N,D], w: T[D,K]) -> (y) { h[n,k] = sum(d: x[n,d]*w[d,k])\n r[n] = sum(k: h[n,k]^2)\n y[n,k] = h[n,k] - r[n] }",
           "op f(x: T[N,D]) -> (y) { t[n, d in 0..D] = sum(k in 0..3: x[n, d+k-1 else 0])\n y[n,d] = t[n,d]*t[n,d] - x[n,d] }",
           "op f(x: T[N,D]) -> (y) { s[d] = sum(n: x[n,d])\n q[d] = sum(n: (x[n,d] - s[d]/N)^2)\n y[n,d] = x[n,d]*q[d] - s[d] }"})
    for (std::string type : {"f16", "bf16"}) {
      std::string narrow = text;
      for (size_t at; (at = narrow.find("T[")) != std::string::npos;) narrow.replace(at, 1, type);
      Program op = parse_op(narrow), derived = gradient(op);
      DimValues dims = {{"N", 20}, {"D", 70}};
      if (op.find("w") && op.find("h")) dims["K"] = 24;
      SCOPED_TRACE(narrow);
      Arrays data = random_data(derived, dims, 3);
      for (StashOptions::Policy policy : {StashOptions::Policy::cost, StashOptions::Policy::largest}) {
        CompileOptions options;
        options.stash.policy = policy;
        CompiledOp f = compile(op, options);
        EXPECT_EQ(run_infer(f, data, dims).at("y"), run_both(f, data, dims).at("y"));
      }
    }
  for (std::string type : {"f16", "bf16"}) {
    Program op = parse_op("op f(x: " + type + "[N,D]) -> (y) { s[n] = sum(d: x[n,d])\n y[n,d] = f32(s[n]) + 0*f32(x[n,d]) }");
    DimValues dims = {{"N", 20}, {"D", 70}};
    Arrays data = random_data(op, dims, 3);
    EXPECT_EQ(run_infer(compile(op), data, dims).at("y"), evaluate(op, data, dims).at("y")) << type;
  }
}

TEST(Narrow, GradientsAreAddedToWhatIsThere) {
  Program op = parse_op("op f(x: f16[N]) -> (y) { y[n] = x[n] * 2 }");
  CompiledOp f = compile(op);
  std::vector<uint16_t> x(3, f16_bits(1.5)), y(3), dy(3, f16_bits(0.25)), dx(3, f16_bits(1));
  int64_t shape[] = {3};
  auto view = [&](std::vector<uint16_t>& v) { return TensorView(v.data(), DType::f16, shape, {}); };
  Stash stash = f.forward({{"x", view(x)}, {"y", view(y)}});
  f.backward({{"x", view(x)}, {"dy", view(dy)}, {"grad_x", view(dx), true}}, stash);
  for (uint16_t v : dx) EXPECT_EQ(f16_value(v), 1.5);
}

TEST(Narrow, SpecialValuesPass) {
  double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (std::string type : {"f16", "bf16"}) {
    Program op = parse_op("op f(x: " + type + "[N]) -> (y, z) { y[n] = x[n]; z[n] = f32(x[n]) * 2 }");
    Array x = zeros(op.tensors[op.inputs[0]].type, {20});
    x.reals = {0, -0.0, 1, inf, -inf, nan, 6e-8, -6e-8, 65504, 0x1p-24, 0x1p-14, 3.14159, 1, 2, 3, 4, 5, 6, 7, 8};
    Arrays got = run_infer(compile(op), {{"x", x}}, {{"N", 20}});
    for (size_t i = 0; i < 20; ++i) {
      double want = round_to(x.type, x.reals[i]);
      EXPECT_TRUE(got.at("y").reals[i] == want || (std::isnan(want) && std::isnan(got.at("y").reals[i]))) << type << " " << want;
      EXPECT_TRUE(got.at("z").reals[i] == 2 * want || std::isnan(want)) << type << " " << want;
    }
  }
}

TEST(Narrow, RoundsToNearestEven) {
  Program op = parse_op("op f(x: f32[N]) -> (h, b) { h[n] = f16(x[n]); b[n] = bf16(x[n]) }");
  Arrays data = random_data(op, {{"N", 4000}}, 2);
  auto& x = data.at("x").reals;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(static_cast<float>(std::ldexp(1 + x[i], static_cast<int>(i % 40) - 24)));
  for (size_t i = 0; i < 1000; ++i) x[i] = 1 + static_cast<double>(i) * 0x1p-12;  // halves of the last place
  Arrays got = run_infer(compile(op), data, {{"N", 4000}});
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(got.at("h").reals[i], round_to(DType::f16, x[i])) << x[i];
    EXPECT_EQ(got.at("b").reals[i], round_to(DType::bf16, x[i])) << x[i];
  }
}

TEST(Narrow, UnsignedIntegersWrap) {
  Program op = parse_op(R"(op f(a: u32[N], b: u32[N], x: f32[N]) -> (s, d, p, q, r, m, c, y, u) {
    s[n] = a[n] + b[n]
    d[n] = a[n] - b[n]
    p[n] = a[n] * b[n]
    q[n] = a[n] / b[n]
    r[n] = a[n] % b[n]
    m[n] = max(a[n], b[n])
    c[n] = a[n] < b[n]
    y[n] = f64(a[n]) + f64(x[n])
    u[n] = u32(x[n])
  })");
  DimValues dims = {{"N", 37}};
  Arrays data = random_data(op, dims, 4);
  for (size_t i = 0; i < 37; ++i) {
    data.at("a").integers[i] = static_cast<int64_t>(i % 5 == 0 ? 4294967295u - i : i * 123456789u) & 0xffffffff;
    data.at("b").integers[i] = static_cast<int64_t>(i % 3);
    data.at("x").reals[i] = (static_cast<double>(i) - 5) * 1e8;
  }
  Arrays want = evaluate_on(op, data, dims), got = run_infer(compile(op), data, dims);
  for (const char* name : {"s", "d", "p", "q", "r", "m", "c", "u"}) EXPECT_EQ(got.at(name).integers, want.at(name).integers) << name;
  EXPECT_EQ(got.at("y").reals, want.at("y").reals);
}

TEST(Narrow, RandomNumbersFromAnUnsignedSeed) {
  Program op = parse_op("op f(x: f32[N], seed: u32) -> (y) { y[n] = x[n] * random(seed, n) }");
  DimValues dims = {{"N", 100}};
  Arrays data = random_data(op, dims, 4);
  data.at("seed").integers[0] = 4000000000;
  EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(compile(op), data, dims), 1e-6), "");
}

}  // namespace
}  // namespace xhat::narrow_test
