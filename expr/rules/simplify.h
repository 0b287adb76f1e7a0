// Simplification by rules that are rows of text (expr/rules/rules.def):
//   x*1 => x     -(-x) => x     x/4 => x*0.25     if true then a else b => a     2*3 => 6
// Keeps values to the bit, also infinities, NaN and -0 (a NaN's own bits aside).
#pragma once
#include <set>
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct SimplifyOptions {
  std::set<std::string> without = {};  // rules that are off, by name; "fold" is the computing of constants,
                                       // "order" that i != j stands for j != i, and abs(x[i] - x[j]) for abs(x[j] - x[i])
  std::set<std::string> only = {};     // unless empty: no other rules
};

// Until nothing changes. Throws Error for an unknown name among the rules that are off.
Program simplify(const Program& p, const SimplifyOptions& options = {});
// One expression; equal ids mean nothing was to be done.
Id simplify(Arena& a, Id root, const SimplifyOptions& options = {});

// Of x - y and y - x one, where the sign does not matter (below a square or an absolute value); other expressions as they are.
Id difference_in_order(Arena& a, Id id);

// if x == 0 then (if x < 6 then a else b) else c   =>   if x == 0 then a else c
// Choices that others around them have made already, of comparisons of one value with numbers; relu(x) is x where 0 < x. Exact.
// all: choices by the same condition, and by comparisons of an axis with an end of its range, too. Not before the backward has been compared
// with the forward, which has no such conditions around.
enum class Decisions : uint8_t { by_numbers, all };
Program with_decided_choices(const Program& p, Decisions by = Decisions::by_numbers);

// Formulas that a function of the language computes better: 1/(1 + exp(-a)) becomes sigmoid(a) (expr/rules/idioms.def), also where parts of
// it have names: e[i] = exp(-a[i]), y[i] = 1/(1 + e[i]). For what a user wrote, before gradients are derived; calls should be expanded.
// Exact for real numbers, derivatives at kinks included; values differ by rounding. An `if` that chooses between two formulas of one
// function becomes that function.
Program recognize(const Program& p);
// Once gradients are derived and definitions inlined: the rows that hold for derivatives, too.
Program recognize_derived(const Program& p);
// Formulas that are better computed otherwise, once nobody derives them any more: tanh(softplus(a)) becomes a quotient
// (expr/rules/closed_forms.def).
Program in_closed_form(const Program& p);

// "fold", "order" and the names of all rows.
std::vector<std::string> simplification_rules();

}  // namespace xhat
