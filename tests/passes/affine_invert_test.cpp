// Inverting access relations: each row is a relation that some gradient needs, with what must remain and
// whether a guard may stay. Every row is enumerated: for all sizes 0..7 and every target, the answer's points
// are exactly the bound points that read the target, each once; without a guard, every iteration contributes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <set>

#include "tests/helpers/affine_helper.h"

namespace xhat::affine_invert_test {
namespace {

using namespace xhat::testing;

struct Relation {
  std::vector<AxisRange> bound;
  std::vector<Id> indices;
  std::vector<AxisRange> targets;
  Id condition = kNone;
};

// Builds rows: names are axes and dims of one arena.
struct Maker {
  Arena a;
  E axis(const char* name) { return {&a, a.axis(name)}; }
  E dim(const char* name) { return {&a, a.dim(name)}; }
  E number(int64_t v) { return lift(&a, v); }
  E data(uint32_t tensor, std::vector<E> at, DType type = DType::i32) {
    std::vector<Id> ids;
    for (E e : at) ids.push_back(e.id);
    return cast(DType::i64, {&a, a.read(tensor, type, ids)});
  }
};
AxisRange in(E axis, E end) { return {axis.id, axis.arena->integer(0), end.id}; }
AxisRange in(E axis, int64_t end) { return in(axis, lift(axis.arena, end)); }
AxisRange in(E axis, E begin, E end) { return {axis.id, begin.id, end.id}; }

enum Guard { no_guard, guard };

struct Row {
  const char* name;
  size_t remaining;  // axes
  Guard guarded;
  std::function<Relation(Maker&)> make;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

using Points = std::multiset<std::vector<int64_t>>;

Points wanted(const Arena& a, const Relation& r, Env& env) {
  Points points;
  for_each_point(a, r.bound, env, [&](const Env& at) {
    if (r.condition != kNone && !value_at(a, r.condition, at)) return;
    for (size_t d = 0; d < r.indices.size(); ++d)
      if (value_at(a, r.indices[d], at) != at.at(r.targets[d].axis)) return;
    std::vector<int64_t> p;
    for (const AxisRange& x : r.bound) p.push_back(at.at(x.axis));
    points.insert(p);
  });
  return points;
}

Points found(const Arena& a, const Relation& r, const InvertAnswer& answer, Env& env, size_t& iterations) {
  Points points;
  for_each_point(a, answer.remaining, env, [&](const Env& at) {
    ++iterations;
    if (answer.guard != kNone && !value_at(a, answer.guard, at)) return;
    Env full = at;
    for (const auto& [x, e] : answer.solved) full[x] = value_at(a, e, at);
    std::vector<int64_t> p;
    for (const AxisRange& x : r.bound) p.push_back(full.at(x.axis));
    points.insert(p);
  });
  return points;
}

std::vector<Id> dims_of(const Arena& a, const Relation& r) {
  std::vector<Id> roots = r.indices, dims;
  for (const auto* ranges : {&r.bound, &r.targets})
    for (const AxisRange& x : *ranges) roots.insert(roots.end(), {x.begin, x.end});
  if (r.condition != kNone) roots.push_back(r.condition);
  for (Id id : reachable(a, roots))
    if (a[id].op == Op::dim) dims.push_back(id);
  return dims;
}

// All sizes 0..most, or, with three dims and more, 0..4.
template <class F>
void for_all_sizes(const Arena& a, const Relation& r, F&& f) {
  const std::vector<Id> dims = dims_of(a, r);
  const int64_t most = dims.size() <= 2 ? 7 : 4;
  std::function<void(size_t, Env&)> go = [&](size_t k, Env& env) {
    if (k == dims.size()) return f(env);
    for (int64_t v = 0; v <= most; ++v) {
      env[dims[k]] = v;
      go(k + 1, env);
    }
  };
  Env env;
  go(0, env);
}

void check_exact(const Arena& a, const Relation& r, const InvertAnswer& answer) {
  bool failed = false;
  for_all_sizes(a, r, [&](Env& env) {
    if (failed) return;
    for_each_point(a, r.targets, env, [&](const Env& at) {
      if (failed) return;
      Env here = at;
      size_t iterations = 0;
      const Points want = wanted(a, r, here), have = found(a, r, answer, here, iterations);
      failed = want != have || (answer.guard == kNone && iterations != want.size());
      std::string where;
      for (const auto& [id, v] : at) where += a.name(id) + "=" + std::to_string(v) + " ";
      EXPECT_EQ(want, have) << "at " << where << "\n" << text_of(a, answer);
      if (answer.guard == kNone) {
        EXPECT_EQ(want.size(), iterations) << "at " << where << "\n" << text_of(a, answer);
      }
    });
  });
}

// clang-format off: one row, one line where it fits
#define ROW(name, remaining, guarded, ...)                             \
  {                                                                    \
    name, remaining, guarded, [](Maker& m) -> Relation { __VA_ARGS__ } \
  }
#define USE_AXES                                                                               \
  [[maybe_unused]] const E i = m.axis("i"), j = m.axis("j"), k = m.axis("k"), l = m.axis("l"), \
                           r = m.axis("r"), s = m.axis("s"), p = m.axis("p"), q = m.axis("q"), \
                           a = m.axis("a"), b = m.axis("b"), c = m.axis("c"), N = m.dim("N"),  \
                           M = m.dim("M"), H = m.dim("H"), W = m.dim("W"), K = m.dim("K");

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
    ROW("plain read", 0, no_guard, USE_AXES return {{in(i, N)}, {i.id}, {in(a, N)}};),
    ROW("permutation", 0, no_guard,
        USE_AXES return {{in(i, N), in(j, M)}, {j.id, i.id}, {in(a, M), in(b, N)}};),
    ROW("broadcast: b[j] in [i, j]", 1, no_guard,
        USE_AXES return {{in(i, N), in(j, M)}, {j.id}, {in(a, M)}};),
    ROW("half of the range", 0, guard, USE_AXES return {{in(i, N)}, {i.id}, {in(a, 2 * N)}};),
    ROW("a fixed element, other axis solved", 0, guard,
        USE_AXES return {{in(i, N)}, {i.id, m.number(0).id}, {in(a, N), in(b, K)}};),
    ROW("conv stride 1 pad 1", 1, no_guard,
        USE_AXES return {{in(i, H), in(r, 3)}, {(i + r - 1).id}, {in(a, H)}};),
    ROW("conv stride 2 pad 1", 1, no_guard,
        USE_AXES return {{in(i, (H + 1) / 2), in(r, 3)}, {(2 * i + r - 1).id}, {in(a, H)}};),
    ROW("conv stride 2 dilation 2", 1, guard,
        USE_AXES return {{in(i, H), in(r, 3)}, {(2 * i + 2 * r - 2).id}, {in(a, 2 * H)}};),
    ROW("conv stride 3 dilation 2", 0, guard,
        USE_AXES return {{in(i, H), in(r, 3)}, {(3 * i + 2 * r - 2).id}, {in(a, 3 * H)}};),
    ROW("conv stride 3 dilation 2, symbolic taps", 1, no_guard,
        USE_AXES return {{in(i, H), in(r, K)}, {(3 * i + 2 * r).id}, {in(a, 3 * H + 2 * K)}};),
    ROW("conv2d stride 2", 3, no_guard,
        USE_AXES return {{in(p, 2), in(k, 2), in(i, 3), in(j, 4), in(c, 2), in(r, 3), in(s, 3)},
                         {p.id, c.id, (2 * i + r - 1).id, (2 * j + s - 1).id},
                         {in(a, 2), in(b, 2), in(m.axis("y"), 6), in(m.axis("x"), 8)}};),
    ROW("transposed conv: w[j - 2*i]", 1, no_guard,
        USE_AXES return {{in(j, 2 * H + 1), in(i, H)}, {(j - 2 * i).id}, {in(a, 3)}};),
    ROW("transposed conv, its input", 1, no_guard,
        USE_AXES return {{in(j, 2 * H), in(i, H)},
                         {i.id},
                         {in(a, H)},
                         (0 <= j - 2 * i + 1 && j - 2 * i + 1 < m.number(3)).id};),
    ROW("pool 2 stride 3", 0, guard,
        USE_AXES return {{in(i, N), in(r, 2)}, {(3 * i + r).id}, {in(a, 3 * N)}};),
    ROW("x[i/4, i%4]", 0, no_guard,
        USE_AXES return {{in(i, 4 * N)}, {(i / 4).id, (i % 4).id}, {in(a, N), in(b, 4)}};),
    ROW("reshape [6,20] to [8,15]", 0, no_guard,
        USE_AXES return {
            {in(p, 8), in(q, 15)}, {((15 * p + q) / 20).id, ((15 * p + q) % 20).id}, {in(a, 6), in(b, 20)}};),
    ROW("reshape [2M,6] to [M,12]", 0, no_guard,
        USE_AXES return {{in(p, M), in(q, 12)},
                         {((12 * p + q) / 6).id, ((12 * p + q) % 6).id},
                         {in(a, 2 * M), in(b, 6)}};),
    ROW("flatten 3-D to 1-D, fixed sizes", 0, no_guard,
        USE_AXES return {{in(p, 24)},
                         {(p / 12).id, (p / 4 % 3).id, (p % 4).id},
                         {in(a, 2), in(b, 3), in(c, 4)}};),
    ROW("pixel shuffle", 0, no_guard,
        USE_AXES return {{in(c, K), in(i, 2 * H), in(j, 3 * W)},
                         {(c * 6 + i % 2 * 3 + j % 3).id, (i / 2).id, (j / 3).id},
                         {in(a, 6 * K), in(b, H), in(m.axis("d"), W)}};),
    ROW("diagonal", 0, guard, USE_AXES return {{in(i, N)}, {i.id, i.id}, {in(a, N), in(b, N)}};),
    ROW("flip", 0, no_guard, USE_AXES return {{in(i, N)}, {(N - 1 - i).id}, {in(a, N)}};),
    ROW("min(j+k, 9)", 2, no_guard, USE_AXES return {{in(j, 6), in(k, N)}, {min(j + k, 9).id}, {in(a, 10)}};),
    ROW("clamp(i-2, 0, N-1)", 1, no_guard,
        USE_AXES return {{in(i, N + 4)}, {clamp(i - 2, m.number(0), N - 1).id}, {in(a, N)}};),
    ROW("clamp in 2-D", 2, no_guard,
        USE_AXES return {{in(i, N + 2), in(j, M + 2)},
                         {clamp(i - 1, m.number(0), N - 1).id, clamp(j - 1, m.number(0), M - 1).id},
                         {in(a, N), in(b, M)}};),
    ROW("reflect abs(i-2)", 1, guard, USE_AXES return {{in(i, N)}, {abs(i - 2).id}, {in(a, N)}};),
    ROW("concat: b[i-N]", 0, no_guard,
        USE_AXES return {{in(i, N + M)}, {(i - N).id}, {in(a, M)}, (N <= i).id};),
    ROW("interleave: odd places", 0, no_guard,
        USE_AXES return {{in(i, 2 * N)}, {(i / 2).id}, {in(a, N)}, (i % 2 == 1).id};),
    ROW("cumsum", 1, no_guard, USE_AXES return {{in(i, N), in(k, m.number(0), i + 1)}, {k.id}, {in(a, N)}};),
    ROW("band of width W", 1, no_guard,
        USE_AXES return {{in(i, N), in(k, max(i - W, 0), min(i + W + 1, N))}, {k.id}, {in(a, N)}};),
    ROW("causal condition", 1, no_guard,
        USE_AXES return {{in(i, N), in(k, N)}, {i.id}, {in(a, N)}, (k <= i).id};),
    ROW("x[i/2]", 1, no_guard, USE_AXES return {{in(i, 2 * N)}, {(i / 2).id}, {in(a, N)}};),
    ROW("x[3i/4]", 1, no_guard, USE_AXES return {{in(i, 4 * N)}, {(3 * i / 4).id}, {in(a, 3 * N)}};),
    ROW("x[4i/3]", 0, guard, USE_AXES return {{in(i, 3 * N)}, {(4 * i / 3).id}, {in(a, 4 * N)}};),
    ROW("bilinear x[(i+1)/2-1+r]", 1, no_guard,
        USE_AXES return {{in(i, 2 * N), in(r, 2)}, {((i + 1) / 2 - 1 + r).id}, {in(a, N)}};),
    ROW("roll by 3", 0, no_guard, USE_AXES return {{in(i, N)}, {((i + 3) % N).id}, {in(a, N)}};),
    ROW("turned roll", 0, no_guard, USE_AXES return {{in(i, N)}, {(N - 1 - (i + 2) % N).id}, {in(a, N)}};),
    ROW("roll of all but one", 0, guard, USE_AXES return {{in(i, N - 1)}, {((i + 2) % (N - 1)).id}, {in(a, N)}};),
    ROW("roll behind a few", 0, guard, USE_AXES return {{in(i, N)}, {((i + 1) % N + 2).id}, {in(a, N + 3)}};),
    ROW("roll by a dim, backwards", 0, no_guard,
        USE_AXES return {{in(i, N)}, {((M - i) % N).id}, {in(a, N)}};),
    ROW("x[2i+3k+r]", 1, no_guard,
        USE_AXES return {{in(i, N), in(k, M), in(r, 3)}, {(2 * i + 3 * k + r).id}, {in(a, 2 * N + 3 * M)}};),
    ROW("x[i+2j+3k+5l]", 2, no_guard,
        USE_AXES return {{in(i, 5), in(j, 4), in(k, 3), in(l, N)},
                         {(i + 2 * j + 3 * k + 5 * l).id},
                         {in(a, 5 * N + 16)}};),
    ROW("x[i%3+i/5]", 1, guard, USE_AXES return {{in(i, 5 * N)}, {(i % 3 + i / 5).id}, {in(a, N + 2)}};),
    ROW("x[p/W, p%W]", 0, no_guard,
        USE_AXES return {{in(p, H * W)}, {(p / W).id, (p % W).id}, {in(a, H), in(b, W)}};),
    ROW("x[p/(H*W), p/W%H, p%W]", 0, no_guard,
        USE_AXES return {{in(p, N * H * W)},
                         {(p / (H * W)).id, (p / W % H).id, (p % W).id},
                         {in(a, N), in(b, H), in(c, W)}};),
    ROW("x[p/(H*W), p%(H*W)/W, p%W]", 0, no_guard,
        USE_AXES return {{in(p, N * H * W)},
                         {(p / (H * W)).id, (p % (H * W) / W).id, (p % W).id},
                         {in(a, N), in(b, H), in(c, W)}};),
    ROW("flat x[i*W + j]", 0, no_guard,
        USE_AXES return {{in(i, H), in(j, W)}, {(i * W + j).id}, {in(a, H * W)}};),
    ROW("flat x[(i*H + j)*W + k]", 0, no_guard,
        USE_AXES return {{in(i, N), in(j, H), in(k, W)}, {((i * H + j) * W + k).id}, {in(a, N * H * W)}};),
    ROW("b[p % K] beside p in N*K", 1, no_guard, USE_AXES return {{in(p, N * K)}, {(p % K).id}, {in(b, K)}};),
    ROW("x[p / K], p in N*K", 1, no_guard, USE_AXES return {{in(p, N * K)}, {(p / K).id}, {in(a, N)}};),
    ROW("table[ids[b], d]", 1, guard,
        USE_AXES return {{in(b, N), in(k, M)}, {m.data(3, {b}).id, k.id}, {in(a, 5), in(c, M)}};),
    ROW("x[b, ids[b]]", 0, guard,
        USE_AXES return {{in(b, N)}, {b.id, m.data(3, {b}).id}, {in(a, N), in(c, 5)}};),
    ROW("shift by data x[ids[b] + l]", 0, guard,
        USE_AXES return {{in(b, N), in(l, M)}, {b.id, (m.data(3, {b}) + l).id}, {in(a, N), in(c, M)}};),
    ROW("condition on data", 0, guard,
        USE_AXES return {{in(i, N)}, {i.id}, {in(a, N)}, (m.data(3, {i}) == m.number(1)).id};),
    ROW("never: x[i + N] with i >= 0", 0, guard, USE_AXES return {{in(i, N)}, {(i + N).id}, {in(a, N)}};),
  };
  return table;
}
// clang-format on
#undef ROW
#undef USE_AXES

InvertQuestion question(const Relation& r) {
  return {.bound = r.bound, .condition = r.condition, .indices = r.indices, .targets = r.targets};
}

class Invert : public ::testing::TestWithParam<Row> {};

TEST_P(Invert, EnumeratesExactlyWhatReadsTheTarget) {
  Maker m;
  const Relation r = GetParam().make(m);
  const std::clock_t start = std::clock();
  const auto answer = invert(m.a, question(r));
  const double took = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(answer);
  if (std::getenv("XHAT_SHOW_AFFINE"))
    std::printf("%6.2f ms  %-40s %s\n", took, GetParam().name, text_of(m.a, *answer).c_str());
  EXPECT_EQ(answer->remaining.size(), GetParam().remaining) << text_of(m.a, *answer);
  EXPECT_EQ(answer->guard == kNone, GetParam().guarded == no_guard) << text_of(m.a, *answer);
  check_exact(m.a, r, *answer);
}
INSTANTIATE_TEST_SUITE_P(Relations, Invert, ::testing::ValuesIn(rows()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return std::to_string(test.index) + "_" + name;
});

// A random quasi-affine index over the axes and, sometimes, a dim.
E random_index(Maker& m, std::mt19937& random, const std::vector<E>& axes) {
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  E e = m.number(pick(-3, 3));
  for (E x : axes) {
    const int c = pick(-2, 3);
    E term = x;
    if (pick(0, 5) == 0) term = pick(0, 1) ? x / pick(2, 4) : x % pick(2, 4);
    if (c != 0) e = e + c * term;
  }
  switch (pick(0, 11)) {
    case 0: return abs(e);
    case 1: return clamp(e, m.number(0), m.dim("N") - 1);
    case 2: return e / pick(2, 4);
    case 3: return e % pick(2, 4);
    case 4: return m.dim("N") - e;
    case 5: return e % m.dim("N");
    case 6: return select(axes[0] < 3, e, e + pick(-2, 2));
    default: return e;
  }
}

Relation random_relation(Maker& m, std::mt19937& random) {
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const std::vector<E> axes{m.axis("i"), m.axis("j"), m.axis("k")};
  const std::vector<E> use(axes.begin(), axes.begin() + pick(1, 3));
  const E N = m.dim("N");
  auto extent = [&]() -> E {
    switch (pick(0, 4)) {
      case 0: return m.number(pick(1, 5));
      case 1: return (N + 1) / 2;
      case 2: return N + 1;
      default: return N;
    }
  };
  Relation r;
  for (size_t x = 0; x < use.size(); ++x) {
    const bool triangle = x > 0 && pick(0, 5) == 0;
    r.bound.push_back(triangle ? in(use[x], use[x - 1] + 1) : in(use[x], extent()));
  }
  const int rank = pick(1, 2);
  for (int d = 0; d < rank; ++d) {
    r.indices.push_back(random_index(m, random, use).id);
    r.targets.push_back(in(m.axis(d ? "b" : "a"), extent()));
  }
  if (pick(0, 3) == 0) r.condition = (random_index(m, random, use) <= random_index(m, random, use)).id;
  return r;
}

TEST(InvertRandom, AgreesWithEnumeration) {
  size_t solved = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Maker m;
    std::mt19937 random(seed);
    const Relation r = random_relation(m, random);
    const auto answer = invert(m.a, question(r));
    if (!answer) continue;
    ++solved;
    check_exact(m.a, r, *answer);
    if (::testing::Test::HasFailure()) {
      std::string text;
      for (const AxisRange& x : r.bound) text += m.a.name(x.axis) + " in 0.." + text_of(m.a, x.end) + "; ";
      for (Id i : r.indices) text += text_of(m.a, i) + ", ";
      FAIL() << text << (r.condition == kNone ? "" : "if " + text_of(m.a, r.condition)) << "\n"
             << text_of(m.a, *answer);
    }
  }
  EXPECT_GT(solved, 80u);
}

}  // namespace
}  // namespace xhat::affine_invert_test
