// The kernel planner: which definitions share a kernel, what is tiled, what is counted.
#include <gtest/gtest.h>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/simple_indices.h"
#include "cse/stash/stash_planner.h"
#include "fusion/plan/plan.h"
#include "fusion/relations/scatter.h"

namespace xhat::fusion_test {
namespace {

KernelPlan forward_plan(const std::string& text, const DimValues& sizes, const PlanRequest& request = {}) {
  return plan_kernels(infer_program(inline_injective(parse_op(text))), sizes, request);
}

Program with_backward(const std::string& text) {
  return inline_injective(plan_stash(inline_injective(gather(gradient(parse_op(text))))).program);
}

const Kernel& only(const KernelPlan& p) {
  EXPECT_EQ(p.kernels.size(), 1u);
  return p.kernels.at(0);
}

std::vector<std::string> shared(const Kernel& k) {
  std::vector<std::string> names;
  for (int c : k.shared) names.push_back(k.axes[static_cast<size_t>(c)].name);
  return names;
}

using Names = std::vector<std::string>;

const char* const kSoftmax = R"(op softmax(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d])
  e[n,d] = exp(x[n,d] - m[n])
  y[n,d] = e[n,d] / sum(k: e[n,k])
})";
const char* const kLayerNorm = R"(op layer_norm(x: f32[N,D], g: f32[D], b: f32[D]) -> (y) {
  mean[n] = sum(d: x[n,d]) / D
  var[n] = sum(d: (x[n,d] - mean[n])^2) / D
  y[n,d] = g[d] * (x[n,d] - mean[n]) / sqrt(var[n] + 1e-5) + b[d]
})";
const char* const kBatchNorm = R"(op batch_norm(x: f32[N,C,H,W], g: f32[C], b: f32[C]) -> (y) {
  mean[c] = sum(n,h,w: x[n,c,h,w]) / (N*H*W)
  var[c] = sum(n,h,w: (x[n,c,h,w] - mean[c])^2) / (N*H*W)
  y[n,c,h,w] = g[c] * (x[n,c,h,w] - mean[c]) / sqrt(var[c] + 1e-5) + b[c]
})";

TEST(Fusion, SoftmaxIsOneKernelOverRows) {
  KernelPlan p = forward_plan(kSoftmax, {{"N", 4096}, {"D", 1024}});
  const Kernel& k = only(p);
  EXPECT_EQ(shared(k), Names{"n"});
  EXPECT_FALSE(k.combines_partials);
  EXPECT_EQ(p.reductions, 2);
  EXPECT_EQ(p.bytes_unavoidable, 2 * 4 * 4096 * 1024);
  EXPECT_EQ(p.bytes_moved, p.bytes_unavoidable);
}

TEST(Fusion, LayerNormBackwardIsOneSweepWithPartialSums) {
  Program p = with_backward(kLayerNorm);
  DimValues sizes = {{"N", 4096}, {"D", 1024}};
  EXPECT_EQ(plan_kernels(forward_program(p), sizes).kernels.size(), 1u);
  KernelPlan b = plan_kernels(backward_program(p), sizes);
  const Kernel& k = only(b);
  EXPECT_EQ(shared(k), Names{"n"});
  EXPECT_TRUE(k.combines_partials);
  EXPECT_EQ(k.results.size(), 3u);
  EXPECT_LE(b.reductions, 4);
}

// A product's gradients by both operands read dy, but neither is of use to the other: partial results would be many times
// the result.
TEST(Fusion, WhatWouldMoveMoreBytesStaysApart) {
  Program p = with_backward("op f(x: f32[N,I], w: f32[I,O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o])) }");
  KernelPlan b = plan_kernels(backward_program(p), {{"N", 512}, {"I", 1024}, {"O", 1024}});
  EXPECT_LE(b.bytes_moved, 2 * b.bytes_unavoidable);
  EXPECT_GE(b.kernels.size(), 2u);
}

