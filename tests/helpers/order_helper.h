// Products whose order shows in their bits, with tiles so small that anything that may be cut is cut.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing {

inline CompileOptions small_tiles() {
  CompileOptions o;
  o.machine.serial_bytes = 0;
  o.machine.tile_bytes = 512;
  o.fusion.cut_small = true;
  return o;
}

// Large and tiny in turn along every axis: about 1 in order, infinite or NaN where every second factor is multiplied up first.
inline Arrays alternating(const Program& p, const DimValues& dims) {
  Arrays data = random_data(p, dims, 3);
  for (auto& [name, a] : data) {
    const double large = a.type == DType::f16 ? 1e3 : 1e30;
    for (size_t i = 0; i < a.reals.size(); ++i) {
      int64_t steps = 0;
      for (int64_t x : position_of(i, a.shape)) steps += x;
      a.reals[i] = (i % 3 == 0 ? -1 : 1) * (steps % 2 == 0 ? large : 1 / large);
    }
    a = rounded(std::move(a));
  }
  return data;
}

inline void expect_same_bits(const Arrays& wanted, const Arrays& got) {
  for (const auto& [name, a] : got) {
    if (a.real())
      EXPECT_EQ(a.reals, wanted.at(name).reals) << name;
    else
      EXPECT_EQ(a.integers, wanted.at(name).integers) << name;
  }
}

inline const std::vector<std::string> kProducts = {
    "op f(x: T[N,D]) -> (y) { y[n] = prod(d: x[n,d]) }",
    "op f(x: T[N,D]) -> (y) { y[d] = prod(n: x[n,d]) }",
    "op f(x: T[N,D]) -> (y) { y = prod(n,d: x[n,d]) }",
    "op f(x: T[N,D]) -> (y) { y = prod(d in 0..D, n: x[n,D-1-d]) }",
    "op f(x: T[N,D]) -> (y) { y = max(n: prod(d: x[n,d])) }",
    "op f(x: T[N,D]) -> (y, s, m) { y[n] = prod(d: x[n,d])\n s[n] = max(d: x[n,d])\n m[n] = min(d: y[n] * x[n,d]) }",
    "op f(x: T[N,D]) -> (z, y) { z[n,d] = 2 * x[n,d]\n y[n] = prod(d: z[n,d] / 2) }",
    "op f(x: T[N,D]) -> (y) { y[n in 0..N, d in 0..D] = prod(i in 0..3, j in 0..3: x[n+i-1, d+j-1 else 1]) }",
    "op f(x: T[N,D]) -> (y) { y[n] = prod(d if d % 5 != 2: x[n,d]) }",
    "op f(x: T[N,D], w: T[D,K]) -> (y) { y[n,k] = prod(d: x[n,d] + 0*w[d,k]) }",
};

// A product of `text` for elements of `type` and `n` rows has the bits that the definition gives.
inline void expect_in_order(std::string text, const std::string& type, int64_t n, Target target = Target::cpu) {
  for (size_t at; (at = text.find("T[")) != std::string::npos;) text.replace(at, 1, type);
  const Program op = parse_op(text);
  DimValues dims = {{"N", n}, {"D", 66}};
  if (op.find("w")) dims["K"] = 24;
  SCOPED_TRACE(text + dims_text(dims));
  const Arrays data = alternating(op, dims);
  const Arrays wanted = evaluate(op, data, dims);
  for (const auto& [name, a] : wanted) EXPECT_TRUE(std::ranges::all_of(a.reals, [](double v) { return std::isfinite(v); }));
  CompileOptions options = small_tiles();
  options.differentiate = false;
  options.target = target;
  if (target != Target::cpu) options.dims = dims;
  expect_same_bits(wanted, run_infer(compile(op, options), data, dims));
}

}  // namespace xhat::testing
