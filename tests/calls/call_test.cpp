// Calls of compiled ops on the caller's buffers: what is refused and how, zero sizes, strides, NaN and inf, one compiled
// kernel for many batch sizes, no allocation in the steady state, many threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "ad/forward/jvp.h"
#include "runtime/call/compile.h"
#include "runtime/cpu/kernel_cache.h"
#include "tests/helpers/error_of.h"

namespace xhat::call_test {
namespace {

using testing::error_of;

const char* const kScale = R"(
op scale(x: f32[N,D], w: f32[D]) -> (y) { y[n,d] = x[n,d] * w[d] }
)";
const char* const kNorm = R"(
op layer_norm(x: f32[N,D], gamma: f32[D], beta: f32[D]) -> (y) {
  mean[n] = sum(d: x[n,d]) / D
  var[n] = sum(d: (x[n,d] - mean[n])^2) / D
  y[n,d] = gamma[d] * (x[n,d] - mean[n]) / sqrt(var[n] + 1e-5) + beta[d]
}
)";

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

struct CallTest : ::testing::Test {
  CompiledOp op = compile(parse_op(kScale));
  std::vector<float> x = std::vector<float>(12, 2), w = std::vector<float>(4, 3), y = std::vector<float>(12);
};

TEST_F(CallTest, Runs) {
  op.infer({{"x", {x.data(), {3, 4}}}, {"w", {w.data(), {4}}}, {"y", {y.data(), {3, 4}}}});
  for (float v : y) EXPECT_EQ(v, 6);
}

TEST_F(CallTest, RefusesWrongRank) {
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {12}}}, {"w", {w.data(), {4}}}, {"y", {y.data(), {3, 4}}}}); }),
                  "x has rank 2, but the buffer given has rank 1");
}

TEST_F(CallTest, RefusesWrongType) {
  std::vector<double> d(12);
  expect_contains(error_of([&] { op.infer({{"x", {d.data(), {3, 4}}}, {"w", {w.data(), {4}}}, {"y", {y.data(), {3, 4}}}}); }),
                  "x is f32, but the buffer given is f64");
}

TEST_F(CallTest, RefusesDimsThatDisagree) {
  std::string e = error_of([&] { op.infer({{"x", {x.data(), {3, 4}}}, {"w", {w.data(), {3}}}, {"y", {y.data(), {3, 4}}}}); });
  expect_contains(e, "w");
  expect_contains(e, "D");
  expect_contains(e, "4");
}

TEST_F(CallTest, RefusesWrongOutputShape) {
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {3, 4}}}, {"w", {w.data(), {4}}}, {"y", {y.data(), {4, 3}}}}); }),
                  "y must have shape [3,4]");
}

TEST_F(CallTest, RefusesUnknownDoubledAndMissingNames) {
  expect_contains(error_of([&] { op.infer({{"z", {x.data(), {3, 4}}}}); }), "there is no tensor 'z'");
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {3, 4}}}, {"x", {x.data(), {3, 4}}}}); }), "'x' is given twice");
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {3, 4}}}, {"y", {y.data(), {3, 4}}}}); }), "'w' is missing");
}

// Products with the derivatives are called as any op is, with the same checks.
TEST_F(CallTest, ProductsWithTheDerivatives) {
  CompiledOp forward = compile(jvp(parse_op(kScale)), {.differentiate = false});
  std::vector<float> tx(12, 5), tw(4, 7), ty(12);
  std::vector<Argument> arguments = {{"x", {x.data(), {3, 4}}},     {"w", {w.data(), {4}}},    {"t_x", {tx.data(), {3, 4}}},
                                     {"t_w", {tw.data(), {4}}},     {"y", {y.data(), {3, 4}}}, {"jvp_y", {ty.data(), {3, 4}}}};
  forward.infer(arguments);
  for (float v : y) EXPECT_EQ(v, 6);
  for (float v : ty) EXPECT_EQ(v, 5 * 3 + 2 * 7);
  arguments[2].view = {tx.data(), {4, 3}};
  expect_contains(error_of([&] { forward.infer(arguments); }), "t_x");
  arguments.erase(arguments.begin() + 2);
  expect_contains(error_of([&] { forward.infer(arguments); }), "'t_x' is missing");

  CompiledOp backward = compile(vjp(parse_op(kScale), {{"w"}}), {.differentiate = false});
  backward.infer({{"x", {x.data(), {3, 4}}},
                  {"w", {w.data(), {4}}},
                  {"dy", {tx.data(), {3, 4}}},
                  {"y", {y.data(), {3, 4}}},
                  {"grad_w", {tw.data(), {4}}}});
  for (float v : tw) EXPECT_EQ(v, 3 * 2 * 5);

  CompiledOp curvature = compile(hvp(parse_op(kScale), {.wrt = {"w"}, .along = {"x"}}), {.differentiate = false});
  curvature.infer({{"x", {x.data(), {3, 4}}},
                   {"w", {w.data(), {4}}},
                   {"dy", {tx.data(), {3, 4}}},
                   {"t_x", {y.data(), {3, 4}}},
                   {"hvp_w", {tw.data(), {4}}}});
  for (float v : tw) EXPECT_EQ(v, 3 * 5 * 6);
}

