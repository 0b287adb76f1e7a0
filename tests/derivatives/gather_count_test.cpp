// The gradient's loops visit what contributes and nothing else: iterations of the gathered backward, counted by evaluating a
// program that counts, against contributions, counted by the scatter form with ones for data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/lift_reductions.h"
#include "fusion/relations/scatter.h"
#include "tests/helpers/golden.h"

namespace xhat::gather_count_test {
namespace {

using namespace xhat::testing;

// How often the loops of an expression go round; outside of loops, a read of the cotangent counts as once.
class Counter {
 public:
  explicit Counter(const Program& p) : a_(*p.arena), cotangents_(p.cotangents) {}

  Id of(Id root) {
    for (Id id : reachable(a_, root)) known_[id] = count(id);
    return known_.at(root);
  }

 private:
  Id count(Id id) {
    const Node n = a_[id];
    if (is_reduction(n.op)) {
      auto ranges = reduce_axes(n);
      return a_.reduce(Op::sum, std::vector<AxisRange>(ranges.begin(), ranges.end()), a_.boolean(true), a_.integer(1));
    }
    if (is_read(n.op)) return a_.integer(std::ranges::find(cotangents_, n.symbol) != cotangents_.end());
    if (n.op == Op::select) return a_.select(n.arg(0), known_.at(n.arg(1)), known_.at(n.arg(2)));
    Id sum = a_.integer(0);
    for (Id x : n.args())
      if (!is_constant(a_, known_.at(x), 0)) sum = is_constant(a_, sum, 0) ? known_.at(x) : a_.add(sum, known_.at(x));
    return sum;
  }