TEST(Fusion, BatchNormGoesByChannelWhereAChannelFits) {
  Program p = with_backward(kBatchNorm);
  DimValues sizes = {{"N", 32}, {"C", 64}, {"H", 56}, {"W", 56}};
  for (const Program& direction : {forward_program(p), backward_program(p)}) {
    KernelPlan plan = plan_kernels(direction, sizes);
    EXPECT_EQ(shared(only(plan)), Names{"c"});
    EXPECT_EQ(plan.bytes_moved, plan.bytes_unavoidable);
  }
  // A channel of 100 MB does not: statistics first, then the map, each in tiles that do.
  KernelPlan large = plan_kernels(backward_program(p), {{"N", 64}, {"C", 8}, {"H", 448}, {"W", 448}});
  EXPECT_GE(large.kernels.size(), 2u);
  EXPECT_GT(large.bytes_moved, large.bytes_unavoidable);
}

TEST(Fusion, SumOfEverythingLeavesPartials) {
  KernelPlan p = forward_plan("op f(x: f32[N]) -> (s) { s = sum(i: x[i]) }", {{"N", 1 << 22}});
  const Kernel& k = only(p);
  EXPECT_TRUE(k.combines_partials);
  EXPECT_EQ(shared(k), Names{"i"});
  EXPECT_LT(k.axes[static_cast<size_t>(k.shared[0])].tile, 1 << 20);
}

// The root is taken where the sum is finished. b, which was written between them, reads neither: it is one sweep with the sum.
TEST(Fusion, WhatIsLeftToDoWithASumFollowsIt) {
  const DimValues sizes = {{"N", 1 << 22}, {"M", 1 << 20}};
  KernelPlan p = forward_plan("op f(x: f32[N], z: f32[M]) -> (b, y) { s = sum(i: x[i]); b[j] = z[j] * 2; y = sqrt(s) / N }", sizes);
  ASSERT_EQ(p.kernels.size(), 3u);
  EXPECT_EQ(p.sweeps(), 1);
  for (size_t i : {0u, 1u, 2u}) EXPECT_EQ(p.kernels[i].name, (Names{"s", "b", "y"})[i]);
  EXPECT_TRUE(p.kernels[1].horizontal);
  EXPECT_TRUE(p.kernels[2].epilogue);
  // Not if it is more than a small tile.
  EXPECT_EQ(forward_plan("op f(x: f32[N]) -> (y) { s = sum(i: x[i]); y[i] = x[i] / s }", sizes).sweeps(), 2);
}

TEST(Fusion, ColumnSumsWalkMemoryInOrder) {
  KernelPlan p = forward_plan("op f(x: f32[N,D]) -> (s) { s[d] = sum(n: x[n,d]) }", {{"N", 8192}, {"D", 1024}});
  const Kernel& k = only(p);
  EXPECT_EQ(shared(k), (Names{"n", "d"}));
  EXPECT_EQ(k.axes[static_cast<size_t>(k.shared[1])].tile, 1024);
  EXPECT_TRUE(k.combines_partials);
}

TEST(Fusion, SiblingsThatReadTheSameShareAKernel) {
  KernelPlan p = forward_plan("op f(x: f32[N,D]) -> (a, b, c) { a[n] = sum(d: x[n,d]); b[n] = max(d: x[n,d]); c[n,d] = x[n,d] * 2 }",
                              {{"N", 1000}, {"D", 1000}});
  EXPECT_EQ(p.kernels.size(), 1u);
}

TEST(Fusion, StrangersDoNot) {
  KernelPlan p = forward_plan("op f(x: f32[N], z: f32[M]) -> (a, b) { a[i] = x[i] * 2; b[j] = z[j] * 3 }", {{"N", 100000}, {"M", 200000}});
  EXPECT_EQ(p.kernels.size(), 2u);
}