TEST_F(CallTest, RefusesNull) {
  float* none = nullptr;
  expect_contains(error_of([&] { op.infer({{"x", {none, {3, 4}}}, {"w", {w.data(), {4}}}, {"y", {y.data(), {3, 4}}}}); }),
                  "x has no memory");
}

TEST_F(CallTest, RefusesConstOutput) {
  const float* fixed = y.data();
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {3, 4}}}, {"w", {w.data(), {4}}}, {"y", {fixed, {3, 4}}}}); }),
                  "y is written, but its buffer is const");
}

TEST_F(CallTest, RefusesOverlap) {
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {2, 4}}}, {"w", {w.data(), {4}}}, {"y", {x.data() + 2, {2, 4}}}}); }),
                  "y overlaps x");
}

// Results and an operand may be columns of one matrix, side by side, but not share any.
TEST_F(CallTest, TakesColumnsOfOneMatrix) {
  CompiledOp both = compile(parse_op(R"(
op both(x: f32[N,2], s: f32[N]) -> (y, z) {
  y[n,d] = s[n] * x[n,d]
  z[n] = x[n,0] + s[n]
})"),
                            {.differentiate = false});
  std::vector<float> m(7 * 9 + 1, -1), s(9);
  for (size_t n = 0; n < 9; ++n) {
    m[n * 7 + 1] = static_cast<float>(n);
    m[n * 7 + 2] = static_cast<float>(2 * n);
    s[n] = 3;
  }
  auto run = [&](int y_column, int z_column) {
    both.infer({{"x", {m.data() + 1, {9, 2}, {7, 1}}},
                {"s", {s.data(), {9}}},
                {"y", {m.data() + y_column, {9, 2}, {7, 1}}},
                {"z", {m.data() + z_column, {9}, {7}}}});
  };
  run(4, 3);
  for (int64_t n = 0; n < 9; ++n) {
    const std::vector<float> row(m.begin() + n * 7, m.begin() + (n + 1) * 7);
    const auto f = static_cast<float>(n);
    EXPECT_EQ(row, (std::vector<float>{-1, f, 2 * f, f + 3, 3 * f, 6 * f, -1}));
  }
  run(6, 4);  // y has one column in the next line
  EXPECT_EQ(m[6], 0);
  EXPECT_EQ(m[7 + 6], 3);
  expect_contains(error_of([&] { run(4, 5); }), "y overlaps z");
  expect_contains(error_of([&] { run(2, 5); }), "y overlaps x");
  expect_contains(error_of([&] { run(6, 0); }), "y overlaps z");
}

TEST_F(CallTest, RefusesHugeExtents) {
  int64_t huge = int64_t{1} << 31;
  expect_contains(error_of([&] { op.infer({{"x", {x.data(), {huge, 4}}}, {"w", {w.data(), {4}}}, {"y", {y.data(), {huge, 4}}}}); }),
                  "2^31-1");
}

TEST_F(CallTest, NothingIsWrittenAfterARefusal) {
  y.assign(12, -1);
  error_of([&] { op.infer({{"x", {x.data(), {3, 4}}}, {"w", {w.data(), {3}}}, {"y", {y.data(), {3, 4}}}}); });
  for (float v : y) EXPECT_EQ(v, -1);
}

TEST_F(CallTest, TakesStrides) {
  // A transposed input and an output with gaps.
  std::vector<float> t(12), gaps(3 * 8, -1);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) t[static_cast<size_t>(j * 3 + i)] = static_cast<float>(10 * i + j);
  int64_t shape[] = {3, 4}, steps[] = {1, 3}, wide[] = {8, 2};
  op.infer({{"x", {t.data(), std::span<const int64_t>(shape), std::span<const int64_t>(steps)}},
            {"w", {w.data(), {4}}},
            {"y", {gaps.data(), std::span<const int64_t>(shape), std::span<const int64_t>(wide)}}});
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) {
      EXPECT_EQ(gaps[static_cast<size_t>(8 * i + 2 * j)], 3.0f * static_cast<float>(10 * i + j));
      EXPECT_EQ(gaps[static_cast<size_t>(8 * i + 2 * j + 1)], -1);
    }
}

