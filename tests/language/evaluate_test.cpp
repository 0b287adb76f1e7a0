// The evaluator against hand-computed values: reductions, ranges, laziness, rounding, calls, and its errors.
#include "expr/eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace xhat::evaluate_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Array f32(std::vector<int64_t> shape, std::vector<double> values) {
  return array_of(DType::f32, std::move(shape), std::move(values));
}
Array i32(std::vector<int64_t> shape, std::vector<double> values) {
  return array_of(DType::i32, std::move(shape), std::move(values));
}
Array i64(std::vector<int64_t> shape, std::vector<double> values) {
  return array_of(DType::i64, std::move(shape), std::move(values));
}
Array boolean(std::vector<int64_t> shape, std::vector<double> values) {
  return array_of(DType::boolean, std::move(shape), std::move(values));
}

// The output y of a program given as text.
Array y_of(const std::string& text, const Arrays& inputs, Rounding rounding = Rounding::declared) {
  EvaluateOptions options;
  options.rounding = rounding;
  return evaluate(parse_op(text), inputs, options).at("y");
}

std::string error_of(const std::string& text, const Arrays& inputs) {
  try {
    y_of(text, inputs);
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// NaN equals NaN, and differences up to a few roundings do not count.
void expect_near(const Array& got, const Array& wanted) {
  ASSERT_EQ(got.shape, wanted.shape);
  ASSERT_EQ(got.type, wanted.type);
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted.at(i)))
      EXPECT_TRUE(std::isnan(got.at(i))) << "element " << i << ": " << got.at(i);
    else if (std::isinf(wanted.at(i)))
      EXPECT_EQ(got.at(i), wanted.at(i)) << "element " << i;
    else
      EXPECT_NEAR(got.at(i), wanted.at(i), 1e-6 * std::fabs(wanted.at(i))) << "element " << i;
  }
}

// Numbers that differ everywhere, exact in f32.
Array counting(std::vector<int64_t> shape) {
  Array a = zeros(DType::f32, std::move(shape));
  for (size_t i = 0; i < a.size(); ++i) a.reals[i] = static_cast<double>((7 * i) % 23) - 11;
  return a;
}

TEST(Evaluate, MatrixProduct) {
  Array a = counting({3, 40}), b = counting({40, 20}), expected = zeros(DType::f32, {3, 20});
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 20; ++j)
      for (size_t k = 0; k < 40; ++k) expected.reals[i * 20 + j] += a.reals[i * 40 + k] * b.reals[k * 20 + j];
  EXPECT_EQ(
      y_of("op f(a: f32[M,K], b: f32[K,N]) -> (y) { y[i,j] = sum(k: a[i,k]*b[k,j]) }", {{"a", a}, {"b", b}}),
      expected);
}

// More points than lanes, a last block that is not full, and lanes along each axis.
TEST(Evaluate, BlocksOfLanes) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{3, 1000}, {1000, 3}, {257, 256}, {1, 1}, {5, 5}}) {
    Array x = counting(shape), doubled = x, rows = zeros(DType::f32, {shape[0]}),
          columns = zeros(DType::f32, {shape[1]});
    Array total = zeros(DType::f32, {});
    for (size_t i = 0; i < x.size(); ++i) {
      doubled.reals[i] = 2 * x.reals[i];
      rows.reals[i / static_cast<size_t>(shape[1])] += x.reals[i];
      columns.reals[i % static_cast<size_t>(shape[1])] += x.reals[i];
      total.reals[0] += x.reals[i];
    }
    EXPECT_EQ(y_of("op f(x: f32[N,M]) -> (y) { y[n,m] = 2*x[n,m] }", {{"x", x}}), doubled)
        << shape_text(shape);
    EXPECT_EQ(y_of("op f(x: f32[N,M]) -> (y) { y[n] = sum(m: x[n,m]) }", {{"x", x}}), rows)
        << shape_text(shape);
    EXPECT_EQ(y_of("op f(x: f32[N,M]) -> (y) { y[m] = sum(n: x[n,m]) }", {{"x", x}}), columns)
        << shape_text(shape);
    EXPECT_EQ(y_of("op f(x: f32[N,M]) -> (y) { y = sum(n,m: x[n,m]) }", {{"x", x}}), total)
        << shape_text(shape);
  }
}

