// Sums and products over ranges as recurrences: what they compute, which there are, and what stays as it is.
#include "fusion/plan/recurrences.h"

#include <gtest/gtest.h>

#include "expr/eval/definition.h"
#include "expr/index/recurrence.h"
#include "fusion/plan/running_parts.h"
#include "tests/helpers/golden.h"

namespace xhat::recurrences_test {
namespace {

using namespace xhat::testing;

// Some of the data are zeros: none, one in a row, or every third.
Arrays data_of(const Program& p, const DimValues& sizes, int zeros) {
  Arrays data = random_data(p, sizes, 4);
  for (auto& [name, array] : data)
    for (size_t i = 0; i < array.reals.size(); ++i)
      if ((zeros == 1 && i % 40 == 11) || (zeros == 2 && i % 3 == 0)) array.reals[i] = 0;
  return data;
}

// The definitions, of which so many are recurrences.
std::string rewritten(const std::string& text, const DimValues& sizes, size_t recurrences) {
  const Program p = infer_program(parse_op(text)), made = ranges_as_recurrences(running_sums_apart(p, sizes, {}), sizes, {});
  for (int zeros : {0, 1, 2}) {
    const Arrays data = data_of(p, sizes, zeros);
    EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_by_definition(made, data, sizes, Rounding::exact), 1e-11), "")
        << print(made);
  }
  size_t found = 0;
  for (const Definition& d : made.forward.definitions) {
    std::vector<Id> axes;
    for (const AxisRange& r : d.axes) axes.push_back(r.axis);
    found += recurrence_of(*made.arena, d.target(), axes, d.body).has_value();
  }
  EXPECT_EQ(found, recurrences) << print(made);
  return print(made);
}

TEST(Recurrences, RunningProducts) {
  const DimValues sizes = {{"B", 3}, {"N", 40}};
  auto of = [&](const std::string& body) { return rewritten("op f(x: f64[B,N], z: f64[N,B]) -> (y) { " + body + " }", sizes, 1); };
  EXPECT_NE(of("y[b, i in 0..N] = prod(k in 0..i+1: x[b,k])").find("y[b,i] = y[b,i-1 else 1] * x[b,i]"), std::string::npos);
  EXPECT_NE(of("y[b, i in 0..N] = prod(k in i..N: x[b,k])").find("y[b,i] = y[b,i+1 else 1] * x[b,i]"), std::string::npos);
  of("y[b, i in 0..N] = prod(k in 0..i: x[b,k])");
  of("y[b, i in 0..N] = prod(k in i+1..N: x[b,k])");
  of("y[b, i in 0..N-9] = prod(k in 3..i+7: x[b,k])");
  of("y[b, i in 0..N] = prod(k in i-2..N: x[b,k else 0.5])");
  of("y[i in 0..N, b] = prod(k in 0..i+1: 1-cos(z[k,b])*z[k,b])");
  of("y[b, i in 0..N] = prod(k in 0..i+1 if x[b,k] > 0.2: x[b,k]^2)");
  of("y[b, i in 0..N, j in 0..B] = prod(k in i..N: x[b,k])");
}

TEST(Recurrences, LinearInTheirOwnResults) {
  const DimValues sizes = {{"B", 3}, {"N", 40}};
  auto of = [&](const std::string& weight, const std::string& sum) {
    return rewritten("op f(x: f64[B,N], a: f64[B,N]) -> (y) { w[b, t in 0..N, k in 0..N] = " + weight + "; y[b, t in 0..N] = " + sum + " }",
                     sizes, 1);
  };
  const std::string text = of("prod(j in k+1..t+1: a[b,j])", "sum(k in 0..t+1: x[b,k]*w[b,t,k])");
  EXPECT_EQ(text.find("w["), std::string::npos) << text;
  of("prod(j in k+1..t+1: a[b,j])", "sum(k in 0..t+1: x[b,k]*w[b,t,k]*cos(x[b,t]))");
  of("prod(j in k..t+1: a[b,j])", "sum(k in 0..t+1: w[b,t,k])");
  of("prod(j in k+1..t: a[b,j])", "sum(k in 0..t: x[b,k]*w[b,t,k])");
  of("prod(j in k+1..t+1: a[b,j])", "sum(k in 2..t: x[b,k]*w[b,t,k])");
  of("prod(j in k+1..t+1: a[b,j])", "sum(k in 0..t+1: x[b,k]*w[b,t,k]*w[b,t,k])");
  of("prod(j in k+1..t+1 if a[b,j] > 0: a[b,j])", "sum(k in 0..t+1 if x[b,k] < 1: w[b,t,k])");
  of("prod(j in k+1..t+1 if k < t: a[b,j])", "sum(k in 0..t+1: w[b,t,k])");
  of("prod(j in t+1..k+1: a[b,j])", "sum(k in t..N: x[b,k]*w[b,t,k])");
  of("prod(j in t..k: a[b,j])", "sum(k in t+1..N: x[b,k]*w[b,t,k])");
  of("prod(j in t-2..k: a[b,j else 2])", "sum(k in t+1..N: x[b,k]*w[b,t,k])");
}

// The gradient of such a sum by what it multiplies with.
TEST(Recurrences, SumsOverBothSidesAreApart) {
  const std::string text = rewritten(R"(op f(x: f64[N], a: f64[N], dy: f64[N]) -> (y) {
    v[j in 0..N, k in 0..N] = prod(l in k+1..j if k+1 <= j: a[l])
    w[t in 0..N, j in 0..N] = prod(l in j+1..t+1: a[l])
    y[j in 0..N] = sum(t in j..N, k in 0..j: x[k]*dy[t]*v[j,k]*w[t,j])
  })",
                                     {{"N", 40}}, 2);
  EXPECT_EQ(text.find("sum("), std::string::npos) << text;
}

TEST(Recurrences, OthersStay) {
  const DimValues sizes = {{"N", 40}};
  auto stays = [&](const std::string& body) {
    rewritten("op f(x: f64[N], a: f64[N]) -> (y) { w[t in 0..N, k in 0..N] = prod(j in k+1..t+1: a[j]); y[t in 0..N] = " + body + " }",
              sizes, body.find("w[") == std::string::npos ? 0 : 1);  // w is one itself
  };
  for (const char* body :
       {"prod(k in 0..t+1: x[k]*x[t])", "prod(k in t/2..t+1: x[k])", "prod(k in 0..2*t/2+1: x[k])",
        "prod(k in 0..t+1 if x[k] < x[t]: x[k])", "prod(k: x[k])", "sum(k in 0..t+1: x[k]/w[t,k])", "sum(k: x[k]*w[t,k])",
        "sum(k in 0..t+1: x[k]*w[k,t])", "sum(k in 0..t+1: x[k]*(1+w[t,k]))", "sum(k in 0..t+1: x[k])"})
    stays(body);
  // Of the last term nothing is between: the range is empty for it, and for the one before as well. w is a recurrence itself.
  rewritten("op f(a: f64[N]) -> (y) { w[t in 0..N, k in 0..N] = prod(j in k+2..t+1: a[j]); y[t in 0..N] = sum(k in 0..t+1: w[t,k]) }",
            sizes, 1);
  rewritten("op f(x: f64[N]) -> (y) { y[t in 0..N] = prod(k in 0..t+1: x[k]) }", {{"N", 10}}, 0);
  rewritten("op f(x: bf16[N]) -> (y) { y[t in 0..N] = prod(k in 0..t+1: x[k]) }", sizes, 0);
}

}  // namespace
}  // namespace xhat::recurrences_test
