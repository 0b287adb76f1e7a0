// Programs of derivatives (vjp, jvp, hvp) compiled for infer alone: how many sums and kernels are left of them, that they compute what they
// computed as derived, also at rows without a term, and that what somebody wrote keeps its bits.
#include "runtime/call/derivatives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ranges>
#include <set>

#include "ad/check/gradcheck.h"
#include "ad/forward/jvp.h"
#include "expr/index/without_points.h"
#include "runtime/explain/explain.h"
#include "tests/helpers/audit_sample.h"
#include "tests/helpers/derivatives.h"
#include "tests/helpers/tool_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

struct Counts {
  int sums, kernels;
  bool operator==(const Counts&) const = default;
};

struct Derived {
  std::string name;
  Counts vjp, jvp, hvp;
  DimValues sizes;  // of the kernels
  DimValues small;  // of the evaluations
  std::string text;
};

void PrintTo(const Derived& d, std::ostream* out) { *out << d.name; }

const std::vector<Derived>& table() {
  static const std::vector<Derived> rows = {
      {"lse",
       {2, 1},
       {3, 1},
       {3, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 4}, {"D", 3}},
       "op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d])\n y[n] = m[n] + log(sum(d: exp(x[n,d] - m[n]))) }"},
      {"softmax",
       {3, 1},
       {3, 1},
       {5, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 4}, {"D", 3}},
       "op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d])\n e[n,d] = exp(x[n,d] - m[n])\n y[n,d] = e[n,d] / sum(k: e[n,k]) }"},
      {"log_softmax",
       {3, 1},
       {3, 1},
       {4, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 4}, {"D", 3}},
       "op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d])\n y[n,d] = x[n,d] - m[n] - log(sum(k: exp(x[n,k] - m[n]))) }"},
      {"softmax_of_lse",
       {3, 1},
       {3, 1},
       {8, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 4}, {"D", 3}},
       "op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d])\n l[n] = m[n] + log(sum(k: exp(x[n,k] - m[n])))\n"
       " y[n,d] = exp(x[n,d] - l[n]) }"},
      {"layer_norm",
       {6, 1},
       {4, 1},
       {8, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 4}, {"D", 3}},
       "op f(x: f32[N,D], g: f32[D], b: f32[D]) -> (y) { m[n] = mean(d: x[n,d])\n v[n] = mean(d: (x[n,d] - m[n])^2)\n"
       " y[n,d] = g[d] * (x[n,d] - m[n]) / sqrt(v[n] + 1e-5) + b[d] }"},
      {"rms_norm",
       {3, 1},
       {2, 1},
       {5, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 4}, {"D", 3}},
       "op f(x: f32[N,D], g: f32[D]) -> (y) { y[n,d] = g[d] * x[n,d] / sqrt(mean(k: x[n,k]^2) + 1e-6) }"},
      {"batch_norm",
       {4, 1},
       {4, 1},
       {8, 1},
       {{"N", 16}, {"C", 64}, {"P", 3136}},
       {{"N", 3}, {"C", 2}, {"P", 4}},
       "op f(x: f32[N,C,P], g: f32[C], b: f32[C]) -> (y) { m[c] = mean(n,p: x[n,c,p])\n v[c] = mean(n,p: (x[n,c,p] - m[c])^2)\n"
       " y[n,c,p] = g[c] * (x[n,c,p] - m[c]) / sqrt(v[c] + 1e-5) + b[c] }"},
      {"attention",
       {9, 4},
       {7, 1},
       {12, 3},
       {{"T", 512}, {"S", 512}, {"D", 64}},
       {{"T", 3}, {"S", 4}, {"D", 2}},
       "op f(q: f32[T,D], k: f32[S,D], v: f32[S,D]) -> (o) { s[t,j] = sum(d: q[t,d]*k[j,d]) / sqrt(f32(D))\n m[t] = max(j: s[t,j])\n"
       " e[t,j] = exp(s[t,j] - m[t])\n p[t,j] = e[t,j] / sum(i: e[t,i])\n o[t,d] = sum(j: p[t,j]*v[j,d]) }"},
      {"cross_entropy",
       {3, 1},
       {5, 1},
       {3, 1},
       {{"N", 4096}, {"C", 1024}},
       {{"N", 4}, {"C", 3}},
       "op f(x: f32[N,C], l: i32[N]) -> (loss) { m[n] = max(c: x[n,c])\n z[n] = m[n] + log(sum(c: exp(x[n,c] - m[n])))\n"
       " loss = sum(n: z[n] - x[n,l[n]]) / N }"},
      {"gelu_mlp",
       {7, 2},
       {4, 1},
       {8, 2},
       {{"N", 512}, {"D", 256}, {"H", 1024}, {"K", 256}},
       {{"N", 3}, {"D", 2}, {"H", 4}, {"K", 2}},
       "op f(x: f32[N,D], w: f32[D,H], b: f32[H], u: f32[H,K]) -> (y) { h[n,i] = sum(d: x[n,d]*w[d,i]) + b[i]\n"
       " a[n,i] = 0.5 * h[n,i] * (1 + tanh(0.7978845608 * (h[n,i] + 0.044715*h[n,i]^3)))\n y[n,k] = sum(i: a[n,i]*u[i,k]) }"},
      {"conv",
       {3, 2},
       {2, 1},
       {3, 2},
       {{"N", 4}, {"C", 32}, {"H", 28}, {"W", 28}, {"K", 32}},
       {{"N", 1}, {"C", 2}, {"H", 4}, {"W", 3}, {"K", 2}},
       "op f(x: f32[N,C,H,W], w: f32[K,C,3,3]) -> (y) { y[n,k,h in 0..H,v in 0..W] = "
       "max(sum(c,r,s: x[n,c,h+r-1,v+s-1 else 0] * w[k,c,r,s]), 0) }"},
      {"masked_softmax",
       {5, 1},
       {6, 1},
       {9, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 9}, {"D", 2}},
       "op f(x: f32[N,D], keep: bool[N,D]) -> (y) { m[n] = max(d if keep[n,d]: x[n,d])\n"
       " y[n,d] = if keep[n,d] then exp(x[n,d] - m[n]) / sum(k if keep[n,k]: exp(x[n,k] - m[n])) else 0 }"},
      {"masked_softmax_of_lse",
       {3, 1},
       {6, 1},
       {9, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 9}, {"D", 2}},
       "op f(x: f32[N,D], keep: bool[N,D]) -> (y) { m[n] = max(k if keep[n,k]: x[n,k])\n"
       " l[n] = m[n] + log(sum(k if keep[n,k]: exp(x[n,k] - m[n])))\n y[n,d] = if keep[n,d] then exp(x[n,d] - l[n]) else 0 }"},
      {"masked_lse",
       {3, 1},
       {7, 1},
       {8, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 9}, {"D", 2}},
       "op f(x: f32[N,D], keep: bool[N,D]) -> (y) { m[n] = max(d if keep[n,d]: x[n,d])\n"
       " y[n] = if any(d: keep[n,d]) then m[n] + log(sum(d if keep[n,d]: exp(x[n,d] - m[n]))) else 0 }"},
      {"masked_norm",
       {1, 1},
       {3, 1},
       {3, 1},
       {{"N", 4096}, {"D", 1024}},
       {{"N", 9}, {"D", 2}},
       "op f(x: f32[N,D], keep: bool[N,D]) -> (y) { y[n] = sqrt(sum(d if keep[n,d]: x[n,d]^2)) }"},
  };
  return rows;
}

