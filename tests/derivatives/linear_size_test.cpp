// What derivation makes of a definition is linear in its size: counted in nodes, which is memory and, since nodes
// are visited a bounded number of times, time.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <functional>

#include "ad/forward/jvp.h"
#include "ad/reverse/gradient.h"

namespace xhat::linear_size_test {
namespace {

// Every value is used twice: what repeats an adjoint instead of sharing it doubles with each step.
std::string chain(int steps) {
  std::string body = "let v0 = sin(x[i]) * x[i] in ";
  for (int k = 1; k < steps; ++k) body += fmt::format("let v{0} = sin(v{1}) * v{1} in ", k, k - 1);
  return fmt::format("op f(x: f64[N]) -> (y) {{ y[i] = {}v{} }}", body, steps - 1);
}

// All at one level, and all of the same input.
std::string wide(int terms) {
  std::string body = "tanh(x[i])";
  for (int k = 1; k < terms; ++k) body += fmt::format(" + tanh({} * x[i])", k + 1);
  return "op f(x: f64[N]) -> (y) { y[i] = " + body + " }";
}

size_t nodes_after(const std::string& text, const std::function<Program(const Program&)>& pass) {
  return pass(parse_op(text)).arena->size();
}

TEST(LinearSizeTest, TwiceTheDefinitionTwiceTheNodes) {
  constexpr int kSteps = 250;  // a chain of 4 * 250 has 2,000 nodes, and so have as many terms
  const std::pair<const char*, std::function<Program(const Program&)>> rows[] = {
      {"gradient", [](const Program& p) { return gradient(p); }},
      {"jvp", [](const Program& p) { return jvp(p); }},
  };
  for (const auto& [name, pass] : rows)
    for (auto* text : {chain, wide}) {
      size_t small = nodes_after(text(kSteps), pass), middle = nodes_after(text(2 * kSteps), pass);
      size_t large = nodes_after(text(4 * kSteps), pass);
      EXPECT_GT(middle, small);
      EXPECT_LE(static_cast<double>(large - middle), 2.1 * static_cast<double>(middle - small)) << name;
    }
}

}  // namespace
}  // namespace xhat::linear_size_test
