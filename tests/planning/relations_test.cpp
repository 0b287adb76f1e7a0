// Element dependences: the maps in the notation of compiler documentation, what composing definitions gives, and the
// questions asked of them. N1 to N23 are the numbers of the claims in our notes on what must hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "expr/eval/evaluate.h"
#include "expr/index/simplify_index.h"
#include "fusion/relations/relations.h"

namespace xhat::fusion::relations_test {
namespace {

TensorId named(const Program& p, const std::string& name) { return p.find(name).value(); }

std::vector<std::string> maps(const Program& p, const std::string& output, const std::string& input) {
  std::vector<std::string> texts;
  for (const Relation& r : relations(p, named(p, output), named(p, input))) texts.push_back(to_text(p, r));
  return texts;
}

using Texts = std::vector<std::string>;

const char* const kChained = R"(op chained(A: f32[8,8], B: f32[8,8], D: f32[8,8], G: f32[8,8]) -> (C, E, F) {
  C[i,j] = sum(k: A[i,k] * B[j,k])
  E[i,j] = sum(k: C[i,k] * D[j,k])
  F[i,j] = sum(k: E[i,k] * G[j,k])
})";

struct MapRow {
  const char* name;
  const char* text;
  const char* output;
  const char* input;
  Texts maps;
};

const MapRow kMaps[] = {
    {"N1", kChained, "C", "A", {"(d0, d1)[s0] -> (d0, s0)"}},
    {"N1", kChained, "C", "B", {"(d0, d1)[s0] -> (d1, s0)"}},
    {"N2", kChained, "E", "C", {"(d0, d1)[s0] -> (d0, s0)"}},
    {"N2", kChained, "E", "D", {"(d0, d1)[s0] -> (d1, s0)"}},
    {"N3", kChained, "E", "A", {"(d0, d1)[s0] -> (d0, s0)"}},
    {"N3_a_row_became_a_variable", kChained, "E", "B", {"(d0, d1)[s0, s1] -> (s0, s1)"}},
    {"N6", kChained, "F", "A", {"(d0, d1)[s0] -> (d0, s0)"}},
    {"N6", kChained, "F", "B", {"(d0, d1)[s0, s1] -> (s0, s1)"}},
    {"N6", kChained, "F", "D", {"(d0, d1)[s0, s1] -> (s0, s1)"}},
    {"N6", kChained, "F", "G", {"(d0, d1)[s0] -> (d1, s0)"}},
    {"N11_broadcast", "op f(x: f32[20]) -> (y) { y[i in 0..10, j in 0..20, k in 0..30] = x[j] }", "y", "x",
     {"(d0, d1, d2) -> (d1)"}},
    {"N12_reduce", "op f(x: f32[2,4,8,16]) -> (y) { y[i,j] = sum(k, l: x[k,i,j,l]) }", "y", "x",
     {"(d0, d1)[s0, s1] -> (s0, d0, d1, s1)"}},
    {"N13_transpose",
     "op f(x: f32[3,12288,6,128]) -> (y) { y[a in 0..3, b in 0..6, c in 0..128, d in 0..12288] = x[a,d,b,c] }", "y", "x",
     {"(d0, d1, d2, d3) -> (d0, d3, d1, d2)"}},
    {"N14_slice", "op f(x: f32[10,20,50]) -> (y) { y[i in 0..5, j in 0..3, k in 0..25] = x[i+5, 7*j+3, 2*k] }", "y", "x",
     {"(d0, d1, d2) -> (d0 + 5, 7 * d1 + 3, 2 * d2)"}},
    {"N15_reshape",
     "op f(x: f32[4,8]) -> (y) { y[i in 0..2, j in 0..4, k in 0..4] = x[(16*i+4*j+k)/8, (16*i+4*j+k)%8] }", "y", "x",
     {"(d0, d1, d2) -> (2 * d0 + d1 / 2, d2 + 4 * (d1 % 2))"}},
    {"N17_dot", "op f(l: f32[4,128,256], r: f32[4,256,64]) -> (y) { y[b,i,j] = sum(k: l[b,i,k] * r[b,k,j]) }", "y", "l",
     {"(d0, d1, d2)[s0] -> (d0, d1, s0)"}},
    {"N17_dot", "op f(l: f32[4,128,256], r: f32[4,256,64]) -> (y) { y[b,i,j] = sum(k: l[b,i,k] * r[b,k,j]) }", "y", "r",
     {"(d0, d1, d2)[s0] -> (d0, s0, d2)"}},
    {"N19", "op f(p: f32[N,N]) -> (y) { t[i,j] = p[j,i]; y[i,j] = p[i,j] + t[i,j] }", "y", "p",
     {"(d0, d1) -> (d0, d1)", "(d0, d1) -> (d1, d0)"}},
    {"N20_two_ways_to_one_map",
     R"(op f(x: f32[20,10,50]) -> (y) {
          a[i,j,k] = x[k,i,j]
          e[i,j,k] = exp(a[i,j,k])
          b[k,j,i] = x[k,i,j]
          c[i,j,k] = exp(b[k,j,i])
          y[i,j,k] = e[i,j,k] + c[i,j,k]
        })",
     "y", "x", {"(d0, d1, d2) -> (d2, d0, d1)"}},
    {"N21_softmax",
     R"(op f(x: f32[2,65,125]) -> (y) {
          m[a,i] = max(j: x[a,i,j])
          e[a,i,j] = exp(x[a,i,j] - m[a,i])
          y[a,i,j] = e[a,i,j] / sum(k: e[a,i,k])
        })",
     "y", "x", {"(d0, d1, d2) -> (d0, d1, d2)", "(d0, d1, d2)[s0] -> (d0, d1, s0)"}},
    {"N22_reshape_and_back",
     R"(op f(x: f32[10,10,10]) -> (y) {
          r[i in 0..50, j in 0..20] = x[(20*i+j)/100, (20*i+j)/10%10, (20*i+j)%10]
          y[a in 0..10, b in 0..10, c in 0..10] = r[(100*a+10*b+c)/20, (100*a+10*b+c)%20]
        })",
     "y", "x", {"(d0, d1, d2) -> (d0, d1, d2)"}},
    {"N23_small_ranges", "op f(x: f32[8,16]) -> (y) { y[i in 0..7, j in 0..15] = x[i + j/16, j%16] }", "y", "x",
     {"(d0, d1) -> (d0, d1)"}},
    // The rows of a band; a variable's range may depend on an axis.
    {"band", "op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(j in 0..i+1: x[j]) }", "y", "x", {"(d0)[s0] -> (s0)"}},
    {"data_decide", "op f(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[ids[b], d] }", "y", "t",
     {"(d0, d1){rt0} -> (rt0, d1)"}},
};

