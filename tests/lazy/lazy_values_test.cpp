// What lazy arrays compute, against plain loops.
#include <functional>

#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_values_test {
namespace {

using At = const std::vector<int64_t>&;

TEST(LazyValues, ArraysOfNumbers) {
  expect_values(array({1.f, 2.f, 3.f}), {1, 2, 3});
  const Array nested = array({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(nested.shape(), (Shape{2, 3}));
  EXPECT_EQ(nested.dtype(), DType::i32);
  EXPECT_EQ(array({{{1.0}, {2.0}}}).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(array({1, 2, 3}, f32).dtype(), DType::f32);
  expect_values(array({1, 2, 3, 4}, {2, 2}).transpose(), {1, 3, 2, 4});
  EXPECT_EQ(array({true, false}).dtype(), DType::boolean);
  EXPECT_EQ(array(2.5f).item(), 2.5);
  expect_values(full({2, 2}, 3), {3, 3, 3, 3});
  expect_values(arange(4), {0, 1, 2, 3});
  expect_values(arange(1, 3, 0.5, f32), {1, 1.5, 2, 2.5});
  expect_values(zeros({2}) + ones({2}), {1, 1});
  EXPECT_THROW(array({{1, 2}, {3}}), Error);
  const std::vector<double> drawn = random(42, {1000}).vector<double>();
  double mean_of = 0;
  for (double d : drawn) {
    EXPECT_GE(d, 0);
    EXPECT_LT(d, 1);
    mean_of += d / 1000;
  }
  EXPECT_NEAR(mean_of, 0.5, 0.05);
  EXPECT_EQ(random(42, {1000}).vector<double>(), drawn);
  EXPECT_NE(random(43, {1000}).vector<double>(), drawn);
}

TEST(LazyValues, ElementByElement) {
  const Array x = some({2, 3}, 1), y = some({3}, 2), z = some({2, 1}, 3);
  const Read a(x), b(y), c(z);
  expect_values(x + y * z - 2.f / (z + 3), loop({2, 3}, [&](At i) { return a(i[0], i[1]) + b(i[1]) * c(i[0], 0) - 2 / (c(i[0], 0) + 3); }));
  expect_values(where(x > y, x, -y), loop({2, 3}, [&](At i) { return a(i[0], i[1]) > b(i[1]) ? a(i[0], i[1]) : -b(i[1]); }));
  expect_values(cast((x >= 0 && !(y < 0)) || x == y, f32), loop({2, 3}, [&](At i) { return a(i[0], i[1]) >= 0 && !(b(i[1]) < 0); }));
  expect_values(array({7, -7, 8}) % 3, {1, 2, 2});
  expect_values(cast(array({1.9f, -1.9f}), i32), {1, -1});
  expect_values(array({1, 2}) * 0.5f, {0.5, 1});
  expect_values(max(x, 0.f), loop({2, 3}, [&](At i) { return std::max(a(i[0], i[1]), 0.0); }));
  expect_values(min(x, y), loop({2, 3}, [&](At i) { return std::min(a(i[0], i[1]), b(i[1])); }));
  expect_values(clamp(x, -0.5f, 0.5f), loop({2, 3}, [&](At i) { return std::clamp(a(i[0], i[1]), -0.5, 0.5); }));
  expect_values(pow(x, 3), loop({2, 3}, [&](At i) { return std::pow(a(i[0], i[1]), 3); }));
  EXPECT_EQ((x + array({1.0})).dtype(), DType::f64);
  EXPECT_THROW(x + array({1, 2, 3}), Error);
}

TEST(LazyValues, EveryFunctionOfTheTable) {
  const Array x = some({8}, 5) * 0.5f + 0.75f;  // in (0.25, 1.25)
  const Read a(x);
  struct Row {
    const char* name;
    double (*f)(double);
  };
  const Row rows[] = {{"exp", std::exp},
                      {"log", std::log},
                      {"log1p", std::log1p},
                      {"expm1", std::expm1},
                      {"sqrt", std::sqrt},
                      {"rsqrt", [](double v) { return 1 / std::sqrt(v); }},
                      {"sin", std::sin},
                      {"cos", std::cos},
                      {"tan", std::tan},
                      {"tanh", std::tanh},
                      {"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
                      {"erf", std::erf},
                      {"exp2", std::exp2},
                      {"log2", std::log2},
                      {"log10", std::log10},
                      {"sinh", std::sinh},
                      {"cosh", std::cosh},
                      {"atan", std::atan},
                      {"asinh", std::asinh},
                      {"cbrt", std::cbrt},
                      {"erfc", std::erfc},
                      {"lgamma", [](double v) { return std::lgamma(v); }},
                      {"trunc", std::trunc},
                      {"abs", [](double v) { return std::fabs(v); }},
                      {"sign", [](double v) { return v > 0 ? 1.0 : 0.0; }},
                      {"floor", std::floor},
                      {"ceil", std::ceil},
                      {"round", std::nearbyint},
                      {"relu", [](double v) { return v > 0 ? v : 0.0; }},
                      {"softplus", [](double v) { return std::log1p(std::exp(v)); }},
                      {"stop_gradient", [](double v) { return v; }}};
  std::vector<Array> results;
  for (const Row& r : rows) results.push_back(function(r.name, {&x, 1}));
  realize(results);
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(rows[i].name);
    expect_values(results[i], loop({8}, [&](At at) { return rows[i].f(a(at[0])); }));
  }
  expect_values(hypot(x, 2), loop({8}, [&](At at) { return std::hypot(a(at[0]), 2.0); }));
  expect_values(atan2(x, -x), loop({8}, [&](At at) { return std::atan2(a(at[0]), -a(at[0])); }));
  const Array bits = array({12, 10, -1});
  EXPECT_TRUE(all(bit_xor(shift_left(bits, 2), bit_and(bits, 6)) == array({52, 42, -6})).item<bool>());
  EXPECT_THROW(bit_and(x, x), Error);
  EXPECT_TRUE(all(isfinite(x)).item<bool>());
  EXPECT_FALSE(any(isnan(x)).item<bool>());
}

TEST(LazyValues, Reductions) {
  const Array x = some({3, 4, 5});
  const Read a(x);
  expect_values(sum(x, 1), loop({3, 5}, [&](At i) {
                  double s = 0;
                  for (int k = 0; k < 4; ++k) s += a(i[0], k, i[1]);
                  return s;
                }));
  EXPECT_EQ(max(x, {0, -1}, keepdim).shape(), (Shape{1, 4, 1}));
  expect_values(max(x, {0, -1}), loop({4}, [&](At i) {
                  double s = -9;
                  for (int k = 0; k < 3; ++k)
                    for (int l = 0; l < 5; ++l) s = std::max(s, a(k, i[0], l));
                  return s;
                }));
  double total = 0;
  for (double v : a.values()) total += v;
  EXPECT_NEAR(sum(x).item(), total, 1e-5);
  EXPECT_NEAR(mean(x).item(), total / 60, 1e-6);
  expect_values(argmax(x, 2), loop({3, 4}, [&](At i) {
                  int best = 0;
                  for (int k = 1; k < 5; ++k)
                    if (a(i[0], i[1], k) > a(i[0], i[1], best)) best = k;
                  return best;
                }));
  EXPECT_EQ(a[static_cast<size_t>(argmin(x).item())], *std::ranges::min_element(a.values()));
  EXPECT_EQ(sum(array({1, 2, 3})).dtype(), DType::i64);
  EXPECT_EQ(sum(array({1, 2, 3}) > 1).item(), 2);
  EXPECT_EQ(prod(array({2.f, 3.f, 4.f})).item(), 24);
  EXPECT_TRUE(any(x > 0.5f).item<bool>());
  EXPECT_FALSE(all(x > 0.5f).item<bool>());
  expect_values(mean(array({{1, 2}, {3, 5}}), 1), {1.5, 4});
  expect_values(softmax(array({0.f, std::log(3.f)})), {0.25, 0.75});
  expect_values(log_softmax(array({{0.f, std::log(3.f)}})), {std::log(0.25), std::log(0.75)});
}

TEST(LazyValues, Movement) {
  const Array x = arange(24).reshape({2, 3, 4});
  const Read a(x);
  expect_values(permute(x, {2, 0, 1}), loop({4, 2, 3}, [&](At i) { return a(i[1], i[2], i[0]); }));
  expect_values(transpose(x), loop({2, 4, 3}, [&](At i) { return a(i[0], i[2], i[1]); }));
  expect_values(x(all, range(1, 3), -1), loop({2, 2}, [&](At i) { return a(i[0], i[1] + 1, 3); }));
  expect_values(x(1, range(0, 3, 2)), loop({2, 4}, [&](At i) { return a(1, 2 * i[0], i[1]); }));
  expect_values(x(range(-1, 2), all, range(2)), loop({1, 3, 2}, [&](At i) { return a(1, i[1], i[2] + 2); }));
  expect_values(flip(x, {0, 2}), loop({2, 3, 4}, [&](At i) { return a(1 - i[0], i[1], 3 - i[2]); }));
  expect_values(stride(x, {1, 2, -2}), loop({2, 2, 2}, [&](At i) { return a(i[0], 2 * i[1], 3 - 2 * i[2]); }));
  expect_values(shrink(x, {{0, 1}, {1, 3}, {0, 4}}), loop({1, 2, 4}, [&](At i) { return a(0, i[1] + 1, i[2]); }));
  expect_values(pad(x, {{1, 0}, {0, 2}}, -1), loop({2, 4, 6}, [&](At i) { return i[1] < 1 || i[2] > 3 ? -1 : a(i[0], i[1] - 1, i[2]); }));
  expect_values(pad(x + 1, {{1, 1}}), loop({2, 3, 6}, [&](At i) { return i[2] < 1 || i[2] > 4 ? 0 : a(i[0], i[1], i[2] - 1) + 1; }));
  expect_values(reshape(permute(x, {1, 0, 2}), {6, -1}), loop({6, 4}, [&](At i) { return a(i[0] % 2, i[0] / 2, i[1]); }));
  expect_values(reshape(transpose(x) + 1, {4, 6}), loop({4, 6}, [&](At i) {
                  const auto n = i[0] * 6 + i[1];
                  return a(n / 12, n % 3, n / 3 % 4) + 1;
                }));
  expect_values(concat({x, x + 100, x(all, range(0, 1))}, 1), loop({2, 7, 4}, [&](At i) {
                  return i[1] < 3 ? a(i[0], i[1], i[2]) : i[1] < 6 ? a(i[0], i[1] - 3, i[2]) + 100 : a(i[0], 0, i[2]);
                }));
  const std::vector<Array> parts = split(x, std::vector<int64_t>{1, 3}, 2);
  expect_values(parts[1], loop({2, 3, 3}, [&](At i) { return a(i[0], i[1], i[2] + 1); }));
  EXPECT_EQ(split(x, 2, 1).size(), 2u);
  expect_values(expand(x(all, range(0, 1)), {2, 5, 4}), loop({2, 5, 4}, [&](At i) { return a(i[0], 0, i[2]); }));
  EXPECT_EQ(squeeze(unsqueeze(x, 1)).shape(), x.shape());
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{2, 3, 4, 1}));
  const Array ids = array({2, 0});
  expect_values(take(x, ids, 1), loop({2, 2, 4}, [&](At i) { return a(i[0], i[1] == 0 ? 2 : 0, i[2]); }));
  expect_values(gather(x(0), array({{1, 0, 2, 0}}), 0), {4, 1, 10, 3});
}

TEST(LazyValues, Products) {
  const Array x = some({2, 3, 4}, 1), y = some({2, 4, 5}, 2), w = some({4, 5}, 3);
  const Read a(x), b(y), c(w);
  auto product = [&](auto&& right) {
    return loop({2, 3, 5}, [&](At i) {
      double s = 0;
      for (int k = 0; k < 4; ++k) s += a(i[0], i[1], k) * right(i[0], k, i[2]);
      return s;
    });
  };
  expect_values(matmul(x, y), product(b));
  expect_values(matmul(x, w), product([&](int64_t, int64_t k, int64_t j) { return c(k, j); }));
  expect_values(einsum("bik,bkj->bij", x, y), product(b));
  expect_values(einsum("...ik,...kj", x, y), product(b));
  expect_values(einsum("bij->b", x), loop({2}, [&](At i) {
                  double s = 0;
                  for (int k = 0; k < 12; ++k) s += a[static_cast<size_t>(i[0] * 12 + k)];
                  return s;
                }));
  expect_values(einsum("ii->i", arange(9).reshape({3, 3})), {0, 4, 8});
  expect_values(matmul(w, some({5}, 4)), loop({4}, [&](At i) {
                  double s = 0;
                  const std::vector<float> v = numbers(5, 4);
                  for (size_t k = 0; k < 5; ++k) s += c(i[0], k) * v[k];
                  return s;
                }));
  expect_values(matmul(relu(x), relu(w)), loop({2, 3, 5}, [&](At i) {
                  double s = 0;
                  for (int k = 0; k < 4; ++k) s += std::max(a(i[0], i[1], k), 0.0) * std::max(c(k, i[2]), 0.0);
                  return s;
                }));
}

TEST(LazyValues, Convolutions) {
  const Array x = some({2, 4, 6, 5}, 1), w = some({6, 2, 3, 2}, 2);
  const Read a(x), b(w);
  const Array y = conv(x, w, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 6, 3, 3}));
  expect_values(y, loop(y.shape(), [&](At i) {
                  double s = 0;
                  for (int64_t c = 0; c < 2; ++c)
                    for (int64_t r = 0; r < 3; ++r)
                      for (int64_t q = 0; q < 2; ++q) {
                        const int64_t h = 2 * i[2] + r - 1, v = i[3] + 2 * q;
                        if (h >= 0 && h < 6) s += a(i[0], i[1] / 3 * 2 + c, h, v) * b(i[1], c, r, q);
                      }
                  return s;
                }));
  const Array line = conv(some({1, 3, 8}, 3), some({2, 3, 1}, 4));
  EXPECT_EQ(line.shape(), (Shape{1, 2, 8}));
  const Array m = pool(x, {2, 2}), padded = pool(x, {3, 3}, Pool::max, {.stride = {2}, .padding = {1}});
  expect_values(m, loop({2, 4, 3, 2}, [&](At i) {
                  double s = -9;
                  for (int r = 0; r < 2; ++r)
                    for (int q = 0; q < 2; ++q) s = std::max(s, a(i[0], i[1], 2 * i[2] + r, 2 * i[3] + q));
                  return s;
                }));
  expect_values(padded, loop({2, 4, 3, 3}, [&](At i) {
                  double s = -9;
                  for (int64_t r = 2 * i[2] - 1; r < 2 * i[2] + 2; ++r)
                    for (int64_t q = 2 * i[3] - 1; q < 2 * i[3] + 2; ++q)
                      if (r >= 0 && r < 6 && q >= 0 && q < 5) s = std::max(s, a(i[0], i[1], r, q));
                  return s;
                }));
  expect_values(pool(x, {2, 2}, Pool::mean), loop({2, 4, 3, 2}, [&](At i) {
                  double s = 0;
                  for (int r = 0; r < 2; ++r)
                    for (int q = 0; q < 2; ++q) s += a(i[0], i[1], 2 * i[2] + r, 2 * i[3] + q) / 4;
                  return s;
                }));
}

