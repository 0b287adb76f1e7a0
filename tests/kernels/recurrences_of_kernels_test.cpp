// Running products and linear recurrences in kernels, against plain loops: rows that come out even or not, along any axis, with zeros.
#include <gtest/gtest.h>

#include <cmath>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::recurrences_of_kernels_test {
namespace {

using namespace xhat::testing;

// Row by row: places along the recurrence are `stride` apart.
struct Rows {
  size_t rows, length, stride;
  size_t begin(size_t r) const { return r / stride * stride * length + r % stride; }
};

// zeros: so many in each row of x.
void put_zeros(Array& x, const Rows& rows, size_t zeros) {
  for (size_t r = 0; r < rows.rows; ++r)
    for (size_t z = 0; z < zeros; ++z) x.reals[rows.begin(r) + (7 * z + r) % rows.length * rows.stride] = 0;
}

void expect_near(const Array& found, const std::vector<double>& right, double tolerance, const std::string& what) {
  ASSERT_EQ(found.reals.size(), right.size());
  double worst = 0;
  for (size_t i = 0; i < right.size(); ++i) worst = std::max(worst, std::abs(found.reals[i] - right[i]) / (1 + std::abs(right[i])));
  EXPECT_LE(worst, tolerance) << what;
}

void for_types_and_threads(std::string text, const DimValues& dims, const Rows& rows, auto&& compare) {
  for (const char* type : {"f64", "f32"})
    for (size_t zeros : {0, 1, 3})
      for (int threads : {1, 2}) {
        std::string typed = text;
        for (size_t at = 0; (at = typed.find("f64", at)) != std::string::npos; ++at) typed.replace(at, 3, type);
        SCOPED_TRACE(typed + dims_text(dims) + ", zeros: " + std::to_string(zeros) + ", threads: " + std::to_string(threads));
        const Program op = parse_op(typed);
        CompileOptions options;
        options.threads = threads;
        Arrays data = random_data(gradient(op), dims, 3);
        for (auto& [name, array] : data)
          if (name != "dy") put_zeros(array, rows, zeros);
        compare(data, run_both(compile(op, options), data, dims), typed.find("f64") != std::string::npos ? 1e-12 : 2e-5);
      }
}

// y = x[first] * … * x[t]; the gradient by each factor is summed over results, each the product of all factors but one.
void expect_products(const std::string& text, const DimValues& dims, const Rows& rows, bool falls) {
  for_types_and_threads(text, dims, rows, [&](const Arrays& data, const Arrays& found, double tolerance) {
    const std::vector<double>&x = data.at("x").reals, &dy = data.at("dy").reals;
    std::vector<double> y(x.size()), grad(x.size());
    for (size_t r = 0; r < rows.rows; ++r) {
      auto at = [&](size_t t) { return rows.begin(r) + (falls ? rows.length - 1 - t : t) * rows.stride; };
      for (size_t t = 0; t < rows.length; ++t) {
        y[at(t)] = 1;
        for (size_t k = 0; k <= t; ++k) y[at(t)] *= x[at(k)];
        for (size_t k = 0; k <= t; ++k) {
          double others = dy[at(t)];
          for (size_t l = 0; l <= t; ++l) others *= l == k ? 1 : x[at(l)];
          grad[at(k)] += others;
        }
      }
    }
    expect_near(found.at("y"), y, tolerance, "y");
    expect_near(found.at("grad_x"), grad, tolerance, "grad_x");
  });
}

TEST(RecurrencesOfKernels, RunningProducts) {
  const std::string rows = "op f(x: f64[N,T]) -> (y) { y[n, t in 0..T] = prod(k in 0..t+1: x[n,k]) }";
  for (auto [n, t] : {std::pair<size_t, size_t>{1, 17}, {3, 40}, {8, 33}, {29, 61}})
    expect_products(rows, {{"N", static_cast<int64_t>(n)}, {"T", static_cast<int64_t>(t)}}, {n, t, 1}, false);
  expect_products("op f(x: f64[N,T]) -> (y) { y[n, t in 0..T] = prod(k in t..T: x[n,k]) }", {{"N", 13}, {"T", 40}}, {13, 40, 1}, true);
  const std::string middle = "op f(x: f64[N,T,D]) -> (y) { y[n, t in 0..T, d] = prod(k in 0..t+1: x[n,k,d]) }";
  for (size_t d : {2, 9, 32, 70}) expect_products(middle, {{"N", 3}, {"T", 37}, {"D", static_cast<int64_t>(d)}}, {3 * d, 37, d}, false);
  expect_products("op f(x: f64[T,D]) -> (y) { y[t in 0..T, d] = prod(k in t..T: x[k,d]) }", {{"T", 37}, {"D", 20}}, {20, 37, 20}, true);
  // In tiles of columns, the last one narrow.
  expect_products("op f(x: f64[T,D]) -> (y) { y[t in 0..T, d] = prod(k in 0..t+1: x[k,d]) }", {{"T", 70}, {"D", 613}}, {613, 70, 613},
                  false);
}

TEST(RecurrencesOfKernels, WholeProducts) {
  for (auto [n, t] : {std::pair<size_t, size_t>{1, 17}, {29, 61}}) {
    const Rows rows{n, t, 1};
    const DimValues dims = {{"N", static_cast<int64_t>(n)}, {"T", static_cast<int64_t>(t)}};
    for_types_and_threads("op f(x: f64[N,T]) -> (y) { y[n] = prod(k: x[n,k]) }", dims, rows,
                          [&](const Arrays& data, const Arrays& found, double tolerance) {
                            const std::vector<double>& x = data.at("x").reals;
                            std::vector<double> grad(x.size());
                            for (size_t i = 0; i < x.size(); ++i) {
                              grad[i] = data.at("dy").reals[i / t];
                              for (size_t l = i / t * t; l < i / t * t + t; ++l) grad[i] *= l == i ? 1 : x[l];
                            }
                            expect_near(found.at("grad_x"), grad, tolerance, "grad_x");
                          });
  }
}

// s = a*s + x, undone from the end.
TEST(RecurrencesOfKernels, LinearRecurrences) {
  auto compare = [&](const std::string& text, const DimValues& dims, const Rows& rows, bool falls) {
    for_types_and_threads(text, dims, rows, [&](const Arrays& data, const Arrays& found, double tolerance) {
      const std::vector<double>&x = data.at("x").reals, &a = data.at("a").reals, &dy = data.at("dy").reals;
      std::vector<double> y(x.size()), grad_x(x.size()), grad_a(x.size());
      for (size_t r = 0; r < rows.rows; ++r) {
        auto at = [&](size_t t) { return rows.begin(r) + (falls ? rows.length - 1 - t : t) * rows.stride; };
        for (size_t t = 0; t < rows.length; ++t) y[at(t)] = (t > 0 ? a[at(t)] * y[at(t - 1)] : 0) + x[at(t)];
        for (size_t t = rows.length; t-- > 0;) {
          grad_x[at(t)] = dy[at(t)] + (t + 1 < rows.length ? a[at(t + 1)] * grad_x[at(t + 1)] : 0);
          grad_a[at(t)] = t > 0 ? grad_x[at(t)] * y[at(t - 1)] : 0;
        }
      }
      expect_near(found.at("y"), y, tolerance, "y");
      expect_near(found.at("grad_x"), grad_x, tolerance, "grad_x");
      expect_near(found.at("grad_a"), grad_a, tolerance, "grad_a");
    });
  };
  compare("op f(x: f64[N,T], a: f64[N,T]) -> (y) { y[n, t in 0..T] = sum(k in 0..t+1: x[n,k]*prod(j in k+1..t+1: a[n,j])) }",
          {{"N", 13}, {"T", 41}}, {13, 41, 1}, false);
  compare("op f(x: f64[N,T], a: f64[N,T]) -> (y) { y[n, t in 0..T] = sum(k in t..T: x[n,k]*prod(j in t..k: a[n,j])) }",
          {{"N", 8}, {"T", 32}}, {8, 32, 1}, true);
  compare("op f(x: f64[T,D], a: f64[T,D]) -> (y) { y[t in 0..T, d] = sum(k in 0..t+1: x[k,d]*prod(j in k+1..t+1: a[j,d])) }",
          {{"T", 41}, {"D", 19}}, {19, 41, 19}, false);
}

// Of the first place no factor is asked for.
TEST(RecurrencesOfKernels, TheFirstFactorMayBeInfinite) {
  const Program op = parse_op("op f(x: f32[T], a: f32[T]) -> (y) { y[t in 0..T] = sum(k in 0..t+1: x[k]*prod(j in k+1..t+1: a[j])) }");
  const DimValues dims = {{"T", 50}};
  Arrays data = random_data(gradient(op), dims, 3);
  data.at("a").reals[0] = INFINITY;
  const Arrays found = run_both(compile(op, {}), data, dims);
  for (double y : found.at("y").reals) EXPECT_TRUE(std::isfinite(y));
  for (double g : found.at("grad_x").reals) EXPECT_TRUE(std::isfinite(g));
}

// In the order in which it is written nothing overflows, and what is zero stays zero.
TEST(RecurrencesOfKernels, ProductsAreInOrder) {
  const Program op = parse_op("op f(x: f32[N,T]) -> (y) { y[n, t in 0..T] = prod(k in 0..t+1: x[n,k]) }");
  const DimValues dims = {{"N", 2}, {"T", 60}};
  Arrays data = random_data(gradient(op), dims, 3);
  for (size_t t = 0; t < 60; ++t) {
    data.at("x").reals[t] = t % 6 < 3 ? 1e-10 : 1e10;
    data.at("x").reals[60 + t] = t == 0 ? 0 : 1e30;
  }
  const std::vector<double> y = run_both(compile(op, {}), data, dims).at("y").reals;
  for (size_t t = 0; t < 60; ++t) {
    EXPECT_NEAR(y[t] / std::pow(10, -10 * std::min<double>(static_cast<double>(t % 6 + 1), static_cast<double>(5 - t % 6))), 1, 1e-4) << t;
    EXPECT_EQ(y[60 + t], 0) << t;
  }
}

}  // namespace
}  // namespace xhat::recurrences_of_kernels_test
