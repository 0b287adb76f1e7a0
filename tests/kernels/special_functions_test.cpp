// Functions of statistics and physics where tests/kernels/vector_math_test.cpp does not go: below 0, and beside numbers of another program.
#include <map>
#include <utility>

#include "expr/core/expr.h"
#include "expr/core/scalar.h"
#include "tests/kernels/vector_math_reference.h"

namespace special_functions_test {
namespace {

using namespace xhat::vmath_test;

// Below 0 lgamma, digamma and the second derivative are by reflection: their errors are of the size of the terms, which cancel near roots.
TEST(VectorMathGamma, NegativeArguments) {
  const auto compare = [](const char* name, double order, auto&& wanted) {
    const Row& row = *xhat::vmath::find_row(name);
    std::vector<double> x, n;
    for (int i = 1; i < 40000; i++) x.push_back(-i * 0.00123456789), n.push_back(order);
    while (x.size() % 16) x.push_back(-0.5), n.push_back(order);
    const std::vector<double> y = Compiled<double>(row, true)(
        row.arity == 1 ? std::vector<std::vector<double>>{x} : std::vector<std::vector<double>>{n, x}, 0, x.size());
    for (size_t i = 0; i < x.size(); i++) {
      const auto [want, size] = wanted(Real(x[i]));
      ASSERT_LE(fabsl(y[i] - want), 1e-14L * size) << name << " at " << x[i] << ": " << y[i] << ", not " << double(want);
    }
  };
  const auto turn = [](Real x) { return pi / tanl(pi * (x - nearbyintl(x))); };
  compare("lgamma", 0, [](Real x) { return std::pair(lgammal(x), 1 + fabsl(x) * logl(2 + fabsl(x))); });
  compare("digamma", 0, [&](Real x) {
    const Real slope = 1 + powl(turn(x), 2);  // an error of x, by which pi x is off
    return std::pair(gamma_derivative(1, 1 - x) - turn(x), slope);
  });
  compare("polygamma", 1, [&](Real x) {
    const Real square = powl(turn(x), 2) + pi * pi;
    return std::pair(square - gamma_derivative(2, 1 - x), square * (1 + fabsl(turn(x))));
  });
}

// Numbers of another program: mpmath, 40 digits (tools/special_values.py).
TEST(VectorMathSpecialFunctions, AgreeWithAnotherProgram) {
  struct Known {
    const char* name;
    double a, b, value;
  };
  static const Known values[] = {
#include "tests/kernels/special_values.inc"
  };
  std::map<std::string, std::vector<std::vector<double>>> arguments;
  for (const Known& v : values) {
    auto& columns = arguments.try_emplace(v.name, xhat::vmath::find_row(v.name)->arity).first->second;
    columns[0].push_back(v.a);
    if (columns.size() > 1) columns[1].push_back(v.b);
  }
  std::map<std::string, std::vector<double>> results;
  for (const auto& [name, columns] : arguments)
    results[name] = Compiled<double>(*xhat::vmath::find_row(name.c_str()), true)(columns, 0, columns[0].size());
  std::map<std::string, size_t> next;
  for (const Known& v : values) {
    const double got = results[v.name][next[v.name]++];
    EXPECT_LE(std::fabs(got - v.value), 2e-15 * std::fabs(v.value)) << v.name << "(" << v.a << ", " << v.b << ") = " << got;
    const double x[] = {v.a, v.b};
    const double meant = xhat::scalar(*xhat::function_named(v.name)).reals.at(x);
    EXPECT_LE(std::fabs(meant - v.value), 5e-16 * std::fabs(v.value))
        << "the evaluator: " << v.name << "(" << v.a << ", " << v.b << ") = " << meant;
  }
}

}  // namespace
}  // namespace special_functions_test
