// Every error of the parser with its place and words, and the limits of nesting.
#include <gtest/gtest.h>

#include "expr/core/program.h"
#include "expr/core/syntax.h"
#include "expr/text/ast.h"
#include "expr/text/strangers.h"
#include "tests/helpers/ast_helpers.h"

namespace xhat::ast::parse_error_test {
namespace {

// The message and place of the error that the text causes.
std::string error_of(const std::string& text) {
  try {
    parse(text, "t.xh");
  } catch (const Error& e) {
    return std::to_string(e.pos().line) + ":" + std::to_string(e.pos().column) + ": " + e.message();
  }
  return "no error";
}
std::string error_in(const std::string& statements) {
  return error_of("op f() -> (y) {\n" + statements + "\n}");
}

TEST(ParseErrorTest, Heads) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "1:1: there is no op here; write op NAME(parameters) -> (outputs) { definitions }"},
      {"# only\n", "1:1: there is no op here; write op NAME(parameters) -> (outputs) { definitions }"},
      {"prog max() -> (y) { y = 1 }", "1:6: max is built in; give the prog another name"},
      {"prog f() -> (y) { y = x.turn(2) }",
       "1:25: there is no view .turn; views are .transpose(i,j) .reshape[...] .squeeze(i) .unsqueeze(i) .expand[...] .diagonal()"},
      {"prog f() -> (y) { y = full(1) }",
       "1:31: expected a type, found }; as in full(1) f32[N,C]; types are f64 f32 f16 bf16 i64 i32 u32 u8 bool"},
      {"prog f() -> (y) { var y }", "1:25: expected = after var y, found }; a variable begins with a value, as in var x = zeros f32[N]"},
      {"prog f() -> (y) { for i in 3 { } }", "1:30: expected .. and the end of the range, found {; as in for i in 0..N { }"},
      {"prog f() -> (y) { while y > 0 { } }", "1:31: expected max and the most iterations, found {; as in while x > 0 max 50 { }"},
      {"prog f() -> (y) { if y then 1 else 2 }",
       "1:24: if c then a else b stands inside an expression; the statement is if c { } else { }"},
      {"y = 1", "1:1: expected op, prog or grad, found y; as in op f(x: f32[N]) -> (y) { y[i] = x[i] }"},
      {"op (x) -> (y) { }", "1:4: expected a name after op, found ("},
      {"op if() -> (y) { }",
       "1:4: expected a name after op, found if, which is a reserved word; choose another name"},
      {"op max() -> (y) { y = 1 }", "1:4: max is built in; give the op another name"},
      {"op mean() -> (y) { y = 1 }", "1:4: mean is built in; give the op another name"},
      {"op f32() -> (y) { y = 1 }", "1:4: f32 is built in; give the op another name"},
      {"op pow() -> (y) { y = 1 }", "1:4: pow is built in; give the op another name"},
      {"grad exp(x) -> (y) { y = 1 }", "1:6: exp is built in; only ops of the file have a grad"},
      {"op f(x) -> (y) { }", "1:7: expected :, found ); a parameter is x: f32[N,C], a scalar one x: f32"},
      {"op f(x: float[N]) -> (y) { }", "1:9: expected a type, found float; write f32"},
      {"op f(x: Float32[N]) -> (y) { }", "1:9: expected a type, found Float32; write f32"},
      {"op f(x: f32(N)) -> (y) { }", "1:12: expected , or ) to close the ( at 1:5, found (; extents stand in brackets, as in x: f32[N,C]"},
      {"op f(x: f32 = 1) -> (y) { }",
       "1:13: expected , or ) to close the ( at 1:5, found =; parameters have no default; whoever calls gives every value"},
      {"op f(x: vector[N]) -> (y) { }",
       "1:9: expected a type, found vector; types are f64 f32 f16 bf16 i64 i32 u32 u8 bool"},
      {"op f(x: inout f32) -> (y) { }",
       "1:9: inout belongs to imperative programs (prog); an op never writes its parameters"},
      {"op f(x: f32[]) -> (y) { }",
       "1:13: an extent is missing; a scalar is written without brackets, x: f32"},
      {"op f(x: f32[N) -> (y) { }", "1:14: expected , or ] to close the [ at 1:12, found )"},
      {"op f(x: f32[N] y: f32) -> (y) { }", "1:16: expected , or ) to close the ( at 1:5, found y"},
      {"op f() (y) { }", "1:8: expected ->, found (; an op's head is op NAME(parameters) -> (outputs)"},
      {"op f() -> y { }", "1:11: expected (, found y; outputs stand in parentheses, as in -> (y)"},
      {"op f() -> () { }", "1:12: expected the name of an output, found ); an op has at least one"},
      {"op f() -> (y: f32) { }",
       "1:13: only names stand here; types and shapes of outputs follow from their definitions"},
      {"op f() -> (y) y = 1", "1:15: expected {, found y; definitions stand in { }"},
      {"op f() -> (y) { y = 1", "1:22: expected } to close the { at 1:15, found the end of the file"},
      {"op f() -> (y) {\n  y = 1\n\nop g() -> (z) { z = 1 }",
       "4:1: expected } to close the { at 1:15, found op; ops do not stand inside each other"},
      {"op f() -> (y) { y = 1 } }", "1:25: expected op, prog or grad, found }"},
      {"op f() -> (y) { y = 1 } op g() -> (y) { y = 1 }",
       "1:25: expected the end of the op, found op; a newline or ; ends it"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(error_of(text), want) << text;
}

TEST(ParseErrorTest, Statements) {
  const std::pair<const char*, const char*> rows[] = {
      {"y[0] = 1",
       "2:3: expected the name of an axis, found 0; the left side has new, distinct axes only, as in y[i,j] "
       "= ...; "
       "an index stands on the right"},
      {"y[i+1] = 1",
       "2:4: expected , or ], found +; the left side has new, distinct axes only, as in y[i,j] = ..."},
      {"y[i in 0] = 3", "2:9: expected .. and the end of the range of i, found ]; as in i in 0..N"},
      {"y[in] = 1",
       "2:3: expected the name of an axis, found in, which is a reserved word; choose another name"},
      {"y[i", "3:1: expected , or ] to close the [ at 2:2, found }"},
      {"y == 1", "2:3: expected =, found ==; == compares, = defines"},
      {"y += 1", "2:3: += belongs to imperative programs (prog); an op defines each name once"},
      {"y[i] *= 1", "2:6: *= belongs to imperative programs (prog); an op defines each name once"},
      {"y",
       "2:2: expected = or [ after y, found the end of the line; a definition is NAME[axes] = expression"},
      {"3 = y", "2:1: expected a definition, found 3; as in y[i,j] = x[j,i]"},
      {"then = 3", "2:1: expected a definition, found then, which is a reserved word; choose another name"},
      {"var x = 3", "2:1: var belongs to imperative programs (prog); an op holds definitions only"},
      {"for i in 0..3 { }", "2:1: for belongs to imperative programs (prog); an op holds definitions only"},
      {"while x { }", "2:1: while belongs to imperative programs (prog); an op holds definitions only"},
      {"if x { }",
       "2:1: if as a statement belongs to imperative programs (prog); here it stands inside an expression"},
      {"v.transpose(0,1) = x", "2:2: views such as .transpose belong to imperative programs (prog)"},
      {"(a, b) = exp(x)",
       "2:10: names in parentheses take the results of an op's call, as in (a, b) = f(x); this is none"},
      {"(a, b[i]) = f(x)", "2:6: only names stand here; write (a, b) = f(x)"},
      {"(a, b = f(x)", "2:7: expected , or ) to close the ( at 2:1, found ="},
      {"dim N", "2:6: expected =, found the end of the line; as in dim OH = H/2"},
      {"y = a b",
       "2:7: expected the end of the statement, found b; a newline or ; ends it; is a sign missing?"},
      {"y = a = b", "2:7: expected the end of the statement, found =; equality is written =="},
      {"y = 0..H",
       "2:6: expected the end of the statement, found ..; a range stands after in, as in y[i in 0..N]"},
      {"y = a)", "2:6: expected the end of the statement, found ); it closes nothing"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(error_in(text), want) << text;
}

TEST(ParseErrorTest, Expressions) {
  const std::pair<const char*, const char*> rows[] = {
      {"y =", "3:1: expected an expression, found }"},
      {"y = ;", "2:4: expected an expression, found ;"},
      {"y = a +", "3:1: expected an expression, found }"},
      {"\ty = a *\t)", "2:10: expected an expression, found )"},
      {"y = a < b < c", "2:11: comparisons do not chain: this < follows the < at 2:7; write a < b && b < c, or parentheses"},
      {"y = a == b + 1 != c", "2:16: comparisons do not chain: this != follows the == at 2:7; write a < b && b < c, or parentheses"},
      {"y = a ** b", "2:8: expected an expression, found *; a power is written a^b"},
      {"y = a // b",
       "2:8: expected an expression, found /; a comment starts with #; of integers a / b is rounded down, of floats write floor(a/b)"},
      {"y = a <> b", "2:8: expected an expression, found >; write a != b"},
      {"y = a => b", "2:7: expected the end of the statement, found =; equality is written =="},
      {"y = a & b", "2:7: & is no sign of the language; 'and' is written &&, of bits bit_and(a, b)"},
      {"y = a | b", "2:7: | is no sign of the language; 'or' is written ||, of bits bit_or(a, b), the absolute value abs(a)"},
      {"y = a $ b", "2:7: unexpected character $; names are made of letters, digits and _"},
      {"y = \xCE\xBB", "2:5: unexpected character \xCE\xBB; names are made of letters, digits and _"},
      {"y = \x01", "2:5: unexpected byte 1; names are made of letters, digits and _"},
      {"y = .5", "2:5: digits are missing before the point; write 0.5 for .5"},
      {"y = 1. + 2", "2:5: digits are missing after the point of 1.; write 1.0"},
      {"y = 2H", "2:5: 2H is neither a number nor a name; a product is written 2*H"},
      {"y = 1e", "2:5: 1e is neither a number nor a name; a product is written 1*e"},
      {"y = (a\nz = 3", "3:1: expected ) to close the ( at 2:5, found z"},
      {"y = f(a b)", "2:9: expected , or ) to close the ( at 2:6, found b"},
      {"y = x[a b]", "2:9: expected , or ] to close the [ at 2:6, found b"},
      {"y = x[a)", "2:8: expected , or ] to close the [ at 2:6, found )"},
      {"y = x[]", "2:7: an index is missing: write one index for each dimension, or x for a scalar"},
      {"y = x[:,c]", "2:7: slices such as x[:,c] belong to imperative programs (prog); name an axis"},
      {"y = x[1:2]", "2:8: slices such as x[:,c] belong to imperative programs (prog); name an axis"},
      {"y = if a then b",
       "2:16: expected else for the if at 2:5, found the end of the line; every if has an else; "
       "a line goes on inside ( ) or [ ], and beside a sign"},
      {"y = if a b", "2:10: expected then for the if at 2:5, found b"},
      {"y = if a else b", "2:10: expected then for the if at 2:5, found else"},
      {"y = let a = 3; b", "2:14: expected in for the let a at 2:5, found ;; a line goes on inside ( ) or [ ], and beside a sign"},
      {"y = let 3 = a in a", "2:9: expected a name after let, found 3; as in let a = x[i] in a * a"},
      {"y = then", "2:5: expected an expression, found then"},
      {"y = sum(x[i])", "2:5: sum needs its axes and a colon before the body, as in sum(i: x[i])"},
      {"y = mean(x)", "2:5: mean needs its axes and a colon before the body, as in mean(i: x[i])"},
      {"y = sum(2: x)", "2:9: expected the name of an axis to reduce over, found 2"},
      {"y = sum(k l: x)", "2:11: expected , or if or : after the axes of sum, found l; as in sum(k in 0..N if k < m: x[k])"},
      {"y = sum(k < N: x)", "2:11: expected , or if or : after the axes of sum, found <; as in sum(k in 0..N if k < m: x[k])"},
      {"y = sum(k if a b: x)", "2:16: expected : after the condition of sum, found b"},
      {"y = sum(k in 0: x)", "2:15: expected .. and the end of the range of k, found :; as in k in 0..N"},
      {"y = sum(k: x", "3:1: expected ) to close the ( at 2:8, found }"},
      {"y = f(x)[i]", "2:9: a call's result cannot be indexed; give it a definition of its own and index its name"},
      {"y = (a + b)[i]",
       "2:12: an expression in parentheses cannot be indexed; give it a definition of its own and "
       "index its name"},
      {"y = 2(a + b)", "2:6: a number cannot be called; a product is written a * b"},
      {"y = x.transpose(0,1)", "2:6: there is no .transpose; name the axes in another order: y[j,i] = a[i,j]"},
      {"y = x.expand(0,1)",
       "2:6: views such as .transpose belong to imperative programs (prog); here axes are named, as in y[j,i] = x[i,j]"},
      {"y = x.sum(1)", "2:6: there is no .sum; a reduction names its axes, as in sum(i: x[i])"},
      {"y = x.exp()", "2:6: there is no .exp; a function stands before its operand, as in exp(a)"},
      {"y = tensors.special.exp(x)",
       "2:12: views such as .transpose belong to imperative programs (prog); here axes are named, as in y[j,i] = x[i,j]"},
      {"y = x.T", "2:6: there is no .T; name the axes in another order: y[j,i] = a[i,j]"},
      {"y = x .* z", "2:7: signs and functions have no point: they are of elements, as in y[i] = a[i] * exp(b[i])"},
      {"y = exp.(z)", "2:8: signs and functions have no point: they are of elements, as in y[i] = a[i] * exp(b[i])"},
      {"y = clamp(x, min=0)", "2:17: expected , or ) to close the ( at 2:10, found =; arguments have no names: they stand in their order"},
      {"y = gelu(x, approximate=1)", "2:24: expected , or ) to close the ( at 2:9, found =; write 0.5*a*(1 + erf(a/sqrt(2)))"},
      {"y = Sum(k: x)", "2:10: expected , or ) to close the ( at 2:8, found :; did you mean sum?"},
      {"y = var(k: x)", "2:10: expected , or ) to close the ( at 2:8, found :; write m = mean(i: a[i]), then mean(i: (a[i] - m)^2)"},
      {"y = average(k: x)",
       "2:14: expected , or ) to close the ( at 2:12, found :; average is no reduction; those are sum, prod, mean, max, min, argmax, "
       "argmin, any "
       "and all"},
      {"y = sum{k} x", "2:5: sum needs its axes and a colon before the body, as in sum(i: x[i])"},
      {"y = x{k}", "2:6: expected the end of the statement, found {; indices stand in brackets, as in x[i,j]"},
      {"let y = x", "2:1: a definition begins with its name, as in y[i] = ...; let stands in an expression, as in let a = x[i] in a * a"},
      {"y = 0.5f * x", "2:5: 0.5f is neither a number nor a name; numbers have no suffix, and a product is written 0.5*f"},
      {"y = \xCE\xA3(k: x)", "2:5: unexpected character \xCE\xA3; write sum(i: a[i])"},
  };
  for (auto [text, want] : rows) EXPECT_EQ(error_in(text), want) << text;
}

// The first thing that each hint for a function says to write.
TEST(StrangersTest, HintsAreOfTheLanguage) {
  struct Row {
    std::string kind, name, hint;
  };
  const std::vector<Row> rows = {
#define XHAT_STRANGER(kind, text, hint) {#kind, text, hint},
#include "expr/text/strangers.def"
  };
  int formulas = 0;
  for (const Row& row : rows) {
    const std::string write = "write ";
    if (row.kind != "function" || !row.hint.starts_with(write)) continue;
    std::string formula = row.hint.substr(write.size());
    int depth = 0;
    for (size_t at = 0; at < formula.size(); ++at) {  // up to a comma, a semicolon or a word that belongs to the sentence
      depth += (formula[at] == '(' || formula[at] == '[') - (formula[at] == ')' || formula[at] == ']');
      const std::string_view rest = std::string_view(formula).substr(at);
      if (depth == 0 && (rest[0] == ',' || rest[0] == ';' || rest.starts_with(" with ") || rest.starts_with(" or ")))
        formula = formula.substr(0, at);
    }
    const bool defines = formula.find(" = ") != std::string::npos && !formula.starts_with("let ");
    const std::string statement = defines ? formula : "result = " + formula;
    const bool views = row.hint.find("zeros") != std::string::npos || row.hint.find("full") != std::string::npos;
    EXPECT_EQ(error_of((views ? "prog f() -> (y) {\n" : "op f() -> (y) {\n") + statement + "\n}"), "no error") << row.name;
    ++formulas;
  }
  EXPECT_GT(formulas, 120);
}

// What stands in programs of other languages, and what it is here.
TEST(StrangersTest, StatementsOfOtherLanguages) {
  const std::string call = "a call is no statement and no place; its result is assigned, as in y = a(x); an element is a[i]";
  const std::string lists = "expected an expression, found [; there are no lists; elements are chosen, as in y[i in 0..2] = if i == 0 then a else b";
  const std::string counts = "a block is { ... }, and loops count up by 1";
  const std::string in_place = "; signs that write in place are += -= *= /=";
  const std::string one_by_one =
      "places are written one by one; what is exchanged is kept before, as in t = clone(a), then a = b, then b = t";
  const std::pair<const char*, std::string> rows[] = {
      {"let b = a",
       "1: there is no statement let; write a = e, or var a = e where it changes later; let stands in an expression: y = let a = x + 1 in a*a"},
      {"const b = 2.0", "1: there is no statement const; write a = e"},
      {"b := a", "3: expected = after b, found :; write a = e, and var a = e where it begins and changes later"},
      {"b : f32 = 1", "3: expected = after b, found :; a name takes its type from its value: a = e, or var a = zeros f32[N]"},
      {"b <- a", "3: expected = after b, found <; write a = e"},
      {"a[0], a[1] = a[1], a[0]", "5: expected = after a[0], found ,; " + one_by_one},
      {"a %= 2", "3: expected = after a, found %; write a = a % b" + in_place},
      {"a **= 2", "3: expected = after a, found *; write a = a^b" + in_place},
      {"a //= 2", "3: expected = after a, found /; write a = floor(a/b), of integers a = a/b" + in_place},
      {"for (i = 0; i < N; i++) { }", "5: expected the loop variable, found (; as in for i in 0..N { }"},
      {"for i in 0..N: a[i] = 1", "14: expected { after the range of the loop, found :; " + counts},
      {"for i in 0..N do { }", "15: expected { after the range of the loop, found do; a block is { ... }"},
      {"for i in 0..N by 2 { }", "15: expected { after the range of the loop, found by; loops count up by 1; other steps are computed, as in "
                                 "for i in 0..N/2 { k = 2*i; ... }"},
      {"for i in 0..N", "14: expected { after the range of the loop, found the end of the line; it stands on the same line"},
      {"if a[0] > 0: a[0] = 1", "12: expected { after the condition, found :; " + counts},
      {"print(a)", "1: there is no statement print; xhat run writes outputs, and --check-values finds what is not finite"},
      {"assert a[0] > 0", "1: there is no statement assert; let an output say it: ok = all(i: a[i] > 0)"},
      {"function g(x) { }", "1: there is no statement function; a file may hold several: op f(...) -> (y) { ... }"},
      {"f64 s = 0.0", "1: there is no statement f64; a variable takes its type from its value, as in var s = f64(0) or var a = zeros f64[N]"},
      {"end", "1: there is no statement end; a block is { ... }"},
      {"do { a[0] += 1 } while a[0] < 3", "1: there is no statement do; the condition stands first: while c max 50 { ... }"},
      {"a(0) = 1", "2: " + call},
      {"b = [1, 2]", "5: " + lists},
      {"b = a[0..2]", "8: expected , or ], found ..; a slice is written a[0:2]"},
      {"b = a[:, None]", "10: expected an index, found None; a dimension more is a.unsqueeze(i)"},
      {"b = a[...]", "7: expected an index, found ..; all of a dimension is a[:], and dimensions at the end that are left out are whole"},
      {"b = a // 2", "8: expected an expression, found /; a comment starts with #; of integers a / b is rounded down, of floats write floor(a/b)"},
      {"// words", "1: expected a statement, found /; a comment starts with #; of integers a / b is rounded down, of floats write floor(a/b)"},
      {"/* words */", "1: expected a statement, found /; a comment starts with #"},
  };
  for (const auto& [statement, want] : rows)
    EXPECT_EQ(error_of("prog f(a: f32[N]) -> (y) {\n" + std::string(statement) + "\n}"), "2:" + want) << statement;
  // They are names like others.
  for (const char* name : {"end", "print", "swap", "local", "do", "match", "const"})
    for (const char* rest : {" = 1.0", "[0] = 1.0", " += 1.0", "[:] *= 2.0"})
      EXPECT_EQ(error_of("prog f(a: f32[N]) -> (y) {\nvar " + std::string(name) + " = clone(a)\n" + name + rest + "\n}"), "no error") << name;
  // What is said about an exchange and about elements.
  EXPECT_NO_THROW(xhat::parse("prog f(x: f32[N+2]) -> (y) {\nvar y = clone(x)\nt = clone(y[0])\ny[0] = y[1]\ny[1] = t\n"
                              "w[i in 0..2] = if i == 0 then 1.0 else 2.0\ny[0] += w[1]\n}",
                              "t.xh"));
}

// Hints that hold a whole definition, as ops of these parameters.
TEST(StrangersTest, DefinitionsAreOps) {
  const std::pair<const char*, const char*> rows[] = {
      {"concat", "a: f32[N], b: f32[M]"},
      {"stack", "a: f32[N], b: f32[N]"},
      {"pad", "a: f32[N]"},
      {"roll", "a: f32[N]"},
      {"flip", "a: f32[N]"},
      {"tile", "a: f32[N]"},
      {"repeat", "a: f32[N]"},
      {"reshape", "a: f32[N,D]"},
      {"unsqueeze", "a: f32[N]"},
      {"broadcast_to", "a: f32[M], n: f32[N]"},
      {"transpose", "a: f32[N,D]"},
      {"scatter_add", "a: f32[N], index: i64[N]"},
      {"bincount", "index: i64[N]"},
      {"linspace", "low: f32, high: f32, n: f32[N]"},
      {"diff", "a: f32[N]"},
  };
  for (auto [name, parameters] : rows) {
    const std::string hint = stranger(Stranger::function, name);
    const std::string definition = hint.substr(std::min(hint.find("y["), hint.size()));
    try {
      xhat::parse("op f(" + std::string(parameters) + ") -> (y) { " + definition.substr(0, definition.find(", where")) + " }", "t.xh");
    } catch (const Error& e) {
      ADD_FAILURE() << name << ": " << e.what();
    }
  }
}

TEST(ParseErrorTest, ShowsLineAndCaret) {
  try {
    parse("op f() -> (y) {\r\n\ty =\ta < b < c\r\n}", "dir/t.xh");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "dir/t.xh:2:12: error: comparisons do not chain: this < follows the < at 2:8; write a < b && b < c, "
        "or parentheses\n\ty =\ta < b < c\n\t   \t      ^");
  }
  EXPECT_STREQ(Error("no place").what(), "error: no place");
  EXPECT_STREQ(Error("no place").located("f", "text").what(), "error: no place");
  EXPECT_STREQ(Error("no name", {1, 2}).located("", "text").what(), "1:2: error: no name\ntext\n ^");
}

TEST(ParseErrorTest, OfALongLineWhatStandsAroundThePlaceIsShown) {
  const std::string line = std::string(500, 'a') + "?" + std::string(500, 'b');
  const std::string shown = Error("here", {1, 501}).located("", line).what();
  EXPECT_EQ(shown, "1:501: error: here\n..." + std::string(80, 'a') + "?" + std::string(79, 'b') + "...\n" + std::string(83, ' ') + "^");
  const std::string first = Error("here", {1, 1}).located("", line).what();
  EXPECT_EQ(first, "1:1: error: here\n" + std::string(160, 'a') + "...\n^");
  const std::string last = Error("here", {1, 1001}).located("", line).what();
  EXPECT_EQ(last, "1:1001: error: here\n..." + std::string(160, 'b') + "\n" + std::string(162, ' ') + "^");
}

TEST(ParseLimitTest, ChainsHaveNoLimit) {
  constexpr size_t kTerms = 100'000;
  const std::string chains[] = {
      "x" + repeated(" + x", kTerms),
      "x" + repeated("^x", kTerms),
      repeated("-", kTerms) + "x",
      repeated("!", kTerms) + "x",
      repeated("if a then b else ", kTerms) + "c",
      repeated("if a then ", kTerms) + "b" + repeated(" else c", kTerms),
      repeated("let a = b in ", kTerms) + "a",
      repeated("let a = ", kTerms) + "b" + repeated(" in a", kTerms),
      "x" + repeated(" * 2 + x", kTerms),
      "2" + repeated("^-x", kTerms),
  };
  for (const std::string& chain : chains) {
    auto file = parse_body(chain);
    EXPECT_EQ(print(*file, body_of(*file)), chain);
  }
}

TEST(ParseLimitTest, Nesting) {
  const std::string message =
      "brackets nest more than 256 levels deep; give inner parts names with let or definitions of their own";
  auto nested = [](const std::string& open, const std::string& close, size_t n) {
    return "y = " + repeated(open, n) + "a" + repeated(close, n);
  };
  const std::pair<std::string, std::string> brackets[] = {
      {"(", ")"}, {"x[", "]"}, {"exp(", ")"}, {"sum(k: ", ")"}};
  for (const auto& [open, close] : brackets) {
    EXPECT_EQ(error_in(nested(open, close, 256)), "no error") << open;
    size_t column = 4 + 256 * open.size() + open.find_first_of("([") + 1;
    EXPECT_EQ(error_in(nested(open, close, 257)), "2:" + std::to_string(column) + ": " + message) << open;
    EXPECT_EQ(error_in(nested(open, close, 100'000)), "2:" + std::to_string(column) + ": " + message) << open;
  }
  // Side by side is not nested.
  EXPECT_EQ(error_in("y = a" + repeated(" + (a)", 1000)), "no error");
}

TEST(ParseLimitTest, BrokenTextsFailCleanly) {
  // A prefix or the deletion of one character of the contract's examples parses or throws Error, nothing
  // else.
  const std::string text = kContract;
  size_t errors = 0;
  for (size_t i = 0; i < text.size(); i += 5) {
    for (const std::string& broken : {text.substr(0, i), text.substr(0, i) + text.substr(i + 1)}) {
      try {
        auto file = parse(broken);
        expect_round_trip(print(*file));
      } catch (const Error& e) {
        EXPECT_TRUE(e.pos().known()) << e.what();
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, text.size() / 10);
}

}  // namespace
}  // namespace xhat::ast::parse_error_test