TEST(Fusion, AProducerReadElsewhereAlongAnAxisIsComplete) {
  // s is read at n-1 too: it must be whole before y starts, so n cannot be tiled through both.
  KernelPlan p =
      forward_plan("op f(x: f32[N,D]) -> (y) { s[n] = sum(d: x[n,d]); y[n,d] = x[n,d] + s[n] + s[N-1-n] }", {{"N", 4096}, {"D", 1024}});
  EXPECT_EQ(p.kernels.size(), 2u);
}

TEST(Fusion, OffKeepsEveryDefinitionApart) {
  PlanRequest off;
  off.options.policy = FusePolicy::off;
  KernelPlan p = forward_plan(kSoftmax, {{"N", 4096}, {"D", 1024}}, off);
  EXPECT_EQ(p.kernels.size(), 3u);
  EXPECT_GT(p.bytes_moved, p.bytes_unavoidable);
}

TEST(Fusion, SmallWorkIsOneTile) {
  KernelPlan p = forward_plan("op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d] * 2 }", {{"N", 16}, {"D", 16}});
  for (const KernelAxis& a : only(p).axes) EXPECT_EQ(a.tile, a.extent);
}

// Operands of 42 KB are small, but with results of 67 they take more than one tile.
TEST(Fusion, SmallProductsAreWhole) {
  const Program p = parse_op(
      "op f(a: f32[N,K], b: f32[K,M], y: f32[N,M]) -> (g, h) {\n"
      " g[i,k] = sum(j: y[i,j]*b[k,j])\n h[k,m] = sum(i: a[i,k]*y[i,m])\n}");
  for (const Kernel& k : plan_kernels(p, {{"N", 60}, {"K", 50}, {"M", 70}}).kernels) EXPECT_FALSE(k.combines_partials) << k.name;
}

TEST(Fusion, PlansAreDeterministic) {
  Program p = with_backward(kLayerNorm);
  DimValues sizes = {{"N", 4096}, {"D", 1024}};
  KernelPlan a = plan_kernels(backward_program(p), sizes), b = plan_kernels(backward_program(p), sizes);
  ASSERT_EQ(a.kernels.size(), b.kernels.size());
  EXPECT_EQ(a.flops, b.flops);
  for (size_t i = 0; i < a.kernels.size(); ++i) EXPECT_EQ(a.kernels[i].name, b.kernels[i].name);
}

TEST(Fusion, RecognizesScatter) {
  Program p = gather(gradient(parse_op("op bag(t: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l], d]) }")));
  const Definition* d = p.definition_of(p.gradients.at(0));
  ASSERT_NE(d, nullptr);
  auto s = as_scatter(*p.arena, *d);
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->targets.size(), 1u);
  EXPECT_EQ(s->targets[0].first, 0u);
  EXPECT_TRUE(is_true(*p.arena, s->rest));
}

// How many axes of the gradient by the first input data decide; 0 if it is no scatter.
size_t places_of_gradient(const std::string& text) {
  Program p = gather(gradient(parse_op(text)));
  auto s = as_scatter(*p.arena, *p.definition_of(p.gradients.at(0)));
  return s ? s->targets.size() : 0;
}

TEST(Fusion, RecognizesScatterByTwoIndicesBesideAxesAndOfMaxima) {
  EXPECT_EQ(places_of_gradient("op two(x: f32[N,M], r: i32[B], c: i32[B]) -> (y) { y[b] = x[r[b],c[b]] }"), 2u);
  EXPECT_EQ(places_of_gradient("op rows(x: f32[N,M], id: i32[N,B]) -> (y) { y[n,b] = x[n,id[n,b]] }"), 1u);
  EXPECT_EQ(places_of_gradient("op beside(x: f32[N,H,W,D], r: i32[N,B], c: i32[N,B]) -> (y) { y[n,b,d] = x[n,r[n,b],c[n,b],d] }"), 2u);
  // The second index depends on what the first decides: one of them is a condition.
  EXPECT_EQ(places_of_gradient("op chain(x: f32[N,N], id: i32[N], p: i32[B]) -> (y) { y[b] = x[p[b],id[p[b]]] }"), 2u);
  for (const std::string op : {"sum", "prod", "max", "min"}) {
    Program p = parse_op("op f(x: f32[N], seg: i32[N]) -> (y) { y[s in 0..S] = " + op + "(n if seg[n] == s: x[n]) }");
    EXPECT_TRUE(as_scatter(*p.arena, p.forward.definitions[0]).has_value()) << op;
  }
}

