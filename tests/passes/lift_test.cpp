// What lifting a reduction must not change: which indices and which empty argmax are errors. (What it makes of programs is
// in tests/golden/reduce; that every random program ends in normal form, in property_test.cpp.)
#include "cse/normalize/lift_reductions.h"

#include <gtest/gtest.h>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "tests/helpers/golden.h"

namespace xhat::lift_test {
namespace {

using testing::difference;

Array f32(std::vector<double> values) {
  auto count = static_cast<int64_t>(values.size());
  return array_of(DType::f32, {count}, std::move(values));
}
Array i32(std::vector<double> values) {
  auto count = static_cast<int64_t>(values.size());
  return array_of(DType::i32, {count}, std::move(values));
}

// y, or "error: ...", by both programs; they must agree.
std::string outcome(const Program& p, const Arrays& in, Array& y) {
  try {
    y = evaluate(p, in).at("y");
    return "";
  } catch (const Error& e) {
    return e.message();
  }
}

void expect_same(const std::string& text, const Arrays& in, bool error) {
  Program p = parse_op(text), q = inline_injective(p);
  verify(q);
  EXPECT_EQ(print(parse_op(print(q))), print(q));
  Array before, after;
  std::string wrong = outcome(p, in, before), now = outcome(q, in, after);
  EXPECT_EQ(!wrong.empty(), error) << wrong;
  EXPECT_EQ(wrong.empty(), now.empty()) << wrong << "\n" << now << "\n" << print(q);
  EXPECT_EQ(difference({{"y", before}}, {{"y", after}}, 1e-12), "") << print(q);
}

// What is lifted lies as what it reads does.
TEST(Lift, DimensionsKeepTheOrderOfTheRead) {
  auto lifted = [](const std::string& text) { return print(lift_reductions(parse_op(text))); };
  EXPECT_NE(lifted("op f(t: f32[K,I,J]) -> (y) { y[j] = sum(i: min(k: t[k,i,j])) }").find("y_min[i,j]"), std::string::npos);
  // Of a product no read has both; of what is turned over they do not agree.
  EXPECT_NE(lifted("op f(p: f32[J,K], q: f32[I,K]) -> (y) { y[j] = sum(i: tanh(sum(k: p[j,k]*q[i,k]))) }").find("y_sum[j,i]"),
            std::string::npos);
  EXPECT_NE(lifted("op f(t: f32[K,J,J]) -> (y) { y[j] = sum(i: min(k: t[k,i,j] + t[k,j,i])) }").find("y_min[j,i]"), std::string::npos);
}

// What is wanted at the vertices of each face is no table of all faces and vertices.
TEST(Lift, NotOverPlacesThatDataFind) {
  const Program derived = gradient(parse_op(R"(op f(c: f32[F,3], w: f32[F], f: i32[F,3], z: f32[V]) -> (y) {
    y[v,d] = z[v]*sum(g,k if i64(f[g,k]) == v: c[g,d]*w[g]) })"));
  const Program lifted = inline_injective(gather(lift_reductions(derived, true)));
  const Id V = lifted.tensor(*lifted.find("z")).shape[0];
  for (const Definition& d : lifted.backward.definitions) {
    const auto& shape = lifted.tensors[d.target()].shape;
    EXPECT_TRUE(shape.size() < 2 || std::ranges::find(shape, V) == shape.end()) << print(lifted);
  }
}

TEST(Lift, IndicesAreErrorsWhereTheyWere) {
  // t is read if one p or one q is positive, over other axes each.
  const char* text =
      "op f(x: f32[N], p: f32[N], q: f32[M], t: f32[V], ids: i32[K]) -> (y) {\n"
      "  y = sum(a if p[a] > 0: x[a] * sum(k: t[ids[k]])) + sum(b if q[b] > 0: sum(k: t[ids[k]])) }";
  Arrays in = {{"x", f32({1, 2})}, {"p", f32({-1, -1})}, {"q", f32({-1, -2, -1})}, {"t", f32({5, 7})}, {"ids", i32({1, 9})}};
  expect_same(text, in, false);
  in["p"] = f32({-1, 1});
  expect_same(text, in, true);
  in["p"] = f32({-1, -1}), in["q"] = f32({-1, 1, -1});
  expect_same(text, in, true);
  in["ids"] = i32({1, 0});
  expect_same(text, in, false);
}

// A way over axes without values is no reason to forget the other.
TEST(Lift, AWayOverNothingHidesNoOther) {
  const char* text =
      "op f(p: f32[N], q: f32[M], t: f32[V], ids: i32[K]) -> (y) {\n"
      "  y = let g = sum(c in 0..N if p[c] > 0: sum(d in 0..N if p[d] > 0.5: sum(k: t[ids[k]]))) in "
      "sum(a if p[a] > 0: g) + sum(b if q[b] > 0: g) }";
  Arrays in = {{"p", f32({1, -1})}, {"q", f32({})}, {"t", f32({5, 7})}, {"ids", i32({1, 0})}};
  expect_same(text, in, false);
  in["ids"] = i32({1, 2});
  expect_same(text, in, true);
  in["p"] = f32({0.25, -1});
  expect_same(text, in, false);
}

TEST(Lift, RangesAroundAnIndexCount) {
  // ids[0] is read for n > 0 only, ids[n] never for the last n.
  const char* text = "op f(t: f32[V], ids: i32[N]) -> (y) { y[n in 0..N] = sum(a in 0..n: exp(sum(k in a..n: t[ids[k]]))) }";
  Arrays in = {{"t", f32({0.5, 0.25})}, {"ids", i32({1, 0, 9})}};
  expect_same(text, in, false);
  in["ids"] = i32({9, 0, 1});
  expect_same(text, in, true);
  expect_same(text, {{"t", f32({0.5})}, {"ids", i32({7})}}, false);
}

// A condition goes along to spare work, but not to where its own reads did not stand: ids[1] is never asked for.
TEST(Lift, ConditionsReadNothingNew) {
  const char* text =
      "op f(x: f32[N], t: f32[V], ids: i32[N]) -> (y) {\n"
      "  y[n in 0..N] = sum(a in 2*(n/2)..2*(n/2)+1: if t[ids[a]] > 0 then sum(k in 0..3: x[a]) else 0.5) }";
  Arrays in = {{"x", f32({1, 2, 3})}, {"t", f32({-0.5, 0.25})}, {"ids", i32({1, 9, 0})}};
  expect_same(text, in, false);
  in["ids"] = i32({1, 0, 9});
  expect_same(text, in, true);
}

TEST(Lift, EqualReductionsAreOne) {
  Program p = parse_op(
      "op f(x: f32[N,M], z: f32[M]) -> (y, s) {\n"
      "  s[i] = sum(k: x[i,k]*z[k])\n"
      "  y[a,b] = x[a,b] / sum(c in 0..M: x[a,c]*z[c]) + exp(sum(e in 0..M: x[a,e]*z[e])) }");
  std::string text = print(lift_reductions(ordered(p)));
  EXPECT_NE(text.find("y[a,b] = x[a,b] / s[a] + exp(s[a])"), std::string::npos) << text;
}

TEST(Lift, ReductionsInEachOthersConditions) {
  const char* text =
      "op f(x: f32[N], z: f32[N], t: f32[V], ids: i32[N]) -> (y) {\n"
      "  y[n] = (if x[n] > 0 then (if sum(k in 0..2: t[ids[n]]) > 0 then sum(l in 0..3: t[ids[n]]*z[n]) else 0.2) else 0.1) + "
      "(if z[n] > 0 then (if sum(l in 0..3: t[ids[n]]*z[n]) > 0 then sum(k in 0..2: t[ids[n]]) else 0.4) else 0.3) }";
  Arrays in = {{"x", f32({1, -1, 1, -1})}, {"z", f32({-1, 1, 1, -1})}, {"t", f32({5, -7})}, {"ids", i32({1, 0, 0, 1})}};
  expect_same(text, in, false);
  in["ids"] = i32({1, 0, 0, 8});  // neither x nor z is positive there
  expect_same(text, in, false);
  in["ids"] = i32({1, 8, 0, 1});
  expect_same(text, in, true);
}

TEST(Lift, ArgmaxOverNothingIsAnErrorWhereItWas) {
  const char* guarded =
      "op f(x: f32[N], p: f32[N]) -> (y) {\n"
      "  y = sum(b in 0..N if p[b] > 0: x[argmax(j in 0..b if x[j] < p[b]: x[j])]) }";
  Arrays in = {{"x", f32({3, 1, 2})}, {"p", f32({-1, 5, 2})}};
  expect_same(guarded, in, false);
  in["p"] = f32({1, 5, 2});  // b = 0: no j
  expect_same(guarded, in, true);
  in["p"] = f32({-1, 5, 0.5});  // b = 2: no x[j] below
  expect_same(guarded, in, true);
}

// Nor where an axis that it does not depend on has no values.
TEST(Lift, ArgmaxOverNothingIsNoErrorWhereNobodyAsks) {
  const char* text = "op f(x: f32[K], z: f32[N]) -> (y) { y = sum(n: z[n] * f32(argmax(k: x[k]))) }";
  expect_same(text, {{"x", f32({})}, {"z", f32({})}}, false);
  expect_same(text, {{"x", f32({})}, {"z", f32({1})}}, true);
  expect_same(text, {{"x", f32({1, 2})}, {"z", f32({1})}}, false);
}

// The table of products is over what the forward has it over, not over what gather writes for it.
TEST(Lift, BeforeGatherNothingDependsOnSteps) {
  Program p = parse_op(
      "op f(x: f32[N], z: f32[M]) -> (y) { y[j] = x[j%2 else 0] * z[j] } backward (dy: f32[M]) -> (grad_x) {\n"
      "  grad_x[n in 0..N] = sum(j in 0..M if j % 2 == n: dy[j] * prod(k in 0..3: z[j] + f32(k))) }");
  Program lifted = inline_injective(gather(lift_reductions(p, true))), later = inline_injective(gather(p));
  EXPECT_NE(print(lifted).find("_prod[j] = prod("), std::string::npos) << print(lifted);
  EXPECT_EQ(print(later).find("_prod[j] = prod("), std::string::npos) << print(later);
}

// What gather solves is left to it: else the table would be over i and n.
TEST(Lift, BeforeGatherEquationsStay) {
  Program p = parse_op(
      "op f(x: f32[N], w: f32[M]) -> (y) { y[i in 0..N+M] = x[i else 0] } backward (dy: f32[N+M]) -> (grad_x) {\n"
      "  grad_x[n in 0..N] = sum(i in 0..M: w[i] * sum(j in 0..N+M if j - i == n: dy[j])) }");
  EXPECT_EQ(print(lift_reductions(p, true)), print(p));
  Program q = inline_injective(gather(lift_reductions(p, true)));
  EXPECT_NE(print(q).find("grad_x[n in 0..N] = sum(i: w[i] * dy[i+n])"), std::string::npos) << print(q);
}

// A sum that is defined for some p alone, and needed under a condition that keeps p among them, is read: what is compared with its
// values is its values.
TEST(Lift, UnderAConditionADefinitionIsReadThatIsSmaller) {
  const struct {
    const char *text, *read;
  } cases[] = {
      {"op f(x: f32[N,K]) -> (m, y) { s[r in 0..2] = sum(k: x[r,k else 0]); m = min(r: s[r]);\n"
       "  y[p in 0..N] = if p < 2 then (if sum(k: x[p,k else 0]) == m then 1 else 0) else f32(2) }",
       "s[p else 0] == m"},
      {"op f(x: f32[N,K]) -> (m, y) { s[r in 0..N] = sum(k: x[r,k]); m = max(r: s[r]);\n"
       "  y[p in 0..N] = if p < 2 then (if sum(k: x[p,k]) == m then 1 else 0) else f32(2) }",
       "s[p] == m"},
      {"op f(x: f32[N,M,K]) -> (m, y) { s[r in 0..N, q in 0..3] = prod(k: x[r,q,k else 1]); m = max(r, q: s[r,q]);\n"
       "  y[p in 0..N, q in 0..M] = if q < 3 then (if prod(k: x[p,q,k]) == m then 1 else 0) else f32(2) }",
       nullptr},  // another body
  };
  for (const auto& c : cases) {
    Program p = parse_op(c.text), q = inline_injective(p);
    verify(q);
    EXPECT_EQ(print(q).find(c.read ? c.read : "s[p") != std::string::npos, c.read != nullptr) << print(q);
    for (const DimValues& sizes : {DimValues{{"N", 1}, {"K", 3}, {"M", 1}}, DimValues{{"N", 5}, {"K", 2}, {"M", 4}}}) {
      DimValues dims;
      for (const Dim& d : p.dims) dims[p.arena->name(d.dim)] = sizes.at(p.arena->name(d.dim));
      const Arrays data = testing::random_data(p, dims, 3);
      EXPECT_EQ(testing::difference(testing::evaluate_on(p, data, dims), testing::evaluate_on(q, data, dims), 0), "") << print(q);
    }
  }
}

}  // namespace
}  // namespace xhat::lift_test
