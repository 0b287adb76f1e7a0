// Closed forms (expr/rules/closed_forms.def) are found in what was derived and inlined.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::closed_forms_test {
namespace {

using namespace xhat::testing;

Program derived(const std::string& body) {
  return derive(parse_op("op f(x: f32[N], b: f32[N] const) -> (y) {\n" + body + "\n}"), {}).program;
}

std::string directions(const std::string& body) {
  const Program p = derived(body);
  return print(infer_program(p)) + print(backward_program(p));
}

// Mish however it is written: one exponential, one quotient, in either direction.
TEST(ClosedForms, AreFoundInWhatWasDerived) {
  for (const char* body : {"y[i] = x[i] * tanh(softplus(x[i]))", "s[i] = log(1 + exp(x[i]))\n y[i] = tanh(s[i]) * x[i]",
                           "u[i] = x[i] + b[i]\n s[i] = max(u[i], 0) + log1p(exp(-abs(u[i])))\n y[i] = u[i]*tanh(s[i])"}) {
    const std::string code = directions(body);
    EXPECT_EQ(times_in(code, "exp(min("), 2) << code;
    EXPECT_EQ(times_in(code, " / "), 2) << code;
    for (const char* gone : {"tanh", "sigmoid", "softplus", "expm1"}) EXPECT_EQ(times_in(code, gone), 0) << code;
  }
  // The output tells the slope.
  const std::string alone = directions("y[i] = tanh(softplus(x[i]))");
  EXPECT_EQ(times_in(alone, " / "), 1) << alone;
  EXPECT_EQ(times_in(alone, "sigmoid(x[i]) * (1 - y[i] * y[i])"), 1) << alone;
  const std::string of_more = directions("y[i] = b[i] * sin(tanh(softplus(x[i])))");
  EXPECT_EQ(times_in(of_more, "sigmoid") + times_in(of_more, "tanh"), 0) << of_more;
  EXPECT_EQ(times_in(directions("y[i] = tanh(softplus(x[i])) + f32(f16(0) * tanh(softplus(f16(x[i]))))"), "f16(min("), 0);
}

// Values from where e^x is nothing to where w overflows, in f32.
TEST(ClosedForms, HaveTheValues) {
  const Program op = parse_op("op f(x: f32[N]) -> (y) { y[i] = x[i] * tanh(log1p(exp(x[i]))) }");
  const DimValues dims = {{"N", 1000}};
  Arrays data = random_data(gradient(op), dims, 3);
  Array& x = data.at("x");
  for (size_t i = 0; i < x.size(); ++i) x.reals[i] = -85 + 0.173 * static_cast<double>(i);
  const Arrays exact = evaluate_on(gradient(op), data, dims), got = run_both(compile(op, {}), data, dims);
  EXPECT_EQ(difference(exact, got, 1e-6), "");
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = exact.at("y").reals[i];
    if (std::abs(wanted) > 1e-35) {
      EXPECT_NEAR(got.at("y").reals[i], wanted, 4e-6 * std::abs(wanted)) << x.reals[i];
    }
  }
}

// Where the slope of what x is multiplied by is nothing, x may be anything: of 3e-17 an x of 1e15 would make 4 %.
TEST(ClosedForms, ASlopeThatIsNothingIsZero) {
  const Program op = parse_op("op f(x: f32[N]) -> (y) { y[i] = x[i] * tanh(softplus(x[i])) }");
  const DimValues dims = {{"N", 6}};
  Arrays data = random_data(gradient(op), dims, 3);
  data.at("x").reals = {19.5, 20.5, 1e9, 1e15, 1e25, -1e15};
  EXPECT_EQ(difference(evaluate_on(gradient(op), data, dims), run_both(compile(op, {}), data, dims), 1e-6), "");
}

}  // namespace
}  // namespace xhat::closed_forms_test
