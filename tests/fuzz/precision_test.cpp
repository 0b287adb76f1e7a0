// How many digits gradients have after the passes, beside what the gradient as derived has in the same type.
//
// Random compositions in f32, of functions that saturate, have poles or cancel, with constants from 1e-6 to 1e6, at |x| up to
// 30. Both gradients are evaluated in f32, rounded after every operation, and compared with the derived one in f64. A failure
// prints the seed and the reduced program; XHAT_PROPERTY_SEED=that seed XHAT_PROPERTY_COUNT=1 runs it alone.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ad/reverse/gradient.h"
#include "expr/rules/simplify.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/random_program.h"

namespace xhat::precision_test {
namespace {

using namespace xhat::testing;

constexpr double kHalfUlp = 0x1p-24;
// Of the error that the gradient as derived has nearby, and of the rounding of the largest value that the gradient has between
// here and x = 0. The bound of docs/numerics.md is 16 per replacement; a gradient may have a few.
constexpr double kTimes = 40;
constexpr const char* kPasses = "lift, gather, inline, simplify, stash({}), inline";

struct Gradients {
  Arrays exact, plain, ours;
  Arrays ours_exact;  // in f64; where it is another number, the formula has no digits left there
  Arrays outputs;     // in f32
};

Gradients gradients_of(const std::string& text, const std::string& policy, const Arrays& inputs, const DimValues& dims) {
  Program op = parse_op(text), plain = gradient(op);
  Program ours = run_passes(gradient(recognize(op)), fmt::format(fmt::runtime(kPasses), policy));
  Arrays all = evaluate_on(plain, inputs, dims, Rounding::declared);
  return {evaluate_on(plain, inputs, dims), all, evaluate_on(ours, inputs, dims, Rounding::declared), evaluate_on(ours, inputs, dims), all};
}

// x from -30 to 30; the middle is element kMiddle.
constexpr int kMiddle = 60;
std::vector<double> grid() {
  std::vector<double> x;
  for (int i = -kMiddle; i <= kMiddle; ++i) x.push_back(i / 2.0);
  x[kMiddle] = 0x1p-30;  // at 0 itself much is undefined
  return x;
}

// Elements of one variable each: what is wrong with the gradient after the passes, or nothing.
std::string map_failure(const std::string& text, const std::string& policy) {
  std::vector<double> x = grid();
  DimValues dims = {{"N", static_cast<int64_t>(x.size())}};
  std::vector<double> ones(x.size(), 1.0);
  Arrays in = {{"x", array_of(DType::f32, {dims.at("N")}, x)}};
  Program op = parse_op(text);
  for (TensorId t : op.outputs) in["d" + op.tensor(t).name] = array_of(DType::f32, {dims.at("N")}, ones);
  Gradients g = gradients_of(text, policy, in, dims);
  const Array &exact = g.exact.at("grad_x"), &plain = g.plain.at("grad_x"), &ours = g.ours.at("grad_x");
  auto valid = [&](int i) {
    auto k = static_cast<size_t>(i);
    bool numbers = std::isfinite(exact.at(k)) && std::isfinite(plain.at(k)) && std::abs(exact.at(k)) < 1e30 && exact.at(k) != 0;
    for (TensorId t : op.outputs) numbers = numbers && std::isfinite(g.outputs.at(op.tensor(t).name).at(k));
    return numbers && std::abs(g.ours_exact.at("grad_x").at(k) - exact.at(k)) < 1e-6 * std::abs(exact.at(k));
  };
  const int n = static_cast<int>(x.size());
  for (int i = 0; i < n; ++i) {
    if (!valid(i)) continue;
    auto k = static_cast<size_t>(i);
    double scale = std::abs(exact.at(k)), relative = kHalfUlp;
    for (int j = std::min(i, kMiddle); j <= std::max(i, kMiddle); ++j)
      if (valid(j)) scale = std::max(scale, std::abs(exact.at(static_cast<size_t>(j))));
    for (int j = std::max(0, i - 2); j <= std::min(n - 1, i + 2); ++j)
      if (auto at = static_cast<size_t>(j); valid(j) && exact.at(at) != 0)
        relative = std::max(relative, std::abs(plain.at(at) - exact.at(at)) / std::abs(exact.at(at)));
    // A product in another order may leave the range of f32: a matter of range and not of digits.
    if (!std::isfinite(ours.at(k))) continue;
    double off = std::abs(ours.at(k) - exact.at(k));
    double bound = kTimes * (relative * std::abs(exact.at(k)) + kHalfUlp * scale + 1e-37);
    if (!(off <= bound))
      return fmt::format("precision: x = {}: {:.9g}, in plain f32 {:.9g}, exactly {:.9g}; bound {:.2g}, stash({})\n{}", x[k], ours.at(k),
                         plain.at(k), exact.at(k), bound, policy,
                         print(run_passes(gradient(recognize(op)), fmt::format(fmt::runtime(kPasses), policy))));
  }
  return "";
}

std::string failure(const std::string& text, uint64_t) {
  try {
    for (const char* policy : {"cost", "dropped", "none"})
      if (std::string wrong = map_failure(text, policy); !wrong.empty()) return wrong;
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
  return "";
}

class Composition {
 public:
  explicit Composition(uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15u + 3) {}
  std::string text() {
    std::string statements, outputs = "y";
    std::string first = chain("x[i]", 2 + pick(3));
    if (pick(3) == 0) {  // a value that is delivered too
      statements = "u[i] = " + first + "\n  ";
      outputs = "u, y";
      first = "u[i]";
    }
    std::string y = pick(3) == 0 ? both(first) : chain(first, 1 + pick(3));
    return fmt::format("op f(x: f32[N]) -> ({}) {{\n  {}y[i] = {}\n}}\n", outputs, statements, y);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  std::string constant() {
    const char* digits[] = {"1", "2", "5", "1", "3"};
    return fmt::format("{}{}e{}", pick(4) == 0 ? "-" : "", digits[pick(5)], pick(2) ? pick(3) - 1 : pick(13) - 6);
  }
  std::string both(const std::string& e) {
    std::string other = chain(pick(2) ? e : "x[i]", 1 + pick(2));
    const char* forms[] = {"{} + {}", "{} * {}", "{} - {}", "{} / {}"};
    return fmt::format(fmt::runtime(forms[pick(4)]), "(" + e + ")", "(" + other + ")");
  }
  std::string chain(std::string e, int length) {
    for (int i = 0; i < length; ++i) e = step(e);
    return e;
  }
  std::string step(const std::string& e) {
    switch (pick(18)) {
      case 0:
      case 1: return fmt::format("exp({})", e);
      case 2: return fmt::format("exp(-({}))", e);
      case 3: return fmt::format("log({})", e);
      case 4: return fmt::format("log1p({})", e);
      case 5: return fmt::format("expm1({})", e);
      case 6: return fmt::format("sqrt({})", e);
      case 7: return fmt::format("rsqrt({})", e);
      case 8: return fmt::format("tanh({})", e);
      case 9: return fmt::format("sigmoid({})", e);
      case 10: return fmt::format("softplus({})", e);
      case 11: return fmt::format("({})^{}", e, std::array{"2", "3", "-2", "0.5", "1.5", "5"}[static_cast<size_t>(pick(6))]);
      case 12:
      case 13: return fmt::format("{} / ({})", constant(), e);
      case 14: return fmt::format("{} * ({})", constant(), e);
      default: return fmt::format("({} + {})", constant(), e);
    }
  }
  std::mt19937_64 random_;
};

// What a stored output was once read for, though an operand cannot be told from it; and others of their kind.
TEST(Precision, OperandsThatTheOutputHasLost) {
  for (const char* y : {"1/(1000000 + exp(x[i]))", "1e4/(1e4 + exp(x[i]))", "1/(1 + 1e-6*exp(x[i]))", "log(1 + 1e-5*exp(x[i]))",
                        "1/(1000 + exp(x[i]))", "1/(1 + exp(x[i] - 14))", "1/(1e5 + exp(-2*x[i]))", "1000*(exp(1e-3*x[i]) - 1)",
                        "3/(exp(x[i]) + 1e5) + 1", "exp(x[i]) + 1e6", "tanh(1e-4*x[i]) + 1000"}) {
    std::string text = fmt::format("op f(x: f32[N]) -> (y) {{ y[i] = {} }}", y);
    EXPECT_EQ(failure(text, 0), "");
  }
}

// A minus that is pulled out of a sum is the difference of two sums.
TEST(Precision, WhatCancelsStaysInOneSum) {
  for (double alpha : {1e-3, 0.05, 0.5, 1.5}) {
    const std::string text =
        "op f(x: f32[N], a: f32) -> (l) { l = sum(i: abs(a-2)/a * ((x[i]^2/abs(a-2) + 1)^(a/2) - 1)) }";
    std::vector<double> x;
    for (int i = 0; i < 64; ++i) x.push_back(std::sin(i * 1.7));
    Arrays in = {{"x", array_of(DType::f32, {64}, x)}, {"a", scalar_of(DType::f32, alpha)}, {"dl", scalar_of(DType::f32, 1)}};
    Gradients g = gradients_of(text, "cost", in, {{"N", 64}});
    double exact = g.exact.at("grad_a").at(0), plain = std::abs(g.plain.at("grad_a").at(0) - exact);
    EXPECT_LE(std::abs(g.ours.at("grad_a").at(0) - exact), 4 * plain + 64 * kHalfUlp * std::abs(exact)) << alpha;
  }
}

// sqrt(-exp(x)) has no normal form: it is nan, and stays what it is.
TEST(Precision, RootOfWhatIsNeverPositive) {
  EXPECT_NO_THROW(map_failure("op f(x: f32[N]) -> (u, y) { u[i] = sigmoid(x[i]); y[i] = rsqrt(2*(-0.3*u[i])) }", "cost"));
  EXPECT_NO_THROW(map_failure("op f(x: f32[N]) -> (y) { y[i] = x[i] + (-exp(x[i]))^1.5 }", "cost"));
}

// A few of thousand are worse for another reason than what is read: the normal form adds up constants of sums in sums,
// 1000*(1 - s) + t to 1000 - 1000*s + t (docs/numerics.md).
TEST(Precision, RandomCompositions) {
  const int count = property_count(1000, 20000);
  const uint64_t first = property_seed();
  std::vector<uint64_t> failed;
  for (int k = 0; k < count; ++k)
    if (const uint64_t seed = first + static_cast<uint64_t>(k); !failure(Composition(seed).text(), 0).empty()) failed.push_back(seed);
  RecordProperty("failed", static_cast<int>(failed.size()));
  if (static_cast<int>(failed.size()) <= count / 200) return;
  std::string report;
  for (size_t i = 0; i < std::min<size_t>(3, failed.size()); ++i) {
    const std::string text = Composition(failed[i]).text();
    report += fmt::format("seed {}: {}\nreduced:\n{}\n", failed[i], failure(text, 0),
                          reduced(text, [](const std::string& t) { return failure(t, 0); }));
  }
  ADD_FAILURE() << failed.size() << " of " << count << "\n" << report;
}

}  // namespace
}  // namespace xhat::precision_test
