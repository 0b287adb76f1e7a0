// Bounds proofs. Each row is an access with its verdict; all rows are also enumerated for small sizes, so
// that no verdict can be a matter of opinion: proved means no point falls outside, violated that one does,
// and a precondition separates the sizes (among those with anything to iterate) exactly.
#include "expr/index/affine.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/helpers/affine_helper.h"

namespace xhat::affine_test {
namespace {

using namespace xhat::testing;
using Verdict = BoundsAnswer::Verdict;

struct Access {
  std::vector<AxisRange> axes;
  E index, extent;
  std::vector<E> conditions = {};
};

struct Maker {
  Arena a;
  E i{&a, a.axis("i")}, j{&a, a.axis("j")}, k{&a, a.axis("k")}, p{&a, a.axis("p")}, r{&a, a.axis("r")};
  E N{&a, a.dim("N")}, M{&a, a.dim("M")}, H{&a, a.dim("H")}, W{&a, a.dim("W")};
  E number(int64_t v) { return lift(&a, v); }
  E data(DType type = DType::i32) { return {&a, a.read(0, type, {{i.id}})}; }
  E data64(DType type = DType::i32) { return cast(DType::i64, data(type)); }
  E positive() {  // out of reach: x > 0 of a float tensor
    return {&a, a.binary(Op::lt, a.constant(DType::f32, 0), a.read(1, DType::f32, {{i.id}}))};
  }
};
AxisRange in(E axis, E end) { return {axis.id, axis.arena->integer(0), end.id}; }
AxisRange in(E axis, int64_t end) { return in(axis, lift(axis.arena, end)); }

struct Row {
  const char* name;
  Verdict verdict;
  const char* detail;  // precondition: the safe dims; violated: the example
  std::function<Access(Maker&)> make;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// clang-format off: one row, one line where it fits
#define ROW(name, verdict, detail, ...)                          \
  {                                                              \
    name, Verdict::verdict, detail, [](Maker& m) -> Access {     \
      [[maybe_unused]] auto& [a, i, j, k, p, r, N, M, H, W] = m; \
      return __VA_ARGS__;                                        \
    }                                                            \
  }

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      ROW("plain", proved, "", {{in(i, N)}, i, N}),
      ROW("another extent", violated, "i = 0 with N = 1, M = 0: index 0", {{in(i, N)}, i, M}),
      ROW("one too far", violated, "i = 0 with N = 1: index 1", {{in(i, N)}, i + 1, N}),
      ROW("one too early", violated, "i = 0 with N = 1: index -1", {{in(i, N)}, i - 1, N}),
      ROW("stencil inside", proved, "", {{in(i, N - 2), in(r, 3)}, i + r, N}),
      ROW("stencil padded", violated, "i = 0, r = 0 with N = 1: index -1",
          {{in(i, N), in(r, 3)}, i + r - 1, N}),
      ROW("stride 2", proved, "", {{in(i, (N + 1) / 2)}, 2 * i, N}),
      ROW("stride 2, odd ones", violated, "i = 0 with N = 1: index 1", {{in(i, (N + 1) / 2)}, 2 * i + 1, N}),
      ROW("first element", precondition, "N >= 1", {{}, m.number(0), N}),
      ROW("first element of every row", precondition, "M >= 1", {{in(i, N)}, m.number(0), M}),
      ROW("third element", precondition, "N >= 3", {{}, m.number(2), N}),
      ROW("last element", precondition, "N >= 1", {{}, N - 1, N}),
      ROW("empty iteration needs nothing", proved, "", {{in(i, N)}, N - 1 - i, N}),
      ROW("constant range", precondition, "N >= 5", {{in(i, 5)}, i, N}),
      ROW("two dims, no box", violated, "with N = 0, M = 0: index 2", {{}, m.number(2), N + M}),
      ROW("flip", proved, "", {{in(i, N)}, N - 1 - i, N}),
      ROW("half", proved, "", {{in(i, 2 * N)}, i / 2, N}),
      ROW("remainder", proved, "", {{in(i, N)}, i % 4, m.number(4)}),
      ROW("remainder of a negative", proved, "", {{in(i, N)}, (i - 7) % 4, m.number(4)}),
      ROW("negative divisor", violated, "i = 1 with N = 2: index -1", {{in(i, N)}, i / -2, N}),
      ROW("negative modulus", proved, "", {{in(i, N)}, -(i % -3), m.number(3)}),
      ROW("clamped", precondition, "N >= 1", {{in(i, 5)}, clamp(i - 2, m.number(0), N - 1), N}),
      ROW("clamped among its own", proved, "", {{in(i, N)}, clamp(i - 2, m.number(0), N - 1), N}),
      ROW("reflected", precondition, "N >= 2", {{in(i, N)}, abs(i - 1), N}),
      ROW("relu", proved, "", {{in(i, N)}, relu(i - 3), N}),
      ROW("select", proved, "", {{in(i, N)}, select(0 < i, i - 1, i), N}),
      ROW("guarded", proved, "", {{in(i, N)}, i - 1, N, {0 < i}}),
      ROW("guarded by a negation", proved, "", {{in(i, N)}, i - 1, N, {!(i == 0)}}),
      ROW("guarded by an alternative", proved, "",
          {{in(i, N)}, i - 1, N, {0 < i && (i < 5 || m.positive())}}),
      ROW("guard out of reach", violated, "i = 0 with N = 1: index -1",
          {{in(i, N)}, i - 1, N, {m.positive()}}),
      ROW("triangle", proved, "", {{in(i, N), in(k, i + 1)}, i - k, N}),
      ROW("concat", proved, "", {{in(i, N + M)}, i - N, M, {!(i < N)}}),
      ROW("product extent", proved, "", {{in(p, H * W)}, p, H * W}),
      ROW("product extent, written otherwise", proved, "", {{in(p, (H + 1) * W)}, p, W + W * H}),
      ROW("p / W", proved, "", {{in(p, H * W)}, p / W, H}),
      ROW("p % W", proved, "", {{in(p, H * W)}, p % W, W}),
      ROW("p / (H*W)", proved, "", {{in(p, N * H * W)}, p / (H * W), N}),
      ROW("p / W % H", proved, "", {{in(p, N * H * W)}, p / W % H, H}),
      ROW("roll", proved, "", {{in(i, N)}, (i + M) % N, N}),
      ROW("flattened", proved, "", {{in(i, H), in(j, W)}, i * W + j, H * W}),
      ROW("flattened, three deep", proved, "",
          {{in(i, N), in(j, H), in(k, W)}, (i * H + j) * W + k, N * H * W}),
      ROW("p % W + 1", violated, "p = 0 with H = 1, W = 1: index 1", {{in(p, H * W)}, p % W + 1, W}),
      ROW("p % W - 1", violated, "p = 0 with H = 1, W = 1: index -1", {{in(p, H * W)}, p % W - 1, W}),
      ROW("p / W + 1", violated, "p = 0 with H = 1, W = 1: index 1", {{in(p, H * W)}, p / W + 1, H}),
      ROW("p % W + 1, guarded", proved, "", {{in(p, H * W)}, p % W + 1, W, {p % W < W - 1}}),
      ROW("the next element's row", proved, "", {{in(p, H * W - 1)}, (p + 1) / W, H}),
      ROW("p % W backwards", proved, "", {{in(p, H * W)}, W - 1 - p % W, W}),
      ROW("p % W backwards, one too far", violated, "p = 0 with H = 1, W = 1: index 1", {{in(p, H * W)}, W - p % W, W}),
      ROW("p / W % H + 1", violated, "p = 0 with H = 1, N = 1, W = 1: index 1", {{in(p, N * H * W)}, p / W % H + 1, H}),
      ROW("p / (H*W) + 1", violated, "p = 0 with H = 1, N = 1, W = 1: index 1", {{in(p, N * H * W)}, p / (H * W) + 1, N}),
      ROW("flattened, one too far", unknown, "", {{in(i, H), in(j, W)}, i * W + j + 1, H * W}),
      ROW("sizes divided", unknown, "", {{in(i, N / (M + 1))}, 2 * i, N}),
      ROW("data", unknown, "", {{in(i, N)}, m.data64(), M}),
      ROW("data under its own test", proved, "",
          {{in(i, N)}, m.data64(), M, {0 <= m.data64() && m.data64() < M}}),
      ROW("data clamped to a constant", proved, "",
          {{in(i, N)}, clamp(m.data64(), m.number(0), m.number(4)), m.number(5)}),
      ROW("data clamped", unknown, "", {{in(i, N)}, clamp(m.data64(), m.number(0), M - 1), M}),
      ROW("bytes", proved, "", {{in(i, N)}, m.data64(DType::u8), m.number(256)}),
      ROW("bytes in a smaller table", unknown, "", {{in(i, N)}, m.data64(DType::u8), m.number(255)}),
      ROW("data that may wrap", unknown, "",
          {{in(i, N)},
           cast(DType::i64, {&a, a.add(m.data().id, a.integer(1, DType::i32))}),
           M,
           {0 <= m.data64() && m.data64() + 1 < M}}),
      ROW("an axis cast", proved, "", {{in(i, N)}, cast(DType::i32, i), N}),
  };
  return table;
}
// clang-format on
#undef ROW

class ProveBounds : public ::testing::TestWithParam<Row> {};

std::string text_of_safe(const Arena& a, const BoundsAnswer& answer) {
  std::string t;
  for (const auto& [dim, least] : answer.safe)
    t += (t.empty() ? "" : ", ") + a.name(dim) + " >= " + std::to_string(least);
  return t;
}

// At given sizes: does a point fall outside, and is there any point at all?
struct Enumerated {
  bool outside = false, any = false;
};
Enumerated enumerate(const Arena& a, const Access& x, Env& env) {
  Enumerated e;
  for_each_point(a, x.axes, env, [&](const Env& at) {
    for (E c : x.conditions)
      if (!value_at(a, c.id, at)) return;
    const int64_t index = value_at(a, x.index.id, at);
    e.any = true;
    e.outside = e.outside || index < 0 || index >= value_at(a, x.extent.id, at);
  });
  return e;
}

// The examples of violations that the tests draw have sizes up to 8.
template <class F>
void for_all_sizes(const std::vector<Id>& dims, Env& env, F&& f, size_t k = 0) {
  if (k == dims.size()) return f(env);
  for (int64_t v = 0; v <= (dims.size() <= 2 ? 8 : 5); ++v) {
    env[dims[k]] = v;
    for_all_sizes(dims, env, f, k + 1);
  }
}

void check_by_enumeration(const Arena& a, const Access& x, const BoundsAnswer& answer) {
  std::vector<Id> roots{x.index.id, x.extent.id}, dims;
  for (const AxisRange& r : x.axes) roots.insert(roots.end(), {r.begin, r.end});
  for (Id id : reachable(a, roots)) {
    if (a[id].op == Op::dim) dims.push_back(id);
    if (is_read(a[id].op)) return;  // data: nothing to enumerate
  }
  for (E c : x.conditions)
    for (Id id : reachable(a, c.id))
      if (is_read(a[id].op)) return;
  bool outside_somewhere = false;
  Env env;
  for_all_sizes(dims, env, [&](Env& at) {
    const Enumerated e = enumerate(a, x, at);
    outside_somewhere = outside_somewhere || e.outside;
    if (answer.verdict != Verdict::precondition || !e.any) return;
    bool safe = true;
    for (const auto& [dim, least] : answer.safe) safe = safe && at.at(dim) >= least;
    EXPECT_EQ(safe, !e.outside);
  });
  if (answer.verdict == Verdict::proved) {
    EXPECT_FALSE(outside_somewhere);
  }
  if (answer.verdict == Verdict::violated) {
    EXPECT_TRUE(outside_somewhere);
  }
}

TEST_P(ProveBounds, GivesTheVerdictAndEnumerationAgrees) {
  Maker m;
  const Access x = GetParam().make(m);
  std::vector<Id> conditions;
  for (E c : x.conditions) conditions.push_back(c.id);
  const BoundsAnswer answer = prove_bounds(
      m.a, {.axes = x.axes, .conditions = conditions, .index = x.index.id, .extent = x.extent.id});
  EXPECT_EQ(answer.verdict, GetParam().verdict) << text_of_safe(m.a, answer) << answer.example;
  if (answer.verdict == Verdict::precondition) {
    EXPECT_EQ(text_of_safe(m.a, answer), GetParam().detail);
  }
  if (answer.verdict == Verdict::violated) {
    EXPECT_EQ(answer.example, GetParam().detail);
  }
  check_by_enumeration(m.a, x, answer);
}
INSTANTIATE_TEST_SUITE_P(Accesses, ProveBounds, ::testing::ValuesIn(rows()), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return std::to_string(test.index) + "_" + name;
});