class Derivatives : public ::testing::TestWithParam<Derived> {};
INSTANTIATE_TEST_SUITE_P(Table, Derivatives, ::testing::ValuesIn(table()), [](const auto& p) { return p.param.name; });

std::map<std::string, Program> derived_of(const Program& op) { return {{"vjp", vjp(op)}, {"jvp", jvp(op)}, {"hvp", hvp(op)}}; }

CompileOptions infer_only() {
  CompileOptions options;
  options.differentiate = false;
  return options;
}

TEST_P(Derivatives, HaveSoManySumsAndKernels) {
  for (const auto& [what, p] : derived_of(parse_op(GetParam().text))) {
    const Counts wanted = what == "vjp" ? GetParam().vjp : what == "jvp" ? GetParam().jvp : GetParam().hvp;
    const ExplainedDirection infer = explain(p, infer_only(), GetParam().sizes).infer;
    EXPECT_EQ(infer.reductions, wanted.sums) << infer.text;
    EXPECT_EQ(infer.kernel_count, wanted.kernels) << what;
  }
}

// The derivatives as derived, evaluated in doubles, beside what is left of them. Where the plain formula gives no number, a number is better.
void expect_same(const Program& op, const Program& p, const Arrays& inputs, const DimValues& dims) {
  const Program simple = derive(p, infer_only(), dims).program;
  const Arrays plain = evaluate(readable_at(p, dims), inputs, dims, kExact),
               got = evaluate(readable_at(simple, dims), inputs, dims, kExact);
  for (TensorId t : p.outputs) {
    const std::string& name = p.tensors[t].name;
    const Array &x = plain.at(name), &y = got.at(name);
    for (size_t i = 0; i < x.size(); ++i) {
      if (op.find(name)) {
        if (std::isfinite(x.at(i))) {
          EXPECT_NEAR(x.at(i), y.at(i), 1e-11 * (1 + std::abs(x.at(i)))) << name << " " << i;
        }
        continue;
      }
      EXPECT_TRUE(std::isfinite(y.at(i))) << name << " " << i << "\n" << print(simple);
      if (!std::isfinite(x.at(i))) continue;
      EXPECT_NEAR(x.at(i), y.at(i), 1e-11 * (1 + std::abs(x.at(i)))) << name << " " << i << "\n" << print(simple);
    }
  }
}

