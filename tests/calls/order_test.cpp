// What may not be computed in parts: products of floats, whose order is part of their meaning, and the place of an extreme. With tiles so
// small that anything that may be cut is cut.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/order_helper.h"

namespace xhat::order_test {
namespace {

using namespace xhat::testing;

TEST(Order, ProductsAreMultipliedUpInOrder) {
  for (const std::string& text : kProducts)
    for (const char* type : {"f32", "f64", "bf16"})
      for (int64_t n : {9, 40}) expect_in_order(text, type, n);
}

TEST(Order, TheGradientOfAProduct) {
  const Program op = parse_op("op f(x: f32[N,D]) -> (y) { y[n] = prod(d: x[n,d]) }"), derived = gradient(op);
  const DimValues dims = {{"N", 9}, {"D", 34}};
  Arrays data = alternating(derived, dims);
  data.at("dy") = random_data(derived, dims, 3).at("dy");
  expect_same_bits(evaluate(derived, data, dims), run_both(compile(op, small_tiles()), data, dims));
}

TEST(Order, ThePlaceOfAnExtreme) {
  for (const char* text : {"op f(x: f32[D]) -> (s, k) { s[d] = 2 * x[d]\n k = argmax(d: s[d]) }",
                           "op f(x: f32[D]) -> (s, k, m) { s[d] = x[d]^2\n k = argmin(d: s[d])\n m = sum(d: s[d]) }",
                           "op f(x: f32[D]) -> (t, k) { t = sum(d: x[d])\n k = argmax(d: abs(x[d])) }"}) {
    const Program op = parse_op(text);
    const DimValues dims = {{"D", 5000}};
    const Arrays data = random_data(op, dims, 4);
    CompileOptions options = small_tiles();
    options.differentiate = false;
    EXPECT_EQ(run_infer(compile(op, options), data, dims).at("k"), evaluate(op, data, dims).at("k")) << text;
  }
}

}  // namespace
}  // namespace xhat::order_test