TEST(Evaluate, NestedReductionsAreTakenPerOuterPoint) {
  // y[n] = sum over k of x[n,k] * (sum over j of x[n,j] where j <= k)
  Array x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y[n] = sum(k: x[n,k] * sum(j in 0..k+1: x[n,j])) }", {{"x", x}}),
            f32({2}, {1 * 1 + 2 * 3 + 3 * 6, 4 * 4 + 5 * 9 + 6 * 15}));
}

TEST(Evaluate, RangesThatDependOnTheLanes) {
  Array x = counting({40}), sums = zeros(DType::f32, {40});
  for (size_t i = 0; i < 40; ++i)
    for (size_t k = i / 2; k < i + 1; ++k) sums.reals[i] += x.reals[k];
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k in i/2..i+1: x[k]) }", {{"x", x}}), sums);
  // an axis whose range uses an earlier one of the same reduction: the number of pairs l < k < i
  Array pairs = zeros(DType::f32, {40});
  for (int i = 0; i < 40; ++i) pairs.reals[static_cast<size_t>(i)] = i * (i - 1) / 2;
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[i] = sum(k in 0..i, l in 0..k: 1) + 0*x[i] }", {{"x", x}}),
            pairs);
}

TEST(Evaluate, RangesThatEndBeforeTheyBegin) {
  Array x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y = sum(n in 3..N: sum(k: x[n,k])) }", {{"x", x}}), f32({}, {0}));
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y[n in 0..N] = prod(k in n+2..K-1, l in 4..K: x[n,k]) }", {{"x", x}}), f32({2}, {1, 1}));
}

TEST(Evaluate, ReductionsOverNothing) {
  Arrays none = {{"x", zeros(DType::f32, {2, 0})}};
  auto over = [&](const std::string& reduction) {
    return y_of("op f(x: f32[N,K]) -> (y) { y[n] = " + reduction + " }", none).at(1);
  };
  EXPECT_EQ(over("sum(k: x[n,k])"), 0);
  EXPECT_EQ(over("prod(k: x[n,k])"), 1);
  EXPECT_EQ(over("max(k: x[n,k])"), -kInf);
  EXPECT_EQ(over("min(k: x[n,k])"), kInf);
  EXPECT_EQ(over("any(k: x[n,k] > 0)"), 0);
  EXPECT_EQ(over("all(k: x[n,k] > 0)"), 1);
  EXPECT_TRUE(std::isnan(over("mean(k: x[n,k])")));
  std::string e = error_of("op f(x: f32[N,K]) -> (y) { y[n] = argmax(k: x[n,k]) }", none);
  EXPECT_MENTIONS(e, "op f: y[0] needs argmax over nothing");
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y[n,k] = x[n,k] }", none).shape, (std::vector<int64_t>{2, 0}));
}

TEST(Evaluate, Conditions) {
  Array x = f32({2, 4}, {1, -2, 3, -4, -1, -2, -3, -4});
  Arrays in = {{"x", x}};
  auto over = [&](const std::string& reduction) {
    return y_of("op f(x: f32[N,K]) -> (y) { y[n] = " + reduction + " }", in);
  };
  expect_near(over("sum(k if x[n,k] > 0: x[n,k])"), f32({2}, {4, 0}));
  expect_near(over("mean(k if x[n,k] > 0: x[n,k])"), f32({2}, {2, kNan}));
  expect_near(over("max(k if k % 2 == 1: x[n,k])"), f32({2}, {-2, -2}));
  expect_near(over("min(k if x[n,k] > 0: x[n,k])"), f32({2}, {1, kInf}));
  EXPECT_EQ(over("any(k if k > 0: x[n,k] > 0)"), boolean({2}, {1, 0}));
  EXPECT_EQ(over("all(k if k > 0: x[n,k] < 0)"), boolean({2}, {0, 1}));
  EXPECT_EQ(over("argmin(k if k < 3: x[n,k])"), i64({2}, {1, 2}));
}

