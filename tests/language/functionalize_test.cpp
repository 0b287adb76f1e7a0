// What imperative programs become: tests/programs/<name>.xh holds programs, each followed by what it is made into:
//
//   prog f(x: f32[N]) -> (y) { ... }
//   ==>
//   op f(x: f32[N]) -> (y) { ... }
//   ---
//
// XHAT_UPDATE_GOLDEN=1 writes what comes out now, for people to read in the diff. Each program is printed and read again, and its values
// are compared with the interpreter's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "ad/check/gradcheck.h"
#include "expr/eval/interpret.h"
#include "expr/imperative/functionalize.h"
#include "expr/text/ast.h"
#include "expr/text/import.h"

namespace xhat::functionalize_test {
namespace {

struct Example {
  std::string program, expected;
};

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(XHAT_SOURCE_DIR) / "tests" / "programs"))
    if (entry.path().extension() == ".xh") found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::vector<Example> examples_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<Example> found;
  std::string line;
  bool expected = false;
  found.emplace_back();
  while (std::getline(in, line)) {
    if (line == "---") {
      found.emplace_back();
      expected = false;
    } else if (line == "==>") {
      expected = true;
    } else {
      (expected ? found.back().expected : found.back().program) += line + "\n";
    }
  }
  return found;
}

std::string made_of(const Example& e) { return print(parse_op(e.program)); }

std::string trimmed(std::string s) {
  while (!s.empty() && s.back() == '\n') s.pop_back();
  return s;
}

void expect_values(const Example& e) {
  const Program made = parse_op(e.program);
  const auto file = ast::parse(e.program);
  const ast::Op* prog = &file->ops.back();
  const DimValues given = sample_dims(made, 1);
  const Arrays data = random_inputs(made, given, 7);
  Arrays wanted = interpret(*file, *prog, data, given);
  const Arrays got = evaluate(made, data, given, kExact);
  for (const ast::Parameter& p : prog->body.parameters)
    if (p.inout) {
      wanted[p.name + "_out"] = wanted.at(p.name);
      wanted.erase(p.name);
    }
  for (const auto& [name, array] : wanted) {
    ASSERT_TRUE(got.contains(name)) << name;
    ASSERT_EQ(got.at(name).shape, array.shape) << name;
    for (size_t i = 0; i < array.size(); ++i) {
      if (std::isnan(array.at(i)) && std::isnan(got.at(name).at(i))) continue;
      if (array.at(i) == got.at(name).at(i)) continue;  // infinities
      EXPECT_NEAR(got.at(name).at(i), array.at(i), 1e-9 * (1 + std::fabs(array.at(i)))) << name << " at " << i << "\n" << e.program;
    }
  }
}

class FunctionalizeTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(FunctionalizeTest, BecomesWhatIsWritten) {
  const bool update = std::getenv("XHAT_UPDATE_GOLDEN") != nullptr;
  std::string text;
  for (const Example& e : examples_of(GetParam())) {
    SCOPED_TRACE(e.program);
    const auto file = ast::parse(e.program);
    const std::string printed = ast::print(*file);
    EXPECT_EQ(ast::print(*ast::parse(printed)), printed);
    const std::string made = made_of(e);
    EXPECT_EQ(made_of({printed, ""}), made);
    text += (text.empty() ? "" : "---\n") + trimmed(e.program) + "\n==>\n" + trimmed(made) + "\n";
    if (!update) {
      EXPECT_EQ(trimmed(made), trimmed(e.expected));
    }
    expect_values(e);
  }
  if (update) std::ofstream(GetParam()) << text;
}

TEST(FunctionalizeStages, EachIsText) {
  const auto stages =
      imperative::stages("prog f(x: f32[N]) -> (s, y) { var s = 0.0; var y = clone(x); for i in 0..N { s += x[i]; y[i] *= 2 } }");
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(stages[0].text,
            "s = 0\n"
            "for i in 0..N {\n"
            "  carry s_1 = s, then s_2, to s_3\n"
            "  carry y = x, then y_1, to y_2\n"
            "  s_2 = s_1 + x[i]\n"
            "  y_1 = y with [i] = y[i] * 2\n"
            "}\n");
  EXPECT_EQ(stages[1].text,
            "s = 0\n"
            "s_3 = s + sum(i: x[i])\n"
            "y_2 = x with [i] = x[i] * 2 for i\n");
  EXPECT_EQ(stages[2].text,
            "op f(x: f32[N]) -> (s, y) {\n"
            "  s_1 = 0\n"
            "  s = s_1 + sum(i: x[i])\n"
            "  y[i0] = x[i0] * 2\n"
            "}\n");
}

