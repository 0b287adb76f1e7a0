// Every function of the table as a kernel of ops, in every float type and every integer type, beside the evaluator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::functions_test {
namespace {

using namespace xhat::testing;

const std::vector<std::string> kReal = {
    "exp2(x)",         "log2(a)",      "log10(a)",          "sinh(x)",       "cosh(x)",         "asin(u)",
    "acos(u)",         "atan(x)",      "asinh(x)",          "acosh(1 + a)",  "atanh(u)",        "cbrt(x)",
    "erfc(x)",         "erfinv(u)",    "lgamma(a)",         "digamma(a)",    "polygamma(2, a)", "polygamma(7, a + 1)",
    "i0e(x)",          "i1e(x)",       "sinc(x)",           "trunc(3*x)",    "atan2(x, w)",     "hypot(x, w)",
    "logaddexp(x, w)", "fmod(9*x, a)", "remainder(9*x, a)", "copysign(x, w)"};

// One op of several functions, each an output, forward and backward.
void compare(const std::string& type, double tolerance, size_t first, size_t last) {
  std::string body, outputs;
  for (size_t k = first; k < last; ++k) {
    body += fmt::format("  y{}[i] = let x = x0[i] in let w = w0[i] in let a = 0.5 + abs(x) in let u = 0.9*sin(x) in {}\n", k, kReal[k]);
    outputs += (outputs.empty() ? "y" : ", y") + std::to_string(k);
  }
  const Program op = parse_op(fmt::format("op f(x0: {0}[N], w0: {0}[N]) -> ({1}) {{\n{2}}}", type, outputs, body));
  const DimValues dims = {{"N", 37}};
  const Program derived = gradient(op);
  const Arrays data = random_data(derived, dims, 7);
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), run_both(compile(op, {}), data, dims), tolerance), "") << type << "\n" << body;
}

TEST(Functions, AsKernelsOfEveryFloatType) {
  for (size_t first = 0; first < kReal.size(); first += 7) {
    const size_t last = std::min(first + 7, kReal.size());
    compare("f64", 1e-12, first, last);
    compare("f32", 2e-5, first, last);
  }
  compare("f16", 0.05, 7, 13);
  compare("bf16", 0.3, 7, 13);
}

TEST(Functions, OfBitsInEveryIntegerType) {
  for (const char* type : {"i64", "i32", "u32", "u8"}) {
    const Program op = parse_op(fmt::format(R"(op f(x: {0}[N], w: {0}[N], s: {0}[N]) -> (a, b, c, d, e, g) {{
        a[i] = bit_and(x[i], w[i])
        b[i] = bit_or(x[i], bit_not(w[i]))
        c[i] = bit_xor(x[i], w[i])
        d[i] = shift_left(x[i], s[i])
        e[i] = shift_right(x[i], s[i])
        g[i] = shift_right(bit_not(x[i]), s[i])
      }})",
                                            type));
    const DimValues dims = {{"N", 70}};
    Arrays data = random_data(op, dims, 5);
    for (size_t i = 0; i < 70; ++i) {
      const auto k = static_cast<int64_t>(i);
      data.at("x").integers[i] = wrap_to(*dtype_from_name(type), k * 0x9E3779B97F4A7C15LL);
      data.at("w").integers[i] = wrap_to(*dtype_from_name(type), k * k * 0x12345677LL);
      data.at("s").integers[i] = wrap_to(*dtype_from_name(type), k - 3);
    }
    const Arrays exact = evaluate_on(op, data, dims);
    const Arrays got = run_infer(compile(op, {}), data, dims);
    EXPECT_EQ(difference(exact, got, 0), "") << type;
  }
}

// A hash by whole numbers, as tables of features use: what bit_and leaves is inside the table by itself.
TEST(Functions, OfBitsIndexTables) {
  const Program op = parse_op("op f(table: f32[16], key: i64[N]) -> (y) { y[i] = table[bit_and(shift_right(key[i]*40503, 4), 15)] }");
  const DimValues dims = {{"N", 33}};
  const Arrays data = random_data(op, dims, 5);
  EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(compile(op, {}), data, dims), 0), "");
}

}  // namespace
}  // namespace xhat::functions_test
