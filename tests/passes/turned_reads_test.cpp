// What the backward reads across is read along rows (cse/algebra/turned_reads.h).
#include <gtest/gtest.h>

#include "cse/algebra/turned_reads.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::turned_reads_test {
namespace {

using testing::body_of;
using testing::expect_same_values;

Program with_backward(const std::string& definitions) {
  return parse_op(
      "op f(x: f64[N,D], v: f64[N]) -> (y) {\n  y[n] = sum(d: x[n,d]) * v[n]\n} backward (dy: f64[N]) -> (grad_x, grad_v) {\n  grad_x[n in "
      "0..N, d in 0..D] = "
      "v[n] * dy[n]\n" +
      definitions + "}\n");
}

// The body of grad_v; again: whether computing once more is cheaper than memory.
std::string turned(const std::string& definitions, bool again = false) {
  const Program p = with_backward(definitions);
  const std::optional<Program> after = with_turned_reads(p, [&](const Definition&) { return TurnPrice{1, again ? 1 : 0}; });
  if (!after) return "as it was";
  verify(*after);
  expect_same_values(p, *after);
  return body_of(*after, "grad_v");
}

TEST(TurnedReads, OfWhatIsSymmetricAreOfTheSameTensor) {
  const std::string s = "  s[i in 0..N, j in 0..N] = sum(d: (x[i,d] - x[j,d])^2)\n";
  EXPECT_EQ(turned(s + "  grad_v[n] = sum(k in 0..N: s[k,n] * dy[k])\n"), "sum(k: s[n,k] * dy[k])");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = dy[i] - dy[j]\n  grad_v[n] = sum(k in 0..N: s[k,n] * dy[k])\n"), "sum(k: -s[n,k] * dy[k])");
  EXPECT_EQ(
      turned("  s[i in 0..N, j in 0..N] = sum(d: abs(x[j,d] - x[i,d]) * cos(x[i,d] - x[j,d]))\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"),
      "sum(k: s[n,k])");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = if i != j then cos(round(dy[i] - dy[j])) else 0\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"),
            "sum(k: s[n,k])");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = round(dy[i] - dy[j])^3\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"), "sum(k: -s[n,k])");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = cos(dy[i] - dy[j]) * f64(abs(i - j) + 1)\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"),
            "as it was");
  // Where both are equal, either is the other.
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = (if 0 < dy[i] && i == j then dy[i]^3 else 0) + dy[i] * dy[j]\n  grad_v[n] = sum(k in 0..N: "
                   "s[k,n])\n"),
            "sum(k: s[n,k])");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = if 0 < dy[i] then dy[i] * dy[j] else 0\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"),
            "as it was");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = if i == j then dy[i]^3 else dy[i] * dy[j]\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"),
            "sum(k: s[n,k])");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = if i == j then dy[i]^3 else dy[i]\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"), "as it was");
  // By way of another one.
  EXPECT_EQ(turned(s + "  e[i in 0..N, j in 0..N] = exp(-s[i,j]) * dy[i] * dy[j]\n  grad_v[n] = sum(k in 0..N: e[k,n])\n"),
            "sum(k: e[n,k])");
}

TEST(TurnedReads, OfWhatIsCheapAreOfOneThatIsComputedTurned) {
  const std::string r = "  r[i in 0..N, j in 0..N] = sum(d: x[i,d] * dy[j])\n";
  EXPECT_EQ(turned(r + "  grad_v[n] = sum(k in 0..N: r[k,n] * r[n,k])\n", true), "sum(k: r_turned[n,k] * r[n,k])");
  EXPECT_EQ(turned(r + "  grad_v[n] = sum(k in 0..N: r[k,n] * r[n,k])\n", false), "as it was");
  // With what it reads.
  EXPECT_EQ(turned(r + "  e[i in 0..N, j in 0..N] = tanh(r[i,j])\n  grad_v[n] = sum(k in 0..N: e[k,n] * e[n,k])\n", true), "as it was");
}

TEST(TurnedReads, StayBesideWhatHasToBeReadAcross) {
  const std::string s = "  s[i in 0..N, j in 0..N] = dy[i] * dy[j]\n";
  // x cannot be read along rows; where t reads s across, so does grad_v.
  EXPECT_EQ(turned(s + "  grad_v[n in 0..N] = sum(k in 0..N: s[k,n] * x[k,n % D])\n", true), "as it was");
  EXPECT_EQ(turned(s + "  t[n in 0..N] = sum(k in 0..N: s[k,n] * x[k,n % D])\n  grad_v[n] = t[n] + sum(k in 0..N: s[k,n])\n", true),
            "as it was");
  // What is decided by it keeps its bits.
  EXPECT_EQ(turned(s + "  grad_v[n] = sum(k in 0..N: if s[k,n] > 0 then dy[k] else 0)\n", true), "as it was");
}

TEST(TurnedReads, AreNotOfTriangles) {
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = if i < j then dy[i] * dy[j] else 0\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"), "as it was");
  EXPECT_EQ(turned("  s[i in 0..N, j in 0..N] = sum(k in 0..i+1: dy[k] * dy[j])\n  grad_v[n] = sum(k in 0..N: s[k,n])\n"), "as it was");
}

}  // namespace
}  // namespace xhat::turned_reads_test
