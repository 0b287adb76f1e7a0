// Programs of steps, put together by hand: loops, branches, rows that are read and written, by the evaluator and by kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ad/check/gradcheck.h"
#include "ad/reverse/gradient.h"
#include "expr/core/steps.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"

namespace xhat::steps_test {
namespace {

// Builds a program whose parameters are those of a text, and whose values are defined by steps.
class Builder {
 public:
  explicit Builder(const std::string& head) : p(parse_op(head)) {
    p.forward.definitions.clear();
    p.outputs.clear();
  }

  Id number(int64_t v) { return p.arena->integer(v); }
  Id dim(const std::string& name) { return p.arena->dim(name); }
  Id variable(const std::string& name) { return p.arena->axis(name); }
  TensorId find(const std::string& name) { return *p.find(name); }
  TensorId value(const std::string& name, DType type, std::vector<Id> shape) { return p.add_tensor(name, type, std::move(shape)); }
  static Step block(const std::string& op, std::vector<Operand> operands, std::vector<TensorId> results) {
    return {Block{std::make_shared<const Program>(parse_op(op)), std::move(operands), std::move(results)}};
  }
  Program build(Steps steps, std::vector<TensorId> outputs) {
    p.outputs = std::move(outputs);
    p.steps = std::make_shared<const Steps>(std::move(steps));
    return p;
  }

