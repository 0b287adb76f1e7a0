// Cases of TVM's tests of common subexpressions: relay's four (test_pass_eliminate_common_subexpr.py, v0.19) and those of
// relax's (test_transform_cse.py) that are about pure expressions. Each as the user repeats it, beside the same op with the
// shared part written once: what is lowered must be the same program, evaluate the shared part once, and do the same work.
// Not here: prints, assertions, storage, external functions, shapes and tuples, which the language does not have.
#include <gtest/gtest.h>

#include "fusion/plan/plan.h"
#include "tests/helpers/golden.h"

namespace xhat::testing::cse_anchor_test {
namespace {

struct Repeated {
  std::string name;
  std::string text;
  std::string once;  // the same, without the repetition
  Op op;             // of the shared part
  int nodes;         // so many are left in the lowered forward
  std::string functions = "";
};
void PrintTo(const Repeated& r, std::ostream* out) { *out << r.name; }

std::string f2(const std::string& outputs, const std::string& statements) {
  return "op f(x: f32[2,3], y: f32[2,3]) -> (" + outputs + ") {\n" + statements + "\n}";
}
std::string branch(const std::string& statements) {
  return "op f(x: f32[2,3], y: f32[2,3], c: bool) -> (d) {\n" + statements + "\n}";
}

const std::vector<Repeated>& repeated() {
  static const std::vector<Repeated> all = {
      {"relay_simple",
       "op f(x: f32[1,16]) -> (y) {\n r1[i,j] = relu(x[i,j])\n r2[i,j] = relu(x[i,j])\n y1[i,j] = r1[i,j] + 1\n"
       " y2[i,j] = r2[i,j] + 1\n y[i,j] = y1[i,j] + y2[i,j]\n}",
       "op f(x: f32[1,16]) -> (y) {\n y[i,j] = let z = relu(x[i,j]) + 1 in z + z\n}", Op::relu, 1},
      // There a callback may leave the additions; nothing here keeps what is equal apart.
      {"relay_skip_add",
       "op f(x: f32[1,16]) -> (y) {\n y1[i,j] = relu(x[i,j]) + 1\n y2[i,j] = relu(x[i,j]) + 1\n y[i,j] = y1[i,j] + y2[i,j]\n}",
       "op f(x: f32[1,16]) -> (y) {\n y[i,j] = let z = relu(x[i,j]) + 1 in z + z\n}", Op::add, 2},
      // The same element of batch_norm's outputs, taken twice.
      {"relay_tuple_index",
       "op f(x: f32[N,C]) -> (y) {\n (a, m) = bn(x)\n (b, k) = bn(x)\n y[n,c] = (a[n,c] + 1) + (b[n,c] + 1)\n}",
       "op f(x: f32[N,C]) -> (y) {\n (a, m) = bn(x)\n y[n,c] = let z = a[n,c] + 1 in z + z\n}", Op::sqrt, 1,
       "op bn(x: f32[N,C]) -> (y, mean) {\n mean[c] = sum(n: x[n,c]) / N\n"
       " y[n,c] = (x[n,c] - mean[c]) / sqrt(sum(k: (x[k,c] - mean[c])^2) / N + 1e-5)\n}\n"},
      // A function of two, called twice on the same tuple.
      {"relay_tuple_argument", f2("z", " a = f2(x, y)\n b = f2(x, y)\n z[i,j] = a[i,j] + b[i,j]"),
       f2("z", " a = f2(x, y)\n z[i,j] = a[i,j] + a[i,j]"), Op::exp, 1,
       "op f2(u: f32[N,M], v: f32[N,M]) -> (w) { w[i,j] = exp(u[i,j]) * v[i,j] }\n"},
      {"simple", f2("z", " a[i,j] = x[i,j] + y[i,j]\n b[i,j] = x[i,j] + y[i,j]\n z[i,j] = a[i,j] * b[i,j]"),
       f2("z", " z[i,j] = let a = x[i,j] + y[i,j] in a * a"), Op::add, 1},
      {"inner_function", "op f(x: i32) -> (y) {\n a = bar(x)\n b = bar(x)\n c = bar(x)\n d = bar(x)\n y = (a + b) + (c + d)\n}",
       "op f(x: i32) -> (y) {\n a = bar(x)\n y = let s = a + a in s + s\n}", Op::add, 5,
       "op bar(x: i32) -> (y) {\n l = x + x\n m = x + x\n n = l + m\n y = n + n\n}\n"},
      {"call_only", "op f(x: f32[160]) -> (y) {\n a[i in 0..160] = f32(i)\n b[i in 0..160] = f32(i)\n y[i] = (x[i] + a[i]) + b[i]\n}",
       "op f(x: f32[160]) -> (y) {\n y[i] = let a = f32(i) in (x[i] + a) + a\n}", Op::cast, 1},
      // Theirs keeps one per block; a definition has no block.
      {"no_cse_across_dataflow",
       f2("z", " a[i,j] = x[i,j] + y[i,j]\n b[i,j] = x[i,j] + y[i,j]\n c[i,j] = a[i,j] * b[i,j]\n"
               " d[i,j] = x[i,j] + y[i,j]\n e[i,j] = d[i,j] * d[i,j]\n z[i,j] = c[i,j] + e[i,j]"),
       f2("z", " z[i,j] = let a = x[i,j] + y[i,j] in let b = a * a in b + b"), Op::mul, 1},
      {"duplicate_before_branch",
       branch(" a[i,j] = x[i,j] + y[i,j]\n b[i,j] = x[i,j] + y[i,j]\n"
              " d[i,j] = if c then a[i,j] * (x[i,j] * b[i,j]) else a[i,j] * (y[i,j] * b[i,j])"),
       branch(" d[i,j] = let a = x[i,j] + y[i,j] in if c then a * (x[i,j] * a) else a * (y[i,j] * a)"), Op::add, 1},
      // Theirs are apart in the two branches. Here both are one node, and only what is selected is asked for.
      {"across_if_and_else", branch(" d[i,j] = if c then x[i,j] * (x[i,j] + y[i,j]) else y[i,j] * (x[i,j] + y[i,j])"),
       branch(" d[i,j] = let a = x[i,j] + y[i,j] in if c then x[i,j] * a else y[i,j] * a"), Op::add, 1},
      {"after_branch",
       branch(" b[i,j] = if c then x[i,j] * (x[i,j] + y[i,j]) else y[i,j] * (x[i,j] + y[i,j])\n d[i,j] = b[i,j] * (x[i,j] + y[i,j])"),
       branch(" d[i,j] = let a = x[i,j] + y[i,j] in (if c then x[i,j] * a else y[i,j] * a) * a"), Op::add, 1},
      // Reductions, which theirs do not have: a sum is a definition of its own, and there is one.
      {"sums", f2("z", " z[i,j] = exp(sum(k: x[i,k] * y[i,k])) + sum(m: x[i,m] * y[i,m]) * y[i,j]"),
       f2("z", " s[i] = sum(k: x[i,k] * y[i,k])\n z[i,j] = exp(s[i]) + s[i] * y[i,j]"), Op::sum, 1},
  };
  return all;
}

Program lowered(const std::string& text) { return run_passes(parse_op(text, "f"), "calls, inline, simplify"); }

int nodes(const Program& p, Op op) {
  std::vector<Id> roots;
  for (const Definition& d : p.definitions()) roots.push_back(d.body);
  int n = 0;
  for (Id id : reachable(*p.arena, roots)) n += (*p.arena)[id].op == op;
  return n;
}

class CommonSubexpressions : public ::testing::TestWithParam<Repeated> {};

TEST_P(CommonSubexpressions, AreOneInTheLoweredForward) {
  const Repeated& r = GetParam();
  Program got = lowered(r.functions + r.text), want = lowered(r.functions + r.once);
  EXPECT_EQ(nodes(got, r.op), r.nodes) << print(got);
  EXPECT_EQ(nodes(want, r.op), r.nodes) << print(want);
  EXPECT_EQ(got.definitions().size(), want.definitions().size()) << print(got) << print(want);
  DimValues dims = sample_dims(got, 3);
  KernelPlan planned = plan_kernels(got, dims), best = plan_kernels(want, dims);
  EXPECT_EQ(planned.flops, best.flops) << print(got);
  EXPECT_EQ(planned.kernels.size(), best.kernels.size());
  EXPECT_EQ(planned.bytes_moved, best.bytes_moved);
  Arrays data = random_data(got, dims, 4);
  EXPECT_EQ(difference(evaluate_on(parse_op(r.functions + r.text, "f"), data, dims), evaluate_on(got, data, dims), 0), "");
}

INSTANTIATE_TEST_SUITE_P(Tvm, CommonSubexpressions, ::testing::ValuesIn(repeated()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace xhat::testing::cse_anchor_test
