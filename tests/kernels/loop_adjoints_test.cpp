// Loops that run as one function and write over parts of large values: what of these goes on the tape, and where their adjoints lie.
#include <gtest/gtest.h>

#include <set>

#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "runtime/call/whole_loops.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/runtime_check.h"

namespace xhat {
namespace {

using namespace xhat::testing;

constexpr const char* kPrograms = R"(
prog eliminated(x: f64[N,M]) -> (a) {
  var a = clone(x)
  for k in 0..min(N, M)-1 {
    for i in k+1..N { for j in k+1..M { a[i,j] -= a[i,k]*a[k,j]/(2 + a[k,k]^2) } }
  }
}
prog eliminated_in_part(x: f64[N,M]) -> (a) {
  var a = clone(x)
  for k in 0..min(N, M)-1 {
    if x[k,k] > 0 { for i in k+1..N { for j in k..i { a[i,j % M] -= a[i,k]*sin(a[k,j % M]) } } } else { a[k] = 2*a[k] }
  }
}
prog diagonals(p: f64[D]) -> (cost) {
  var cost = zeros f64[D+1,D+1]
  for len in 1..D+1 {
    for i in 0..D+1-len {
      best = sum(r in i..i+len: exp(-cost[i,r] - cost[r+1,i+len]))
      cost[i,i+len] = p[i]*p[i] - log(1 + best)
    }
  }
}
prog window_of_neighbours(x: f64[N]) -> (y, z) {
  var y = clone(x)
  var z = x*2
  for k in 1..N {
    y[i in 0..N] = if i < k && i < N-1 then y[i] + 0.5*sin(y[i+1])*z[k] else y[i]
    z[i in 0..N] = if i == k then y[k]*z[i] else z[i]
  }
}
prog two_at_once(x: f64[N], y: f64[N]) -> (a, b) {
  var a = clone(x)
  var b = clone(y)
  for k in 0..N {
    c = if k % 2 == 0 then sin(a*b) else 0.5*(a + b)
    a[i in 0..N] = if i >= k then 0.5*a[i] + sin(c[i]) else a[i]
    b[i in 0..N] = 0.5*b[i]*cos(c[i]) + 0.3*c[(i+k) % N]
  }
}
prog scaled_by_an_element(x: f64[N,M]) -> (y) {
  var y = clone(x)
  for t in 1..N {
    y[i in 0..N, j in 0..M] = if i >= t then y[i,j]*y[t,0] + y[t-1,j] else y[i,j]
    y[t] = y[t]*0.5
  }
}
prog antidiagonals(x: f64[N,M]) -> (y) {
  var y = clone(x)
  for s in 1..N+M-1 {
    for i in max(0, s-M+1)..min(s, N-1)+1 {
      j = s - i
      y[i,j] += 0.4*(if i > 0 then sin(y[max(i-1,0),j]) else 0)*y[i,j] + 0.3*(if j > 0 then y[i,max(j-1,0)] else 0)
    }
  }
}
prog rows_turned_around(x: f64[N,M], at: i32[N]) -> (y) {
  var y = clone(x)
  for t in 0..N {
    p = i64(at[t] % i32(N))
    y[i in 0..N, j in 0..M] = if i == p then 0.5*y[i,M-1-j]*y[t,j] + y[N-1-t,j] else y[i,j]
  }
}
prog columns_of_places(x: f64[N,M]) -> (y) {
  var y = clone(x)
  for t in 0..12 { y[i in 0..N, j in 0..M] = if j == (i*t + t) % M then cos(y[N-1-i,j]) + y[i,(j+1) % M] else y[i,j] }
}
prog sent_elsewhere(x: f64[N], at: i32[N]) -> (y) {
  var y = clone(x)
  for t in 0..N { y[i in 0..N] = 0.5*y[i] + 0.1*sum(j in 0..N if i64(at[j] % i32(N)) == i: sin(y[j])) + sin(y[t])*x[i] }
}
)";

// The loops of a program that are one function.
struct FoundLoops {
  FoundLoops(const Program& with_gradient, const DimValues& d) : op(with_gradient), dims(d) {
    for (TensorId t = 0; t < op.tensors.size(); ++t) shapes.push_back(shape_of(op, t, dims));
    loops = runtime::whole_loops(op, {.dims = dims}, dims, shapes);
  }
  const Program op;
  const DimValues dims;
  std::vector<std::vector<int64_t>> shapes;
  runtime::WholeLoops loops;
};

class LoopsThatWriteOver : public ::testing::TestWithParam<const char*> {};

TEST_P(LoopsThatWriteOver, ComputeWhatTheEvaluatorDoes) {
  const Program op = op_of_text(kPrograms, GetParam());
  const std::vector<DimValues> sizes = {{{"N", 5}, {"M", 7}, {"D", 4}}, {{"N", 13}, {"M", 4}, {"D", 7}}, {{"N", 18}, {"M", 17}, {"D", 9}}};
  for (uint64_t seed : {1, 2, 3}) {
    DimValues dims;
    for (const Dim& d : op.dims) dims[op.arena->name(d.dim)] = sizes[seed - 1].at(op.arena->name(d.dim));
    CheckConfig config;
    config.level = seed == 1 ? CpuLevel::sse41 : CpuLevel::avx2;
    if (seed == 2) config.machine.serial_ps = 0;  // in tiles, where it can be
    EXPECT_EQ(check_failure(op, dims, seed, config), "") << "seed " << seed;
    const FoundLoops found(gradient(op), dims);
    EXPECT_EQ(found.loops.size(), 1);
    for (const auto& [loop, code] : found.loops) EXPECT_TRUE(code->has(runtime::LoopPhase::forward));
  }
}

std::string name_of_loop(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Programs, LoopsThatWriteOver,
                         ::testing::Values("eliminated", "eliminated_in_part", "diagonals", "window_of_neighbours", "two_at_once",
                                           "scaled_by_an_element", "sent_elsewhere", "antidiagonals", "rows_turned_around",
                                           "columns_of_places"),
                         name_of_loop);

// Where a block reads a few rows and writes over much, what it reads is kept.
TEST(LoopTape, KeepWhatIsReadWhereThatIsLess) {
  const int64_t n = 40;
  auto kept = [&](const char* body) {
    const Program op = parse_op("prog f(x: f64[N,N]) -> (a) {\nvar a = clone(x)\n" + std::string(body) + "\n}");
    CompiledOp compiled = compile(op, {.dims = {{"N", n}}});
    std::vector<double> x(n * n, 0.5), a(n * n);
    const Stash stash = compiled.forward({{"x", TensorView(x.data(), {n, n})}, {"a", TensorView(a.data(), {n, n})}});
    return stash.bytes() / static_cast<int64_t>(sizeof(double)) - n * n;  // what it leaves is there anyway
  };
  EXPECT_LE(kept("for k in 0..N-1 { for i in k+1..N { for j in k+1..N { a[i,j] -= a[i,k]*a[k,j] } } }"), n * (2 * n + 1));
  EXPECT_LE(kept("for k in 0..N-1 { a[k+1:,k] /= a[k,k] + 2.0\n for i in k+1..N { for j in k+1..i+1 { a[i,j] -= a[i,k]*a[j,k] } } }"),
            n * (3 * n + 2));
}

// What stays as it is of a value stays where it is in its adjoint.
TEST(LoopAdjoints, LieWhereTheyWere) {
  auto adjoints = [](const char* body) {
    const FoundLoops all(gradient(parse_op("prog f(x: f64[N]) -> (a) {\nvar a = clone(x)\n" + std::string(body) + "\n}")), {{"N", 400}});
    EXPECT_EQ(all.loops.size(), 1);
    if (all.loops.empty()) return std::set<std::string>();
    const std::string text = all.loops.begin()->second->listing(runtime::LoopPhase::backward);
    std::set<std::string> found;
    for (size_t at = 0; (at = text.find("xh_adjoint", at)) != std::string::npos; ++at)
      found.insert(text.substr(at, text.find_first_not_of("0123456789", at + 10) - at));
    return found;
  };
  EXPECT_EQ(adjoints("for k in 0..N-1 { for i in k+1..N { a[i] -= sin(a[i])*a[k] } }").size(), 1);
  EXPECT_EQ(adjoints("for k in 0..N-1 { for i in k+1..min(k+3, N) { a[i] = a[k]*a[k] } }").size(), 1);
  EXPECT_EQ(adjoints("for k in 0..N-1 { a[i in 0..N] = if i < k then a[i] + 0.1*a[i+1] else a[i] }").size(), 1);
  // Nothing of it stays.
  EXPECT_EQ(adjoints("for k in 0..9 { a[i in 0..N] = sin(a[N-1-i]) }").size(), 2);
}

// A few elements that are made of others are written over the rest, both ways: what they need is read before, and nothing is copied whole.
TEST(FewElements, AreWrittenOverTheRest) {
  auto whole = [](const char* body, runtime::LoopPhase phase, const std::string& kind) {
    const FoundLoops all(gradient(parse_op("prog f(x: f64[N,N]) -> (y) {\nvar y = clone(x)\n" + std::string(body) + "\n}")), {{"N", 60}});
    EXPECT_EQ(all.loops.size(), 1);
    std::set<std::string> found;  // that do not lie on the stack
    if (all.loops.empty()) return found;
    const std::string text = all.loops.begin()->second->listing(phase);
    for (size_t at = 0; (at = text.find(kind, at)) != std::string::npos; ++at) {
      const std::string name = text.substr(at, text.find_first_not_of("0123456789", at + kind.size()) - at);
      if (text.find("allocate " + name + "[") == std::string::npos) found.insert(name);
    }
    return found;
  };
  for (const char* body :
       {"for s in 1..2*N-1 { for i in max(0, s-N+1)..min(s, N-1)+1 { y[i,s-i] += 0.4*(if i > 0 then y[max(i-1,0),s-i] else 0) } }",
        "for t in 0..N { y[i in 0..N, j in 0..N] = if i == t*7 % N then y[i,N-1-j] + y[N-1-t,j] else y[i,j] }",
        "for t in 0..N { y[i in 0..N, j in 0..N] = if j == i*t % N then y[N-1-i,j] else y[i,j] }"}) {
    EXPECT_EQ(whole(body, runtime::LoopPhase::infer, "xh_value").size(), 1) << body;
    EXPECT_EQ(whole(body, runtime::LoopPhase::backward, "xh_temporary").size(), 0) << body;
  }
}

// What is dear and the same for many points is computed once for them.
TEST(LoopTables, AreMadeOnce) {
  auto loops = [](const std::string& body) {
    const FoundLoops all(parse_op("prog f(x: f64[T,M], k: f64[T,N]) -> (s) {\nvar s = zeros f64[M,N]\nfor t in 0..T {\n" + body + "\n} }"),
                         {{"T", 40}, {"M", 32}, {"N", 32}});
    EXPECT_EQ(all.loops.size(), 1);
    if (all.loops.empty()) return 0;
    const std::string text = all.loops.begin()->second->listing(runtime::LoopPhase::infer);
    int found = 0;
    for (size_t at = 0; (at = text.find("for (", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  const int by_hand = loops("e[n] = sin(k[t,n])\ns[m in 0..M, n in 0..N] = 0.5*s[m,n]*s[m,n] + x[t,m]*e[n]");
  EXPECT_EQ(loops("s[m in 0..M, n in 0..N] = 0.5*s[m,n]*s[m,n] + x[t,m]*sin(k[t,n])"), by_hand);
  EXPECT_LT(loops("s[m in 0..M, n in 0..N] = 0.5*s[m,n]*s[m,n] + x[t,m]*k[t,n]"), by_hand);
}

}  // namespace
}  // namespace xhat