  Arena& a_;
  std::vector<TensorId> cotangents_;
  std::unordered_map<Id, Id> known_;
};

int64_t iterations(Program p, const DimValues& dims) {
  Arrays data = random_data(p, dims, 1);
  std::vector<std::string> names;
  for (Definition& d : p.backward.definitions) {
    d.body = Counter(p).of(d.body);
    p.tensors[d.target()].type = DType::i64;
    names.push_back(p.tensors[d.target()].name);
  }
  Arrays counted = evaluate(p, data, dims);
  int64_t total = 0;
  for (const std::string& name : names)
    for (int64_t n : counted.at(name).integers) total += n;
  return total;
}

// Of an op that is linear in x with coefficients 1: what all of grad_x adds up to for cotangents of 1.
int64_t contributions(const Program& derived, const DimValues& dims) {
  Arrays data = random_data(derived, dims, 1);
  for (auto& [name, array] : data) std::ranges::fill(array.reals, 1);
  Arrays got = evaluate(derived, data, dims);
  const auto& g = got.at(derived.tensors[derived.gradients[0]].name).reals;
  return std::llround(std::accumulate(g.begin(), g.end(), 0.0));
}

void expect_only_contributions(const std::string& text, const DimValues& dims) {
  SCOPED_TRACE(text);
  Program derived = gradient(parse_op(text)), gathered = gather(derived);
  int backward = 0;
  for (const Definition& d : gathered.backward.definitions) {
    ++backward;
    EXPECT_FALSE(as_scatter(*gathered.arena, d)) << "adds at computed places";
  }
  EXPECT_EQ(backward, 1) << "temporaries";
  EXPECT_EQ(iterations(gathered, dims), contributions(derived, dims)) << print(gathered);
  Arrays data = random_data(derived, dims, 2);
  EXPECT_EQ(difference(evaluate_on(derived, data, dims), evaluate_on(gathered, data, dims), 1e-12), "");
}

// anchors: TVM's sweep of convolutions, each kernel, stride and dilation of 1 to 3; x only.
TEST(GatherCount, Convolutions) {
  for (int k = 1; k <= 3; ++k)
    for (int s = 1; s <= 3; ++s)
      for (int d = 1; d <= 3; ++d) {
        int out = (10 - d * (k - 1) - 1) / s + 1;
        std::string at = std::to_string(s) + "*i + " + std::to_string(d) + "*r", range = "0.." + std::to_string(k);
        expect_only_contributions(
            "op f(x: f64[10]) -> (y) { y[i in 0.." + std::to_string(out) + "] = sum(r in " + range + ": x[" + at + "]) }", {});
        expect_only_contributions("op f(x: f64[N]) -> (y) { y[i in 0..(N - " + std::to_string(d * (k - 1) + 1) + ")/" + std::to_string(s) +
                                      " + 1] = sum(r in " + range + ": x[" + at + "]) }",
                                  {{"N", 23}});
      }
}

TEST(GatherCount, PaddedAndTwoDimensional) {
  expect_only_contributions(
      "op f(x: f64[N,H,W]) -> (y) { y[n,i in 0..H,j in 0..W] = "
      "sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0]) }",
      {{"N", 2}, {"H", 5}, {"W", 6}});
  expect_only_contributions(
      "op f(x: f64[H,W]) -> (y) { y[i in 0..(H+1)/2,j in 0..(W+1)/2] = "
      "sum(r in 0..3, s in 0..3: x[2*i+r-1,2*j+s-1 else 0]) }",
      {{"H", 9}, {"W", 6}});
}

TEST(GatherCount, Resampling) {
  expect_only_contributions("op up(x: f64[N]) -> (y) { y[i in 0..2*N] = x[i/2] }", {{"N", 7}});
  expect_only_contributions("op up3(x: f64[N]) -> (y) { y[i in 0..3*N-2] = x[(i+1)/3] }", {{"N", 7}});
  expect_only_contributions("op down(x: f64[N]) -> (y) { y[i in 0..N/4] = x[4*i] }", {{"N", 18}});
  expect_only_contributions("op pool(x: f64[N]) -> (y) { y[i in 0..(N-3)/2+1] = sum(r in 0..3: x[2*i+r]) }", {{"N", 18}});
}

// The equation stands in a condition that the user wrote, over an output axis.
TEST(GatherCount, TransposedConvolution) {
  expect_only_contributions("op f(x: f64[N]) -> (y) { y[o in 0..2*N] = sum(i, r in 0..3 if 2*i + r - 1 == o: x[i]) }", {{"N", 9}});
  expect_only_contributions("op f(x: f64[N]) -> (y) { y[o in 0..3*N+4] = sum(i, r in 0..3 if o == 3*i + 2*r: x[i]) }", {{"N", 9}});
}

// As strides and remainders say it: what the forward makes of the condition, the gradient takes back.
TEST(GatherCount, TransposedConvolutionWithRemainders) {
  for (int kernel = 1; kernel <= 4; ++kernel)
    for (int stride = 2; stride <= 4; ++stride)
      for (int pad = 0; pad < kernel; ++pad) {
        const std::string s = std::to_string(stride), at = "(i+" + std::to_string(pad) + "-r)";
        expect_only_contributions("op f(x: f64[N]) -> (y) { y[i in 0.." + s + "*N] = sum(r in 0.." + std::to_string(kernel) + " if " + at +
                                      "%" + s + " == 0 && 0 <= " + at + " && " + at + "/" + s + " < N: x[" + at + "/" + s + "]) }",
                                  {{"N", 7}});
      }
}

// The same with ranges over the taps: what bounds j for each o bounds o for each j.
TEST(GatherCount, TransposedConvolutionWithRanges) {
  expect_only_contributions(
      "op f(x: f64[N]) -> (y) { y[i in 0..2*N] = sum(j in max(0,(i-1)/2)..min(N,(i+1)/2+1) if 0 <= i+1-2*j && i+1-2*j < 3: x[j]) }",
      {{"N", 9}});
  expect_only_contributions(
      "op f(x: f64[H,W]) -> (y) { y[i in 0..2*H,k in 0..2*W] = sum(j in max(0,(i-1)/2)..min(H,(i+1)/2+1), "
      "l in max(0,(k-1)/2)..min(W,(k+1)/2+1) if 0 <= i+1-2*j && i+1-2*j < 3 && 0 <= k+1-2*l && k+1-2*l < 3: x[j,l]) }",
      {{"H", 5}, {"W", 4}});
  for (int kernel = 1; kernel <= 4; ++kernel)
    for (int stride = 1; stride <= 3; ++stride)
      for (int pad = 0; pad < kernel; ++pad) {
        std::string s = std::to_string(stride), first = "(i-" + std::to_string(kernel - pad) + ")/" + s + "+1",
                    end = "(i+" + std::to_string(pad) + ")/" + s + "+1";
        expect_only_contributions(
            "op f(x: f64[N]) -> (y) { y[i in 0.." + s + "*N] = sum(j in max(0," + first + ")..min(N," + end + "): x[j]) }", {{"N", 7}});
      }
}

TEST(GatherCount, RangesThatDependOnOuterAxes) {
  expect_only_contributions("op cumulative(x: f64[N]) -> (y) { y[i in 0..N] = sum(j in 0..i+1: x[j]) }", {{"N", 7}});
  expect_only_contributions("op later(x: f64[N]) -> (y) { y[i in 0..N] = sum(j in i..N: x[j]) }", {{"N", 7}});
  expect_only_contributions("op causal(x: f64[N]) -> (y) { y[i in 0..N] = sum(j if j <= i: x[j]) }", {{"N", 7}});
  expect_only_contributions("op window(x: f64[N]) -> (y) { y[i in 0..N] = sum(j in max(0,i-3)..min(N,i+4): x[j]) }", {{"N", 9}});
  expect_only_contributions("op pool(x: f64[N]) -> (y) { y[i in 0..(N+1)/2] = sum(j in max(0,2*i-1)..min(N,2*i+2): x[j]) }", {{"N", 9}});
  expect_only_contributions("op blocks(x: f64[N]) -> (y) { y[i in 0..N] = sum(j in i/4*4..min(N,i/4*4+4): x[j]) }", {{"N", 10}});
  expect_only_contributions("op band(x: f64[N,M]) -> (y) { y[i in 0..N] = sum(j in max(0,i-1)..min(N,i+2), k in 0..min(j+1,M): x[j,k]) }",
                            {{"N", 6}, {"M", 4}});
}

// A choice by an equation in a sum is a condition of it, also where several are added up: no definition runs over all edges and all vertices.
TEST(GatherCount, ChoicesInSums) {
  for (const char* body : {
           "sum(e: if i64(s[e]) == v then a[e] else 0)",
           "sum(e: if i64(s[e]) == v then (if i64(t[e]) < 3 then a[e] else 0) else 0)",
           "sum(e: (if i64(s[e]) == v then a[e] else 0) - (if i64(t[e]) == v then a[e]^2 else 0))",
           "sum(e if a[e] > 0: -(if i64(t[e]) == v && e > 1 then a[e] else 0))",
           "sum(e if i64(s[e]) == v: a[e]) - sum(e if i64(t[e]) == v: a[e])",
           "sum(e if i64(s[e]) == v: b[e]*0.5) + 2*sum(e if i64(t[e]) == v: a[e]*b[e])",
       }) {
    SCOPED_TRACE(body);
    const Program op =
        parse_op(std::string("op f(a: f64[E], s: i32[E], t: i32[E], z: f64[V]) -> (y) { b[e] = tanh(a[e])\n y[v] = z[v] + ") + body + " }");
    const Program derived = inline_injective(gather(lift_reductions(gradient(op), true)));
    for (const Definition& d : derived.definitions()) {
      const bool reduces = is_reduction((*derived.arena)[d.body].op);
      EXPECT_TRUE(!reduces || as_scatter(*derived.arena, d)) << print(derived);
    }
    const DimValues dims = {{"E", 40}, {"V", 7}};
    Arrays data = random_data(derived, dims, 2);
    for (size_t i = 0; i < 40; ++i) data.at("s").integers[i] = static_cast<int64_t>(i % 9) - 1;  // some outside
    EXPECT_EQ(difference(evaluate_on(gradient(op), data, dims), evaluate_on(derived, data, dims), 1e-12), "");
  }
}

TEST(GatherCount, Rearrangements) {
  expect_only_contributions("op flip(x: f64[N]) -> (y) { y[i in 0..N] = x[N-1-i] }", {{"N", 7}});
  expect_only_contributions("op t(x: f64[N,M]) -> (y) { y[i in 0..M,j in 0..N] = x[j,i] }", {{"N", 4}, {"M", 3}});
  expect_only_contributions("op split(x: f64[24]) -> (y) { y[i in 0..4,j in 0..6] = x[6*i+j] }", {});
  expect_only_contributions("op join(x: f64[4,6]) -> (y) { y[i in 0..24] = x[i/6,i%6] }", {});
  expect_only_contributions("op diagonal(x: f64[N,N]) -> (y) { y[i in 0..N] = x[i,i] }", {{"N", 6}});
  expect_only_contributions("op part(x: f64[N]) -> (y) { y[i in 0..N-3] = x[i+2] }", {{"N", 8}});
  expect_only_contributions(
      "op concat(x: f64[N], z: f64[M] const) -> (y) { y[i in 0..N+M] = if i < N then x[i else 0] else z[i-N else 0] }",
      {{"N", 5}, {"M", 4}});
}

}  // namespace
}  // namespace xhat::gather_count_test
