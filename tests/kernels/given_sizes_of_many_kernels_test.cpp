// Libraries compiled ahead of time apply what sizes decide before kernels are planned (fusion/plan/for_sizes.h), with all sizes given and with a
// batch that stays open.
#include <gtest/gtest.h>

#include "fusion/plan/for_sizes.h"
#include "runtime/ahead/build/ahead_plans.h"
#include "runtime/call/passes.h"
#include "tests/helpers/ahead_helper.h"

namespace xhat::given_sizes_of_many_kernels_test {
namespace {

using namespace xhat::testing;

class GivenSizesOfManyKernels : public Ahead {
 protected:
  // With all sizes given, the engine's kernels and its bits. batches: the bits of a library for any N.
  void as_the_engine(const std::string& text, const DimValues& sizes, const std::vector<int64_t>& batches = {}) {
    SCOPED_TRACE(text);
    Sizes open{sizes, batches};
    open.given.erase("N");
    if (!batches.empty()) same_bits(text, open, best_level());
    AheadOptions o = best_level();
    for (const auto& [name, value] : sizes) o.sizes[name] = {value};
    same_bits(text, o, {sizes});
    same_kernels(parse_op(text), o, sizes);
  }

  void same_kernels(const Program& op, AheadOptions o, const DimValues& given) {
    const Derivation derivation = derive(op, o.compile, given);
    const Program& p = derivation.program;
    const DimValues sizes = solve_dims(p, {}, given);
    const Program directions[] = {infer_program(p), forward_program(p), backward_program(p)};
    EXPECT_TRUE(std::ranges::any_of(directions, [&](const Program& direction) {
      return print(rewritten_for_sizes(direction, sizes, runtime::request_of(o.compile, Target::cpu))) != print(direction);
    })) << "sizes decide nothing here";
    auto cache = o.compile.cache = std::make_shared<runtime::KernelCache>();
    const CompiledOp compiled = compile(op, o.compile);
    const Arrays data = random_data(gradient(op), sizes, 3);
    run_both(compiled, data, sizes);
    run_infer(compiled, data, sizes);
    const auto kernels = runtime::plan_ahead(derivation, o).kernels;
    const size_t of_engine = cache->size();
    EXPECT_EQ(kernels.size(), of_engine);
    cache->get(kernels, 1);
    EXPECT_EQ(cache->size(), of_engine) << "the library has other kernels than the engine";
  }
};

TEST_F(GivenSizesOfManyKernels, Phases) {
  as_the_engine("op to_odd(x: f32[N,C,T], w: f32[C,K,3]) -> (y) { "
                "y[n,k,t in 0..2*T-1] = sum(c,r if (t+1-r)%2 == 0: x[n,c,(t+1-r)/2 else 0]*w[c,k,r]) }",
                {{"N", 5}, {"C", 6}, {"K", 7}, {"T", 24}}, {1, 33});
  as_the_engine("op strided(x: f32[N,C,2*T+1], w: f32[K,C,3]) -> (y) { y[n,k,t in 0..T] = sum(c,r: x[n,c,2*t+r]*w[k,c,r]) }",
                {{"N", 5}, {"C", 6}, {"K", 7}, {"T", 24}});
}

TEST_F(GivenSizesOfManyKernels, BlocksAsAxes) {
  as_the_engine("op patches(x: f32[N,C,16*H], w: f32[K,C,16]) -> (y) { y[n,k,h in 0..H] = sum(c,r: x[n,c,16*h+r]*w[k,c,r]) }",
                {{"N", 5}, {"C", 3}, {"K", 20}, {"H", 12}}, {1, 33});
}

TEST_F(GivenSizesOfManyKernels, TablesOfWhatIsTheSame) {
  as_the_engine("op rotated(x: f32[N,T,K]) -> (y) { y[n,t,k] = x[n,t,k] * cos(f32(t) * exp(-0.2*f32(k))) }",
                {{"N", 40}, {"T", 32}, {"K", 48}}, {1, 33});
}

TEST_F(GivenSizesOfManyKernels, Triangles) {
  as_the_engine(R"(op causal(q: f32[N,T,D], k: f32[N,T,D], v: f32[N,T,D]) -> (y) {
    s[n,i,j] = sum(d: q[n,i,d] * k[n,j,d]); m[n,i] = stop_gradient(max(j in 0..i+1: s[n,i,j])); e[n,i,j] = exp(s[n,i,j] - m[n,i])
    y[n,i,d] = sum(j in 0..i+1: e[n,i,j] * v[n,j,d]) / sum(j in 0..i+1: e[n,i,j]) })",
                {{"N", 3}, {"T", 40}, {"D", 16}}, {1, 33});
}

TEST_F(GivenSizesOfManyKernels, RunningSums) {
  as_the_engine("op along(x: f32[N]) -> (y) { y[t in 0..N] = sum(k in 0..t+1: x[k]) }", {{"N", 700}});
}

TEST_F(GivenSizesOfManyKernels, RangesOfQuotients) {
  as_the_engine("op pooled(x: f32[N,P]) -> (y) { y[n,r in 0..7] = sum(i in 0..P if i*7/P == r: x[n,i]) }", {{"N", 5}, {"P", 30}}, {1, 33});
}

TEST_F(GivenSizesOfManyKernels, ShortRowsAsPlanes) {
  as_the_engine("op forces(w: f32[N,J], x: f32[J,3]) -> (y) { y[n,d] = sum(j: w[n,j]*x[j,d]) }", {{"N", 200}, {"J", 100}});
}

}  // namespace
}  // namespace xhat::given_sizes_of_many_kernels_test