  Program p;
};

// h = tanh(w h + x[t]), y[t] = h, T times.
Program recurrence() {
  Builder b("op rnn(x: f32[T,H], h0: f32[H], w: f32[H,H]) -> (y) { y[t,i] = x[t,i] + h0[i] + w[i,i] }");
  const Id T = b.dim("T"), H = b.dim("H"), t = b.variable("t");
  const TensorId x = b.find("x"), h0 = b.find("h0"), w = b.find("w");
  const TensorId y0 = b.value("y0", DType::f32, {T, H}), y1 = b.value("y1", DType::f32, {T, H}), y2 = b.value("y2", DType::f32, {T, H}),
                 ys = b.value("ys", DType::f32, {T, H}), h1 = b.value("h1", DType::f32, {H}), h2 = b.value("h2", DType::f32, {H}),
                 hs = b.value("hs", DType::f32, {H});
  Loop loop;
  loop.variable = t;
  loop.begin = b.number(0);
  loop.end = T;
  loop.carried = {{h0, h1, h2, hs}, {y0, y1, y2, ys}};
  loop.body = {Builder::block("op cell(x: f32[H], h: f32[H], w: f32[H,H]) -> (y) { y[i] = tanh(x[i] + sum(j: w[i,j] * h[j])) }",
                              {{x, {t}, kNone}, {h1, {}, kNone}, {w, {}, kNone}}, {h2}),
               {Update{y1, {t}, h2, y2, {}}}};
  return b.build({Builder::block("op zeros() -> (y) { y[t in 0..T, i in 0..H] = 0 }", {}, {y0}), {loop}}, {ys, hs});
}

Arrays random_data(const Program& p, const DimValues& dims) {
  Arrays data = random_inputs(p, dims, 3);
  return data;
}

// By kernels, values and gradients beside the evaluator's.
void expect_kernels_agree(const Program& p, const DimValues& dims, CompileOptions options = {}) {
  const Program derived = gradient(p);
  Arrays data = random_data(derived, dims);
  Arrays all = data;
  for (auto& [name, array] : random_cotangents(derived, dims, 5)) all[name] = array;
  const Arrays wanted = evaluate(derived, all, dims);
  options.dims = dims;
  CompiledOp op = compile(p, options);
  std::map<std::string, std::vector<float>> memory;
  std::vector<Argument> forward, backward;
  auto give = [&](std::vector<Argument>& to, TensorId t, bool filled) {
    const std::string& name = derived.tensors[t].name;
    std::vector<float>& m = memory[name];
    const std::vector<int64_t> shape = shape_of(derived, t, dims);
    m.resize(static_cast<size_t>(element_count(shape)) + 1);
    if (filled)
      for (size_t i = 0; i + 1 < m.size(); ++i) m[i] = static_cast<float>(all.at(name).reals[i]);
    to.push_back({name, TensorView(m.data(), shape)});
  };
  for (TensorId t : derived.inputs) give(forward, t, true);
  backward = forward;
  for (TensorId t : derived.outputs) give(forward, t, false);
  for (TensorId t : derived.cotangents) give(backward, t, true);
  for (TensorId t : derived.gradients) give(backward, t, false);
  auto compare = [&](const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors) {
      const Array& want = wanted.at(derived.tensors[t].name);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(memory.at(derived.tensors[t].name)[i], want.reals[i], 1e-5 * (1 + std::fabs(want.reals[i]))) << derived.tensors[t].name;
    }
  };
  op.infer(forward);
  compare(derived.outputs);
  for (TensorId t : derived.outputs) std::ranges::fill(memory.at(derived.tensors[t].name), -9.0F);
  Stash stash = op.forward(forward);
  compare(derived.outputs);
  for (int again = 0; again < 2; ++again) {
    for (TensorId t : derived.gradients) std::ranges::fill(memory.at(derived.tensors[t].name), -9.0F);
    op.backward(backward, stash);
    compare(derived.gradients);
  }
}

TEST(Steps, ARecurrenceIsWhatItsLoopSays) {
  const Program p = recurrence();
  const DimValues dims = {{"T", 4}, {"H", 3}};
  const Arrays data = random_data(p, dims);
  const Arrays results = evaluate(p, data, dims, kExact);
  std::vector<double> h = data.at("h0").reals;
  for (size_t t = 0; t < 4; ++t) {
    std::vector<double> next(3);
    for (size_t i = 0; i < 3; ++i) {
      double sum = data.at("x").reals[t * 3 + i];
      for (size_t j = 0; j < 3; ++j) sum += data.at("w").reals[i * 3 + j] * h[j];
      next[i] = std::tanh(sum);
      EXPECT_NEAR(results.at("ys").reals[t * 3 + i], next[i], 1e-12);
    }
    h = next;
  }
  EXPECT_NEAR(results.at("hs").reals[0], h[0], 1e-12);
}

TEST(Steps, GradientsOfALoopAgreeWithFiniteDifferences) {
  for (int64_t T : {0, 1, 5}) {
    const GradcheckReport report = gradcheck(recurrence(), {{"T", T}, {"H", 3}});
    EXPECT_TRUE(report.passed) << report.text();
  }
}

TEST(Steps, KernelsOfALoopAgreeWithTheEvaluator) {
  for (int64_t T : {0, 1, 7}) expect_kernels_agree(recurrence(), {{"T", T}, {"H", 5}});
}

// The number of kernels that are compiled does not depend on the number of iterations, and rows are written where they belong: no copy of
// the whole per iteration.
TEST(Steps, AnIterationAllocatesNothing) {
  const Program p = recurrence();
  auto allocations = [&](int64_t T) {
    CompiledOp op = compile(p);
    std::vector<float> x(static_cast<size_t>(T) * 4), h0(4), w(16), ys(x.size()), hs(4);
    return op
        .infer({{"x", TensorView(x.data(), {T, 4})},
                {"h0", TensorView(h0.data(), {4})},
                {"w", TensorView(w.data(), {4, 4})},
                {"ys", TensorView(ys.data(), {T, 4})},
                {"hs", TensorView(hs.data(), {4})}})
        .allocations;
  };
  EXPECT_EQ(allocations(5), allocations(50));
}

// With less memory than all iterations need: the same gradients, bit for bit, and no more kept than the budget.
TEST(Steps, GradientsWithinABudget) {
  const Program p = recurrence();
  const int64_t T = 20, H = 8;
  std::vector<float> x(static_cast<size_t>(T * H)), h0(static_cast<size_t>(H)), w(static_cast<size_t>(H * H)), ys(x.size()), hs(h0.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < w.size(); ++i) w[i] = 0.3F * std::cos(static_cast<float>(3 * i));
  auto gradients = [&](const StashOptions& stash, int64_t& kept, int64_t& replayed) {
    std::vector<float> dys(x.size(), 1), dhs(h0.size(), 1), gx(x.size()), gh(h0.size()), gw(w.size());
    const TensorView vx(x.data(), {T, H}), vh(h0.data(), {H}), vw(w.data(), {H, H});
    CompiledOp op = compile(p, {.stash = stash});
    Stash s = op.forward({{"x", vx}, {"h0", vh}, {"w", vw}, {"ys", TensorView(ys.data(), {T, H})}, {"hs", TensorView(hs.data(), {H})}});
    kept = s.bytes();
    replayed = op.backward({{"x", vx},
                            {"h0", vh},
                            {"w", vw},
                            {"dys", TensorView(dys.data(), {T, H})},
                            {"dhs", TensorView(dhs.data(), {H})},
                            {"grad_x", TensorView(gx.data(), {T, H})},
                            {"grad_h0", TensorView(gh.data(), {H})},
                            {"grad_w", TensorView(gw.data(), {H, H})}},
                           s)
                   .replayed;
    gx.insert(gx.end(), gh.begin(), gh.end());
    gx.insert(gx.end(), gw.begin(), gw.end());
    return gx;
  };
  int64_t all = 0, replayed = 0;
  // With one, blocks are called, whatever the budget; without, the loop is one function, which rounds in another order.
  const std::vector<float> whole = gradients({}, all, replayed);
  EXPECT_EQ(replayed, 0);
  const std::vector<float> wanted = gradients({.policy = StashOptions::Policy::budget, .budget = int64_t{1} << 30}, all, replayed);
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(whole[i], wanted[i], 1e-5 * (1 + std::fabs(wanted[i])));
  EXPECT_EQ(replayed, 0);
  const int64_t step = 8 * H, state = 4 * H + 1;  // bytes that an iteration keeps, and that it begins with
  for (int64_t states : {1, 2, 3, 5, 9}) {
    int64_t kept = 0;
    const int64_t budget = step + states * state;
    ASSERT_LT(budget, all);
    EXPECT_EQ(gradients({.policy = StashOptions::Policy::budget, .budget = budget}, kept, replayed), wanted) << budget;
    EXPECT_LE(kept, budget);
    // The fewest possible (Griewank, Walther): T - 1 of these run as parts of the forward, and as many are run for what they keep.
    auto choose = [](int64_t n, int64_t k) {
      int64_t c = 1;
      for (int64_t i = 1; i <= k; ++i) c = c * (n - k + i) / i;
      return c;
    };
    int64_t r = 1;
    while (choose(states + r, states) < T) ++r;
    EXPECT_EQ(replayed, r * T - choose(states + r, states + 1)) << states;
  }
  EXPECT_THROW(gradients({.policy = StashOptions::Policy::budget, .budget = 10}, all, replayed), Error);
}

// What blocks keep is written over in place, and the rows that were there are kept: not a tensor per iteration. The backward puts them back,
// and, for another one, those that were written again.
TEST(Steps, RowsThatAreWrittenOverAreKept) {
  const CompileOptions by_blocks = {.stash = {.policy = StashOptions::Policy::budget, .budget = int64_t{1} << 30}};
  const std::string head = "prog f(x: f32[T,D], w: f32[D,D]) -> (s, c) {\nvar c = zeros f32[T,D]\nvar s = x[0]\n";
  const std::string bodies[] = {
      "for t in 0..T { c[t] = x[t] + s; s[d] = tanh(sum(u in 0..t+1: c[u,d]*x[u,d]) + 0.2*sum(e: s[e]*w[e,d])) }",
      "for t in 0..T { c[t/2] = x[t]*s; s[d] = tanh(sum(u: c[u,d]*c[u,d]) + 0.2*sum(e: s[e]*w[e,d])) }",
      "for t in 0..T { c[:,0] += 0.1*x[:,t%D]*c[:,1]; s[d] = tanh(sum(u: c[u,d]*c[u,d]) + 0.2*sum(e: s[e]*w[e,d])) }",
      "for t in 0..T { c[t] = s; b = c; c[0] = x[t]*b[t]; s[d] = tanh(sum(u: b[u,d]*c[u,d]) + 0.2*sum(e: s[e]*w[e,d])) }",
      "for t in 0..T { for k in 0..2 { c[k] = s; s[d] = tanh(sum(u: c[u,d]*x[u,d]) + 0.2*sum(e: s[e]*w[e,d])) }; c = c*s }",
      "for t in 0..T { if s[0] > 0.0 { c[t] = s*s } else { c[0] = s }; s[d] = tanh(sum(u: c[u,d]*c[u,d]) + 0.2*sum(e: s[e]*w[e,d])) }"};
  for (const std::string& body : bodies) {
    const Program p = parse_op(head + body + "\n}");
    for (int64_t T : {2, 5}) expect_kernels_agree(p, {{"T", T}, {"D", 3}}, by_blocks);
    expect_kernels_agree(p, {{"T", 9}, {"D", 3}}, {.stash = {.policy = StashOptions::Policy::budget, .budget = 700}});
  }
  auto kept = [&](int64_t T) {
    CompiledOp op = compile(parse_op(head + bodies[0] + "\n}"), by_blocks);
    std::vector<float> x(static_cast<size_t>(T * 4)), w(16), s(4), c(x.size());
    return op
        .forward({{"x", TensorView(x.data(), {T, 4})},
                  {"w", TensorView(w.data(), {4, 4})},
                  {"s", TensorView(s.data(), {4})},
                  {"c", TensorView(c.data(), {T, 4})}})
        .bytes();
  };
  EXPECT_EQ(kept(40) - kept(20), kept(60) - kept(40));
}

// if c: y = sin(x) else y = x x, three times.
Program branches() {
  Builder b("op choose(x: f32[N], c: bool) -> (y) { y[i] = if c then x[i] else 0 }");
  const Id N = b.dim("N");
  const TensorId x = b.find("x"), c = b.find("c");
  const TensorId s = b.value("s", DType::f32, {N}), q = b.value("q", DType::f32, {N}), m = b.value("m", DType::f32, {N}),
                 e = b.value("e", DType::f32, {N}), r = b.value("r", DType::f32, {N});
  Branch branch;
  branch.condition = c;
  branch.then = {Builder::block("op taken(x: f32[N]) -> (y) { y[i] = sin(x[i]) }", {{e, {}, kNone}}, {s})};
  branch.otherwise = {Builder::block("op other(x: f32[N]) -> (y) { y[i] = x[i] * x[i] }", {{e, {}, kNone}}, {q})};
  branch.merges = {{s, q, m}};
  Loop loop;
  loop.variable = b.variable("k");
  loop.begin = b.number(0);
  loop.end = b.number(3);
  loop.carried = {{x, e, m, r}};
  loop.body = {{branch}};
  return b.build({{loop}}, {r});
}

TEST(Steps, GradientsOfABranchAreThoseOfTheSideTaken) {
  for (uint64_t seed : {1, 2, 3, 4}) {
    const GradcheckReport report = gradcheck(branches(), {{"N", 5}}, {.seed = seed});
    EXPECT_TRUE(report.passed) << report.text();
  }
}

// while v < 10, at most 9 times: v = 2 v.
TEST(Steps, AWhileLoopEndsWhereItsConditionDoes) {
  Builder b("op grow(v: f32) -> (y) { y = v }");
  const TensorId v = b.find("v"), e = b.value("e", DType::f32, {}), l = b.value("l", DType::f32, {}), r = b.value("r", DType::f32, {}),
                 go = b.value("go", DType::boolean, {});
  Loop loop;
  loop.variable = b.variable("k");
  loop.begin = b.number(0);
  loop.end = b.number(9);
  loop.carried = {{v, e, l, r}};
  loop.test = {Builder::block("op test(v: f32) -> (y) { y = v < 10 }", {{e, {}, kNone}}, {go})};
  loop.condition = go;
  loop.body = {Builder::block("op twice(v: f32) -> (y) { y = 2 * v }", {{e, {}, kNone}}, {l})};
  const Program p = b.build({{loop}}, {r});
  EXPECT_EQ(evaluate(p, {{"v", scalar_of(DType::f32, 3)}}).at("r").reals[0], 12);
  EXPECT_EQ(evaluate(p, {{"v", scalar_of(DType::f32, 11)}}).at("r").reals[0], 11);
  EXPECT_EQ(evaluate(p, {{"v", scalar_of(DType::f32, 0.001)}}).at("r").reals[0], 0.001F * 512);
  const Arrays g = evaluate(gradient(p), {{"v", scalar_of(DType::f32, 3)}, {"dr", scalar_of(DType::f32, 1)}});
  EXPECT_EQ(g.at("grad_v").reals[0], 4);
}

// Of what looks at the whole as one list of passes and kernels, explain shows the blocks; the rest says that it is not there.
TEST(Steps, AreExplainedBlockByBlock) {
  const Explanation e = explain(recurrence(), {}, {{"T", 5}, {"H", 4}});
  ASSERT_GE(e.infer.kernels.size(), 2U);
  EXPECT_NE(e.text.find("next h1 = h2"), std::string::npos) << e.text;
  EXPECT_TRUE(std::ranges::any_of(e.infer.kernels, [](const ExplainedKernel& k) { return k.name == "loop over t"; }));
  const Explanation apart = explain(recurrence(), {.fusion = {.policy = FusePolicy::off}}, {{"T", 5}, {"H", 4}});
  EXPECT_TRUE(std::ranges::any_of(apart.infer.kernels,
                                  [](const ExplainedKernel& k) { return k.reason.find("runs 5 times") != std::string::npos; }));
  EXPECT_THROW(derive(recurrence()), Error);
  EXPECT_THROW(explain_pareto(recurrence()), Error);
}

TEST(Steps, AnIndexOutsideIsAnError) {
  Builder b("op put(x: f32[N], i: i64, v: f32) -> (y) { y[n] = x[n] + v + f32(i) }");
  const TensorId x = b.find("x"), i = b.find("i"), v = b.find("v"), y = b.value("y1", DType::f32, {b.dim("N")});
  const Program p = b.build({{Update{x, {b.p.arena->read(i, DType::i64, {})}, v, y, {}}}}, {y});
  Arrays data = {{"x", zeros(DType::f32, {3})}, {"i", scalar_of(DType::i64, 2)}, {"v", scalar_of(DType::f32, 7)}};
  EXPECT_EQ(evaluate(p, data).at("y1").reals, (std::vector<double>{0, 0, 7}));
  data["i"] = scalar_of(DType::i64, 3);
  EXPECT_THROW(evaluate(p, data), Error);
}

}  // namespace
}  // namespace xhat::steps_test