TEST(Relations, Maps) {
  for (const MapRow& row : kMaps) {
    Program p = parse_op(row.text);
    Texts got = maps(p, row.output, row.input), want = row.maps;
    std::ranges::sort(got);
    std::ranges::sort(want);
    EXPECT_EQ(got, want) << row.name << ": " << row.output << " of " << row.input;
  }
}

TEST(Relations, N16_ConcatIsThreeMapsWithDisjointDomains) {
  Program p = parse_op(R"(op f(a: f32[2,5,7], b: f32[2,11,7], c: f32[2,17,7]) -> (y) {
    y[i, j in 0..33, k in 0..7] = if j < 5 then a[i,j,k] else if j < 16 then b[i,j-5,k] else c[i,j-16,k]
  })");
  struct Part {
    const char *input, *map, *domain;
  };
  for (const Part& part : {Part{"a", "(d0, d1, d2) -> (d0, d1, d2)", "d0 in [0, 1], d1 in [0, 4], d2 in [0, 6]"},
                           Part{"b", "(d0, d1, d2) -> (d0, d1 - 5, d2)", "d0 in [0, 1], d1 in [5, 15], d2 in [0, 6]"},
                           Part{"c", "(d0, d1, d2) -> (d0, d1 - 16, d2)", "d0 in [0, 1], d1 in [16, 32], d2 in [0, 6]"}}) {
    auto found = relations(p, named(p, "y"), named(p, part.input));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(to_text(p, found[0]), part.map);
    EXPECT_EQ(domain_text(p, found[0], {}), part.domain);
  }
}

