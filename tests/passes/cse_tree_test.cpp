// The normal form: what is equal in it, what is not, and the expressions that come back out.
#include "cse/match/tensor_expr_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cse/match/unify.h"
#include "tests/helpers/cse_helper.h"

namespace xhat::cse_tree_test {
namespace {

class CseTree : public ::testing::Test {
 protected:
  // The body of y, over a[i] b[i] c[i] and the scalars v and w.
  Id body(const std::string& text, const std::string& other = "0") {
    p = parse_op("op f(a: f32[N], b: f32[N], c: f32[N], v: f32, w: f32) -> (y, z) {\n y[i in 0..N] = " + text +
                 "\n z[i in 0..N] = " + other + " }");
    tree.emplace(*p.arena);
    return p.definition_of(p.outputs[0])->body;
  }
  bool same(const std::string& x, const std::string& y) {
    Id id = body(x, y);
    return tree->canonical(id) == tree->canonical(p.definition_of(p.outputs[1])->body);
  }
  std::string normal(const std::string& text) {
    Id id = body(text);
    return print(p, tree->canonical(id));
  }
  Program p;
  std::optional<TensorExprTree> tree;
};

// Positions are whole numbers; data may be the largest there is.
TEST_F(CseTree, BoundsOnPositionsHaveOneForm) {
  EXPECT_TRUE(same("if i < N + 1 then a[i] else b[i]", "if i <= N then a[i] else b[i]"));
  EXPECT_TRUE(same("if i <= N - 1 then a[i] else b[i]", "if i < N then a[i] else b[i]"));
  EXPECT_TRUE(same("if i - 1 < N then a[i] else b[i]", "if i <= N then a[i] else b[i]"));
  EXPECT_TRUE(same("(if i < N + 1 then a[i] else 0) - (if i <= N then a[i] else 0)", "0"));
  EXPECT_FALSE(same("if i < N + 2 then a[i] else b[i]", "if i <= N then a[i] else b[i]"));
  EXPECT_FALSE(same("if i64(a[i]) < i64(b[i]) + 1 then a[i] else b[i]", "if i64(a[i]) <= i64(b[i]) then a[i] else b[i]"));
}

TEST_F(CseTree, AssociationAndOrderVanish) {
  EXPECT_TRUE(same("(a[i] + b[i]) + c[i]", "c[i] + (b[i] + a[i])"));
  EXPECT_TRUE(same("a[i]*b[i]/v", "b[i]*(a[i]/v)"));
  EXPECT_TRUE(same("a[i]*b[i] + a[i]*c[i]", "(c[i] + b[i])*a[i]"));
  EXPECT_FALSE(same("a[i]*b[i] + c[i]", "a[i]*c[i] + b[i]"));
}

// What is left of the product stays below one logarithm: two negative factors have one, too.
TEST_F(CseTree, LogarithmsOfExponentialsAreSums) {
  EXPECT_TRUE(same("log(exp(a[i] - v))", "a[i] - v"));
  EXPECT_TRUE(same("log(exp(a[i])/w)", "a[i] - log(w)"));
  EXPECT_TRUE(same("log(1/w) + log(w)", "0"));
  EXPECT_TRUE(same("log(exp(a[i])/v/(exp(b[i])/w))", "a[i] - b[i] + log(w/v)"));
  EXPECT_TRUE(same("log(2*sqrt(exp(a[i]))*v)", "a[i]/2 + log(v*2)"));
  EXPECT_FALSE(same("log(exp(a[i])/(exp(a[i]) + exp(b[i])))", "a[i] - log(exp(a[i]) + exp(b[i]))")) << "where both are large";
  EXPECT_FALSE(same("log(exp(a[i]) + v)", "a[i] + log(v)"));
  EXPECT_FALSE(same("log(b[i]*c[i])", "log(b[i]) + log(c[i])"));
}

TEST_F(CseTree, OddAndEvenFunctionsHaveOneSign) {
  EXPECT_TRUE(same("cos(a[i] - b[i])", "cos(b[i] - a[i])"));
  EXPECT_TRUE(same("sin(a[i] - b[i])", "-sin(b[i] - a[i])"));
  EXPECT_TRUE(same("tanh(v*(a[i] - b[i]))*abs(b[i] - a[i])", "-(tanh(v*(b[i] - a[i]))*abs(-2*(a[i] - b[i])/2))"));
  EXPECT_TRUE(same("hypot(a[i] - b[i], -c[i])", "hypot(b[i] - a[i], c[i])"));
  EXPECT_TRUE(same("sin(sin(a[i] - b[i]) - sin(b[i] - a[i]))", "sin(2*sin(a[i] - b[i]))"));
  EXPECT_TRUE(same("erf(a[i] - b[i]) + erf(b[i] - a[i])", "0"));
  // What jumps has the same bits below it.
  EXPECT_TRUE(same("round(a[i] - b[i])", "-round(b[i] - a[i])"));
  EXPECT_FALSE(same("floor(a[i] - b[i])", "-floor(b[i] - a[i])"));
  EXPECT_FALSE(same("exp(a[i] - b[i])", "exp(b[i] - a[i])"));
  EXPECT_FALSE(same("sin(a[i] - b[i])", "sin(b[i] - a[i])"));
}

TEST_F(CseTree, TermsCancelAndCollect) {
  EXPECT_EQ(normal("a[i] + b[i] - a[i]"), "b[i]");
  EXPECT_EQ(normal("a[i] - a[i]"), "0");
  EXPECT_EQ(normal("a[i]/b[i]*b[i]"), "a[i]");
  EXPECT_EQ(normal("0.5*a[i] + 0.5*a[i]"), "a[i]");
  EXPECT_EQ(normal("a[i]/N*N"), "a[i]");
  EXPECT_EQ(normal("a[i]/(N*2) - 0.5*a[i]/N"), "0");
}

TEST_F(CseTree, NumbersThatDifferByRoundingsAreOne) {
  EXPECT_EQ(normal("exp(-0.5*a[i]^2) - exp(-(a[i]/1.4142135623730951)^2)"), "0");
  EXPECT_TRUE(same("sin(0.1*(3*a[i]))", "sin(0.3*a[i])"));
  EXPECT_TRUE(same("b[i]*tanh(a[i]/3 + 0.1*(3*c[i]))", "tanh(0.3*c[i] + 0.3333333333333333*a[i])*b[i]"));
  EXPECT_FALSE(same("exp(0.3*a[i])", "exp(0.30000000000001*a[i])"));
}

TEST_F(CseTree, FunctionsOfOppositeValuesMeet) {
  EXPECT_EQ(normal("exp(a[i])*b[i]*exp(-a[i])"), "b[i]");
  EXPECT_TRUE(same("exp(a[i] - b[i])*exp(b[i] - a[i])^2", "exp(b[i] - a[i])"));
  EXPECT_TRUE(same("v*exp(a[i])/exp(-a[i])", "v*exp(a[i])^2"));
  EXPECT_EQ(normal("sigmoid(a[i]) + sigmoid(-a[i])"), "1");
  EXPECT_TRUE(same("c[i] + 2*v*sigmoid(a[i] - b[i]) + 2*v*sigmoid(b[i] - a[i])", "c[i] + 2*v"));
  EXPECT_TRUE(same("v*softplus(a[i] - b[i]) - v*softplus(b[i] - a[i])", "v*(a[i] - b[i])"));
  EXPECT_FALSE(same("exp(a[i])*exp(-b[i])", "1"));
  EXPECT_FALSE(same("sigmoid(a[i]) + 2*sigmoid(-a[i])", "1"));
  EXPECT_FALSE(same("softplus(a[i]) + softplus(-a[i])", "a[i]"));
}

// Squares of what may be large divide one by one.
TEST_F(CseTree, SumsOfExponentialsDivideOneByOne) {
  auto divisions = [&](const std::string& text) { return std::ranges::count(normal(text), '/'); };
  EXPECT_EQ(divisions("a[i]/(exp(a[i]) + exp(b[i]))^2"), 2);
  EXPECT_EQ(divisions("a[i]/(exp(a[i]) + v)^3"), 3);
  EXPECT_EQ(divisions("a[i]/(exp(min(a[i], 20)) + v)^2"), 1);
  EXPECT_EQ(divisions("a[i]/(b[i] + v)^2"), 1);
  EXPECT_TRUE(same("a[i]/(exp(a[i]) + v)/(exp(a[i]) + v)", "a[i]/(exp(a[i]) + v)^2"));
  EXPECT_TRUE(same("a[i]*(exp(a[i]) + v)^-2.5", "a[i]/(exp(a[i]) + v)/(exp(a[i]) + v)^1.5"));
}

TEST_F(CseTree, WhatCancelsAPartOfAnotherTermGoes) {
  EXPECT_TRUE(same("v*(a[i] + b[i]) - v*a[i] + c[i]", "v*b[i] + c[i]"));
  EXPECT_TRUE(same("exp(a[i])*(b[i]*exp(-a[i]) + v) - b[i]", "v*exp(a[i])"));
  EXPECT_TRUE(same("w - w*(1 - a[i]*b[i])", "w*(a[i]*b[i])"));
  EXPECT_FALSE(same("v*(a[i] + b[i]) - w*a[i]", "v*b[i]"));
  EXPECT_FALSE(same("v*(a[i] + b[i]) - 2*v*a[i] + c[i]", "v*b[i] + c[i]"));
}

TEST_F(CseTree, RootsAreHalfPowers) {
  EXPECT_EQ(normal("sqrt(a[i])*sqrt(a[i])"), "a[i]");
  EXPECT_TRUE(same("rsqrt(a[i])*a[i]", "sqrt(a[i])"));
  EXPECT_TRUE(same("a[i]^-0.5", "1/sqrt(a[i])"));
  // The root of a square is not its base.
  EXPECT_NE(normal("sqrt(a[i]^2)"), "a[i]");
  EXPECT_TRUE(same("sqrt(a[i]*b[i])^2", "a[i]*b[i]"));
}

TEST_F(CseTree, RootsOfInversesAreInversesOfRoots) {
  EXPECT_TRUE(same("sqrt(1/(a[i]*b[i]))", "1/sqrt(a[i]*b[i])"));
  EXPECT_TRUE(same("sqrt(a[i]/b[i])", "1/sqrt(b[i]/a[i])"));
  EXPECT_TRUE(same("rsqrt(v/(a[i]*b[i]))", "sqrt(a[i]*b[i]/v)"));
  EXPECT_TRUE(same("sqrt(1/a[i])", "rsqrt(a[i])"));
  EXPECT_FALSE(same("sqrt(1/(a[i]*b[i]))", "sqrt(a[i]*b[i])"));
}

TEST_F(CseTree, WhatIsDividedByItsSumIsOne) {
  EXPECT_EQ(normal("a[i]/(a[i] + b[i]) + b[i]/(a[i] + b[i])"), "1");
  EXPECT_EQ(normal("v*exp(a[i])/(w + exp(a[i])) + v*w/(w + exp(a[i])) - v"), "0");
  EXPECT_EQ(normal("2*c[i]*a[i]/(a[i] + b[i])^2 + 2*c[i]*b[i]/(a[i] + b[i])^2"), "2 * c[i] / (a[i] + b[i])");
  EXPECT_TRUE(same("c[i] + 1/(1 + a[i]) + a[i]/(1 + a[i])", "c[i] + 1"));
  // Not all of the sum, or not as often, or divided by more than it was.
  EXPECT_FALSE(same("a[i]/(a[i] + b[i] + c[i]) + b[i]/(a[i] + b[i] + c[i])", "1"));
  EXPECT_FALSE(same("2*a[i]/(a[i] + b[i]) + b[i]/(a[i] + b[i])", "1"));
  EXPECT_FALSE(same("1/(a[i] + b[i]) + c[i]/(a[i] + b[i])", "1/a[i]"));
}

TEST_F(CseTree, OppositeChoicesAreOne) {
  EXPECT_TRUE(same("(if i < 3 then a[i] else 0) + (if 3 <= i then b[i] else c[i])", "if i < 3 then a[i] + c[i] else b[i]"));
  EXPECT_TRUE(same("(if a[i] == v then b[i] else 0) + (if a[i] != v then c[i] else 0)", "if a[i] == v then b[i] else c[i]"));
  // Of a NaN neither holds.
  EXPECT_FALSE(same("(if a[i] < v then b[i] else 0) + (if v <= a[i] then c[i] else 0)", "if a[i] < v then b[i] else c[i]"));
}

TEST_F(CseTree, ChoicesByTheSameComparisonAreOne) {
  const std::string half = "(if a[i] == 0 then 0.5*b[i] else 0)";
  EXPECT_TRUE(same("(if 0 < a[i] then b[i] else " + half + ") + " + half, "if 0 <= a[i] then b[i] else 0"));
  EXPECT_TRUE(same("(if 0 < a[i] then b[i] else 0) + (if a[i] <= 0 then c[i] else 0)", "if 0 < a[i] then b[i] else c[i]"));
  EXPECT_TRUE(same("relu(a[i])*b[i] + (if 0 < a[i] then a[i]*b[i] else 0)", "if 0 < a[i] then 2*a[i]*b[i] else 0"));
  EXPECT_TRUE(same("max(a[i], 0)*b[i] + (if 0 < a[i] then a[i]*b[i] else 0)", "if 0 < a[i] then 2*a[i]*b[i] else 0"));
  EXPECT_TRUE(same("(if a[i] < v then b[i] else 0) + (if a[i] != v then 0 else b[i])", "if v < a[i] then 0 else b[i]"));
  // Half of b where a is 0 is another function.
  EXPECT_FALSE(same("(if 0 < a[i] then b[i] else 0) + " + half, "if 0 <= a[i] then b[i] else 0"));
  EXPECT_FALSE(same("(if 0 < a[i] then b[i] else 0) + " + half, "if 0 < a[i] then b[i] else 0"));
}

TEST_F(CseTree, SignsComeOutOfSums) {
  EXPECT_EQ(normal("-(a[i] - b[i])"), "b[i] - a[i]");
  EXPECT_TRUE(same("(a[i] - b[i])*(b[i] - a[i])", "-((a[i] - b[i])^2)"));
  EXPECT_EQ(normal("1 - a[i]*a[i]"), "1 - a[i] * a[i]");
}

TEST_F(CseTree, InvariantFactorsStandTogether) {
  EXPECT_EQ(normal("a[i]*v/w"), "v / w * a[i]");
  EXPECT_TRUE(same("a[i]/w/v*b[i]", "(1/(v*w))*(a[i]*b[i])"));
}

TEST_F(CseTree, SpecialNumbersStayAsWritten) {
  EXPECT_TRUE(same("a[i]*inf", "inf*a[i]"));
  EXPECT_NE(normal("a[i]/0"), "a[i]");
  EXPECT_EQ(normal("if a[i] - b[i] < a[i] then b[i] else c[i]"), "if a[i] - b[i] < a[i] then b[i] else c[i]");
}

TEST_F(CseTree, ExpandMultipliesOutUpToALimit) {
  Id id = body("(a[i] + b[i])^2 - a[i]^2 - 2*a[i]*b[i] - b[i]^2");
  auto terms = tree->expand(tree->form(id), 32);
  ASSERT_TRUE(terms);
  // A sum that is no product is one term: open it first.
  std::vector<Product> opened;
  const auto* inner = tree->terms(tree->form(id).factors[0].atom);
  ASSERT_TRUE(inner);
  for (const Product& t : *inner) {
    auto more = tree->expand(t, 32);
    opened.insert(opened.end(), more->begin(), more->end());
  }
  EXPECT_TRUE(tree->add(DType::f32, opened).is_zero());
  EXPECT_TRUE(terms->empty());
  Id big = body("(a[i] + b[i] + c[i])^8*(a[i] + b[i] + v)^8");
  EXPECT_FALSE(tree->expand(tree->form(big), 32));
}

TEST_F(CseTree, UnifyFindsAxes) {
  // Pattern axes are i and j; k and l are the target's.
  Program q = parse_op(
      "op f(x: f32[N,M], m: f32[N]) -> (y, z) {\n y[i,j] = exp(x[i,j] - m[i])\n"
      " z[k in 0..N, l in 0..M] = exp(x[k,M-1-l] - m[k]) }");
  TensorExprTree t(*q.arena);
  Arena& a = *q.arena;
  Id pattern = t.canonical(q.definition_of(q.outputs[0])->body);
  Id target = t.canonical(q.definition_of(q.outputs[1])->body);
  Unifier unifier(t, {a.axis("i"), a.axis("j")});
  auto found = unifier.atoms(pattern, target);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at(a.axis("i")), a.axis("k"));
  EXPECT_EQ(print(q, tidy_index(a, found->at(a.axis("j")))), "M - 1 - l");
  EXPECT_FALSE(unifier.atoms(pattern, t.canonical(a.read(q.inputs[1], DType::f32, {{a.axis("k")}}))));
}

TEST_F(CseTree, UnifySolvesShiftsAndBacktracks) {
  Program q = parse_op(
      "op f(x: f32[N+2], w: f32[N+2]) -> (y, z) {\n y[i in 0..N] = sin(x[i+1]*w[i])\n"
      " z[k in 0..N] = sin(w[N-k]*x[N-k+1]) }");
  TensorExprTree t(*q.arena);
  Arena& a = *q.arena;
  Unifier unifier(t, {a.axis("i")});
  auto found = unifier.atoms(t.canonical(q.definition_of(q.outputs[0])->body), t.canonical(q.definition_of(q.outputs[1])->body));
  ASSERT_TRUE(found);
  EXPECT_EQ(print(q, found->at(a.axis("i"))), "N - k");
}

// What is found for the axes `of` of the pattern, over those of the target: one text each, or none if nothing makes the two equal.
std::vector<std::string> solved(const std::string& pattern, const std::string& target, const std::vector<std::string>& of,
                                const std::vector<std::string>& over) {
  auto definition = [](const std::string& name, const std::vector<std::string>& axes, const std::string& body) {
    return fmt::format("\n {}[{} in 0..N] = sin({})", name, fmt::join(axes, " in 0..N, "), body);
  };
  Program q =
      parse_op("op f(x: f32[9*N+9], w: f32[9*N+9]) -> (y, z) {" + definition("y", of, pattern) + definition("z", over, target) + " }");
  TensorExprTree t(*q.arena);
  Arena& a = *q.arena;
  std::vector<Id> axes;
  for (const std::string& x : of) axes.push_back(a.axis(x));
  Unifier unifier(t, {axes.begin(), axes.end()});
  auto found = unifier.atoms(t.canonical(q.definition_of(q.outputs[0])->body), t.canonical(q.definition_of(q.outputs[1])->body));
  std::vector<std::string> texts;
  if (found)
    for (Id x : axes) texts.push_back(print(q, tidy_index(a, found->at(x))));
  return texts;
}

TEST_F(CseTree, UnifySolvesAffineIndices) {
  struct Case {
    const char *pattern, *target;
    std::vector<std::string> binding;  // of i, over k
  };
  const Case table[] = {
      {"x[2*i]", "x[2*k+2]", {"k + 1"}},         {"x[2*i]", "x[2*k+1]", {}},
      {"x[2*i+1]", "x[4*k+3]", {"2 * k + 1"}},   {"x[3*i]", "x[2*k]", {}},
      {"x[2*(N-1-i)]", "x[2*k]", {"N - 1 - k"}}, {"x[i]*w[2*i]", "x[3*k+1]*w[6*k+2]", {"3 * k + 1"}},
      {"x[i]*w[2*i]", "x[3*k+1]*w[6*k]", {}},
  };
  for (const Case& c : table) EXPECT_EQ(solved(c.pattern, c.target, {"i"}, {"k"}), c.binding) << c.pattern << " " << c.target;
}

// The groups of GroupNorm: both axes of 8*g + k are to be found.
TEST_F(CseTree, UnifyTellsAxesOfAnIndexByCoefficients) {
  struct Case {
    const char *pattern, *target;
    std::vector<std::string> bindings;  // of i and j, over k and l
  };
  const Case table[] = {
      {"x[8*i+j]", "x[8*k+l]", {"k", "l"}},
      {"x[8*i+j]", "x[8*k+l+8]", {"k + 1", "l"}},
      {"x[8*i+j]", "x[4*k+l]", {}},
      {"x[8*i+j]", "x[8*k+l+1]", {}},
      {"x[i+j]", "x[k+l]", {}},
      {"x[N-i+2*j]", "x[N-k+2*l]", {"k", "l"}},
  };
  for (const Case& c : table) EXPECT_EQ(solved(c.pattern, c.target, {"i", "j"}, {"k", "l"}), c.bindings) << c.pattern << " " << c.target;
}

}  // namespace
}  // namespace xhat::cse_tree_test
