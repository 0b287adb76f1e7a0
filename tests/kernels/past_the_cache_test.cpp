// Results written past the cache, and several maps in one loop: the same bits as otherwise, wherever buffers begin and rows
// end. Buffers of these tests are aligned to an element only.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/runtime_helper.h"
#include "tests/helpers/stream_options.h"

namespace xhat::past_the_cache_test {
namespace {

using namespace xhat::testing;

struct Case {
  const char* name;
  const char* text;
  DimValues dims;
  int streams;  // calls of the copying function in the forward's code
};

std::vector<Case> cases() {
  return {
      {"map", "op f(x: f32[N]) -> (y) { y[i] = tanh(x[i]) }", {{"N", 5003}}, 1},
      {"wide", "op f(x: f64[N]) -> (y) { y[i] = x[i]*x[i] + 1 }", {{"N", 2049}}, 1},
      {"integers", "op f(x: i32[N]) -> (y) { y[i] = x[i]*3 }", {{"N", 4097}}, 1},
      {"bytes", "op f(x: f32[N]) -> (y) { y[i] = x[i] < 0.5 }", {{"N", 9001}}, 1},
      {"rows", "op f(x: f32[N,D], b: f32[D]) -> (y) { y[n,d] = x[n,d] + b[d] }", {{"N", 7}, {"D", 1003}}, 1},
      {"three_results",
       "op f(p: f32[N], g: f32[N], m: f32[N]) -> (p1, m1, q) {\n"
       " m1[i] = 0.9*m[i] + 0.1*g[i]\n q[i] = m1[i]*m1[i] + exp(g[i])\n p1[i] = p[i] - m1[i]/(sqrt(q[i]) + 1)\n}",
       {{"N", 3001}}, 3},
      {"norm", "op f(x: f32[N,D], w: f32[D]) -> (y) { y[n,d] = x[n,d]/sqrt(mean(k: x[n,k]*x[n,k]) + 1)*w[d] }",
       {{"N", 9}, {"D", 777}}, 1},
      {"two_results_of_a_row",
       "op f(x: f32[N,D]) -> (y, z) { s[n] = sum(k: exp(x[n,k])); y[n,d] = exp(x[n,d])/s[n]; z[n,d] = x[n,d] - log(s[n]) }",
       {{"N", 9}, {"D", 777}}, 2},
      {"stencil", "op f(x: f32[N,W]) -> (y) { y[n,i] = x[n,i-1 else 0] + x[n,i] + x[n,i+1 else 0] }", {{"N", 5}, {"W", 999}}, 1},
      {"reversed_channels", "op f(x: f32[N,C,H], s: f32[C]) -> (y) { y[n,c in 0..C,h] = x[n,C-1-c,h]*s[C-1-c] }",
       {{"N", 3}, {"C", 3}, {"H", 1100}}, 1},
      {"read_again", "op f(x: f32[N,D]) -> (y, z) { y[n,d] = x[n,d]*2; z[n] = sum(d: y[n,d]*y[n,D-1-d]) }", {{"N", 4}, {"D", 600}}, 0},
      {"box_blur", "op f(x: f32[N,H,W]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0]) }",
       {{"N", 3}, {"H", 11}, {"W", 300}}, 1},
      {"short_rows", "op f(x: f32[N,2*D]) -> (y) { y[n,d in 0..D] = x[n,2*d] }", {{"N", 90}, {"D", 40}}, 0},
  };
}

class PastTheCache : public ::testing::TestWithParam<Case> {};

TEST_P(PastTheCache, HasTheSameBits) {
  const Case& c = GetParam();
  Program op = parse_op(c.text), derived = gradient(op);
  bool floats = op.tensor(op.inputs[0]).type != DType::i32 && op.tensor(op.outputs[0]).type != DType::boolean;
  Arrays data = random_data(floats ? derived : op, c.dims, 3);
  for (int64_t tile_bytes : {2048, 40000, 1 << 20})
    for (int threads : {1, 4}) {
      CompiledOp past = compile(op, stream_options(true, tile_bytes, threads)), plain = compile(op, stream_options(false, tile_bytes));
      Arrays got = floats ? run_both(past, data, c.dims) : run_infer(past, data, c.dims);
      Arrays wanted = floats ? run_both(plain, data, c.dims) : run_infer(plain, data, c.dims);
      for (const auto& [name, array] : wanted) {
        EXPECT_EQ(got.at(name).reals, array.reals) << name << ", tiles of " << tile_bytes;
        EXPECT_EQ(got.at(name).integers, array.integers) << name << ", tiles of " << tile_bytes;
      }
      Arrays exact = floats ? evaluate_on(derived, data, c.dims) : evaluate_on(op, data, c.dims);
      EXPECT_EQ(difference(exact, got, 1e-4), "");
    }
}

TEST_P(PastTheCache, GoesWhatIsWrittenInRuns) {
  const Case& c = GetParam();
  CompileOptions o = stream_options(true, 4096);
  Program forward = infer_program(derive(parse_op(c.text), o).program);
  const std::string code = lowered_code(only_spec(forward, c.dims, o.machine));
  EXPECT_EQ(times_in(code, "xhat_stream"), c.streams) << code;
}

INSTANTIATE_TEST_SUITE_P(Stream, PastTheCache, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace xhat::past_the_cache_test