TEST(Evaluate, ExtremesTakeTheFirst) {
  Arrays in = {{"x", f32({4, 4}, {1, 3, 3, 2, 5, 5, 1, 1, 0, kNan, 9, kNan, -kInf, -kInf, -kInf, -kInf})}};
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y[n] = argmax(k: x[n,k]) }", in), i64({4}, {1, 0, 1, 0}));
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y[n] = argmin(k: x[n,k]) }", in), i64({4}, {0, 2, 1, 0}));
  // the answer is the axis's value, not its distance from the range's begin
  EXPECT_EQ(y_of("op f(x: f32[N,4]) -> (y) { y[n] = argmax(k in 2..4: x[n,k]) }", in),
            i64({4}, {2, 2, 3, 2}));
  // along the lanes
  EXPECT_EQ(y_of("op f(x: f32[N,K]) -> (y) { y[k] = argmax(n: x[n,k]) }", in).size(), 4u);
  EXPECT_EQ(y_of("op f(x: i32[K]) -> (y) { y = argmax(k: x[k]) }", {{"x", i32({3}, {1, 7, 7})}}),
            i64({}, {1}));
}

TEST(Evaluate, NanWinsInMaxAndMin) {
  for (std::vector<double> values : {std::vector<double>{kNan, 1, 2}, {1, kNan, 2}, {1, 2, kNan}})
    for (std::string reduction : {"max", "min"}) {
      Array y = y_of("op f(x: f32[K]) -> (y) { y = " + reduction + "(k: x[k]) }", {{"x", f32({3}, values)}});
      EXPECT_TRUE(std::isnan(y.at(0))) << reduction;
    }
}

TEST(Evaluate, SelectIsLazy) {
  Array x = f32({4}, {1, 2, 3, 4});
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[i in 0..N] = if i > 0 then x[i-1] else 9 }", {{"x", x}}),
            f32({4}, {9, 1, 2, 3}));
  std::string guarded = "op f(t: f32[V], ids: i32[N]) -> (y) { y[i] = if ids[i] >= 0 then t[ids[i]] else 0 }";
  Array ids = i32({3}, {2, -1, 0});
  EXPECT_EQ(y_of(guarded, {{"t", x}, {"ids", ids}}), f32({3}, {3, 0, 1}));
  std::string e = error_of(guarded, {{"t", x}, {"ids", i32({3}, {2, -1, 4})}});
  EXPECT_MENTIONS(e, "op f: y[2] reads t[4], but t has shape [4]: index 4 is outside its dimension 0");
  // a body where the condition is false, too
  EXPECT_EQ(y_of("op f(t: f32[V], ids: i32[N]) -> (y) { y = sum(i if ids[i] >= 0: t[ids[i]]) }",
                 {{"t", x}, {"ids", ids}}),
            f32({}, {4}));
  // the error goes through what is computed from the value
  e = error_of("op f(t: f32[V], ids: i32[N]) -> (y) { y = sum(i: 2*t[ids[i]]) }", {{"t", x}, {"ids", ids}});
  EXPECT_MENTIONS(e, "reads t[-1] (at i = 1)");
  // a read that is not taken may feed another select
  std::string nested =
      "op f(t: f32[V], ids: i32[N]) -> (y) { y[i] = if (if ids[i] >= 0 then t[ids[i]] else 0) > 1 then 1 "
      "else -1 }";
  EXPECT_EQ(y_of(nested, {{"t", x}, {"ids", ids}}), f32({3}, {1, -1, -1}));
}

