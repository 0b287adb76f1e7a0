// Derivatives of lazy expressions, against differences of their values.
#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_gradient_test {
namespace {

// Weights that make one number of an array without making its derivative constant.
Array weighted(const Array& y) { return sum(y * cast(some(y.shape(), 99), y.dtype())); }

TEST(LazyGradients, OfElements) {
  expect_gradient([](const Array& x) { return sum(tanh(x) * exp(x) / (square(x) + 1.0)); }, {5});
  expect_gradient([](const Array& x) { return weighted(where(x > 0.1f, x * x, sin(x))); }, {7});
  expect_gradient([](const Array& x) { return weighted(x + x(0) * x(all, range(1, 2))); }, {3, 4});
}

TEST(LazyGradients, OfReductions) {
  expect_gradient([](const Array& x) { return weighted(softmax(x)); }, {3, 5});
  expect_gradient([](const Array& x) { return -weighted(log_softmax(x, 0)); }, {4, 2});
  expect_gradient([](const Array& x) { return weighted(max(x, 1)) + weighted(mean(square(x), {0}, keepdim)); }, {3, 4});
  expect_gradient([](const Array& x) { return weighted((x - mean(x, 0)) / sqrt(mean(square(x - mean(x, 0)), 0) + 1e-3)); }, {6, 3}, 3,
                  1e-5);
}

TEST(LazyGradients, OfMovement) {
  expect_gradient([](const Array& x) { return weighted(square(pad(x, {{1, 2}, {0, 1}}))); }, {2, 3});
  expect_gradient([](const Array& x) { return weighted(square(reshape(transpose(x), {2, 6}))); }, {3, 4});
  expect_gradient([](const Array& x) { return weighted(square(concat({x, flip(x, 1), x * x}, 1))); }, {2, 3});
  expect_gradient([](const Array& x) { return weighted(square(stride(x, {2, -1}))); }, {5, 2});
  expect_gradient([](const Array& x) { return weighted(square(expand(x, {3, 4, 2}))); }, {4, 1});
  expect_gradient([](const Array& x) { return weighted(square(take(x, array({1, 1, 0})))); }, {3, 2});
  expect_gradient([](const Array& x) { return weighted(square(gather(x, 1, array({{1}, {0}, {1}})))); }, {3, 2});
}

TEST(LazyGradients, OfProducts) {
  const Array w = cast(some({4, 3}, 11), f64);
  expect_gradient([&](const Array& x) { return weighted(tanh(matmul(x, w))); }, {2, 4});
  expect_gradient([&](const Array& x) { return weighted(einsum("bi,bj->bij", x, x)); }, {2, 3});
  const Array filters = cast(some({3, 2, 3, 3}, 12), f64);
  expect_gradient([&](const Array& x) { return weighted(relu(conv(x, filters, {.stride = {2}, .padding = {1}}))); }, {1, 2, 5, 5});
  const Array image = cast(some({2, 2, 5, 5}, 13), f64);
  expect_gradient([&](const Array& f) { return weighted(pool(conv(image, f, {.padding = {1}}), {2, 2})); }, {2, 2, 3, 3}, 5, 1e-5);
  expect_gradient([](const Array& x) { return weighted(pool(x, {2}, Pool::mean, {.stride = {1}})); }, {2, 6});
}

TEST(LazyGradients, OfOps) {
  const Program op = parse_op("op f(x: f64[N,D]) -> (y) { s[n] = sum(d: x[n,d]*x[n,d]); y[n,d] = x[n,d] / sqrt(s[n] + 1) }");
  expect_gradient([&](const Array& x) { return weighted(apply(op, {x * 2.0})); }, {3, 4});
}

TEST(LazyGradients, SeveralAtOnceAndByExpressions) {
  const Array x = some({4, 3}, 1), w = some({3, 2}, 2), b = some({2}, 3);
  const Array h = matmul(x, w) + b, loss = sum(square(h));
  auto [gw, gb, gh] = grad(loss, {w, b, h});
  const Read hs(h), xs(x);
  expect_values(gh, loop({4, 2}, [&](const std::vector<int64_t>& i) { return 2 * hs(i[0], i[1]); }));
  expect_values(gb, loop({2}, [&](const std::vector<int64_t>& i) {
                  double s = 0;
                  for (int k = 0; k < 4; ++k) s += 2 * hs(k, i[0]);
                  return s;
                }));
  expect_values(gw, loop({3, 2}, [&](const std::vector<int64_t>& i) {
                  double s = 0;
                  for (int k = 0; k < 4; ++k) s += 2 * hs(k, i[1]) * xs(k, i[0]);
                  return s;
                }));
  auto [none] = grad(loss, {some({2})});
  expect_values(none, {0, 0});
}

TEST(LazyGradients, ByWhatDependsOnOneAnotherTogether) {
  const Array x = array({1.f, 2.f}), h = x * 2.f, loss = sum(h * h + x);
  auto [gx, gh] = grad(loss, {x, h});
  realize(gx, gh);
  expect_values(gx, {9, 17});
  expect_values(gh, {4, 8});
  const Array k = (x * 2.f).realize(), other = sum(k * k + x);
  auto [gk, by_x] = grad(other, {k, x});
  realize(gk, by_x);
  expect_values(by_x, {9, 17});
  expect_values(gk, {4, 8});
}

TEST(LazyGradients, AfterTheLossWasRealized) {
  const Array x = array({1.f, 2.f}), y = (x * x).realize(), loss = sum(y * x);
  EXPECT_FLOAT_EQ(static_cast<float>(loss.item()), 9);
  auto [g] = grad(loss, {x});
  expect_values(g, {3, 12});
  auto [late] = grad(loss, {x});
  x.assign(x + 1.f).realize();
  expect_values(late, {3, 12});  // was asked for before the assignment
  auto [too_late] = grad(loss, {x});
  expect_values(too_late, {0, 0});  // of what x is now, the loss knows nothing
}

TEST(LazyGradients, OfGradients) {
  const Array x = array({0.5, -1.0, 2.0});
  auto [first] = grad(sum(x * x * x), {x});
  auto [second] = grad(sum(first), {x});
  auto [third] = grad(sum(square(second)), {x});
  realize(first, second, third);
  expect_values(first, {0.75, 3, 12});
  expect_values(second, {3, -6, 12});
  expect_values(third, {36, -72, 144});
  const Array w = cast(some({3, 3}, 4), f64);
  // The gradient of the norm of a gradient.
  expect_gradient(
      [&](const Array& v) {
        auto [g] = grad(sum(tanh(matmul(v, w))), {v});
        return sum(square(g));
      },
      {2, 3});
}

TEST(LazyGradients, StopAtDetached) {
  const Array x = array({1.0, 2.0});
  auto [g] = grad(sum(x * x.detach()), {x});
  expect_values(g, {1, 2});
}

TEST(LazyGradients, AStateThatIsCarriedAlongHasNoEndlessPast) {
  Array state = array({1.0, 2.0}) * 1.0 + 0.0;
  const Array x = array({0.5, 0.25});
  for (int i = 0; i < 30; ++i) state = (state * 0.5 + x).realize();
  auto by_x = [&] { return grad(sum(state * x), {x})[0].vector<double>(); };
  EXPECT_THROW(by_x(), Error);
  const Array fixed = state.detach();
  expect_values(grad(sum(fixed * x), {x})[0], state.vector<double>());
}

}  // namespace
}  // namespace xhat::lazy::test::lazy_gradient_test