// However a place is said that data name, terms are added there.
TEST(Fusion, RecognizesScatterHoweverItIsSaid) {
  for (const std::string reduction :
       {"sum(t: if id[t] == r then x[t,c] else 0)", "sum(t: if id[t] - r == 0 then x[t,c] else 0)",
        "sum(t: if 0 == i32(r) - id[t] then x[t,c] else 0)", "sum(t: if id[t] != r then 0 else x[t,c])",
        "sum(t if r + 1 == id[t] + 2: x[t,c])", "sum(t: if x[t,0] > 0 && r == id[t] then 2*x[t,c] else 0)", "sum(t: 3*f32(id[t] == r))",
        "max(t: if id[t] == r then x[t,c] else -inf)", "prod(t: if r == id[t] then x[t,c] else 1)"}) {
    const Program p =
        gather(with_plain_positions(parse_op("op f(x: f32[T,C], id: i32[T]) -> (y) { y[r in 0..R,c in 0..C] = " + reduction + " }")));
    EXPECT_TRUE(as_scatter(*p.arena, p.forward.definitions[0]).has_value()) << print(p);
  }
  // What a condition leaves out may be infinite, and 0 times that is no 0.
  const Program p =
      gather(with_plain_positions(parse_op("op f(x: f32[T,C], id: i32[T]) -> (y) { y[r in 0..R,c] = sum(t: f32(id[t] == r)*x[t,c]) }")));
  EXPECT_FALSE(as_scatter(*p.arena, p.forward.definitions[0]).has_value());
}

TEST(Fusion, WhatDataPickIsReadNotSearched) {
  Program p = gather(gradient(parse_op("op f(x: f32[N,D], seg: i32[N]) -> (y) { y[s in 0..S, d] = sum(n if seg[n] == s: x[n,d]) }")));
  const Definition* d = p.definition_of(p.gradients.at(0));
  ASSERT_NE(d, nullptr);
  EXPECT_TRUE(std::ranges::none_of(reachable(*p.arena, d->body), [&](Id id) { return is_reduction((*p.arena)[id].op); })) << print(p, *d);
}

TEST(Fusion, AStencilsTileIsAWindowNotTheWholeImage) {
  DimValues sizes = {{"N", 8}, {"H", 1024}, {"W", 1024}};
  std::string text = R"(op blur(x: f32[N,H,W]) -> (y) {
    y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0])
  })";
  Program p = with_backward(text);
  for (const Program& direction : {infer_program(p), backward_program(p)}) {
    KernelPlan plan = plan_kernels(direction, sizes);
    const Kernel& k = only(plan);
    auto tile = [&](size_t i) { return k.axes[static_cast<size_t>(k.shared.at(i))].tile; };
    EXPECT_EQ(tile(0), 1);
    EXPECT_GT(tile(1), 4) << "one row of tiles re-reads its neighbours' rows";
    EXPECT_LT(tile(1), 256);
    EXPECT_EQ(tile(2), 1024);
  }
}