TEST(Evaluate, ReadsWithElse) {
  Array x = f32({3}, {1, 2, 3});
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[i in 0..N+2] = x[i-1 else -5] }", {{"x", x}}),
            f32({5}, {-5, 1, 2, 3, -5}));
  Array w = f32({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(y_of("op f(x: f32[H,W]) -> (y) { y[i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: "
                 "x[i+r-1,j+s-1 else 0]) }",
                 {{"x", w}}),
            f32({2, 2}, {10, 10, 10, 10}));
}

TEST(Evaluate, DataDependentReads) {
  Array table = f32({3, 2}, {0, 1, 10, 11, 20, 21});
  std::string bag = "op bag(table: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: table[ids[b,l], d]) }";
  EXPECT_EQ(y_of(bag, {{"table", table}, {"ids", i32({2, 2}, {0, 2, 1, 1})}}), f32({2, 2}, {20, 22, 20, 22}));
  std::string e = error_of(bag, {{"table", table}, {"ids", i32({2, 2}, {0, 2, 1, 3})}});
  EXPECT_MENTIONS(e, "op bag: y[1,0] reads table[3,0] (at l = 1)");
  EXPECT_MENTIONS(e, "index 3 is outside its dimension 0");
  EXPECT_MENTIONS(e, "from 0 to 2");
  e = error_of(bag, {{"table", zeros(DType::f32, {0, 2})}, {"ids", i32({1, 1}, {0})}});
  EXPECT_MENTIONS(e, "it has no elements");
}

TEST(Evaluate, RoundingModes) {
  Arrays in = {{"x", f32({1}, {100})}};
  std::string text = "op f(x: f32[N]) -> (y) { y[n] = exp(x[n]) }";
  EXPECT_EQ(y_of(text, in, Rounding::declared).at(0), kInf);
  EXPECT_EQ(y_of(text, in, Rounding::exact).at(0), std::exp(100.0));
  in["x"].reals[0] = 1;
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[n] = x[n] / 3 }", in).at(0), static_cast<double>(1.0f / 3.0f));
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[n] = x[n] / 3 }", in, Rounding::exact).at(0), 1.0 / 3);
  // every node is rounded, not only the last: 1 + 1e-9 is 1 in f32
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[n] = (x[n] + 1e-9) - x[n] }", in).at(0), 0);
  // inputs are rounded to their type
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[n] = x[n] }", {{"x", f32({1}, {0.1})}}).at(0),
            static_cast<double>(0.1f));
}

TEST(Evaluate, NarrowFloatsAccumulateInF32) {
  Array x = zeros(DType::f16, {4097});
  for (double& v : x.reals) v = 1;
  // in f16, 2048 + 1 is 2048; the sum 4097 is then rounded once, to 4096
  EXPECT_EQ(y_of("op f(x: f16[N]) -> (y) { y = sum(n: x[n]) }", {{"x", x}}).at(0), 4096);
  x = array_of(DType::f16, {3}, {60000, 60000, -60000});  // beyond f16 on the way
  EXPECT_EQ(y_of("op f(x: f16[N]) -> (y) { y = sum(n: x[n]) }", {{"x", x}}).at(0), 60000);
  EXPECT_EQ(y_of("op f(x: f16[N]) -> (y) { y[n] = x[n] + x[n] }", {{"x", x}}).at(0), kInf);
  Array b = array_of(DType::bf16, {1}, {1});
  EXPECT_EQ(y_of("op f(x: bf16[N]) -> (y) { y[n] = x[n] + 0.001 }", {{"x", b}}).at(0), 1);
}

TEST(Evaluate, IntegersWrapInTheirWidth) {
  for (Rounding rounding : {Rounding::exact, Rounding::declared}) {
    Array big = i32({1}, {2147483647});
    EXPECT_EQ(y_of("op f(x: i32[N]) -> (y) { y[n] = x[n] + 1 }", {{"x", big}}, rounding),
              i32({1}, {-2147483648.0}));
    EXPECT_EQ(
        y_of("op f(x: u8[N]) -> (y) { y[n] = x[n] * 2 }", {{"x", array_of(DType::u8, {1}, {200})}}, rounding)
            .at(0),
        144);
    // sums are i64
    Array sum = y_of("op f(x: i32[N]) -> (y) { y = sum(n: x[n]) }",
                     {{"x", i32({2}, {2147483647, 2147483647})}}, rounding);
    EXPECT_EQ(sum, i64({}, {4294967294.0}));
  }
  Arrays in = {{"a", i32({4}, {7, -7, 7, -7})}, {"b", i32({4}, {2, 2, 0, 0})}};
  EXPECT_EQ(y_of("op f(a: i32[N], b: i32[N]) -> (y) { y[n] = a[n] / b[n] }", in), i32({4}, {3, -4, 0, 0}));
  EXPECT_EQ(y_of("op f(a: i32[N], b: i32[N]) -> (y) { y[n] = a[n] % b[n] }", in), i32({4}, {1, 1, 0, 0}));
}

