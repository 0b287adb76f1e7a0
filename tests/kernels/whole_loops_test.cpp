// Loops that run as one function (runtime/loops), with what `xhat check` compares: random imperative programs, and programs of the kinds whose
// memory is shared in another way each. XHAT_PROPERTY_SEED and XHAT_PROPERTY_COUNT choose other random programs.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ad/check/random_inputs.h"
#include "runtime/call/compile.h"
#include "runtime/loops/nest.h"
#include "runtime/loops/nest_pieces.h"
#include "runtime/loops/nest_vectors.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/random_prog.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat {
namespace {

using namespace xhat::testing;

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

constexpr const char* kPrograms = R"(
prog damped(x: f64[N], a: f64) -> (y) {
  var y = clone(x)
  var s = f64(0)
  for i in 0..N { s = s*a + x[i]*cos(s); y[i] = s }
}
prog swapped(x: f64[N]) -> (a, b) {
  var a = f64(1)
  var b = f64(2)
  for i in 0..N { var t = 0.3*a + b*x[i]; a = b; b = t }
}
prog cholesky(x: f64[N,N]) -> (l) {
  var l = zeros f64[N,N]
  l[i in 0..N, j in 0..N] = sum(k in 0..N: x[i,k]*x[j,k]) + if i == j then f64(N) else 0
  for j in 0..N {
    for i in j..N {
      var s = l[i,j]
      for k in 0..j { s -= l[i,k]*l[j,k] }
      if i == j { l[j,j] = sqrt(s) } else { l[i,j] = s / l[j,j] }
    }
    for i in 0..j { l[i,j] = f64(0) }
  }
}
prog seidel(x: f64[N,M]) -> (a) {
  var a = clone(x)
  for t in 0..3 {
    for i in 1..N-1 { for j in 1..M-1 { a[i,j] = (a[i-1,j] + a[i,j-1] + sin(a[i,j]) + a[i,j+1] + a[i+1,j])/5.0 } }
  }
}
prog gram_schmidt(a: f64[M,N]) -> (q, r) {
  var v = clone(a)
  var q = a * f64(0)
  var r = zeros f64[N,N]
  for k in 0..N {
    var norm = f64(0)
    for i in 0..M { norm += v[i,k]*v[i,k] }
    r[k,k] = sqrt(norm)
    q[:,k] = v[:,k] / r[k,k]
    for j in k+1..N {
      for i in 0..M { r[k,j] += q[i,k]*v[i,j] }
      for i in 0..M { v[i,j] -= q[i,k]*r[k,j] }
    }
  }
}
prog columns(x: f64[N,M,3]) -> (y) {
  var y = clone(x)
  for j in 1..M { y[:,j] = 0.7*y[:,j-1] + sin(x[:,j]); if x[0,j,0] > 0 { y[1,j,:] = y[0,j,:] * 2 } }
}
prog part_of_a_row(x: f64[N,M]) -> (y) {
  var y = clone(x)
  for t in 1..N { y[t,1:M-1] = tanh(y[t-1,0:M-2] + y[t,2:M]) }
}
prog chosen(x: f64[N], n: i32) -> (a, b) {
  var a = x * 1
  var b = f64(1)
  for i in 1..N {
    if x[i] > 0.2 && n > 0 { a[i] = a[i-1]*b; b = 0.5*b + a[i] } else { if x[i] > -0.5 { b = b - a[i] } }
  }
}
prog picked(x: f64[N], id: i32[T]) -> (y) {
  var y = clone(x)
  for t in 0..T { y[id[t]] = sin(y[id[t]]) + 0.5*y[t % N] }
}
prog iterated(x: f64[N]) -> (y, n) {
  var y = clone(x)
  var n = f64(0)
  while sum(i: y[i]*y[i]) < 100 max 30 { y = y*1.5 + 0.1; n += 1 }
}
prog nested(x: f64[N,M]) -> (s) {
  var s = f64(0)
  for i in 0..N {
    var p = f64(1)
    for j in 0..min(i+1, M) { p = p*x[i,j] + s }
    s = 0.5*s + p
  }
}
prog cell(x: f32[T,D], h0: f32[D], w: f32[D,D]) -> (h) {
  var h = clone(h0)
  for t in 0..T { h[j in 0..D] = tanh(x[t,j] + sum(i in 0..D: h[i]*w[i,j])) }
}
prog two_planes(a: inout f64[N,M], b: inout f64[N,M]) -> () {
  for t in 0..3 {
    b[1:-1,1:-1] = 0.2*(a[1:-1,1:-1] + sin(a[1:-1,:-2]) + a[1:-1,2:] + a[2:,1:-1] + a[:-2,1:-1])
    a[1:-1,1:-1] = 0.2*(b[1:-1,1:-1] + b[1:-1,:-2] + b[1:-1,2:] + b[2:,1:-1] + cos(b[:-2,1:-1]))
  }
}
prog leapfrog(u: f64[N,M], v: f64[N,M]) -> (b) {
  var a = clone(u)
  var b = clone(v)
  for t in 0..4 {
    c = 2*b - a
    a = b
    b = c
    b[1:-1,1:] += 0.1*(a[2:,1:]*a[:-2,:-1] - a[1:-1,1:])
  }
}
prog element_by_element(x: f64[N,M]) -> (p, q, r) {
  var p = clone(x)
  var q = clone(x)
  var r = clone(x)
  for t in 0..3 { p = 0.4*p*p + x; q = 1/(1 + exp(-q)); r = 0.3*r*exp(r) - p*q }
}
prog read_later(x: f64[N]) -> (a, b) {
  var a = clone(x)
  var b = x*2
  for t in 0..3 { b[i in 0..N] = sin(a[i])*b[i]; a[i in 0..N] = b[i] + a[(i+1) % N] }
}
prog own_sums(x: f64[N,M]) -> (s, k) {
  var s = x[:,0]
  var k = f64(0.5)
  for t in 0..3 {
    s[i in 0..N] = 0.5*s[i] + sum(j in 0..M: x[i,j]*s[i])
    k = sum(i in 0..N: k*s[i])
  }
}
prog counted(x: i32[N], z: f64[N], w: f64[T]) -> (idx, h) {
  var idx = x % i32(N)
  var h = zeros f64[N]
  for t in 0..T {
    next = (idx*2 + 1) % i32(N)
    h[b in 0..N] = h[b] + w[t]*sum(i in 0..N if i64(idx[i]) == b: z[i])
    idx = next
  }
}
prog added_where_it_moves(x: i32[N], z: f64[N], w: f64[T]) -> (idx, h) {
  var idx = x % i32(N)
  var h = clone(z)
  for t in 0..T {
    next = (idx*2 + 1) % i32(N)
    h[b in 0..N] = sum(i in 0..N if i64(idx[i]) == b: h[i]) + w[t]
    idx = next
  }
}
prog same_twice(x: f64[N], n: i32) -> (y, z) {
  var y = clone(x)
  var z = clone(x)
  for t in 0..4 {
    if n > 0 { z = y } else { z = y*2 }
    y[i in 0..N] = y[i]*z[N-1-i]
    z = z + y
  }
}
prog best_path(e: f32[T,D], w: f32[D,D]) -> (path, best) {
  var s = e[0] * 1
  var back = zeros i32[T,D]
  for t in 1..T {
    from[j] = argmax(i: s[i] + w[i,j])
    back[t] = i32(from)
    s[j] = max(i: s[i] + w[i,j]) + e[t,j]
  }
  var path = zeros i32[T]
  var j = argmax(i: s[i])
  path[T-1] = i32(j)
  for q in 0..T-1 { j = i64(back[T-1-q,j]); path[T-2-q] = i32(j) }
  best = max(i: s[i])
}
prog table(x: f64[N], y: f64[M]) -> (cost, d) {
  var d = full(9) f64[N+1,M+1]
  d[0,0] = 0.0
  for i in 1..N+1 {
    for j in max(1, i-3)..min(M, i+3)+1 { d[i,j] = (x[i-1] - y[j-1])^2 + 1/(1 + d[i-1,j]^2) + 0.5*sin(d[i,j-1])*d[i-1,j-1] }
  }
  cost = d[N,min(N, M)]
}
prog back_substituted(x: f64[N,M]) -> (u) {
  var u = clone(x)
  for q in 1..N { u[N-1-q] = sin(u[N-q])*x[N-1-q] + exp(-u[N-q]^2) }
}
prog of_all_before(x: f64[N], w: f64[N,N]) -> (l) {
  var l = clone(x)
  for i in 0..N {
    var s = 2*x[i]
    for k in 0..i { s += 0.1*w[i,k]*sin(l[k]) }
    l[i] = s
  }
}
prog sums_together(x: f64[N]) -> (s, k, c, big) {
  var s = clone(x)
  var k = f64(0)
  var c = f64(1)
  var big = f64(0)
  for t in 0..3 {
    m = argmax(i: s[i]^2)
    k = sum(i: s[i]*exp(-s[i]^2)*s[m])
    big = max(i: s[i]*exp(-s[i]^2))
    c = 0.1*sum(i: s[i]*k) + 0.1*sum(i: exp(-s[i]^2))
    s[i in 0..N] = 0.5*s[i] + sin(k)*x[i] + 0.1*c*big
  }
}
prog written_again(x: f64[N]) -> (d) {
  var d = clone(x)
  for k in 0..3 { for i in 1..N { d[i] = sin(d[i-1]) + 0.5*x[i] } }
}
prog written_after(x: f64[N]) -> (d) {
  var d = clone(x)
  for i in 0..N-1 {
    d[i+1] = cos(d[i])
    d[i] = d[i]*x[i]*d[i]
  }
}
prog written_where_data_say(x: f64[N], at: i32[N]) -> (d) {
  var d = clone(x)
  for i in 0..N-1 { d[i64(at[i] % i32(N))] = sin(d[i])*d[i+1] }
}
prog on_one_side(x: f64[N]) -> (d) {
  var d = clone(x)
  for i in 1..N { if d[i-1] > 0.0 { d[i] = d[i-1]*d[i-1] } else { d[i-1] = d[i-1]*x[i]*d[i-1] } }
}
prog largest(x: f64[N], k: i32[D]) -> (v, place, smallest) {
  var a = clone(x)
  var v = zeros f64[N]
  var place = zeros i32[N]
  var smallest = zeros i32[N]
  for t in 0..N {
    m = argmax(i: a[i])
    place[t] = i32(m)
    v[t] = a[m]
    a[m] = -inf
    smallest[t] = i32(argmin(j if k[j] != i32(t): k[j] % 3))
  }
}
)";