TEST(LazyValues, OpsOfTheLanguage) {
  const Program op = parse_op("op scaled(x: f32[N,D], s: f32[D]) -> (y, t) { y[n,d] = x[n,d] * s[d]; t[n] = sum(d: y[n,d]) }");
  const Array x = some({3, 4}, 1), s = some({4}, 2);
  const std::vector<Array> results = apply_all(op, {x + 1.f, s});
  const Read a(x), b(s);
  expect_values(results[0] - 1.f, loop({3, 4}, [&](At i) { return (a(i[0], i[1]) + 1) * b(i[1]) - 1; }));
  expect_values(results[1], loop({3}, [&](At i) {
                  double total = 0;
                  for (int d = 0; d < 4; ++d) total += (a(i[0], d) + 1) * b(d);
                  return total;
                }));
  const Program one = parse_op("op twice(x: f32[N]) -> (y) { y[n] = 2*x[n] }");
  expect_values(apply(one, {array({1.f, 2.f})}), {2, 4});
  EXPECT_THROW(apply(op, {x, s}), Error);
  EXPECT_THROW(apply(one, {x}), Error);
}

TEST(LazyValues, ProgramsWhoseLoopsStay) {
  const Program op = parse_op(
      "prog f(x: f64[N], k: f64) -> (y, z) { var s = zeros f64[N]\n for t in 0..20 { s[i] = sin(s[i]) * k + x[i] }\n y[i] = s[i]\n z[i] = "
      "2*s[i] }");
  auto by_hand = [](double x) {
    double s = 0;
    for (int t = 0; t < 20; ++t) s = std::sin(s) * 0.5 + x;
    return s;
  };
  const Array x = array({1.0, 2.0});
  const std::vector<Array> made = apply_all(op, {x * 2.0, array(0.5)});
  EXPECT_NE((made[0] + 1.0).describe().find("in 3 programs"), std::string::npos);
  // Before it runs what it is called with, behind it what reads it; all results by one run.
  EXPECT_EQ(spent([&] { expect_values(made[0] * 3.0 + made[1], {5 * by_hand(2), 5 * by_hand(4)}, 1e-12); }).programs, 3);
  EXPECT_TRUE(made[1].is_realized());
  // Of one another, and of a slice of memory.
  const Array again = apply_all(op, {made[0](range(0, 1)), array(0.5)})[1];
  expect_values(again, {2 * by_hand(by_hand(2))}, 1e-12);
  const Array of_each_other = apply_all(op, {apply_all(op, {x, array(0.5)})[0], array(0.5)})[0];
  expect_values(of_each_other, {by_hand(by_hand(1)), by_hand(by_hand(2))}, 1e-12);
}

