// Loops that run as one function (runtime/loops), with what `xhat check` compares: random imperative programs, and programs of the kinds whose
// memory is shared in another way each. XHAT_PROPERTY_SEED and XHAT_PROPERTY_COUNT choose other random programs.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ad/check/random_inputs.h"
#include "runtime/call/compile.h"
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