// Proofs of random accesses: whatever is proved must hold, and a precondition must separate the sizes.
TEST(ProveBoundsRandom, AgreesWithEnumeration) {
  size_t decided = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    Maker m;
    E e = pick(-2, 2) * m.i + pick(-2, 2) * m.r + pick(-3, 3);
    const int shape = pick(0, 8);
    if (shape == 0) e = m.N - 1 - e;
    if (shape == 1) e = clamp(e, m.number(0), m.N - 1);
    if (shape == 2) e = abs(e);
    if (shape == 3) e = e / pick(1, 3);
    if (shape == 4) e = e % pick(1, 4);
    if (shape == 5) e = e % m.N;
    if (shape == 6) e = m.i * m.W + m.r;
    const E extents[] = {m.N, 2 * m.N + 1, m.number(pick(1, 4)), m.N * m.W};
    Access x{{in(m.i, pick(0, 1) ? m.N : m.N - pick(0, 2)), in(m.r, pick(0, 1) ? m.number(pick(1, 3)) : m.W)},
             e,
             extents[pick(0, shape == 6 ? 3 : 2)]};
    if (pick(0, 2) == 0) x.conditions.push_back(pick(0, 1) ? m.r <= m.i : 0 < m.i + m.r - 1);
    std::vector<Id> conditions;
    for (E c : x.conditions) conditions.push_back(c.id);
    const BoundsAnswer answer = prove_bounds(
        m.a, {.axes = x.axes, .conditions = conditions, .index = x.index.id, .extent = x.extent.id});
    decided += answer.verdict != Verdict::unknown;
    check_by_enumeration(m.a, x, answer);
    if (HasFailure())
      FAIL() << text_of(m.a, x.index.id) << " in " << text_of(m.a, x.extent.id) << " " << answer.example;
  }
  EXPECT_GT(decided, 250u);
}

