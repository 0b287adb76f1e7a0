// Ops in plain definitions, their derived programs, and what the tests of cse/ ask of them.
#pragma once
#include <string>
#include <vector>

#include "cse/stash/stash_planner.h"

namespace xhat::testing {

struct PlainOp {
  std::string name;
  std::string text;
  int sums;  // reductions of the backward at best: sums of the algebra, and counts of ties
};
const std::vector<PlainOp>& plain_ops();
const PlainOp& plain_op(const std::string& name);
Program derived(const std::string& text);  // parsed, differentiated, in normal form
Program normal_form(const Program& p);
Program derived_op(const std::string& name);

int backward_reductions(const Program& p);
// The body of a definition as text, or "none".
std::string body_of(const Program& p, const std::string& tensor);
int backward_nodes(const Program& p, Op op);
// All outputs and gradients of both agree on random data, evaluated in double, to 1e-9.
void expect_same_values(const Program& before, const Program& after);

}  // namespace xhat::testing