TEST(Evaluate, CastsAndRandom) {
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[n] = i32(x[n]) }", {{"x", f32({4}, {2.9, -2.9, 1e20, kNan})}}),
            i32({4}, {2, -2, 2147483647, 0}));
  EXPECT_EQ(y_of("op f(x: f32[N]) -> (y) { y[n] = f32(n) * x[n] }", {{"x", f32({3}, {1, 1, 1})}}),
            f32({3}, {0, 1, 2}));
  Array y = y_of("op f(x: f32[N], seed: i64) -> (y) { y[n] = random(seed, n) + 0*x[n] }",
                 {{"x", f32({2}, {0, 0})}, {"seed", i64({}, {0})}});
  EXPECT_EQ(y.at(0), 0x6627e8 / 16777216.0);
  EXPECT_NE(y.at(1), y.at(0));
}

TEST(Evaluate, CallsRunTheCallee) {
  std::string text = R"(
    op softmax(x: f32[N,D]) -> (y) {
      m[n] = max(d: x[n,d])
      e[n,d] = exp(x[n,d] - m[n])
      y[n,d] = e[n,d] / sum(k: e[n,k])
    }
    op two(x: f32[N,D]) -> (low, high) { low[n] = min(d: x[n,d]); high[n] = max(d: x[n,d]) }
    op f(x: f32[A,B]) -> (y, low, high) {
      y = softmax(2 * x)
      (low, high) = two(y)
    })";
  Program p = parse_op(text, "f");
  Array x = f32({2, 2}, {0, 0, 0, std::log(3.0) / 2});
  Arrays out = evaluate(p, {{"x", x}});
  expect_near(out.at("y"), f32({2, 2}, {0.5, 0.5, 0.25, 0.75}));
  expect_near(out.at("low"), f32({2}, {0.5, 0.25}));
  expect_near(out.at("high"), f32({2}, {0.5, 0.75}));
}

TEST(Evaluate, ForwardAloneOrBoth) {
  Program p = parse_op(R"(
    op f(x: f32[N]) -> (y) { t[n] = x[n]*x[n]; y[n] = t[n]*x[n] }
    backward (dy: f32[N]) -> (grad_x) { grad_x[n] = 3*t[n]*dy[n] })");
  Arrays in = {{"x", f32({2}, {1, 2})}};
  Arrays forward = evaluate(p, in);
  EXPECT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward.at("y"), f32({2}, {1, 8}));
  in["dy"] = f32({2}, {1, 10});
  EXPECT_EQ(evaluate(p, in).at("grad_x"), f32({2}, {3, 120}));
  EvaluateOptions every;
  every.every_tensor = true;
  EXPECT_EQ(evaluate(p, in, every).at("t"), f32({2}, {1, 4}));
}

TEST(Evaluate, LongChainsNeedNoStack) {
  Arena* a = nullptr;
  Program p = parse_op("op f(x: f64[N]) -> (y) { y[n] = x[n] }");
  a = p.arena.get();
  Id x = p.forward.definitions[0].body, sum = x;
  for (int i = 0; i < 100000; ++i) sum = a->add(sum, x);
  p.forward.definitions[0].body = sum;
  EXPECT_EQ(evaluate(p, {{"x", array_of(DType::f64, {2}, {1, 2})}}).at("y"),
            array_of(DType::f64, {2}, {100001, 200002}));
}

TEST(Evaluate, InputErrors) {
  std::string text = "op f(x: f32[N], w: f32[N]) -> (y) { y[n] = x[n]*w[n] }";
  Array x = f32({2}, {1, 2});
  EXPECT_MENTIONS(error_of(text, {{"x", x}}), "op f: input w is missing");
  EXPECT_MENTIONS(error_of(text, {{"x", x}, {"w", i32({2}, {1, 2})}}),
                  "w is declared f32, but the array given is i32");
  EXPECT_MENTIONS(error_of(text, {{"x", x}, {"w", x}, {"v", x}}), "there is no parameter v");
  EXPECT_MENTIONS(error_of(text, {{"x", x}, {"w", f32({3}, {1, 2, 3})}}), "w has shape [3]");
  Program p = parse_op(text);
  EXPECT_THROW(evaluate(p, {{"x", x}, {"w", x}}, DimValues{{"N", 3}}), Error);
}

}  // namespace
}  // namespace xhat::evaluate_test
