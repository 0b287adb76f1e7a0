// The evaluator, which works on blocks of elements, gives what the definition of the language gives, which does not.
#include "expr/eval/definition.h"

#include <gtest/gtest.h>

#include "ad/check/random_inputs.h"
#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"

namespace xhat::definition_test {
namespace {

using namespace xhat::testing;

// Points of all loops, times the nodes of their bodies: what the definition takes.
double work(const Program& p, const DimValues& dims) {
  double all = 0;
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) return 1e9;
    double points = static_cast<double>(element_count(shape_of(p, d.target(), dims)));
    for (Id id : reachable(*p.arena, d.body))
      if (is_reduction((*p.arena)[id].op)) points *= 9;
    all += points * static_cast<double>(reachable(*p.arena, d.body).size());
  }
  return all;
}

std::string agreement(const Program& p, const DimValues& dims, double tolerance, Rounding rounding) {
  Arrays data;
  for (const auto* list : {&p.inputs, &p.cotangents})
    for (TensorId t : *list) data[p.tensor(t).name] = random_normals(p.tensor(t).type, shape_of(p, t, dims), 5 + data.size());
  return difference(evaluate(p, data, dims, {.rounding = rounding}), evaluate_by_definition(p, data, dims, rounding), tolerance);
}

TEST(Definition, GoldenProgramsAndTheirGradients) {
  int compared = 0;
  for (const auto& path : golden_paths()) {
    const Program derived = gradient(parse_op(read_golden(path).program));
    const DimValues dims = smallest_dims(derived);
    if (work(derived, dims) > 3e5) continue;  // a value that is used twice is computed twice
    ++compared;
    // Sums over several axes may be added up in another order.
    EXPECT_EQ(agreement(derived, dims, 1e-13, Rounding::exact), "") << path;
    EXPECT_EQ(agreement(derived, dims, 1e-6, Rounding::declared), "") << path;
  }
  EXPECT_GT(compared, 20);
}

TEST(Definition, WhatIsSpecial) {
  const struct {
    const char* text;
    DimValues dims;
  } cases[] = {
      {"op f(x: f32[N]) -> (a, b, c) { a = argmax(i: x[i]); b = max(i if x[i] > 100: x[i]); c = sum(i in 0..0: x[i]) }", {{"N", 4}}},
      {"op f(n: i32[N]) -> (a, b, c, d) { a = sum(i: n[i]*100000*100000); b = max(i in 0..0: n[i]); c = prod(i: n[i]+1); d = any(i: n[i] > "
       "2) }",
       {{"N", 5}}},
      {"op f(x: f16[N]) -> (y) { y[i in 0..N] = sum(j in i..N: x[j else 0]*x[j-1 else 7]) / (if i > 1 then x[i-2 else 0] else 3) }",
       {{"N", 6}}},
      {"op f(x: f32[N], id: i32[N]) -> (y) { y[i] = random(7, i) + x[abs(id[i]) % N] * f32(id[i]) }", {{"N", 6}}},
      {"op g(x: f32[N]) -> (s) { s = sum(i: x[i]) }\nop f(x: f32[N,M]) -> (y) { r[n] = 2*x[n,0 else 1]; t = g(r); y[n] = t * r[n] }",
       {{"N", 3}, {"M", 4}}},
      {"op f(x: bf16[N]) -> (y, m) { y[i] = prod(j: 1 + x[j]) - x[i]; m = min(i: x[i]) + log(-abs(x[0 else 0])) }", {{"N", 9}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    Program p;
    try {
      p = parse_op(c.text);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    for (Rounding rounding : {Rounding::exact, Rounding::declared}) EXPECT_EQ(agreement(p, c.dims, 0, rounding), "");
  }
}

TEST(Definition, WhatIsWrongIsSaid) {
  auto said = [](const char* text, const Arrays& in, const DimValues& dims) {
    try {
      evaluate_by_definition(parse_op(text), in, dims);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string();
  };
  EXPECT_EQ(said("op f(x: f32[N], i: i32) -> (y) { y = x[i] }", {{"x", zeros(DType::f32, {2})}, {"i", array_of(DType::i32, {}, {2})}},
                 {{"N", 2}}),
            "op f: x is read at 2, outside its dimension 0");
  EXPECT_EQ(said("op f(x: f32[N]) -> (y) { y = argmax(i: x[i]) }", {{"x", zeros(DType::f32, {0})}}, {{"N", 0}}),
            "op f: argmax over nothing");
}

}  // namespace
}  // namespace xhat::definition_test
