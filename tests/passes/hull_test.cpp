// Boxes around ranges that depend on other axes: as text, and against all points of small sizes.
#include "expr/index/hull.h"

#include <gtest/gtest.h>

#include "expr/eval/evaluate.h"

namespace xhat::hull_test {
namespace {

// The range of k, with i in 0..N and j in 0..i+1 around it, and what it is boxed in.
struct Boxed {
  const char* range;
  const char* box;
};
void PrintTo(const Boxed& b, std::ostream* out) { *out << b.range; }

class HullTest : public ::testing::TestWithParam<Boxed> {};

struct Parsed {
  Program p;
  Ranges ranges;
  AxisRange k;
};

Parsed parsed(const std::string& range) {
  Parsed r{parse_op("op f(x: f32[N,M]) -> (y) { y = sum(i in 0..N, j in 0..i+1, k in " + range + ": x[0,0 else 1]) }"), {}, {}};
  Id body = r.p.forward.definitions[0].body;
  for (Id id : reachable(*r.p.arena, body))
    if (is_reduction((*r.p.arena)[id].op))
      for (const AxisRange& x : reduce_axes((*r.p.arena)[id])) r.ranges[x.axis] = x;
  r.k = r.ranges.at(r.p.arena->axis("k"));
  return r;
}

TEST_P(HullTest, IsABoxOfDims) {
  Parsed r = parsed(GetParam().range);
  auto box = Hull(*r.p.arena, r.ranges).box(r.k);
  std::string text = box ? print(r.p, box->begin) + ".." + print(r.p, box->end) : "none";
  std::erase(text, ' ');
  EXPECT_EQ(text, GetParam().box);
}

TEST_P(HullTest, HoldsEveryPoint) {
  Parsed r = parsed(GetParam().range);
  Arena& a = *r.p.arena;
  auto box = Hull(a, r.ranges).box(r.k);
  if (!box) return;
  std::string range = GetParam().range, begin = range.substr(0, range.find("..")), end = range.substr(range.find("..") + 2);
  Program ends = parse_op("op g(x: f32[N,M]) -> (b, e) {\n b[i in 0..N, j in 0..N] = i64(" + begin +
                          ")\n e[i in 0..N, j in 0..N] = i64(" + end + ")\n}");
  for (int64_t n = 0; n < 6; ++n)
    for (int64_t m = 0; m < 4; ++m) {
      DimValues dims = {{"N", n}, {"M", m}};
      Arrays at = evaluate(ends, {{"x", zeros(DType::f32, {n, m})}}, dims);
      int64_t first = evaluate_extent(a, box->begin, dims), last = evaluate_extent(a, box->end, dims);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < i + 1; ++j) {
          auto k = static_cast<size_t>(i * n + j);
          if (at.at("b").integers[k] >= at.at("e").integers[k]) continue;
          EXPECT_LE(first, at.at("b").integers[k]) << "N = " << n << ", M = " << m << ", i = " << i << ", j = " << j;
          EXPECT_GE(last, at.at("e").integers[k]) << "N = " << n << ", M = " << m << ", i = " << i << ", j = " << j;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Ranges, HullTest,
    ::testing::Values(Boxed{"0..i+1", "0..N"}, Boxed{"i-2..i+3", "-2..N+2"}, Boxed{"0..N-i", "0..N"}, Boxed{"j..N-j", "0..N"},
                      Boxed{"2*i..2*i+j", "0..3*N-3"}, Boxed{"-2*i..3-i", "2-2*N..3"}, Boxed{"i/2..(i+1)/2+1", "0..N/2+1"},
                      Boxed{"i-j..i+1", "max(1-N,0)..N"}, Boxed{"j-i..j-i+1", "1-N..min(min(N-1,0)+1,1)"},
                      Boxed{"2*i-j..2*i-2*j+3", "max(1-N,0)..2*N+1"}, Boxed{"i%2..j%3", "0..min(2,N-1)"}, Boxed{"(i-3)%4..5", "0..5"},
                      Boxed{"i/M..i%M+1", "0..min(max(0,M-1),N-1)+1"}, Boxed{"0..i*j", "0..(N-1)*(N-1)"},
                      Boxed{"(i-j)*(j-2)..4", "-((N-1)*max(2,N-3))..4"}, Boxed{"0..min(i+1,M)", "0..min(N,M)"},
                      Boxed{"max(i,3)..M", "3..M"}, Boxed{"clamp(i,1,M)..9", "min(1,M)..9"}, Boxed{"abs(i-3)..9", "0..9"},
                      Boxed{"0..abs(j-3)", "0..max(3,N-4)"}, Boxed{"sign(i-1)..relu(j-1)", "-1..max(0,N-2)"},
                      Boxed{"(if i < 2 then 5 else j)..i^2", "0..max(1,N-1)^2"}, Boxed{"0..(i-4)^3", "0..max(1,max(4,N-5))^3"},
                      Boxed{"0..sum(l in 0..j: l + 1)", "0..max(0,N-1)*max(0,N-1)"}, Boxed{"0..argmax(l in 2..i+3: l%2)", "0..N+1"},
                      Boxed{"0..i64(f32(i)*0.5)", "0..max(0,N-1)+max(0,N-1)/64+1"},
                      Boxed{"i64(-2.5*sin(f32(i)))..i64(log(f32(i+1))*2)", "-4..2*N+2*N/64+1"},
                      Boxed{"0..i64(sqrt(f32(i))/0.3)", "0..4*max(1,N-1)+4*max(1,N-1)/64+1"}, Boxed{"0..i64(exp(f32(i)))", "none"},
                      Boxed{"0..min(i64(exp(f32(i))),M)", "0..M"}, Boxed{"i64(tan(f32(i)))..3", "none"}));

}  // namespace
}  // namespace xhat::hull_test