TEST(Fusion, AStrideIsWalkedInPhasesIfThatMakesAProduct) {
  auto phases = [](const std::string& text, const DimValues& sizes) {
    KernelPlan plan = plan_kernels(backward_program(with_backward(text)), sizes);
    std::map<std::string, int64_t> found;
    for (const KernelAxis& a : only(plan).axes)
      if (a.phases > 1) {
        found[a.name] = a.phases;
        EXPECT_EQ(a.extent % a.phases, 0);
        EXPECT_TRUE(a.tile == 1 || a.tile % a.phases == 0) << a.tile;
      }
    return found;
  };
  using Found = std::map<std::string, int64_t>;
  std::string conv =
      "op f(x: f32[N,C,H,W], w: f32[K,C,3,3] const) -> (y) { y[n,k,i in 0..28,j in 0..28] = "
      "sum(c,r,s: x[n,c,2*i+r-1,2*j+s-1 else 0]*w[k,c,r,s]) }";
  DimValues sizes = {{"N", 8}, {"C", 64}, {"K", 64}, {"H", 56}, {"W", 56}};
  EXPECT_EQ(phases(conv, sizes), (Found{{"h", 2}, {"l", 2}}));
  sizes["W"] = 57;  // odd: that axis has no phases, and with it there is no product over l
  EXPECT_EQ(phases(conv, sizes).count("l"), 0u);
  std::string mean = "op f(x: f32[N,2*W]) -> (y) { y[n,j in 0..W] = 0.5*(x[n,2*j] + x[n,2*j+1]) }";
  EXPECT_EQ(phases(mean, {{"N", 4096}, {"W", 1024}}), Found{});
}

TEST(Fusion, AGathersTileIsRowsOfTheResult) {
  KernelPlan plan = forward_plan("op f(t: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l],d]) }",
                                 {{"V", 10000}, {"D", 128}, {"B", 1024}, {"L", 20}});
  EXPECT_EQ(shared(only(plan)), (Names{"b", "d"}));
  EXPECT_EQ(only(plan).axes[static_cast<size_t>(only(plan).shared[1])].tile, 128);
}

TEST(Fusion, AScatterHasFewTilesAndCountsEachValueOnce) {
  DimValues sizes = {{"V", 10000}, {"D", 128}, {"B", 1024}, {"L", 20}};
  Program p = with_backward("op f(t: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l],d]) }");
  for (auto wanted : {std::optional<int64_t>(), std::optional<int64_t>(4)}) {
    MachineModel machine;
    machine.scatter_tiles = wanted;
    KernelPlan plan = plan_kernels(backward_program(p), sizes, {.machine = machine});
    int64_t tiles = 1;
    for (int c : only(plan).shared) {
      const KernelAxis& axis = only(plan).axes[static_cast<size_t>(c)];
      tiles *= (axis.extent + axis.tile - 1) / axis.tile;
    }
    EXPECT_EQ(tiles, wanted.value_or(machine.least_tiles));
    EXPECT_EQ(plan.flops, 1024 * 20 * 128);
  }
}

// Each tile looks at all terms, so tiles of a column would bring in all lines of the terms several times.
TEST(Fusion, AScatterDoesNotCutRowsWithinALine) {
  const Program p = with_backward("op f(t: f32[V,3], ids: i32[V,L]) -> (y) { y[b,l,d] = t[ids[b,l],d] * t[b,d] }");
  const KernelPlan plan = plan_kernels(backward_program(p), {{"V", 20000}, {"L", 16}}, {});
  for (const Kernel& k : plan.kernels) {
    EXPECT_FALSE(k.combines_partials) << k.name;
    EXPECT_TRUE(std::ranges::all_of(k.axes, [](const KernelAxis& axis) { return axis.extent != 3 || axis.tile == 3; })) << k.name;
  }
}