TEST(Relations, N18_UpdateOfASliceAtPlacesKnownWhenItRuns) {
  Program p = parse_op(R"(op f(x: f32[20,30], u: f32[5,10], at: i32[2]) -> (y) {
    y[i,j] = (let r = i64(clamp(at[0], 0, 15)) in let c = i64(clamp(at[1], 0, 20)) in
              if r <= i && i < r + 5 && c <= j && j < c + 10 then u[i - r, j - c else 0] else x[i,j])
  })");
  auto found = relations(p, named(p, "y"), named(p, "u"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(to_text(p, found[0]), "(d0, d1){rt0, rt1} -> (d0 - rt0, d1 - rt1)");
  std::string domain = domain_text(p, found[0], {});
  EXPECT_NE(domain.find("rt0 in [0, 15], rt1 in [0, 20]"), std::string::npos) << domain;
  auto rest = relations(p, named(p, "y"), named(p, "x"));
  for (const Relation& r : rest) EXPECT_EQ(to_text(p, r), "(d0, d1) -> (d0, d1)");
}

Footprint needs(const Program& p, const std::string& output, const std::string& input, const Box& tile,
                const DimValues& sizes = {}) {
  auto found = relations(p, named(p, output), named(p, input));
  auto f = footprint(p, found, tile, sizes);
  EXPECT_TRUE(f.has_value());
  return f.value_or(Footprint{});
}

TEST(Relations, FootprintsOfChainedProducts) {
  Program p = parse_op(kChained);
  const Box one = {{2, 2}, {5, 5}};
  struct Want {
    const char *output, *input;
    Box box;
    int64_t elements;
  };
  for (const Want& w : {Want{"C", "A", {{2, 2}, {0, 7}}, 8}, Want{"C", "B", {{5, 5}, {0, 7}}, 8},
                        Want{"E", "A", {{2, 2}, {0, 7}}, 8}, Want{"E", "B", {{0, 7}, {0, 7}}, 64},
                        Want{"E", "D", {{5, 5}, {0, 7}}, 8}, Want{"F", "B", {{0, 7}, {0, 7}}, 64},
                        Want{"F", "D", {{0, 7}, {0, 7}}, 64}, Want{"F", "G", {{5, 5}, {0, 7}}, 8}}) {
    Footprint f = needs(p, w.output, w.input, one);
    EXPECT_EQ(f.box, w.box) << w.output << " of " << w.input;
    EXPECT_EQ(f.elements, w.elements) << w.output << " of " << w.input;
  }
}

TEST(Relations, N5_GranularityOfChainedProducts) {
  Program p = parse_op(kChained);
  auto flops = [&](std::vector<int64_t> tile) {
    return 64 * 16 + *recompute_factor(p, named(p, "E"), named(p, "C"), tile, {}) * 64 * 16;
  };
  EXPECT_EQ(flops({1, 8}), 2048);  // a row of C for each row of E
  EXPECT_EQ(flops({1, 1}), 9216);  // C inlined
}

TEST(Relations, N7_HaloOfTwoConvolutions) {
  const char* text = R"(op f(A: f32[N,N], v: f32[3,3], w: f32[3,3]) -> (E) {
    C[i in 0..N-2, j in 0..N-2] = sum(r, s: A[i+r, j+s] * v[r,s])
    E[i in 0..N-4, j in 0..N-4] = sum(r, s: C[i+r, j+s] * w[r,s])
  })";
  Program p = parse_op(text);
  DimValues small = {{"N", 10}};
  EXPECT_EQ(needs(p, "E", "C", {{1, 1}, {2, 2}}, small).box, (Box{{1, 3}, {2, 4}}));
  EXPECT_EQ(needs(p, "E", "A", {{1, 1}, {2, 2}}, small).box, (Box{{1, 5}, {2, 6}}));
  EXPECT_EQ(needs(p, "E", "A", {{1, 1}, {2, 2}}, small).elements, 25);
  // Of a large image: ((t+2)/t)^2.
  DimValues large = {{"N", 4804}};
  TensorId e = named(p, "E"), c = named(p, "C");
  EXPECT_NEAR(*recompute_factor(p, e, c, std::vector<int64_t>{4, 4}, large), 2.25, 0.003);
  EXPECT_NEAR(*recompute_factor(p, e, c, std::vector<int64_t>{8, 8}, large), 1.5625, 0.003);
  auto found = relations(p, e, c);
  ASSERT_EQ(found.size(), 1u);
  auto along = alignment(p, found[0], small);
  ASSERT_TRUE(along[0] && along[1]);
  EXPECT_EQ(along[0]->axis, 0u);
  EXPECT_EQ(along[0]->stride, 1);
  EXPECT_EQ(along[0]->window, 3);  // a halo of 2
}