class WholeLoops : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeLoops, ComputeWhatTheEvaluatorDoes) {
  const Program op = op_of_text(kPrograms, GetParam());
  const std::vector<DimValues> sizes = {{{"N", 5}, {"M", 7}, {"T", 9}, {"D", 19}}, {{"N", 18}, {"M", 21}, {"T", 3}, {"D", 4}}};
  for (uint64_t seed : {1, 2}) {
    DimValues dims;
    for (const Dim& d : op.dims) dims[op.arena->name(d.dim)] = sizes[seed - 1].at(op.arena->name(d.dim));
    CheckConfig config;
    config.products = true;
    config.level = seed == 1 ? CpuLevel::avx2 : CpuLevel::sse41;
    EXPECT_EQ(check_failure(op, dims, seed, config), "") << "seed " << seed;
    const Arrays data = random_inputs(op, dims, seed);
    // One call of a function, whatever the number of iterations; what stands before the loop and behind it has kernels.
    CompiledOp compiled = compile(op, {.dims = dims});
    std::map<std::string, std::vector<double>> memory;
    std::map<std::string, std::vector<float>> floats;
    std::map<std::string, std::vector<int32_t>> integers;
    std::vector<Argument> arguments;
    auto give = [&](TensorId t) {
      const std::string& name = op.tensors[t].name;
      const std::vector<int64_t> shape = shape_of(op, t, dims);
      const auto n = static_cast<size_t>(element_count(shape));
      const Array* array = data.contains(name) ? &data.at(name) : nullptr;
      auto filled = [&](auto& values) {
        values.resize(n);
        for (size_t i = 0; array && i < n; ++i) values[i] = static_cast<std::decay_t<decltype(values[0])>>(array->at(i));
        arguments.push_back({name, TensorView(values.data(), shape)});
      };
      if (op.tensors[t].type == DType::f64) filled(memory[name]);
      if (op.tensors[t].type == DType::f32) filled(floats[name]);
      if (op.tensors[t].type == DType::i32) filled(integers[name]);
    };
    for (TensorId t : op.inputs) give(t);
    for (TensorId t : op.outputs) give(t);
    EXPECT_LE(compiled.infer(arguments).kernels, 5);
  }
}

