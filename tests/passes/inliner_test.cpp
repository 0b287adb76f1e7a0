// Which maps disappear into their users, and which stay tensors.
#include <gtest/gtest.h>

#include "expr/core/program.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::testing::inliner_test {
namespace {

// Values of a map that are read at several places are computed once each, where that takes less than computing them for each reader.
TEST(MapsReadAtSeveralPlaces, StayTensorsWhereTheyAreDear) {
  const struct {
    const char* text;
    bool stays;
  } cases[] = {
      // five terms of five terms, for each of five readers
      {"op f(x: f32[N,M]) -> (y) { a[i,j] = x[i,j] + x[i-1,j else 0] + x[i+1,j else 0] + x[i,j-1 else 0] + x[i,j+1 else 0]\n"
       "b[i,j] = a[i,j] + a[i-1,j else 0] + a[i+1,j else 0] + a[i,j-1 else 0] + a[i,j+1 else 0]\n"
       "y[i,j] = b[i,j] + b[i-1,j else 0] + b[i+1,j else 0] + b[i,j-1 else 0] + b[i,j+1 else 0] }",
       true},
      {"op f(x: f32[N]) -> (y) { b[i] = exp(sin(x[i]))*tanh(x[i])/(1 + x[i]^2)\n y[i in 0..N-4] = b[i] + b[i+1] + b[i+2] + b[i+3] }", true},
      {"op f(x: f64[N,N]) -> (y) { b[i,j] = exp(sin(x[i,j])*tanh(x[j,i]))/(1 + exp(sin(x[i,j]^2)))\n y[i,j] = b[i,j]*b[j,i] + sin(b[i,j]) "
       "+ b[0,j] }",
       true},
      // through views, as a stage of a transform is read by the next one
      {"op f(x: f64[8,N]) -> (y) { b[i,n] = exp(sin(x[i,n])*tanh(x[i,n]))/(1 + exp(sin(x[i,n]^2)))\n"
       "v[i in 0..2, k in 0..4, n] = b[4*i+k,n]\n w[i,k,n] = if k == 1 then v[i,k,n] else 0\n s[i in 0..2, n] = v[i,0,n]\n"
       "t[i in 0..2, n] = v[i,2,n]\n u[i in 0..2, n] = v[i,3,n]\n y[i,n] = s[i,n] - w[i,1,n] + t[i,n]*u[i,n] }",
       true},
      // through maps, and all at one place
      {"op f(x: f32[N]) -> (y) { b[i] = exp(sin(x[i]))*tanh(x[i])/(1 + x[i]^2)\n v[i] = 2*b[i]\n w[i] = b[i] + 1\n"
       "y[i] = v[i]*w[i] - b[i] }",
       false},
      // a difference of differences
      {"op f(x: f32[N]) -> (y) { b[i in 0..N-1] = x[i+1] - x[i]\n y[i in 0..N-2] = b[i+1] - b[i] }", false},
      // dear, but each reader reads its own element
      {"op f(x: f32[N]) -> (y, z) { b[i] = exp(sin(x[i]))*tanh(x[i])/(1 + x[i]^2)\n y[i] = b[i]*x[i]\n z[i] = b[i] + 1 }", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const Program op = parse_op(c.text), p = normal_form(op);
    EXPECT_EQ(body_of(p, "b") != "none", c.stays);
    expect_same_values(op, p);
  }
}

}  // namespace
}  // namespace xhat::testing::inliner_test