TEST(Relations, N8_AttentionNeedsARowOfQAndAllOfKAndV) {
  Program p = parse_op(R"(op f(q: f32[S,D], k: f32[T,D], v: f32[T,D]) -> (o) {
    s[i,j] = sum(d: q[i,d] * k[j,d])
    m[i] = max(j: s[i,j])
    p[i,j] = exp(s[i,j] - m[i])
    o[i,d] = sum(j: p[i,j] * v[j,d]) / sum(j: p[i,j])
  })");
  DimValues sizes = {{"S", 6}, {"T", 5}, {"D", 4}};
  const Box row = {{2, 2}, {0, 3}};
  EXPECT_EQ(needs(p, "o", "q", row, sizes).box, (Box{{2, 2}, {0, 3}}));
  EXPECT_EQ(needs(p, "o", "k", row, sizes).elements, 20);
  EXPECT_EQ(needs(p, "o", "v", row, sizes).elements, 20);
  EXPECT_EQ(fusion_obstacle(p, std::vector<TensorId>{named(p, "s"), named(p, "m"), named(p, "p"), named(p, "o")}),
            std::nullopt);
}

// A reduction split across workers has the same dependences, but its second step needs every worker: nothing of the
// partial results moves with a worker's share.
TEST(Relations, N10_ASplitReductionNeedsTheSameAndASync) {
  Program whole = parse_op("op f(x: f32[4,32]) -> (y) { y[i] = sum(k: x[i,k]) }");
  Program split = parse_op(R"(op f(x: f32[4,32]) -> (y) {
    part[i, w in 0..8] = sum(k in 0..4: x[i, 4*w+k])
    y[i] = sum(w: part[i,w])
  })");
  for (int64_t i = 0; i < 4; ++i) {
    Footprint a = needs(whole, "y", "x", {{i, i}}), b = needs(split, "y", "x", {{i, i}});
    EXPECT_EQ(a.box, b.box);
    EXPECT_EQ(a.elements, b.elements);
  }
  auto last = relations(split, named(split, "y"), named(split, "part"));
  auto along = alignment(split, last.at(0), {});
  EXPECT_TRUE(along[0].has_value());
  EXPECT_FALSE(along[1].has_value());
}

// One kernel of two products keeps all columns of the first: its second index does not move with the result.
TEST(Relations, N25_TheFirstProductOfTwoIsNeededOverItsWholeWidth) {
  Program p = parse_op(R"(op f(x: f32[640,576], w: f32[576,64], v: f32[64,128]) -> (y) {
    h[m,n] = sum(k: x[m,k] * w[k,n])
    r[m,n] = relu(h[m,n])
    y[m,n] = sum(k: r[m,k] * v[k,n])
  })");
  auto along = alignment(p, relations(p, named(p, "y"), named(p, "h")).at(0), {});
  ASSERT_TRUE(along[0].has_value());
  EXPECT_EQ(along[0]->window, 1);
  EXPECT_FALSE(along[1].has_value());
  EXPECT_EQ(needs(p, "y", "h", {{32, 63}, {0, 31}}).box, (Box{{32, 63}, {0, 63}}));
}

TEST(Relations, AlignmentKnowsStridesFlipsAndWindows) {
  struct Want {
    const char* index;
    std::optional<std::array<int64_t, 2>> stride_window;
  };
  for (const Want& w : {Want{"i", {{1, 1}}}, Want{"2*i+r", {{2, 3}}}, Want{"98-i", {{-1, 1}}}, Want{"3*i-2*r+4", {{3, 5}}},
                        Want{"i/2", std::nullopt}, Want{"r", std::nullopt}, Want{"i+j", std::nullopt}}) {
    Program p = parse_op(std::string("op f(x: f32[200]) -> (y) { y[i in 0..50, j in 0..20] = sum(r in 0..3: x[") + w.index +
                         " else 0] * x[r]) }");
    std::vector<Relation> direct = direct_relations(p, p.forward.definitions[0]);
    std::optional<Alignment> got;
    for (const Relation& r : direct)
      if (auto along = alignment(p, r, {}); along[0]) got = along[0];
    ASSERT_EQ(got.has_value(), w.stride_window.has_value()) << w.index;
    if (!got) continue;
    EXPECT_EQ(got->stride, (*w.stride_window)[0]) << w.index;
    EXPECT_EQ(got->window, (*w.stride_window)[1]) << w.index;
  }
}

