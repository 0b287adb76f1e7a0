// Running sums inside of sums, and terms that count by their distance: what they compute, and what stays as it is.
#include "fusion/plan/running_parts.h"

#include <gtest/gtest.h>

#include "tests/helpers/golden.h"

namespace xhat::running_parts_test {
namespace {

using namespace xhat::testing;

// The definitions that are left, with the same values.
size_t definitions(const std::string& text, const DimValues& sizes) {
  const Program p = infer_program(parse_op(text)), made = running_sums_apart(p, sizes, {});
  verify(made);
  const Arrays data = random_data(p, sizes, 4);
  EXPECT_EQ(difference(evaluate_on(p, data, sizes), evaluate_on(made, data, sizes), 1e-10), "") << print(made);
  return made.forward.definitions.size();
}

TEST(RunningParts, SumsInsideOfSums) {
  const DimValues sizes = {{"B", 3}, {"N", 40}};
  auto count = [&](const std::string& body) {
    return definitions("op f(x: f64[B,N], z: f64[B,N], a: f64[B]) -> (y) { " + body + " }", sizes);
  };
  EXPECT_EQ(count("y = sum(b, t in 0..N, k in 0..t+1: z[b,t]*x[b,k]*0.9^f64(t-k))"), 2u);
  EXPECT_EQ(count("y[b] = sum(t in 0..N, k in 0..t: z[b,t]*x[b,k])"), 2u);
  EXPECT_EQ(count("y[b] = sum(t in 0..N, k in t..N if x[b,k] > z[b,k]: z[b,t]*x[b,k]*exp(-a[b]^2*f64(k-t)))"), 2u);
  EXPECT_EQ(count("y[k in 0..N] = sum(b, t in k..N: x[b,t]*a[b]^f64(t-k))"), 2u) << "a range that begins with a result";
  EXPECT_EQ(count("y[j in 0..N] = sum(b, t in j..N, k in 0..j: x[b,t]*z[b,k])"), 3u) << "both";
  EXPECT_EQ(count("w[b, t in 0..N, k in 0..N] = prod(j in k+1..t+1: z[b,j]); y = sum(b, t in 0..N, k in 0..t+1: x[b,t]*z[b,k]*w[b,t,k])"),
            3u);
}

TEST(RunningParts, TermsThatCountByTheirDistance) {
  const DimValues sizes = {{"B", 3}, {"N", 40}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f64[B,N], a: f64[B]) -> (y) { " + body + " }", sizes); };
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: f64(t-k)*x[b,k]*a[b]^f64(t-k))"), 3u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1 if f64(t-k) != 0: f64(t-k)*x[b,k]*a[b]^(f64(t-k)-1))"), 3u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t: f64(t-k)*x[b,k]*x[b,t]*exp(-a[b]^2*f64(t-k)))"), 3u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t..N: f64(k-t)*x[b,k]*a[b]^f64(2*k-2*t))"), 3u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t+1..N if x[b,k] > 0: f64(k-t)*x[b,k]*a[b]^(f64(k-t)-1))"), 3u);
  // The gradient of an average by its decay.
  EXPECT_EQ(count("y[b] = sum(t in 0..N, k in 0..t+1 if f64(t-k) != 0: f64(t-k)*x[b,k]*x[b,t]*a[b]^(f64(t-k)-1))"), 4u);
}

// Counted from the nearest term; and what a batch has summed up for each pair.
TEST(RunningParts, CountedFromTheNearestTerm) {
  const DimValues sizes = {{"B", 3}, {"N", 40}};
  auto count = [&](const std::string& body) {
    return definitions("op f(x: f64[B,N], z: f64[B,N], a: f64[B]) -> (y) { " + body + " }", sizes);
  };
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t: f64(t-1-k)*x[b,k]*exp(-a[b]^2*f64(t-1-k)))"), 3u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in t+1..N: f64(k-t-1)*x[b,k]*exp(-a[b]^2*f64(k-t-1)))"), 3u);
  EXPECT_EQ(count("y[b, t in 0..N] = sum(k in 0..t+1: -(f64(t-k)*(x[b,k]*a[b]^f64(t-k))))"), 3u);
}

TEST(RunningParts, SumsOfABatchForEachPair) {
  const DimValues sizes = {{"B", 3}, {"N", 150}};  // at 40 all pairs take less
  auto count = [&](const std::string& body) {
    return definitions("op f(x: f64[B,N], z: f64[B,N], a: f64) -> (y) { " + body + " }", sizes);
  };
  EXPECT_EQ(count("s[t in 0..N, k in 0..N] = sum(b: z[b,t]*x[b,k]); y = sum(t in 0..N, k in 0..t+1: a^f64(t-k)*s[t,k])"), 2u);
  EXPECT_EQ(count("s[t in 0..N, k in 0..N] = sum(b: z[b,t]*x[b,k]); y = sum(t in 0..N, k in 0..t+1: f64(t-k)*exp(-a^2*f64(t-k))*s[t,k])"),
            4u);
  EXPECT_EQ(count("s[t in 0..N, k in 0..N] = sum(b: z[b,t]*x[b,k]); r[t in 0..N, k in 0..N] = sum(b: x[b,t]*z[b,k])\n"
                  "y = sum(t in 0..N, k in 0..t: f64(t-1-k)*exp(-a^2*f64(t-1-k))*(if k < 30 then s[t,k]-r[t,k] else 0))"),
            9u)
      << "as the difference of two";
}

