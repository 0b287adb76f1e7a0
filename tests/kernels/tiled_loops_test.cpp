// Loops that run tile of points by tile (runtime/loops/loop_tiles.h), with what `xhat check` compares, and loops that look as if they could.
#include <gtest/gtest.h>

#include "ad/check/random_inputs.h"
#include "runtime/call/compile.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

constexpr const char* kEnsembles = R"(
prog ensemble(x0: f64[N], y0: f64[N], a: f64, b: f64, k: i32[T] const) -> (x, y) {
  var x = clone(x0)
  var y = clone(y0)
  for t in 0..T {
    xm = x + 0.1*(a*x - b*x*y)
    ym = y + 0.1*(b*x*y - a*y)
    x = x + 0.2*(a*xm - b*xm*ym)
    y = y + 0.2*(b*xm*ym - a*ym)
  }
}
prog steps_in_rows(u: f64[T,N], a: f64[N]) -> (y) {
  var y = clone(u)
  for t in 1..T { y[t] = a*y[t-1] + tanh(u[t]) }
}
prog steps_in_columns(u: f64[N,T], a: f64[N]) -> (y) {
  var y = clone(u)
  for t in 1..T { y[:,t] = a*y[:,t-1] + tanh(u[:,t])*y[:,t-1] }
}
prog decaying(x: f64[N], g: f64, k: i32[T] const) -> (y, s) {
  var y = clone(x)
  var s = f64(1)
  for t in 0..T { y = y*s + x; s = s*g }
}
prog recurrent(x: f64[T,N,3], w: f64[3,3], b: f64[3]) -> (h) {
  var h = zeros f64[N,3]
  for t in 0..T { h[n in 0..N, j in 0..3] = tanh(x[t,n,j] + b[j] + sum(i in 0..3: h[n,i]*w[i,j])) }
}
prog of_points(p: f64[N,3], s: f64, r: f64, k: i32[T] const) -> (q) {
  var q = clone(p)
  for t in 0..T {
    d[n in 0..N, c in 0..3] = if c == 0 then s*(q[n,1]-q[n,0]) else if c == 1 then q[n,0]*(r-q[n,2])-q[n,1] else q[n,0]*q[n,1]-2*q[n,2]
    q = q + 0.05*d
  }
}
prog tridiagonal(a: f64[T,N], b: f64[T,N], d: f64[T,N]) -> (x) {
  var cp = zeros f64[T,N]
  var dp = zeros f64[T,N]
  for i in 0..T {
    m = 3 + b[i]^2 - (if i > 0 then a[i]*cp[max(i-1,0)] else 0)
    cp[i] = 1/m
    dp[i] = (d[i] - (if i > 0 then a[i]*dp[max(i-1,0)] else 0))/m
  }
  var x = clone(dp)
  for r in 1..T { i = T-1-r; x[i] = dp[i] - cp[i]*x[i+1] }
}
prog in_the_middle(u: f64[M,N,T], w: f64[M+1,N,T]) -> (y) {
  var y = clone(u)
  for t in 1..T { y[:,:,t] = y[:,:,t-1]*0.5 + sin(w[1:,:,t])*w[:-1,:,t-1] }
}
prog nested(x: f64[N,T]) -> (s, c) {
  var s = zeros f64[N]
  var c = zeros i32[N]
  for i in 0..T {
    var p = x[:,i]*0.5
    for j in 0..i { p = p*x[:,j] + s }
    if i % 2 == 0 { s = s + p; c = c + i32(1) } else { s = s*0.9 }
  }
}
prog looked_up(x: f64[N], id: i32[N], z: f64[T]) -> (y) {
  var y = clone(x)
  for t in 0..T { y[n in 0..N] = y[n]*0.5 + z[id[n] % i32(T)]*y[n] }
}
prog narrow(x: f32[N,T], f: f32[T]) -> (y, n) {
  var y = x[:,0]
  var n = zeros i32[N]
  for t in 1..T { y = if x[:,t] > 0 then y*f[t] + x[:,t] else y; n = if y > 0.1 then n + i32(1) else n }
}
prog counted_by_data(x: i32[N], z: f64[N], n: i32[T]) -> (c, y) {
  var c = clone(x)
  for t in 0..i64(n[0] % i32(5)) + 3 { c = if c % i32(2) == 0 then c / i32(2) else i32(3)*c + i32(1) }
  y[i in 0..N] = z[i] * f64(c[i] % i32(7))
}
prog means(x: f64[N], a: f64, k: i32[T] const) -> (y) {
  var y = clone(x)
  for t in 0..T { y[n in 0..N] = a*y[n] - mean(j in 0..N: y[j]) }
}
prog neighbours(x: f64[N], a: f64, k: i32[T] const) -> (y) {
  var y = clone(x)
  for t in 0..T { y[n in 0..N] = a*y[n] + y[(n+1) % N] }
}
prog mirrored(x: f64[N], a: f64, k: i32[T] const) -> (y, z) {
  var y = clone(x)
  var z = clone(x)
  for t in 0..T { y[n in 0..N] = a*y[n] + z[N-1-n]; z = z*y }
}
prog numbered(x: f64[N], a: f64, k: i32[T] const) -> (y) {
  var y = clone(x)
  for t in 0..T { y[n in 0..N] = a*y[n] + f64(n)/f64(N) }
}
prog transposed(x: f64[N,N], a: f64, k: i32[T] const) -> (y) {
  var y = clone(x)
  for t in 0..T { y[i in 0..N, j in 0..N] = a*y[i,j] + 0.3*y[j,i] }
}
prog first_of_all(x: f64[N], a: f64, k: i32[T] const) -> (y) {
  var y = clone(x)
  for t in 0..T { y[n in 0..N] = a*y[n] + y[0] }
}
)";