TEST(Relations, AValueThatLeavesAndComesBackIsAnObstacle) {
  Program p = parse_op(R"(op f(x: f32[N]) -> (y) {
    a[i] = exp(x[i])
    b[i] = sum(j: a[j]) * a[i]
    y[i] = a[i] + b[i]
  })");
  auto ids = [&](const std::string& letters) {
    std::vector<TensorId> t;
    for (char c : letters) t.push_back(named(p, std::string(1, c)));
    return t;
  };
  EXPECT_EQ(fusion_obstacle(p, ids("ay")), "y needs b, which is computed outside from a");
  for (const char* fine : {"ab", "by", "aby", "a"}) EXPECT_EQ(fusion_obstacle(p, ids(fine)), std::nullopt) << fine;
}

struct KindRow {
  const char* definition;  // of y, over x: f32[N,D], v: f32[D], w: f32[D,K], one: f32[1,D], m: f32[N], ids: i32[N], sq: f32[N,N]
  OpKind kind;
};

const KindRow kKinds[] = {
    {"y[n,d] = exp(x[n,d]) + x[n,d] * 2", OpKind::elemwise},
    {"y[n in 0..N, d in 0..D] = 1", OpKind::elemwise},
    {"y[n,d] = x[n,d] * v[d]", OpKind::broadcast},
    {"y[n,d] = x[n,d] + one[0,d]", OpKind::broadcast},
    {"y[n in 0..N, d in 0..D] = v[d]", OpKind::broadcast},
    {"y[n,d] = x[n,d] - x[n,0]", OpKind::injective},
    {"y[d,n] = x[n,d]", OpKind::injective},
    {"y[i in 0..N, j in 0..N] = sq[j,i] + sq[i,j]", OpKind::injective},
    {"y[i in 0..N*D] = x[i/D, i%D]", OpKind::injective},
    {"y[n in 0..N, d in 0..D-1] = x[n,d+1]", OpKind::injective},
    {"y[n in 0..N/2, d] = x[n,d]", OpKind::injective},
    {"y[n in 0..N, d in 0..D] = x[N-1-n,d]", OpKind::injective},
    {"y[n,d in 0..D] = x[ids[n],d]", OpKind::injective},
    {"y[n, d in 0..2*D] = if d < D then x[n,d] else x[n,d-D]", OpKind::injective},
    {"y[n] = sum(d: x[n,d])", OpKind::comm_reduce},
    {"y[d] = max(n: x[n,d])", OpKind::comm_reduce},
    {"y[n] = sum(d: (x[n,d] - m[n])^2)", OpKind::comm_reduce},
    {"y[d] = sum(n: x[n,d] * (x[n,d] - m[n]))", OpKind::comm_reduce},
    {"y[n] = sum(d: x[n,d] * (x[n,d] * 2))", OpKind::comm_reduce},
    {"y[n] = sum(d if x[n,d] > 0: 1)", OpKind::comm_reduce},
    {"y = sum(n, d: x[n,d] * v[d])", OpKind::comm_reduce},
    {"y[n] = argmax(d: x[n,d])", OpKind::comm_reduce},
    {"y[n,k] = sum(d: x[n,d] * w[d,k])", OpKind::out_fusable},
    {"y[n] = sum(d: x[n,d] * v[d])", OpKind::out_fusable},
    {"y[n, i in 0..D] = sum(r in 0..3: x[n,i+r-1 else 0])", OpKind::out_fusable},
    {"y[n, i in 0..D/2] = max(r in 0..2: x[n,2*i+r])", OpKind::out_fusable},
    {"y[n in 0..N] = sum(d in 0..n+1: v[d else 0])", OpKind::out_fusable},
    {"y[n,d] = x[n,d] / sum(k: x[n,k])", OpKind::opaque},
    {"y[k in 0..8, d in 0..D] = sum(n if ids[n] == k: x[n,d])", OpKind::opaque},
};

TEST(Relations, KindsAreReadOffTheRelations) {
  for (const KindRow& row : kKinds) {
    Program p = parse_op(
        std::string("op f(x: f32[N,D], v: f32[D], w: f32[D,K], one: f32[1,D], m: f32[N], ids: i32[N], sq: f32[N,N]) -> (y) {\n") +
        row.definition + "\n}");
    EXPECT_EQ(name_of(kind_of(p, p.forward.definitions.back())), name_of(row.kind)) << row.definition;
  }
}