bool has_row_without_a_term(const Arrays& inputs) {
  const auto keep = inputs.find("keep");
  if (keep == inputs.end()) return true;
  const auto width = static_cast<size_t>(keep->second.shape[1]);
  for (size_t row = 0; row * width < keep->second.size(); ++row)
    if (std::ranges::none_of(std::views::iota(row * width, (row + 1) * width), [&](size_t i) { return keep->second.at(i) != 0; }))
      return true;
  return false;
}

TEST_P(Derivatives, AreRight) {
  const Program op = parse_op(GetParam().text);
  EXPECT_TRUE(gradcheck(op, GetParam().small).passed);  // as derived, beside finite differences
  for (const auto& [what, p] : derived_of(op))
    for (uint64_t seed : {1, 2, 3}) {
      const Arrays inputs = random_inputs(p, GetParam().small, seed, {.finite = false});
      EXPECT_TRUE(has_row_without_a_term(inputs));
      expect_same(op, p, inputs, GetParam().small);
    }
}

// A sum over nothing is 0, whatever was taken out of it.
TEST_P(Derivatives, OfNothingAreZero) {
  const Program op = parse_op(GetParam().text);
  const DimValues& small = GetParam().small;
  for (const std::string empty : {"N", "D", "C", "P", "K", "T"}) {
    if (!small.contains(empty) || op.find("l")) continue;  // labels of nothing are outside
    DimValues dims = small;
    dims[empty] = 0;
    for (const auto& [what, p] : derived_of(op)) expect_same(op, p, random_inputs(p, dims, 1, {.finite = false}), dims);
  }
}

std::map<std::string, std::string> bodies(const Program& p) {
  std::map<std::string, std::string> found;
  for (const Definition& d : p.forward.definitions) found[p.tensors[d.target()].name] = print(p, d);
  return found;
}

// Rounded as declared, after every operation: the same bits as without derivatives.
TEST_P(Derivatives, LeaveTheBitsOfWhatWasWritten) {
  const Program op = parse_op(GetParam().text), alone = derive(op, infer_only()).program;
  for (const Program& p : {vjp(op), jvp(op)}) {
    const Program beside = derive(p, infer_only()).program;
    const Arrays inputs = random_inputs(p, GetParam().small, 4, {.finite = false});
    Arrays own;
    for (TensorId t : op.inputs) own.insert(*inputs.find(op.tensors[t].name));
    const Arrays x = evaluate(alone, own, GetParam().small), y = evaluate(beside, inputs, GetParam().small);
    for (TensorId t : op.outputs) {
      const std::string& name = op.tensors[t].name;
      for (size_t i = 0; i < x.at(name).size(); ++i)
        EXPECT_TRUE(x.at(name).at(i) == y.at(name).at(i) || (std::isnan(x.at(name).at(i)) && std::isnan(y.at(name).at(i))))
            << name << " " << i;
    }
  }
}

class DerivativesOfAuditOps : public ::testing::TestWithParam<size_t> {};
constexpr size_t kParts = 4, kOfEach = 80;
INSTANTIATE_TEST_SUITE_P(Part, DerivativesOfAuditOps, ::testing::Range(size_t{0}, kParts));

