// Simplification by rules that are rows of text (expr/rules.def), each exact or real-only:
//   x*1 => x     -(-x) => x     if true then a else b => a     2*3 => 6     x - x => 0 (real-only)
// Keeps values: to the bit with exact rules, also for infinities, NaN and -0 (a NaN's own bits aside). What the user
// wrote, that is every forward definition, sees exact rules only.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "expr/program.h"

namespace xhat {

struct SimplifyOptions {
  bool real_only = false;         // these rules as well; in a program, for its backward definitions
  bool forward = true;            // which definitions
  bool backward = true;
  std::set<std::string> without = {};  // rules that are off, by name; "fold" is the computing of constants
  std::set<std::string> only = {};     // unless empty: no other rules
};

// Until nothing changes. Throws Error for an unknown name among the rules that are off.
Program simplify(const Program& p, const SimplifyOptions& options = {});
// One expression; equal ids mean nothing was to be done.
Id simplify(Arena& a, Id root, const SimplifyOptions& options = {});

// "fold" and the names of all rows.
std::vector<std::string> simplification_rules();

}  // namespace xhat
