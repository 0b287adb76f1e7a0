// Convolutions and their gradients at sizes that come out uneven: transposed to an odd size, strided from one, by images of three colours, from
// planes that lie a multiple of a page apart; and ties that cost much to find.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::uneven_convolutions_test {
namespace {

using namespace xhat::testing;

void expect_agreement(const std::string& text, const DimValues& dims) {
  SCOPED_TRACE(text + dims_text(dims));
  const Program op = parse_op(text), derived = gradient(op);
  const Arrays data = random_data(derived, dims, 7), right = evaluate_on(derived, data, dims);
  CompileOptions options;
  options.machine.serial_bytes = 16;
  Arrays one;
  for (int threads : {1, 2}) {
    options.threads = threads;
    const Arrays found = run_both(compile(op, options), data, dims);
    if (threads == 1) {
      EXPECT_EQ(difference(right, found, 1e-4), "");
      one = found;
    }
    for (const auto& [name, array] : one) EXPECT_EQ(found.at(name).reals, array.reals) << name << ", " << threads << " threads";
  }
}

TEST(UnevenConvolutions, TransposedToAnOddSize) {
  expect_agreement(
      "op f(x: f32[N,C,H,H], w: f32[C,K,3,3], b: f32[17]) -> (y) {\n"
      "  t[n,k,i in 0..17,j in 0..17] = sum(c,r,s if (i+1-r)%2 == 0 && (j+1-s)%2 == 0: x[n,c,(i+1-r)/2,(j+1-s)/2 else 0]*w[c,k,r,s])\n"
      "  y[n,k,i,j] = t[n,k,i,j]*b[i] + max(l: t[n,l,i,j])\n}",
      {{"N", 2}, {"C", 5}, {"K", 9}, {"H", 9}});
  expect_agreement(
      "op f(x: f32[N,C,H], w: f32[C,K,5]) -> (y) { y[n,k,t in 0..37] = sum(c,r if (t+1-2*r)%2 == 0: x[n,c,(t+1-2*r)/2 else 0]*w[c,k,r]) }",
      {{"N", 2}, {"C", 5}, {"K", 9}, {"H", 16}});
}

TEST(UnevenConvolutions, StridedFromAnOddSize) {
  expect_agreement(
      "op f(x: f32[N,3,H,H], w: f32[K,3,5,5]) -> (y) { y[n,k,i in 0..9,j in 0..9] = sum(c,r,s: x[n,c,3*i+r-2,3*j+s-2 else 0]*w[k,c,r,s]) }",
      {{"N", 2}, {"K", 8}, {"H", 25}});
}

TEST(UnevenConvolutions, FromPlanesOfWholePages) {
  for (int64_t c : {3, 8})
    expect_agreement(
        "op f(x: f32[N,C,H+2,H+2], w: f32[K,C,3,3]) -> (y) { y[n,k,i in 0..H,j in 0..H] = sum(c,r,s: x[n,c,i+r,j+s]*w[k,c,r,s]) }",
        {{"N", 1}, {"K", 9}, {"C", c}, {"H", 32}});
}

// Written out 32 times over, the condition kept the compiler busy without an end.
TEST(UnevenConvolutions, TiesOfCostlyValues) {
  expect_agreement(
      "op f(x: f32[N,16*Q]) -> (y) {\n"
      "  p[n,q in 0..Q] = mean(r in 0..16: x[n,16*q+r])\n"
      "  y[n] = max(q: p[n,q]*(1 + erf(p[n,q]/sqrt(2))))\n}",
      {{"N", 64}, {"Q", 32}});
}

}  // namespace
}  // namespace xhat::uneven_convolutions_test