TEST_F(CallTest, TakesZeroSizes) {
  float* none = nullptr;
  op.infer({{"x", {none, {0, 4}}}, {"w", {w.data(), {4}}}, {"y", {none, {0, 4}}}});
  op.infer({{"x", {none, {3, 0}}}, {"w", {none, {0}}}, {"y", {none, {3, 0}}}});
  // Gradients of nothing are zero, not what was there.
  Stash s = op.forward({{"x", {none, {0, 4}}}, {"w", {w.data(), {4}}}, {"y", {none, {0, 4}}}});
  std::vector<float> gw(4, 7);
  op.backward({{"x", {none, {0, 4}}}, {"w", {w.data(), {4}}}, {"dy", {none, {0, 4}}}, {"grad_x", {none, {0, 4}}},
               {"grad_w", {gw.data(), {4}}}}, s);
  for (float v : gw) EXPECT_EQ(v, 0);
}

TEST(Call, ReductionsOverNothing) {
  CompiledOp op = compile(parse_op("op f(x: f32[N,D]) -> (s, m) { s[n] = sum(d: x[n,d]); m[n] = max(d: x[n,d]) }"));
  float* none = nullptr;
  float s[2] = {5, 5}, m[2] = {5, 5};
  op.infer({{"x", {none, {2, 0}}}, {"s", {s, {2}}}, {"m", {m, {2}}}});
  EXPECT_EQ(s[0], 0);
  EXPECT_EQ(m[1], -std::numeric_limits<float>::infinity());
}

TEST(Call, SpecialsGoThrough) {
  CompiledOp op = compile(parse_op(R"(op f(x: f32[N]) -> (e, t, r, m) {
    e[i] = exp(x[i]); t[i] = tanh(x[i]); r[i] = relu(x[i]); m = max(i: x[i]) })"));
  float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = {nan, inf, -inf, 0, 100, -200}, e(6), t(6), r(6);
  float m = 0;
  op.infer({{"x", {x.data(), {6}}}, {"e", {e.data(), {6}}}, {"t", {t.data(), {6}}}, {"r", {r.data(), {6}}}, {"m", {&m, {}}}});
  EXPECT_TRUE(std::isnan(e[0]) && std::isnan(t[0]) && std::isnan(r[0]) && std::isnan(m));
  EXPECT_EQ(e[1], inf);
  EXPECT_EQ(e[2], 0);
  EXPECT_EQ(e[4], inf);
  EXPECT_EQ(t[1], 1);
  EXPECT_EQ(t[2], -1);
  EXPECT_EQ(r[1], inf);
  EXPECT_EQ(r[2], 0);
}

TEST(Call, DivisionByARowsSumKeepsSpecials) {
  // x / s[n] is computed as x * (1/s[n]), scaled: zeros, infinities, NaN and subnormal or huge divisors come out right.
  CompiledOp op = compile(parse_op("op f(x: f32[N,D], s: f32[N]) -> (y) { y[n,d] = x[n,d] / s[n] }"));
  float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> s = {0, -0.0f, inf, nan, 1e-40f, 3e38f, 3, 1e-44f, -7e37f};
  std::vector<float> v = {0, 1, -1, inf, nan, 1e-40f, 3e38f, 1e-20f};
  std::vector<float> x, y(s.size() * v.size());
  for (size_t i = 0; i < s.size(); ++i) x.insert(x.end(), v.begin(), v.end());
  auto n = static_cast<int64_t>(s.size()), d = static_cast<int64_t>(v.size());
  op.infer({{"x", {x.data(), {n, d}}}, {"s", {s.data(), {n}}}, {"y", {y.data(), {n, d}}}});
  for (size_t i = 0; i < s.size(); ++i)
    for (size_t j = 0; j < v.size(); ++j) {
      float want = v[j] / s[i], got = y[i * v.size() + j];
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << v[j] << " / " << s[i];
      } else if (std::isinf(want) || want == 0) {
        EXPECT_EQ(want, got) << v[j] << " / " << s[i];
      } else {
        EXPECT_NEAR(got, want, std::abs(want) * 2.4e-7f + 3e-45f) << v[j] << " / " << s[i];
      }
    }
}