TEST(ProveNonnegative, SizesOfRanges) {
  Maker m;
  EXPECT_EQ(prove_nonnegative(m.a, m.N.id).verdict, Verdict::proved);
  EXPECT_EQ(prove_nonnegative(m.a, (m.H * m.W).id).verdict, Verdict::proved);
  const BoundsAnswer answer = prove_nonnegative(m.a, (m.N - 2).id);
  EXPECT_EQ(answer.verdict, Verdict::precondition);
  EXPECT_EQ(text_of_safe(m.a, answer), "N >= 2");
  EXPECT_EQ(prove_nonnegative(m.a, (m.N - m.M).id).verdict, Verdict::violated);
  EXPECT_EQ(prove_nonnegative(m.a, (m.H * m.W - 1).id).verdict, Verdict::unknown);
}

TEST(ProvablyEqual, NormalFormsAndPieces) {
  Maker m;
  auto& a = m.a;
  EXPECT_TRUE(provably_equal(a, ((m.i + 1) * m.W).id, (m.W + m.i * m.W).id));
  EXPECT_TRUE(provably_equal(a, (m.i / 2).id, ((2 * m.i) / 4).id));
  EXPECT_TRUE(provably_equal(a, (m.i - 4 * (m.i / 4)).id, (m.i % 4).id));
  EXPECT_TRUE(provably_equal(a, max(m.N, 0).id, m.N.id));
  EXPECT_TRUE(provably_equal(a, ((m.i + m.N) % m.M).id, ((m.N + m.i) % m.M - m.i + m.i).id));
  EXPECT_FALSE(provably_equal(a, max(m.i, 0).id, m.i.id));
  EXPECT_FALSE(provably_equal(a, m.N.id, m.M.id));
  EXPECT_FALSE(provably_equal(a, (m.N * m.M / m.M).id, m.N.id));  // not at M = 0
}

}  // namespace
}  // namespace xhat::affine_test