// In doubles, as the program is derived and as it is compiled. One of vjp, jvp and hvp of each op, in turn.
TEST_P(DerivativesOfAuditOps, AreWhatWasDerived) {
  constexpr double kTolerance = 1e-7;     // of a tensor's largest value: what cancels has the roundings of its parts
  constexpr int64_t kMostPoints = 20000;  // of all dims together: larger scatters take the evaluator a minute
  Module module;
  fs::path file;
  size_t compared = 0, turn = GetParam();
  for (const AuditCase& c : audit_sample(audit_cases(GetParam(), kParts), kOfEach)) {
    if (c.file != file) module = parse(content(file = c.file), c.file.string());
    const Program& op = *module.find(c.op);
    int64_t points = 1;
    for (const auto& [dim, size] : sample_dims(op, c.seed, c.dims)) points *= std::max<int64_t>(size, 1);
    if (op.steps || points > kMostPoints) continue;
    const auto derived = derived_of(op);
    for (const auto& [what, p] : {*std::next(derived.begin(), static_cast<std::ptrdiff_t>(turn++ % derived.size()))}) {
      const DimValues dims = solve_dims(p, {}, sample_dims(p, c.seed, c.dims));
      const Arrays inputs = random_inputs(p, dims, c.seed, {.finite = false});
      const Program simple = derive(p, infer_only(), dims).program;
      const Arrays plain = evaluate(readable_at(p, dims), inputs, dims, kExact),
                   got = evaluate(readable_at(simple, dims), inputs, dims, kExact);
      for (TensorId t : p.outputs) {
        const Array &x = plain.at(p.tensors[t].name), &y = got.at(p.tensors[t].name);
        double largest = 0, worst = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          if (!std::isfinite(x.at(i))) continue;
          largest = std::max(largest, std::abs(x.at(i)));
          worst = std::isfinite(y.at(i)) ? std::max(worst, std::abs(x.at(i) - y.at(i))) : std::numeric_limits<double>::infinity();
        }
        ++compared;
        EXPECT_LE(worst, kTolerance * (1 + largest)) << c.name() << " " << what << " " << p.tensors[t].name << "\n"
                                                     << print(p) << print(simple);
      }
    }
  }
  EXPECT_GT(compared, kOfEach * 5 / 6);
}

// (x + c) - c is x for real numbers. Who writes it wants the roundings.
TEST(DerivativesBesideWritten, RoundingsStay) {
  const Program op = parse_op("op f(x: f32[N]) -> (y) { r[n] = (x[n] + 1e8) - 1e8\n y[n] = r[n] * x[n] }");
  EXPECT_EQ(bodies(derive(vjp(op), infer_only()).program).at("y"), "y[n] = (x[n] + 100000000 - 100000000) * x[n]");
  EXPECT_EQ(bodies(derive(vjp(op), infer_only()).program).at("grad_x"), "grad_x[n] = 2 * (x[n] * dy[n])");
}

// What reads derivatives and was written stays as well, and derivatives of it are simplified in their turn.
TEST(DerivativesBesideWritten, TakeTurns) {
  Program p = vjp(parse_op("op f(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d])\n y[n] = m[n] + log(sum(d: exp(x[n,d] - m[n]))) }"));
  std::set<std::string> derived;
  for (const Definition& d : p.forward.definitions)
    if (d.derived) derived.insert(p.tensors[d.target()].name);
  EXPECT_EQ(derived, (std::set<std::string>{"d_y_sum", "d_m", "m_ties", "grad_x"}));
  std::string text = print(p);
  text.replace(text.find("grad_x)"), 7, "z, twice)");
  text.insert(text.rfind('}'), "  z[n,d] = (x[n,d] - grad_x[n,d] + 1e8) - 1e8\n  twice[n] = sum(d: z[n,d] - z[n,d] + x[n,d])\n");
  Program q = parse_op(text);
  derived.insert("twice");
  for (Definition& d : q.forward.definitions) d.derived = derived.contains(q.tensors[d.target()].name);
  const auto simple = bodies(derive(q, infer_only()).program);
  EXPECT_FALSE(simple.contains("m_ties"));
  EXPECT_NE(simple.at("z").find("+ 100000000 - 100000000"), std::string::npos) << simple.at("z");
  EXPECT_EQ(simple.at("twice"), "twice[n] = sum(d: x[n,d])");
  for (Definition& d : q.forward.definitions) d.derived = false;
  EXPECT_TRUE(bodies(derive(q, infer_only()).program).contains("m_ties"));
}

}  // namespace
}  // namespace xhat