// A tile of a few columns takes some bytes of each row, and memory delivers no fewer than a line. So columns that are summed and then
// looked at again are apart from what looks at them, unless each of them is a long run, or all of it one.
TEST(Fusion, ShortRunsArePricedNotMoved) {
  const struct {
    const char *name, *text;
    DimValues sizes;
    size_t kernels;
  } cases[] = {
      {"column_means", "op f(x: f32[N,C]) -> (y) { m[c] = mean(n: x[n,c]); y[n,c] = x[n,c] - m[c] }", {{"N", 20000}, {"C", 64}}, 2},
      {"column_largest", "op f(x: f32[N,C]) -> (y) { m[c] = max(n: x[n,c]); y[n,c] = exp(x[n,c] - m[c]) }", {{"N", 4096}, {"C", 512}}, 2},
      {"channels_last",
       "op f(x: f32[N,H,W,C]) -> (y) { m[c] = mean(n,h,w: x[n,h,w,c]); y[n,h,w,c] = x[n,h,w,c] - m[c] }",
       {{"N", 16}, {"H", 56}, {"W", 56}, {"C", 64}},
       2},
      {"gathered_columns",
       "op f(t: f32[V,C], id: i32[N]) -> (y) { m[c] = mean(n: t[id[n],c]); y[n,c] = t[id[n],c] - m[c] }",
       {{"N", 8192}, {"V", 30000}, {"C", 128}},
       2},
      {"channels_first",
       "op f(x: f32[N,C,H,W]) -> (y) { m[c] = mean(n,h,w: x[n,c,h,w]); y[n,c,h,w] = x[n,c,h,w] - m[c] }",
       {{"N", 16}, {"C", 64}, {"H", 56}, {"W", 56}},
       1},
      {"rows", "op f(x: f32[N,C]) -> (y) { m[n] = mean(c: x[n,c]); y[n,c] = x[n,c] - m[n] }", {{"N", 20000}, {"C", 64}}, 1},
      {"middle_axis",
       "op f(x: f32[N,M,C]) -> (y) { m[n,c] = mean(k: x[n,k,c]); y[n,k,c] = x[n,k,c] - m[n,c] }",
       {{"N", 64}, {"M", 128}, {"C", 96}},
       1},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const KernelPlan plan = forward_plan(c.text, c.sizes);
    size_t kernels = 0;
    for (const Kernel& k : plan.kernels) {
      kernels += !k.epilogue;
      // What is waited for is a price, and is not said to be moved.
      EXPECT_LT(static_cast<double>(k.bytes_moved), 1.01 * static_cast<double>(k.bytes_unavoidable)) << k.name;
    }
    EXPECT_EQ(kernels, c.kernels);
  }
}

// A tile of a product that has all rows of a triangle multiplies the square: as one kernel with another product, which shares but the batch
// with it, it took 32 ms where the two took 18.
// Every tile of rows packs the operand along the columns: with few rows it is the columns that are cut.
TEST(Fusion, AProductOfFewRowsIsCutAlongItsColumns) {
  const char* text = "op f(x: f32[M,K], w: f32[K,N]) -> (y) { y[m,n] = sum(k: x[m,k] * w[k,n]) }";
  constexpr int64_t kWeights = 4 * 512 * 512;
  for (int64_t rows : {1, 16, 32, 64, 512}) {
    const KernelPlan p = forward_plan(text, {{"M", rows}, {"K", 512}, {"N", 512}});
    EXPECT_LE(only(p).bytes_packed, (rows == 512 ? 8 : rows == 64 ? 2 : 1) * kWeights) << rows;
    EXPECT_GE(only(p).shared.size(), 1u) << rows;
  }
}

// Tiles that have all columns n of y[n,k], and one k, touch every line of y each.
TEST(Fusion, TilesOfShortRowsAreRuns) {
  const auto tile = [](const std::string& body, int64_t n) {
    const std::string inputs = "op f(x: f32[N,3], z: f32[3,N], w: f32[N,32], a: f32[4,3], b: f32[8,32]) -> (y) { ";
    const Kernel k = only(forward_plan(inputs + body + " }", {{"N", n}}));
    std::vector<int64_t> tiles;
    for (int c : k.shared)
      if (const KernelAxis& axis = k.axes[static_cast<size_t>(c)]; axis.tile < axis.extent) tiles.push_back(axis.extent);
    return tiles;
  };
  const std::vector<int64_t> by_n = {50000};
  EXPECT_EQ(tile("y[n,k] = sum(p: x[n,p] * a[k,p])", 50000), by_n);
  EXPECT_EQ(tile("y[n,k] = sum(p: z[p,n] * a[k,p])", 50000), by_n);
  EXPECT_EQ(tile("y[n,k in 0..4] = sum(p: w[n,p] * b[k,p])", 50000), by_n) << "w would be read from memory for each k";
  EXPECT_NE(tile("y[n,k in 0..4] = sum(p: w[n,p] * b[k,p])", 5000), std::vector<int64_t>{5000}) << "w stays in the cache";
}

