// How loops that run as one function are written: stores, loops and prices of their code, and what is kept of a step for the backward.
#include <gtest/gtest.h>

#include "runtime/call/compile.h"
#include "runtime/loops/nest.h"
#include "runtime/loops/nest_pieces.h"
#include "runtime/loops/nest_vectors.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/runtime_check.h"

namespace xhat::loops_as_written_test {
namespace {

using namespace xhat::testing;

// What is for one place of an adjoint does not walk along all of it.
TEST(WholeLoops, AddToPlacesThatAreComputedByThemselves) {
  const Program op = parse_op(
      "op f(dy: f64, j: i64, k: i64, c: bool) -> (g) {\n"
      "g[n in 0..N] = (if n == j then dy else 0) - (if c then if k == n then 2*dy else 0 else if n == j + 1 then dy else 0) }");
  auto price = [&](int64_t n, bool added) {
    return runtime::price_ps(runtime::make_nest_spec(op, {{"N", n}}), [&](uint32_t) { return added; });
  };
  EXPECT_EQ(price(100, true), price(100000, true));
  EXPECT_GT(price(100000, false), 100 * price(100, false));
}

// A sum of a few terms, each for a place that an index says, which is multiplied and added to an adjoint.
TEST(WholeLoops, AddTermsOfSumsWhereTheyGo) {
  const Program op = parse_op(
      "op f(w: f64[4], dy: f64[M], i: i64) -> (g) {\n"
      "s[n in 0..N] = sum(k if i - 1 - k == n: w[k])\n"
      "g[m,n] = (if m == 1 then dy[m] else 0) + 0.5*dy[m]*s[n] }");
  auto made = [&](int64_t n) {
    runtime::KernelSpec spec = runtime::make_nest_spec(op, {{"N", n}, {"M", 3}});
    runtime::add_where_terms_go(spec, [&](uint32_t t) { return spec.tensors[t].use == runtime::SpecTensor::Use::result; });
    return spec;
  };
  const runtime::KernelSpec spec = made(100);
  EXPECT_EQ(spec.tensors.size(), 4);  // s is not there
  ASSERT_EQ(spec.members.size(), 2);
  EXPECT_EQ(spec.members[0].scatter.size(), 1);
  EXPECT_FALSE(runtime::reads(spec, spec.members[0].tensor));
  EXPECT_TRUE(spec.members[1].scatter.empty());
  // More terms than places are added up first.
  EXPECT_EQ(made(3).members.size(), 2);
  EXPECT_EQ(made(3).tensors.size(), 5);
}

// Along an axis that is shorter than a vector each choice is a piece of its own.
TEST(WholeLoops, CutShortAxesWhereChoicesChange) {
  const Program op = parse_op("op f(x: f64[N]) -> (y) { y[n, i in 0..4] = if i == 0 then exp(x[n]) else if i == 1 then x[n] else 2*x[n] }");
  runtime::KernelSpec spec = runtime::make_nest_spec(op, {{"N", 40}});
  const std::vector<runtime::SpecMember> members = spec.members;
  ASSERT_EQ(members.size(), 1);
  EXPECT_EQ(runtime::pieces_of(spec, members[0], false).size(), 3);
}

struct Stores : Halide::Internal::IRVisitor {
  using IRVisitor::visit;
  std::map<int, int> of_lanes;
  void visit(const Halide::Internal::Store* s) override {
    ++of_lanes[s->index.type().lanes()];
    IRVisitor::visit(s);
  }
};

// An axis that is shorter than a vector of the machine is taken in shorter ones, and so is what is left of one.
TEST(WholeLoops, TakeShortAxesInShorterVectors) {
  const Program op = parse_op("op f(x: f32[N,K]) -> (y) { y[n,k] = 3*x[n,k] }");
  auto stores = [&](int64_t k, int lanes) {
    const runtime::KernelSpec spec = runtime::make_nest_spec(op, {{"N", 40}, {"K", k}});
    auto place = [&](uint32_t t) { return runtime::NestPlace{.buffer = "b" + std::to_string(t), .strides = {k, 1}}; };
    runtime::NestNames names;
    Stores found;
    const Halide::Target target("x86-64-linux-avx-avx2");
    runtime::ready_for_code(runtime::nest(spec, place, target, names), target).accept(&found);
    return found.of_lanes[lanes];
  };
  EXPECT_EQ(stores(4, 4), 1);
  EXPECT_EQ(stores(7, 4), 1);
  EXPECT_EQ(stores(7, 2), 1);
  EXPECT_EQ(stores(12, 8), 1);
  EXPECT_EQ(stores(12, 4), 1);
  EXPECT_EQ(stores(3, 2), 0);
}

struct SerialLoops : Halide::Internal::IRVisitor {
  using IRVisitor::visit;
  int count = 0;
  void visit(const Halide::Internal::For* f) override {
    ++count;
    IRVisitor::visit(f);
  }
};

// What sums over as many terms compute in common is computed once, as none of them needs another's result.
TEST(WholeLoops, AddUpSumsOfTheSameTermsTogether) {
  auto loops = [](const std::string& body) {
    const Program op = parse_op("op f(x: f64[N], y: f64[N], z: f64[M], a: f64[K,N]) -> (p, q) {\n" + body + "\n}");
    const runtime::KernelSpec spec = runtime::make_nest_spec(op, {{"N", 64}, {"M", 32}, {"K", 16}});
    auto place = [&](uint32_t t) {
      return runtime::NestPlace{.buffer = "b" + std::to_string(t), .strides = runtime::strides_of(spec.tensors[t].shape)};
    };
    runtime::NestNames names;
    SerialLoops found;
    const Halide::Target target("x86-64-linux-avx-avx2");
    runtime::ready_for_code(runtime::nest(spec, place, target, names), target).accept(&found);
    return found.count;
  };
  EXPECT_EQ(loops("p = sum(i: exp(x[i])*y[i])\nq = sum(j: exp(x[j]))"), 1);
  EXPECT_EQ(loops("p = sum(i: x[i])\nq = max(j: x[j]*y[j])"), 1);
  EXPECT_EQ(loops("p[n] = sum(i: a[n,i]*x[i])\nq[n] = sum(j: a[n,j]^2)"), 2);
  EXPECT_EQ(loops("p = sum(i: x[i])\nq = sum(j: x[j]*p)"), 2);
  EXPECT_EQ(loops("p = sum(i: x[i])\nq = sum(j: z[j])"), 2);
  EXPECT_EQ(loops("p = sum(i: x[i])\nq[j] = x[j]*y[j]"), 2);
}

struct Loads : Halide::Internal::IRVisitor {
  using IRVisitor::visit;
  int whole = 0, gathered = 0, choices = 0;
  void visit(const Halide::Internal::Load* l) override {
    if (l->type.lanes() > 1) ++(l->index.as<Halide::Internal::Ramp>() ? whole : gathered);
    IRVisitor::visit(l);
  }
  void visit(const Halide::Internal::Select* s) override {
    ++choices;
    IRVisitor::visit(s);
  }
};

// r[i+j] -= f*b[j] for j in 0..M at a place i that a run finds: no other places of r are walked, and vectors of b lie in memory as they are. Where a
// few vectors take all of r, they choose.
TEST(WholeLoops, WalkAWindowThatIsWritten) {
  const Program op =
      parse_op("op f(r: f64[N], b: f64[M], f: f64, i: i64) -> (y) { y[n] = if 0 <= n - i && n - i < M then r[n] - f*b[n-i] else r[n] }");
  auto loads = [&](int64_t n) {
    const runtime::KernelSpec spec = runtime::make_nest_spec(op, {{"N", n}, {"M", n / 4}});
    auto place = [&](uint32_t t) {
      const std::string& name = op.tensors[spec.tensors[t].original].name;
      return runtime::NestPlace{.buffer = name == "y" ? "r" : name, .strides = std::vector<int64_t>(spec.tensors[t].shape.size(), 1)};
    };
    runtime::NestNames names;
    Loads found;
    const Halide::Target target("x86-64-linux-avx-avx2-fma");
    runtime::ready_for_code(runtime::nest(spec, place, target, names), target).accept(&found);
    return found;
  };
  const Loads large = loads(4096), small = loads(12);
  EXPECT_EQ(large.gathered, 0);
  EXPECT_EQ(large.whole, 2);
  EXPECT_EQ(large.choices, 0);
  EXPECT_GT(small.choices, 0);
}

// What says where rows of integers went is not kept, as no adjoint goes back there.
TEST(WholeLoops, KeepNothingOfIntegers) {
  const Program op = parse_op(
      "prog runs(x: i32[N]) -> (len, k) {\n"
      "var len = zeros i32[N]\n"
      "var k = i64(0)\n"
      "for i in 0..N { if x[i] > 0 { len[k] += 1 } else { k = min(k + 1, N - 1); len[k] = 1 } } }");
  CompiledOp compiled = compile(op, {.dims = {{"N", 40}}});
  std::vector<int32_t> x(40, 1), len(40);
  x[7] = x[20] = 0;
  int64_t k = 0;
  const Stash stash =
      compiled.forward({{"x", TensorView(x.data(), {40})}, {"len", TensorView(len.data(), {40})}, {"k", TensorView(&k, {})}});
  EXPECT_EQ(k, 2);
  EXPECT_EQ(len[1], 13);
  EXPECT_EQ(stash.bytes(), 0);
}

// Where a result lies over an operand, elements that stay as they are take no time: a row of a tensor that data name is not the tensor.
TEST(WholeLoops, PriceOnlyElementsThatChange) {
  const Program op = parse_op("op f(x: f32[N,N], p: i64) -> (y) { y[i,j] = if i == p then 2*x[i,j] else x[i,j] }");
  const runtime::KernelSpec spec = runtime::make_nest_spec(op, {{"N", 256}});
  auto added = [](uint32_t) { return false; };
  const double all = runtime::price_ps(spec, added), row = runtime::price_ps(spec, added, {}, [](uint32_t, uint32_t) { return true; });
  EXPECT_LT(100 * row, 2 * all);
}

// A table that is filled in an order in which nothing is overwritten after it was read is its own tape. Where it is, what is overwritten is kept.
TEST(WholeLoops, KeepOnlyWhatIsOverwritten) {
  const int64_t n = 40;
  auto kept = [&](const char* body) {
    const Program op = parse_op("prog f(x: f64[N]) -> (d) {\nvar d = clone(x)\n" + std::string(body) + "\n}");
    CompiledOp compiled = compile(op, {.dims = {{"N", n}}});
    std::vector<double> x(n, 0.5), d(n);
    const Stash stash = compiled.forward({{"x", TensorView(x.data(), {n})}, {"d", TensorView(d.data(), {n})}});
    return stash.bytes() / static_cast<int64_t>(sizeof(double));
  };
  EXPECT_EQ(kept("for i in 1..N { d[i] = sin(d[i-1]) + x[i] }"), n);
  EXPECT_EQ(kept("for q in 1..N { d[N-1-q] = sin(d[N-q])*x[q] }"), n);
  EXPECT_EQ(kept("for q in 2..N { d[q] = d[q-1]*d[q-2] }"), n);
  EXPECT_EQ(kept("for i in 1..N { d[i] = sin(d[i])*d[i-1] }"), n + n - 1);
  EXPECT_EQ(kept("for k in 0..N/4 { for i in 1..N { d[i] = sin(d[i-1]) } }"), n + 10 * (n - 1));
}

// Of a tensor of which a step writes a few elements that are no box, these elements go on the tape: an antidiagonal, what data name, two rows.
TEST(WholeLoops, KeepListsOfPlaces) {
  const int64_t n = 16, all = n * n;
  auto kept = [&](const char* body) {
    const Program op = parse_op("prog f(x: f64[N,N], at: i64[N]) -> (y) {\nvar y = clone(x)\n" + std::string(body) + "\n}");
    CompiledOp compiled = compile(op, {.dims = {{"N", n}}});
    std::vector<double> x(all, 0.5), y(all);
    std::vector<int64_t> at(n, 3);
    const Stash stash =
        compiled.forward({{"x", TensorView(x.data(), {n, n})}, {"at", TensorView(at.data(), {n})}, {"y", TensorView(y.data(), {n, n})}});
    return stash.bytes() / static_cast<int64_t>(sizeof(double));
  };
  EXPECT_EQ(kept("for t in 0..N { for i in 0..t+1 { y[i,t-i] = sin(y[i,t-i])*y[0,0] } }"), all + n * (n + 1) / 2);
  EXPECT_EQ(kept("for t in 0..N { p = at[t] % N\ny[i in 0..N, j in 0..N] = if i == p then sin(y[i,j]) else y[i,j] }"), all + n * n);
  EXPECT_EQ(kept("for t in 0..N { y[i in 0..N, j in 0..N] = if j == (i + at[i]) % N then sin(y[i,j]) else y[i,j] }"), all + n * n);
  EXPECT_EQ(
      kept("for t in 0..N-1 { y[i in 0..N, j in 0..N] = if i == t then sin(y[i,j]) else if i == t + 1 then cos(y[i,j]) else y[i,j] }"),
      all + 2 * n * (n - 1));
  // The row that the step itself finds, and where that was.
  EXPECT_LE(kept("for t in 0..N { p = argmax(i: y[i,0])\ny[p] = sin(y[p]) }"), all + n * n + 2 * n + 2);
}

}  // namespace
}  // namespace xhat::loops_as_written_test
