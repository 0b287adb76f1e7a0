// Loops that stay and carry integers beside floats (tests/helpers/random_loops.h): their values are those of the interpreter that overwrites
// memory, and `xhat check` finds nothing wrong, as one function and by blocks. Programs that were wrong once go through all combinations of
// policies. XHAT_PROPERTY_SEED and XHAT_PROPERTY_COUNT choose other random programs.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <iostream>

#include "ad/check/random_inputs.h"
#include "expr/eval/interpret.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/random_loops.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat::loops_of_places_test {
namespace {

using namespace xhat::testing;

// Every kParts-th program, so that ctest can run the parts side by side.
constexpr int kParts = 2;

std::string failure_of_values(const std::string& text, const Program& op, const DimValues& dims, uint64_t seed) {
  try {
    const auto file = ast::parse(text);
    const Arrays data = random_inputs(op, dims, seed);
    const std::string d = difference(interpret(*file, file->ops[0], data, dims), evaluate(op, data, dims, kExact), 1e-9);
    return d.empty() ? "" : "values: " + d;
  } catch (const std::exception& e) {
    return fmt::format("exception_{}: {}", failure_kind(e.what()), e.what());
  }
}

// In one combination of policies by blocks, and as one function where it may be one.
std::string failure(const std::string& text, uint64_t seed, int& loops, int& refused) {
  Program op;
  try {
    op = parse_op(text);
  } catch (const Error& e) {
    ++refused;
    if (std::getenv("XHAT_PROPERTY_COUNT")) std::cout << "refused " << seed << ": " << e.what() << "\n";
    return "";
  }
  loops += op.steps != nullptr;
  const DimValues dims = random_loops_dims(seed);
  if (std::string f = failure_of_values(text, op, dims, seed); !f.empty()) return f;
  const uint64_t bits = mixed(seed);
  std::vector<CheckConfig> all = check_configs(bits, true);
  CheckConfig whole;
  whole.level = all[0].level;
  whole.products = bits % 8 == 0;
  for (const CheckConfig& config : {all[bits % all.size()], whole}) {
    const std::string f = check_failure(op, dims, seed, config);
    if (!f.empty() && !f.starts_with(kNoData)) return f + "\n" + check_command("FILE", dims, seed, config) + "\n";
  }
  return "";
}

class LoopsOfPlaces : public ::testing::TestWithParam<int> {};

TEST_P(LoopsOfPlaces, ComputeWhatIsWritten) {
  constexpr int kEnough = 3;  // failures
  const int count = property_count(8, 4000);
  int loops = 0, refused = 0, failures = 0;
  for (int i = GetParam(); i < count && failures < kEnough; i += kParts) {
    const uint64_t seed = property_seed() + static_cast<uint64_t>(i);
    const std::string text = random_loops(seed), wrong = failure(text, seed, loops, refused);
    EXPECT_EQ(wrong, "") << "seed " << seed << "\n" << text;
    failures += !wrong.empty();
  }
  std::cout << fmt::format("{} loops stay, {} programs are refused by the front end\n", loops, refused);
  if (count >= 8) {
    EXPECT_GT(loops, count / kParts / 4);
  }
}
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, LoopsOfPlaces, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, LoopsOfPlaces, ::testing::Values(1));

constexpr const char* kOnceWrong = R"(
# A gradient that waits for more iterations is made of what the loop around changes.
prog shared_in_the_inner_loop(x: f32[N,M], id: i64[N]) -> (m) {
  var m = f32(0.5)
  var place = id % N
  for t in 0..T {
    for i in 1..N { m = 0.6*m + sum(q in 0..N if place[q] == i: x[place[q],M-1]) }
    place[i in 0..N] = (place[i] + 2) % N
  }
}
prog floats_in_the_inner_loop(x: f64[N,N], u: f64[N]) -> (m) {
  var m = f64(0.5)
  var h = clone(u)
  for t in 0..T {
    for i in 1..N { m = 0.6*m + sin(m + sum(q in 0..N, p in 0..N: stop_gradient(h[q])*x[q,p])) }
    h[i in 0..N] = cos(h[i])
  }
}
# How often the loop runs is said by what it carries.
prog carried_bound(u: f64[N], id: i32[N], from: i32[T]) -> (j, v) {
  var j = id[0] % i32(N)
  var v = f64(0)
  for t in 0..T {
    for i in 0..i64(j) { j = (id[i] + from[t]) % i32(N); v = sin(v + u[i]) }
  }
}
# The check of an index wrote what it reads where the block's operand lay, and the block subtracted once more.
prog index_by_what_is_updated(u: f32[N], w: f32[T], j: i32) -> (a, h) {
  var a = sin(u)
  var h = clone(u)
  for q in 0..2 {
    for t in 0..T {
      a[1:] -= h[:-1]*w[t]
      if a[j] > 0.1 { h[j] *= 0.5 }
    }
  }
}
)";

class LoopsOnceWrong : public ::testing::TestWithParam<const char*> {};

TEST_P(LoopsOnceWrong, AreRightInAllPolicies) {
  const Program op = op_of_text(kOnceWrong, GetParam());
  DimValues dims;
  for (const Dim& d : op.dims) dims[op.arena->name(d.dim)] = DimValues{{"N", 17}, {"M", 2}, {"T", 5}}.at(op.arena->name(d.dim));
  for (const CheckConfig& config : check_configs(3, true))
    EXPECT_EQ(check_failure(op, dims, 95, config), "") << check_command("FILE", dims, 95, config);
}

std::string name_of_program(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Programs, LoopsOnceWrong,
                         ::testing::Values("shared_in_the_inner_loop", "floats_in_the_inner_loop", "carried_bound", "index_by_what_is_updated"),
                         name_of_program);

}  // namespace
}  // namespace xhat::loops_of_places_test