std::string name_of_program(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Programs, WholeLoops,
                         ::testing::Values("damped", "swapped", "cholesky", "seidel", "gram_schmidt", "columns", "part_of_a_row", "chosen",
                                           "picked", "iterated", "nested", "cell", "two_planes", "leapfrog", "element_by_element",
                                           "read_later", "own_sums", "same_twice", "counted", "added_where_it_moves", "best_path",
                                           "largest", "table", "back_substituted", "of_all_before", "written_again", "written_after",
                                           "sums_together", "written_where_data_say", "on_one_side"),
                         name_of_program);

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

TEST(WholeLoopsOfRandomPrograms, ComputeWhatTheEvaluatorDoes) {
  const uint64_t first = number_of("XHAT_PROPERTY_SEED", 1), count = number_of("XHAT_PROPERTY_COUNT", long_run() ? 3000 : 60);
  int loops = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string text = random_prog(seed);
    Program op;
    try {
      op = parse_op(text);
    } catch (const Error&) {
      continue;  // "not yet": ProgProperty says of which kind
    }
    if (!op.steps) continue;
    ++loops;
    CheckConfig config;
    config.level = seed % 3 == 0 ? CpuLevel::sse41 : CpuLevel::avx2;
    if (seed % 2 == 0) config.machine.serial_ps = 0;  // in tiles, where it can be
    const std::string failure = check_failure(op, {{"N", 4}, {"M", 3}}, seed, config);
    if (!failure.starts_with(kNoData)) {
      ASSERT_EQ(failure, "") << "seed " << seed << "\n" << text;
    }
  }
  if (count >= 60) {
    EXPECT_GT(loops, static_cast<int>(count / 20));
  }
}

}  // namespace
}  // namespace xhat
