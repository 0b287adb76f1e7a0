// CompileOptions::check_values: a NaN or an infinity among the results of a call is an error that says where it comes from.
#include <gtest/gtest.h>

#include <limits>

#include "expr/eval/nonfinite.h"
#include "runtime/call/compile.h"

namespace xhat::check_values_test {
namespace {

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const NonFinite& e) {
    return e.message();
  }
  return "";
}

struct Root {
  CompiledOp op = compile(parse_op("op f(x: f32[N]) -> (y) { y[i] = sqrt(x[i]) }"), {.check_values = true});
  std::vector<float> x, y = std::vector<float>(2), dy = {1, 1}, dx = std::vector<float>(2);
  Stash stash = Stash();
  TensorView view(std::vector<float>& v) { return TensorView(v.data(), {2}); }
  void forward() { op.forward({{"x", view(x)}, {"y", view(y)}}, stash); }
  void backward() { op.backward({{"x", view(x)}, {"y", view(y)}, {"dy", view(dy)}, {"grad_x", view(dx)}}, stash); }
};

TEST(CheckValues, FiniteResultsPass) {
  Root f{.x = {4, 9}};
  f.forward();
  f.backward();
  EXPECT_EQ(f.dx, (std::vector<float>{0.25f, 1 / 6.0f}));
}

TEST(CheckValues, OfTheForward) {
  Root f{.x = {4, -9}};
  EXPECT_EQ(message([&] { f.forward(); }), "op f: y[1] is nan: sqrt(x[i]) makes it of x[i] = -9");
  EXPECT_EQ(f.y[0], 2);  // the results are there all the same
  EXPECT_NE(message([&] { f.op.infer({{"x", f.view(f.x)}, {"y", f.view(f.y)}}); }), "");
}

TEST(CheckValues, OfTheBackward) {
  Root f{.x = {0, 9}};
  f.forward();
  EXPECT_EQ(message([&] { f.backward(); }), "op f: grad_x[0] is inf: dy[i] * 0.5 / y[i] makes it of dy[i] * 0.5 = 0.5, y[i] = 0");
  f.x = {4, 9};
  f.forward();
  f.dy = {1, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(message([&] { f.backward(); }), "op f: cotangent dy[1] is inf when it comes in; grad_x[1] is inf because of it");
}

// Positions and formulas are the user's, also where passes turn t round and make a sigmoid of y.
TEST(CheckValues, SpeaksOfWhatIsWritten) {
  CompiledOp op = compile(parse_op("op f(x: f32[N]) -> (y) {\n t[i in 0..N] = log(x[N-1-i])\n y[i in 0..N] = t[N-1-i]/(1 + exp(-x[i]))\n}"),
                          {.check_values = true});
  std::vector<float> x = {0, 1, 2}, y(3);
  EXPECT_EQ(message([&] {
              op.infer({{"x", TensorView(x.data(), {3})}, {"y", TensorView(y.data(), {3})}});
            }),
            "op f: t[2] is -inf: log(x[N-1-i]) makes it of x[N-1-i] = 0; y[0] is -inf because of it");
}

}  // namespace
}  // namespace xhat::check_values_test