// What an element of the result depends on, found out by making one element of the input NaN after the other.
TEST(Relations, FootprintsAreWhatTheEvaluatorReads) {
  struct Sized {
    const char* text;
    DimValues sizes;
  };
  for (const Sized& s : {
           Sized{kChained, {}},
           Sized{"op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(j in 0..i+1: x[j]) }", {{"N", 6}}},
           Sized{"op f(x: f32[N]) -> (y) { c[i in 0..N] = sum(r in 0..3: x[i+r-1 else 0]); y[i in 0..(N+1)/2] = c[2*i] * c[N-1-i] }",
                 {{"N", 9}}},
           Sized{"op f(x: f32[4,6]) -> (y) { t[i in 0..6, j in 0..4] = x[(4*i+j)/6, (4*i+j)%6]; y[i] = max(j: t[i,j]) }", {}},
           Sized{"op f(x: f32[N,M]) -> (y) { y[i in 0..N, j in 0..2*M] = if j < M then x[i,j] else x[i,j-M] + x[i,M-1] }",
                 {{"N", 3}, {"M", 4}}},
           Sized{"op f(x: f32[8,8]) -> (y) { m[i] = max(j if j <= i: x[i,j]); y[i,j] = if i > j then x[j,i] - m[i] else m[j] }", {}},
       }) {
    Program p = parse_op(s.text);
    const TensorId input = p.inputs[0], output = p.outputs.back();
    auto all = relations(p, output, input);
    Arrays plain;
    for (TensorId t : p.inputs) {
      Array& values = plain[p.tensors[t].name] = zeros(p.tensors[t].type, shape_of(p, t, s.sizes));
      for (size_t i = 0; i < values.size(); ++i) values.reals[i] = 1 + 0.25 * static_cast<double>(i);
    }
    const std::string& name = p.tensors[input].name;
    const std::vector<int64_t> shape = shape_of(p, output, s.sizes);
    std::vector<int64_t> depends(static_cast<size_t>(element_count(shape)), 0);
    for (size_t i = 0; i < plain.at(name).size(); ++i) {
      Arrays poked = plain;
      poked.at(name).reals[i] = std::numeric_limits<double>::quiet_NaN();
      const Array y = evaluate(p, poked, s.sizes).at(p.tensors[output].name);
      for (size_t k = 0; k < depends.size(); ++k) depends[k] += std::isnan(y.at(k));
    }
    for (size_t k = 0; k < depends.size(); ++k) {
      Box tile;
      for (int64_t at : position_of(k, shape)) tile.emplace_back(at, at);
      auto f = footprint(p, all, tile, s.sizes);
      EXPECT_EQ(f ? f->elements : 0, depends[k]) << s.text << " " << k;
    }
  }
}

TEST(Relations, IndicesAreSimplifiedByTheirRanges) {
  struct Want {
    const char *index, *simple;
  };
  for (const Want& w :
       {Want{"(20*i+j)/20", "i"}, Want{"(20*i+j)%20", "j"}, Want{"(i/20)*20 + i%20", "i"}, Want{"(4*i+j%4)/8", "i / 2"},
        Want{"(4*i+j%4)%8", "j % 4 + 4 * (i % 2)"}, Want{"(40*i+2*j+7)/20", "2 * i + (j + 3) / 10"}, Want{"(i+20)%20", "i % 20"},
        Want{"(20*i+j+1)/20", "i + (j + 1) / 20"}, Want{"i - i/7*7", "i - 7 * (i / 7)"}, Want{"(i - i%2)/2", "i / 2"},
        Want{"(i+1 - ((i+1)%2 + 2*j))/2", "(i + 1) / 2 - j"}, Want{"((i+2)%3 + 1)%3", "i % 3"},
        Want{"(2*((i+1)%6) + j)%4", "(2 * i + j + 2) % 4"}, Want{"(i%2+1)/2 + i/2", "(i + 1) / 2"},
        Want{"((i+1)%2 + 2*j + 1 - 2*(i/2) - ((i+1)%2 + 2*j + 1)%2)/2", "j - (i + 1) / 2 + 1"}}) {
    Program p = parse_op(std::string("op f(x: f32[9000]) -> (y) { y[i in 0..50, j in 0..20] = x[") + w.index + " else 0] }");
    const Definition& d = p.forward.definitions[0];
    Id index = read_indices((*p.arena)[d.body])[0];
    EXPECT_EQ(print(p, simplified_index(*p.arena, index, d.axes)), w.simple) << w.index;
  }
}

}  // namespace
}  // namespace xhat::fusion::relations_test
