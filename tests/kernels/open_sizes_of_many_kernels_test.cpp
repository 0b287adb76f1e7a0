// Libraries with several open dims, or with one that is no batch, compute what the evaluator computes at any sizes, 0 and 1 among them.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/helpers/ahead_helper.h"

namespace xhat::open_sizes_of_many_kernels_test {
namespace {

using namespace xhat::testing;

// Sums are added up in another order, and constants are numbers of the call.
std::string far(const Arrays& a, const Arrays& b, double tolerance) {
  for (const auto& [name, x] : a) {
    const Array& y = b.at(name);
    if (x.shape != y.shape || x.integers != y.integers) return name;
    double scale = 1;
    for (double v : x.reals)
      if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < x.reals.size(); ++i) {
      const double u = x.reals[i], v = y.reals[i];
      const bool same = u == v || (std::isnan(u) && std::isnan(v)) || std::abs(u - v) <= tolerance * scale;
      if (!same) return fmt::format("{} at {}: {} and {}", name, i, u, v);
    }
  }
  return "";
}

class OpenSizesOfManyKernels : public Ahead {
 protected:
  void as_evaluated(const std::string& text, const DimValues& given, const std::vector<DimValues>& calls, double tolerance = 2e-5) {
    SCOPED_TRACE(text);
    AheadOptions o = best_level();
    for (const auto& [name, value] : given) o.sizes[name] = {value};
    Program op = parse_op(text), all = gradient(op);
    build_ahead(op, o, path("lib"));
    Program derived = derive(op, o.compile).program;
    Loaded library(path("lib"), op.name, derived, copy_++);
    for (DimValues dims : calls) {
      dims.insert(given.begin(), given.end());
      DimValues solved = solve_dims(derived, {}, dims);
      Arrays data = random_data(all, solved, 3), expected = evaluate_on(all, data, solved);
      for (auto& [name, array] : evaluate_on(op, data, solved)) expected["infer " + name] = array;
      EXPECT_EQ(far(expected, library.run(data, solved), tolerance), "") << dims_text(dims);
    }
  }
  int copy_ = 0;
};

std::vector<DimValues> sizes_of(const std::string& a, const std::string& b, int64_t least = 0) {
  std::vector<DimValues> all;
  for (auto [x, y] : std::initializer_list<std::pair<int64_t, int64_t>>{{0, 5}, {5, 0}, {1, 1}, {7, 1}, {2, 3}, {33, 70}, {3, 300}})
    if (x >= least && y >= least) all.push_back({{a, x}, {b, y}});
  return all;
}

TEST_F(OpenSizesOfManyKernels, Rows) {
  as_evaluated(R"(op softmax(x: f32[N,D]) -> (y) {
    m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) })",
               {}, sizes_of("N", "D"));
  as_evaluated(R"(op layer_norm(x: f32[B,T,C], g: f32[C]) -> (y) {
    m[i,t] = sum(c: x[i,t,c]) / C
    v[i,t] = sum(c: (x[i,t,c]-m[i,t])^2) / C
    y[i,t,c] = g[c]*(x[i,t,c]-m[i,t])/sqrt(v[i,t]+1e-5) })",
               {{"C", 48}}, sizes_of("B", "T"));
}

TEST_F(OpenSizesOfManyKernels, OneThatIsNoBatch) {
  as_evaluated("op rows(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", {{"N", 6}},
               {{{"D", 0}}, {{"D", 1}}, {{"D", 13}}, {{"D", 300}}});
}

TEST_F(OpenSizesOfManyKernels, Products) {
  std::vector<DimValues> calls = {{{"M", 1}, {"K", 1}, {"N", 1}},    {{"M", 0}, {"K", 4}, {"N", 3}},   {{"M", 5}, {"K", 0}, {"N", 3}},
                               {{"M", 33}, {"K", 17}, {"N", 65}}, {{"M", 7}, {"K", 130}, {"N", 3}}, {{"M", 20}, {"K", 20}, {"N", 20}}};
  as_evaluated("op matmul(a: f32[M,K], b: f32[K,N]) -> (c) { c[i,j] = sum(k: a[i,k]*b[k,j]) }", {}, calls);
  as_evaluated(R"(op attention(q: f32[T,D], k: f32[S,D], v: f32[S,D]) -> (o) {
    s[i,j] = sum(d: q[i,d]*k[j,d]) / 4
    m[i] = max(j: s[i,j])
    e[i,j] = exp(s[i,j] - m[i])
    o[i,d] = sum(j: e[i,j]*v[j,d]) / sum(j: e[i,j]) })",
               {{"D", 16}}, sizes_of("T", "S", 1));
}

TEST_F(OpenSizesOfManyKernels, Windows) {
  as_evaluated("op blur(x: f32[H,W]) -> (y) { y[h in 0..H,w in 0..W] = sum(r in 0..3, s in 0..3: x[h+r-1,w+s-1 else 0]) / 9 }", {},
               sizes_of("H", "W"));
  as_evaluated("op inside(x: f32[H,W], k: f32[3,3]) -> (y) { y[h in 0..H-2,w in 0..W-2] = sum(r, s: x[h+r,w+s]*k[r,s]) }", {},
               sizes_of("H", "W", 3));
  as_evaluated("op pairs(x: f32[N]) -> (y) { y[i in 0..N-1] = x[i+1] - x[i] }", {}, {{{"N", 2}}, {{"N", 3}}, {{"N", 100}}});
}

TEST_F(OpenSizesOfManyKernels, RangesAndConditionsBySize) {
  as_evaluated("op triangle(a: f32[N,N], x: f32[N]) -> (y) { y[i] = sum(j in 0..i+1: a[i,j]*x[j]) }", {},
               {{{"N", 0}}, {{"N", 1}}, {{"N", 2}}, {{"N", 65}}, {{"N", 130}}});
  as_evaluated("op turned(x: f32[N,M]) -> (y) { y[i in 0..M,j in 0..N] = x[N-1-j,i] * (if i < M-1 then 2 else 1) }", {},
               sizes_of("N", "M"));
  as_evaluated("op flat(x: f32[N,M]) -> (y) { y[p in 0..N*M] = x[p/M, p%M] + f32(p) }", {}, sizes_of("N", "M", 1));
}

TEST_F(OpenSizesOfManyKernels, IndicesInData) {
  as_evaluated("op take(table: f32[V,D], ids: i32[L]) -> (y) { y[l,d] = table[ids[l],d] * 2 }", {},
               {{{"V", 5}, {"D", 3}, {"L", 7}},
                {{"V", 1}, {"D", 1}, {"L", 1}},
                {{"V", 40}, {"D", 33}, {"L", 0}},
                {{"V", 9}, {"D", 70}, {"L", 100}}});
  as_evaluated("op best(x: f32[N,D]) -> (y, at) { at[n] = argmax(d: x[n,d]); y[n] = x[n,at[n]] }", {}, sizes_of("N", "D", 1));
}

TEST_F(OpenSizesOfManyKernels, WhatCannotBeIsSaid) {
  Program op = parse_op("op half(x: f32[N,M]) -> (y) { y[i in 0..N/2,j] = x[2*i,j] }");
  AheadOptions o = best_level();
  try {
    build_ahead(op, o, path("lib"));
    FAIL() << "a half is no polynomial";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("must be given"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace xhat::open_sizes_of_many_kernels_test