TEST(LazyValues, NoElements) {
  const Array none = zeros({2, 0}) + some({2, 1});
  EXPECT_EQ(none.vector<float>().size(), 0u);
  const std::vector<float> nothing;
  expect_values(sum(array(nothing, {2, 0}), 1), {0, 0});
  EXPECT_EQ(kernels({array(nothing, {2, 3, 0}) + 1}), 0);
}

TEST(LazyValues, ErrorsNameTheCallTheShapesAndTheLine) {
  const Array x = some({2, 3}), y = some({4, 5});
  auto message = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("no error");
  };
  const int line = __LINE__ + 1;
  const std::string product = message([&] { matmul(x, y); });
  EXPECT_EQ(product, "lazy_values_test.cpp:" + std::to_string(line) + ": matmul: shapes [2,3] and [4,5] do not fit: 3 columns and 4 rows");
  const std::string total = message([&] { x + y; });
  EXPECT_NE(total.find("lazy_values_test.cpp:" + std::to_string(line + 2) + ": +: shapes [2,3] and [4,5] do not broadcast"), total.npos)
      << total;
  EXPECT_NE(message([&] { x.reshape({4}); }).find("reshape: [2,3] has 6 elements"), std::string::npos);
  EXPECT_NE(message([&] { x(2); }).find("slice: position 2 of dimension 0, whose extent is 2"), std::string::npos);
  EXPECT_NE(message([&] { grad(x, {x}); }).find("grad: a derivative is of one float number"), std::string::npos);
  EXPECT_NE(message([&] { zeros({-1, 3}); }).find("full: an extent of -1 in shape [-1,3]"), std::string::npos);
  EXPECT_NE(message([&] { random(1, {-1}); }).find("random: an extent of -1"), std::string::npos);
  EXPECT_NE(message([&] { arange(0, 1, 0, DType::f32); }).find("arange: from 0 to 1 by 0"), std::string::npos);
  // Powers of integers by integers that are known in the run would be chosen among 64 products, and a compiler never ends.
  const Array whole = array({3, 4});
  for (const auto& power : {std::function<Array()>([&] { return pow(whole, whole); }),
                            std::function<Array()>([&] { return pow(2, whole); }), std::function<Array()>([&] { return pow(whole, -1); })})
    EXPECT_NE(message(power).find("pow: an integer power needs a constant exponent that is not negative"), std::string::npos);
  EXPECT_EQ(pow(whole, 3).vector<int>(), (std::vector<int>{27, 64}));
}

TEST(LazyValues, WholeNumbersKeepAllTheirDigits) {
  const int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_EQ((array({1}, i64) * large).vector<int64_t>(), std::vector<int64_t>{large});
  EXPECT_EQ(cast(Array(large), DType::i64).vector<int64_t>(), std::vector<int64_t>{large});
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_values_test