// What a name stands for behind an `if` in an `if` is listed once for each place that binds it, not for each way to get there.
TEST(Functionalize, NestedConditionsAddWhatTheyBind) {
  auto nodes = [](int count) {
    std::string text = "prog f(x: f64[N], k: i64[N]) -> (y) {\n  var y = zeros f64[N]\n  for i in 0..N {\n    var best = x[i]\n";
    for (int n = 0; n < count; ++n)
      text += "    if k[i] > " + std::to_string(n) + " { if y[0] > " + std::to_string(n) + " { best = min(best, x[i] - " +
              std::to_string(n) + ".5) } }\n";
    const Program p = parse_op(text + "    y[i] = best + y[i/2]\n  }\n}");
    return print(p).size();
  };
  EXPECT_LT(nodes(8), 4 * nodes(4));
}

// A choice by data between values that were chosen by data is resolved once, not once for each of the 4^8 ways to come there.
TEST(Functionalize, ChoicesOfChoicesAreResolvedOnce) {
  const std::string text =
      "prog f(up: i32[8,V], x: i32[Q], y: i32[Q]) -> (r) {\n"
      "  var r = zeros i32[Q]\n"
      "  for q in 0..Q {\n"
      "    var a = x[q] % V\n"
      "    var b = y[q] % V\n"
      "    for m in 0..8 { if up[m,a] != up[m,b] { a = up[m,a] % V; b = (up[m,b] + 1) % V } }\n"
      "    r[q] = a\n"
      "  }\n"
      "}";
  const Program op = parse_op(text);
  EXPECT_FALSE(op.steps);
  const DimValues dims = {{"V", 5}, {"Q", 7}};
  const Arrays inputs = random_inputs(op, dims, 1);
  const auto file = ast::parse(text);
  EXPECT_EQ(evaluate(op, inputs, dims).at("r"), interpret(*file, file->ops[0], inputs, dims).at("r"));
}

// Everything that steps have in an arena goes along: rows, bounds, scalars and the ops of blocks.
TEST(Functionalize, CopiesOfStepsAreWholeAndShareNothing) {
  std::optional<Program> op = parse_op(
      "prog f(x: f64[N,M], ids: i32[N]) -> (y, n) {\n"
      "  var y = clone(x)\n"
      "  var n = i64(0)\n"
      "  var rest = 100.0\n"
      "  for t in 1..N-1 {\n"
      "    k = ids[t] % i32(N)\n"
      "    if y[t-1,0] > 0.0 { y[t,:] = y[k,:]*0.5 + y[t-1,M-1]*f64(t) } else { y[k,t % M] = y[t,0] - 1.0 }\n"
      "  }\n"
      "  while rest > 1.0 max 50 { n += 1; rest *= 0.5; y[n % N,0] += rest }\n"
      "}");
  ASSERT_TRUE(op->steps);
  const DimValues dims = {{"N", 5}, {"M", 3}};
  const Arrays inputs = random_inputs(*op, dims, 1);
  const Arrays expected = evaluate(*op, inputs, dims);
  const std::string text = print(*op);
  const std::weak_ptr<Arena> arena = op->arena;
  // Nodes before its own, so that ids differ.
  const Program other = parse_op("op g(a: f32[K,L,N]) -> (b) { b[l,n] = sum(k if k > 2: a[k,l,n]*3.0) + 7.0 }");
  const Program copy = copy_into(other.arena, *op);
  const Program own = own_copy(*op);
  op.reset();
  EXPECT_TRUE(arena.expired());
  for (const Program* p : {&copy, &own}) {
    EXPECT_EQ(print(*p), text);
    EXPECT_EQ(evaluate(*p, inputs, dims), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, FunctionalizeTest, ::testing::ValuesIn(files()),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace xhat::functionalize_test