// a^(t-k-1) with t-k-1 = -1 is not asked for, and 0^0 is 1.
TEST(RunningParts, DecayOfZero) {
  const DimValues sizes = {{"N", 40}};
  const Program p = infer_program(
      parse_op("op f(x: f64[N], a: f64) -> (y) { y[t in 0..N] = sum(k in 0..t+1 if f64(t-k) != 0: f64(t-k)*x[k]*a^(f64(t-k)-1)) }"));
  Arrays data = random_data(p, sizes, 4);
  data.at("a").reals[0] = 0;
  const Array made = evaluate_on(running_sums_apart(p, sizes, {}), data, sizes).at("y");
  EXPECT_EQ(made.reals[0], 0);
  for (size_t t = 1; t < 40; ++t) EXPECT_EQ(made.reals[t], data.at("x").reals[t - 1]);
}

// The gradient of a recurrence by what all its factors depend on: over three places, of which the middle one parts the others.
TEST(RunningParts, BothSidesOfAPlaceInTheMiddle) {
  const DimValues sizes = {{"N", 40}, {"S", 3}};
  auto count = [&](const std::string& axes, const std::string& extra) {
    return definitions(R"(op f(x: f64[N], g: f64[N,S], dy: f64[N]) -> (y) {
      v[k in 0..N, j in 0..N, s in 0..S] = prod(l in k+1..j+1: g[l,s])
      w[t in 0..N, j in 0..N, s in 0..S] = prod(l in j+2..t+1: g[l,s])
      y = sum(s in 0..S, )" +
                           axes + ": " + extra + R"(x[k]*dy[t]*g[j,s]*v[k,j-1,s]*w[t,j-1,s])
    })",
                       sizes);
  };
  EXPECT_EQ(count("t in 0..N, k in 0..t+1, j in k+1..t+1", ""), 5u);
  EXPECT_EQ(count("t in 0..N, k in 0..t, j in k+1..t+1", ""), 5u);
  EXPECT_EQ(count("k in 0..N, t in k..N, j in k+1..t+1", ""), 5u);
  EXPECT_EQ(count("t in 0..N, k in 0..t-1, j in k+1..t+1", ""), 3u) << "t - k is not 1, though a place is between";
  EXPECT_EQ(count("t in 0..N, k in 0..t+1, j in k+1..t+1", "g[j-1,s]*"), 5u);
  EXPECT_EQ(count("t in 0..N, k in 0..t+1, j in k+1..t+1", "(x[t]+dy[k])*"), 3u) << "a factor of both";
  // States are summed up first; what stands around them is under a condition that its ranges imply.
  EXPECT_EQ(definitions(R"(op f(x: f64[N], g: f64[N,S], c: f64[S], dy: f64[N]) -> (y) {
    v[k in 0..N, j in 0..N, s in 0..S] = prod(l in k+1..j if k+1 <= j: g[l,s])
    w[t in 0..N, j in 0..N, s in 0..S] = prod(l in j+1..t+1: g[l,s])
    u[k in 0..N, j in 0..N, t in 0..N] = sum(s: c[s]*v[k,j,s]*w[t,j,s])
    y[j in 0..N] = sum(t in j..N, k in 0..j: if k+1 <= j && j < t+1 then x[k]*dy[t]*u[k,j,t] else 0)
  })",
                        sizes),
            5u);
}

TEST(RunningParts, OthersStay) {
  const DimValues sizes = {{"B", 3}, {"N", 40}};
  auto count = [&](const std::string& body) { return definitions("op f(x: f64[B,N], m: f64[N,N]) -> (y) { " + body + " }", sizes); };
  for (const char* body :
       {"y = sum(b, t in 0..N, k in 0..t+1: x[b,t]*x[b,k]*m[t,k])", "y[b] = sum(t in 0..N, k in 0..t+1 if x[b,k] < x[b,t]: x[b,k])",
        "y[t in 0..N] = sum(b, k in 0..t+1: x[b,k]*m[t,k])", "y[t in 0..N] = sum(k in 0..t+1: f64(t-k)*m[t,k])",
        "y[t in 0..N] = sum(k in 0..t+1: f64(t+k)*x[0,k]*0.9^f64(t-k))", "y[t in 0..N] = sum(b, k: x[b,k]*m[t,k])",
        "y[t in 0..N] = sum(b, k in t/2..N: x[b,k])", "y[b] = sum(t in 0..N, k in 0..t+1: max(x[b,t], x[b,k]))"})
    EXPECT_EQ(count(body), 1u) << body;
  EXPECT_EQ(definitions("op f(x: f64[N]) -> (y) { y = sum(t in 0..N, k in 0..t+1: x[t]*x[k]) }", {{"N", 12}}), 1u) << "short";
}

}  // namespace
}  // namespace xhat::running_parts_test