struct Case {
  const char* name;
  bool tiled;
};

class TiledLoops : public ::testing::TestWithParam<Case> {};

TEST_P(TiledLoops, ComputeWhatTheEvaluatorDoes) {
  const Program op = op_of_text(kEnsembles, GetParam().name);
  for (int64_t n : {64, 45, 21, 3}) {
    const std::map<std::string, int64_t> sizes = {{"N", n}, {"M", 3}, {"T", 6}};
    DimValues dims;
    for (const Dim& d : op.dims) dims[op.arena->name(d.dim)] = sizes.at(op.arena->name(d.dim));
    CheckConfig config;
    config.products = true;
    config.machine.serial_ps = 0;
    config.level = n == 64 ? CpuLevel::sse41 : CpuLevel::avx2;
    EXPECT_EQ(check_failure(op, dims, static_cast<uint64_t>(n), config), "") << n;
  }
}

// Outputs and gradients.
Arrays run(const Program& op, const CompileOptions& options, const DimValues& dims) {
  const CompiledOp compiled = compile(op, options);
  const Program& all = compiled.program();
  const Arrays data = random_inputs(op, dims, 7);
  std::map<std::string, Buffer> memory;
  std::vector<Argument> forward, backward;
  auto give = [&](const std::vector<TensorId>& tensors, double value, std::initializer_list<std::vector<Argument>*> to) {
    for (TensorId t : tensors) {
      const std::string& name = all.tensors[t].name;
      Array a = data.contains(name) ? data.at(name) : zeros(all.tensors[t].type, shape_of(all, t, dims));
      for (size_t i = 0; value != 0 && i < a.size(); ++i) a.reals[i] = value + 0.01 * static_cast<double>(i % 7);
      Buffer& buffer = memory.emplace(name, Buffer(a)).first->second;
      for (std::vector<Argument>* list : to) list->push_back({name, buffer.view()});
    }
  };
  give(all.inputs, 0, {&forward, &backward});
  give(all.outputs, 0, {&forward});
  give(all.cotangents, 0.25, {&backward});
  give(all.gradients, 0, {&backward});
  Stash stash;
  compiled.forward(forward, stash);
  compiled.backward(backward, stash);
  Arrays made;
  for (const auto* list : {&all.outputs, &all.gradients})
    for (TensorId t : *list) made[all.tensors[t].name] = memory.at(all.tensors[t].name).array();
  return made;
}

TEST_P(TiledLoops, AreCutWhereTheyCanBeWithTheSameBitsOnAnyThreads) {
  const Program op = op_of_text(kEnsembles, GetParam().name);
  const std::map<std::string, int64_t> sizes = {{"N", 77}, {"M", 3}, {"T", 6}};
  DimValues dims;
  for (const Dim& d : op.dims) dims[op.arena->name(d.dim)] = sizes.at(op.arena->name(d.dim));
  CompileOptions options = {.threads = 1, .dims = dims};
  options.machine.serial_ps = 0;
  int loops = 0;
  for (const Kernel& k : compile(op, options).plan(CompiledOp::Phase::forward, dims).kernels) {
    if (!k.name.starts_with("loop over")) continue;
    ++loops;
    EXPECT_EQ(k.name.ends_with("tiles"), GetParam().tiled) << k.name;
  }
  EXPECT_GT(loops, 0);
  const Arrays on_one = run(op, options, dims);
  options.threads = 3;
  EXPECT_EQ(run(op, options, dims), on_one);
}

INSTANTIATE_TEST_SUITE_P(Programs, TiledLoops,
                         ::testing::Values(Case{"ensemble", true}, Case{"steps_in_rows", true}, Case{"steps_in_columns", true},
                                           Case{"decaying", true}, Case{"recurrent", true}, Case{"of_points", true},
                                           Case{"tridiagonal", true}, Case{"in_the_middle", true}, Case{"nested", true},
                                           Case{"looked_up", true}, Case{"narrow", true}, Case{"counted_by_data", false},
                                           Case{"means", false}, Case{"neighbours", false}, Case{"mirrored", false},
                                           Case{"numbered", false}, Case{"transposed", false}, Case{"first_of_all", false}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace xhat