struct NormCall {
  int64_t n, d;
  std::vector<float> x, gamma, beta, y, dy, gx, gg, gb;
  explicit NormCall(int64_t rows, int64_t columns) : n(rows), d(columns) {
    auto size = static_cast<size_t>(n * d);
    for (size_t i = 0; i < size; ++i) {
      x.push_back(std::sin(static_cast<float>(i)));
      dy.push_back(std::cos(static_cast<float>(3 * i)));
    }
    gamma.assign(static_cast<size_t>(d), 1.5f);
    beta.assign(static_cast<size_t>(d), 0.5f);
    y.resize(size);
    gx.resize(size);
    gg.resize(static_cast<size_t>(d));
    gb.resize(static_cast<size_t>(d));
  }
  CallCounts run(const CompiledOp& op, Stash& s) {
    CallCounts f = op.forward({{"x", {x.data(), {n, d}}}, {"gamma", {gamma.data(), {d}}}, {"beta", {beta.data(), {d}}},
                               {"y", {y.data(), {n, d}}}}, s);
    CallCounts b = op.backward({{"x", {x.data(), {n, d}}}, {"gamma", {gamma.data(), {d}}}, {"beta", {beta.data(), {d}}},
                                {"y", {y.data(), {n, d}}}, {"dy", {dy.data(), {n, d}}}, {"grad_x", {gx.data(), {n, d}}},
                                {"grad_gamma", {gg.data(), {d}}}, {"grad_beta", {gb.data(), {d}}}}, s);
    f.allocations += b.allocations;
    f.kernels += b.kernels;
    return f;
  }
};

TEST(Call, LayerNormIsOneKernelEachWayAndAllocatesOnce) {
  CompiledOp op = compile(parse_op(kNorm));
  NormCall call(300, 64);
  Stash s;
  CallCounts first = call.run(op, s);
  EXPECT_EQ(first.kernels, 2);
  EXPECT_GT(first.allocations, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call.run(op, s).allocations, 0);
  EXPECT_EQ(s.bytes(), 300 * 2 * 4);
}

// Names are looked up where arguments come in another order than that of the declaration; what an earlier call of the thread was given is not
// what this one is given.
TEST(Call, TakesArgumentsInAnyOrderAndNoneOfAnEarlierCall) {
  CompiledOp op = compile(parse_op("op f(a: f32[N], b: f32[N]) -> (y, z) { y[i] = a[i] - b[i]\n z[i] = a[i] * b[i] }"));
  const std::vector<float> a = {1, 2}, b = {3, 5}, dy = {1, 1}, dz = {0, 1};
  std::vector<Argument> call, back;
  std::vector<float> y(2), z(2), ga(2), gb(2);
  for (bool backwards : {false, true, false}) {
    y = z = ga = gb = {9, 9};
    call = {{"a", a}, {"b", b}, {"y", y}, {"z", z}};
    back = {{"dy", dy}, {"dz", dz}, {"grad_a", ga}, {"grad_b", gb}};
    if (backwards) {
      std::ranges::reverse(call);
      std::ranges::reverse(back);
    }
    const Stash stash = op.forward(call);
    EXPECT_EQ(y, (std::vector<float>{-2, -3}));
    EXPECT_EQ(z, (std::vector<float>{3, 10}));
    op.backward(back, stash);
    EXPECT_EQ(ga, (std::vector<float>{1, 6}));
    EXPECT_EQ(gb, (std::vector<float>{-1, 1}));
    std::erase_if(call, [](const Argument& x) { return x.name == "b"; });
    std::erase_if(back, [](const Argument& x) { return x.name == "dz"; });
    expect_contains(error_of([&] { op.infer(call); }), "'b' is missing");
    expect_contains(error_of([&] { op.backward(back, stash); }), "'dz' is missing");
    call.push_back({"a", a});
    expect_contains(error_of([&] { op.infer(call); }), "'a' is given twice");
  }
}

TEST(Call, OneCompiledKernelServesManyBatchSizes) {
  CompileOptions options;
  options.cache = std::make_shared<runtime::KernelCache>();
  CompiledOp op = compile(parse_op(kNorm), options);
  Stash s;
  NormCall(4096, 64).run(op, s);
  size_t kernels = options.cache->size();
  NormCall(8192, 64).run(op, s);
  EXPECT_EQ(options.cache->size(), kernels);
}

TEST(Call, SameBitsForAnyNumberOfThreads) {
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    CompileOptions options;
    options.threads = threads;
    CompiledOp op = compile(parse_op(kNorm), options);
    NormCall call(1000, 96);
    Stash s;
    call.run(op, s);
    call.gx.insert(call.gx.end(), call.gg.begin(), call.gg.end());
    if (first.empty()) first = call.gx;
    EXPECT_EQ(first, call.gx) << threads << " threads";
  }
}

