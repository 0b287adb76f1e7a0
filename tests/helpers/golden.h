// Golden programs: tests/golden/<topic>/<name>.xh holds a program and what passes make of it:
//
//   op f(x: f32[N]) -> (y) { y[n] = tanh(x[n]) }
//   ==> grad, inline
//   op f(x: f32[N]) -> (y) {
//     …
//
// Sections follow each other; each starts from the program at the top. XHAT_UPDATE_GOLDEN=1 writes what the passes make
// now, for people to read in the diff. Also: what golden and random programs are asked in common.
#pragma once
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "expr/eval/evaluate.h"

namespace xhat::testing {

struct GoldenSection {
  std::string passes;    // as written after ==>
  std::string expected;  // the printed program
};

struct GoldenFile {
  std::filesystem::path path;
  std::string name;  // topic_name
  std::string program;
  std::vector<GoldenSection> sections;
  std::string text() const;
};
inline void PrintTo(const GoldenFile& file, std::ostream* out) { *out << file.path; }  // gtest's name for it

std::filesystem::path golden_folder();
std::vector<std::filesystem::path> golden_paths();
GoldenFile read_golden(const std::filesystem::path& path);

// calls, grad, grad(x w), vjp, jvp, hvp (these, too, with inputs: of hvp those that move), lift, gather, inline,
// reductions, simplify, stash(none | largest | cost | dropped: cost, with all inputs gone after the forward);
// separated by commas. Throws Error for another name. after: called with each step's name and result.
Program run_passes(Program p, const std::string& passes,
                   const std::function<void(const std::string&, const Program&)>& after = {});

// 2 and 3 in turn where that is allowed: for what loops deeply.
DimValues smallest_dims(const Program& p);
// Inputs, and cotangents if there are any.
Arrays random_data(const Program& p, const DimValues& dims, uint64_t seed);
// Evaluates p on data without what p does not take.
Arrays evaluate_on(const Program& p, const Arrays& data, const DimValues& dims, Rounding rounding = Rounding::exact);
// Where an array of `expected` differs from the one of that name in `got` by more than tolerance * (1 + the array's largest
// magnitude), or is missing there; empty if nowhere. NaN equals NaN.
std::string difference(const Arrays& expected, const Arrays& got, double tolerance);

}  // namespace xhat::testing
