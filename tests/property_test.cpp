// Random programs through everything that needs no kernels: text, passes, gradients. A failure prints the seed and the
// reduced program; XHAT_PROPERTY_SEED=that seed XHAT_PROPERTY_COUNT=1 runs it alone.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ad/gradcheck.h"
#include "ad/gradient.h"
#include "tests/golden.h"
#include "tests/random_program.h"

namespace xhat {
namespace {

using namespace xhat::testing;

constexpr double kTolerance = 1e-8;  // passes may reorder sums, and divide by products
const char* const kPipelines[] = {"gather, inline, reductions, simplify(real)", "lift, simplify, gather, inline, stash(none)",
                                  "inline, stash(largest)", "lift, gather, inline, stash(cost), inline"};

// What is wrong, starting with the name of the property; empty if nothing is.
std::string text_failure(const Program& p, const std::string& after) {
  std::string text = print(p);
  Program again;
  try {
    again = parse_op(text);
  } catch (const Error& e) {
    return "parse: " + after + " does not parse: " + e.what() + "\n" + text;
  }
  if (!equal(again, p)) return "equal: " + after + " reads back as another program\n" + text + "\nreads as\n" + print(again);
  if (print(again) != text) return "canonical: " + after + " prints differently after reading back\n" + text;
  return "";
}

// A reduction inside a body, which there may be none of after inlining.
std::string nested_reduction(const Program& p) {
  for (const Definition& d : p.body.definitions)
    for (Id id : reachable(*p.arena, d.body))
      if (is_reduction((*p.arena)[id].op) && id != d.body) return print(p, d);
  return "";
}

std::string pass_failure(const Program& start, const std::string& passes, const Arrays& expected, const Arrays& data,
                         const DimValues& dims) {
  std::string wrong, last = "the start";
  try {
    run_passes(start, passes, [&](const std::string& pass, const Program& p) {
      last = pass;
      if (!wrong.empty()) return;
      std::string d = difference(expected, evaluate_on(p, data, dims), kTolerance);
      if (!d.empty()) wrong = fmt::format("value_{}: {} (in {})\n{}", pass, d, passes, print(p));
      else if (std::string t = text_failure(p, pass); !t.empty()) wrong = "text_" + pass + "_" + t;
      else if (std::string n = nested_reduction(p); pass == "inline" && !n.empty()) wrong = "nested: " + n;
    });
  } catch (const std::exception& e) {
    return fmt::format("exception_after_{}_{}: in {}: {}", last, failure_kind(e.what()), passes, e.what());
  }
  return wrong;
}

std::string failure(const std::string& text, uint64_t seed) {
  Program op;
  try {
    op = parse_op(text);
    verify(op);
  } catch (const std::exception& e) {
    return fmt::format("source: {}", e.what());
  }
  if (std::string t = text_failure(op, "the source"); !t.empty()) return t;
  try {
    DimValues dims = sample_dims(op, seed);
    Arrays data = random_data(op, dims, seed);
    Arrays forward = evaluate_on(op, data, dims);
    if (std::string f = pass_failure(op, "simplify, calls, inline", forward, data, dims); !f.empty()) return f;
    Program derived = gradient(op);
    verify(derived);
    if (print(gradient(parse_op(text))) != print(derived)) return "deterministic: two gradients print differently";
    data.merge(random_cotangents(derived, dims, seed + 1));
    Arrays all = evaluate_on(derived, data, dims);
    if (std::string d = difference(forward, all, kTolerance); !d.empty()) return "value_grad: " + d + "\n" + print(derived);
    if (std::string t = text_failure(derived, "the gradient"); !t.empty()) return t;
    if (std::string f = pass_failure(derived, kPipelines[seed % std::size(kPipelines)], all, data, dims); !f.empty()) return f;
    if (derived.gradients.empty()) return "";
    GradientReport report = check_gradient(derived, dims, {.seed = seed, .directions = 1, .elements = 2});
    if (!report.passed) return "finite_differences: " + report.text() + "\n" + print(derived);
  } catch (const std::exception& e) {
    return fmt::format("exception_{}: {}", failure_kind(e.what()), e.what());
  }
  return "";
}

// Every kParts-th program, so that ctest can run the parts side by side.
constexpr int kParts = 4;
class PropertyPartTest : public ::testing::TestWithParam<int> {};

TEST_P(PropertyPartTest, ProgramsKeepTheirMeaning) {
  int failures = 0;
  int count = property_count(2000);
  for (int i = GetParam(); i < count && failures < 3; i += kParts) {
    uint64_t seed = property_seed() + static_cast<uint64_t>(i);
    std::string text = random_program(seed);
    std::string wrong = failure(text, seed);
    if (wrong.empty()) continue;
    auto fails = [&](const std::string& candidate) { return failure(candidate, seed); };
    std::string smaller = reduced(text, fails);
    ADD_FAILURE() << "seed " << seed << "\n" << wrong << "\n--- reduced ---\n" << smaller << failure(smaller, seed);
    ++failures;
  }
}
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, PropertyPartTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, PropertyPartTest, ::testing::Values(1));
INSTANTIATE_TEST_SUITE_P(Third, PropertyPartTest, ::testing::Values(2));
INSTANTIATE_TEST_SUITE_P(Fourth, PropertyPartTest, ::testing::Values(3));

TEST(PropertyTest, TheReducerKeepsTheFailureAndDropsTheRest) {
  auto fails = [](const std::string& text) -> std::string {
    try {
      parse_op(text);
    } catch (const Error&) {
      return "source";
    }
    return text.find("tanh") != std::string::npos ? "tanh" : "";
  };
  std::string text = "op f(x: f32[N], z: f32[N]) -> (y, w) {\n  y[n] = 2 * tanh(x[n] + z[n])\n  w[n] = exp(z[n])\n}\n";
  EXPECT_EQ(reduced(text, fails), "op f(x: f32[N]) -> (y) {\n  y[n] = tanh(x[n])\n}\n");
}

TEST(PropertyTest, EqualSeedsEqualPrograms) {
  EXPECT_EQ(random_program(7), random_program(7));
  EXPECT_NE(random_program(7), random_program(8));
}

}  // namespace
}  // namespace xhat