// The gradient of an LSTM cell: the products of its few rows are not computed beside the slopes, where each tile of rows would pack all weights.
TEST(Fusion, WeightsAreNotPackedForEveryFewRows) {
  const char* text = R"(op f(dy: f32[B,J], z: f32[B,J], w: f32[J,H]) -> (d, g) {
    d[b,j] = dy[b,j] * (1 - tanh(z[b,j])^2)
    g[b,h] = sum(j: d[b,j] * w[j,h])
  })";
  const KernelPlan p = forward_plan(text, {{"B", 64}, {"J", 1024}, {"H", 256}});
  int64_t packed = 0;
  for (const Kernel& k : p.kernels) packed += k.bytes_packed;
  EXPECT_LE(packed, 2 * 4 * 1024 * 256);
}

TEST(Fusion, WhatLiesBeyondATriangleIsPriced) {
  const DimValues sizes = {{"B", 8}, {"T", 1024}, {"D", 64}};
  const double square = 8.0 * 1024 * 512 * 64 * 0.4;  // B*T*T/2*D multiplications more than the triangle, as bytes
  const std::string two =
      "op f(z: f32[B,T,T], m: f32[B,T], v: f32[B,T,D], w: f32[B,T,D]) -> (s, g) { s[b,t,u] = sum(d: v[b,u,d] * w[b,t,d]); ";
  for (const char* triangle : {"t in u..T", "t in 0..u+1", "t in max(0,u-3)..T"}) {
    SCOPED_TRACE(triangle);
    const KernelPlan plan = forward_plan(two + "g[b,u,d] = sum(" + triangle + ": exp(z[b,t,u] - m[b,t]) * w[b,t,d]) }", sizes);
    ASSERT_EQ(plan.kernels.size(), 2u);
    EXPECT_EQ(plan.kernels[0].bytes_in_vain, 0) << plan.kernels[0].name;
    EXPECT_GT(plan.kernels[1].bytes_in_vain, 0);
    EXPECT_LT(static_cast<double>(plan.kernels[1].bytes_in_vain), square / 4) << "tiles have few rows";
  }
  for (const Kernel& k : forward_plan(two + "g[b,u,d] = sum(t: exp(z[b,t,u] - m[b,t]) * w[b,t,d]) }", sizes).kernels)
    EXPECT_EQ(k.bytes_in_vain, 0);
}

// The gradient by the many points would be written once per tile of the few.
TEST(Fusion, TilesGoAlongTheAxisThatLeavesFewPartialResults) {
  const char* const both = R"(op f(r: f32[N,M], x: f32[N,D], z: f32[M,D]) -> (a, b) {
    a[n,d] = sum(m: r[n,m]*(x[n,d] - z[m,d]))
    b[m,d] = sum(n: r[n,m]*(z[m,d] - x[n,d]))
  })";
  for (const auto& [n, m, first] : {std::tuple(64, 256, "m"), {256, 64, "n"}}) {
    const KernelPlan plan = forward_plan(both, {{"N", n}, {"M", m}, {"D", 16}});
    const Kernel& k = only(plan);
    EXPECT_EQ(shared(k).at(0), first);
    EXPECT_TRUE(k.combines_partials);
    EXPECT_LT(k.bytes_moved, 3 * k.bytes_unavoidable);
  }
}

TEST(Fusion, DirectionsAreProgramsOfTheirOwn) {
  Program p = with_backward(kBatchNorm);
  for (const Program& d : {infer_program(p), forward_program(p), backward_program(p)}) {
    verify(d);
    EXPECT_TRUE(d.cotangents.empty());
  }
  EXPECT_EQ(forward_program(p).outputs.size(), 1 + stashes(p).size());
  EXPECT_EQ(backward_program(p).outputs, p.gradients);
}

}  // namespace
}  // namespace xhat::fusion_test