TEST(Call, ManyThreadsAtOnce) {
  CompiledOp op = compile(parse_op(kNorm));
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        NormCall call(64 + static_cast<int64_t>(i % 2), 40);
        Stash s;
        call.run(op, s);
        results[i] = call.gx;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

TEST(Call, GradientsAccumulateAndMayBeLeftOut) {
  CompiledOp op = compile(parse_op(kScale));
  std::vector<float> x(6, 2), w(3, 3), y(6), dy(6, 1), gx(6, 100), gw(3, -1);
  Stash s = op.forward({{"x", {x.data(), {2, 3}}}, {"w", {w.data(), {3}}}, {"y", {y.data(), {2, 3}}}});
  Argument sum{"grad_x", {gx.data(), {2, 3}}, true};
  op.backward({{"x", {x.data(), {2, 3}}}, {"w", {w.data(), {3}}}, {"dy", {dy.data(), {2, 3}}}, sum}, s);
  for (float v : gx) EXPECT_EQ(v, 103);
  for (float v : gw) EXPECT_EQ(v, -1);
}

TEST(Call, BackwardNeedsTheStashOfItsOwnForward) {
  CompiledOp op = compile(parse_op(kScale)), other = compile(parse_op(kNorm));
  expect_contains(error_of([&] { op.backward({}, Stash()); }), "this one is empty");
  Stash foreign;
  NormCall(3, 4).run(other, foreign);
  expect_contains(error_of([&] { op.backward({}, foreign); }), "made by another op");
  std::vector<float> x(6), w(3), dy(6);
  expect_contains(error_of([&] { op.backward({{"x", {x.data(), {2, 3}}}, {"w", {w.data(), {3}}}, {"dy", {dy.data(), {2, 3}}}}, foreign); }),
                  "made by another op");
}

TEST(Call, ChecksIndicesInTheDataBeforeWriting) {
  CompiledOp op = compile(parse_op("op bag(table: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: table[ids[b,l], d]) }"));
  std::vector<float> table(10, 1), y(4, -1);
  std::vector<int32_t> ids = {0, 1, 4, 5};
  auto run = [&] {
    op.infer({{"table", {table.data(), {5, 2}}}, {"ids", {ids.data(), {2, 2}}}, {"y", {y.data(), {2, 2}}}});
  };
  std::string e = error_of(run);
  for (const char* part : {"bag", "table", "5"}) expect_contains(e, part);
  for (float v : y) EXPECT_EQ(v, -1);
  ids[3] = 3;
  run();
  for (float v : y) EXPECT_EQ(v, 2);
}

// A reduction that stands under conditions in two places is a tensor of its own, and checked where it was read.
TEST(Call, IndicesUnderConditionsAreCheckedWhereTheyCount) {
  CompiledOp op = compile(parse_op(
      "op f(x: f32[N], p: f32[N], q: f32[M], t: f32[V], ids: i32[K]) -> (y) {\n"
      "  y = sum(a if p[a] > 0: x[a] * sum(k: t[ids[k]])) + sum(b if q[b] > 0: sum(k: t[ids[k]])) }"));
  std::vector<float> x = {1, 2}, p = {-1, -1}, q = {-1, -2, -1}, t = {5, 7}, y = {-1};
  std::vector<int32_t> ids = {1, 9};
  auto run = [&] {
    op.infer({{"x", {x.data(), {2}}}, {"p", {p.data(), {2}}}, {"q", {q.data(), {3}}}, {"t", {t.data(), {2}}},
              {"ids", {ids.data(), {2}}}, {"y", {y.data(), {}}}});
  };
  run();
  EXPECT_EQ(y[0], 0);
  q[1] = 1;
  expect_contains(error_of(run), "t");
  ids[1] = 0;
  run();
  EXPECT_EQ(y[0], 12);
  p[1] = 1;
  run();
  EXPECT_EQ(y[0], 36);
}

// Once these ran over the wrong range.
TEST(Call, RangesWhoseBoundsAreUnknownAreRefused) {
  CompiledOp op = compile(parse_op("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(j in 0..i64(exp(f32(i))): x[j else 0]) }"));
  std::vector<float> x(5, 1), y(5);
  std::string e = error_of([&] { op.infer({{"x", {x.data(), {5}}}, {"y", {y.data(), {5}}}}); });
  expect_contains(e, "axis j, whose range has no bounds that are known before it runs");
}

}  // namespace
}  // namespace xhat::call_test
