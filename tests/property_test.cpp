// Random programs through everything that needs no kernels: text, passes, gradients. A failure prints the seed and the
// reduced program; XHAT_PROPERTY_SEED=that seed XHAT_PROPERTY_COUNT=1 runs it alone.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "ad/gradcheck.h"
#include "ad/gradient.h"
#include "ad/jvp.h"
#include "ad/random_inputs.h"
#include "tests/golden.h"
#include "tests/random_program.h"

namespace xhat {
namespace {

using namespace xhat::testing;

constexpr double kTolerance = 1e-8;  // passes may reorder sums, and divide by products
const char* const kPipelines[] = {"gather, inline, reductions, simplify", "lift, simplify, gather, inline, stash(none)",
                                  "inline, stash(largest)", "lift, gather, inline, simplify, stash(cost), inline",
                                  "lift, gather, inline, simplify, stash(dropped), inline"};

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

// One dim is 0: gradients that are numbers before the passes are the same numbers after them.
std::string zero_size_failure(const Program& op, const Program& derived, uint64_t seed) {
  std::vector<std::string> dims = free_dims(op);
  if (dims.empty()) return "";
  DimValues zero;
  Arrays data, expected;
  try {
    zero = sample_dims(op, seed, {{dims[seed / std::size(kPipelines) % dims.size()], 0}});
    data = random_inputs(op, zero, seed, {.finite = false});
    data.merge(random_cotangents(derived, zero, seed + 1));
    expected = evaluate_on(derived, data, zero);
  } catch (const Error&) {
    return "";  // a precondition, argmax over nothing, or an index into nothing
  }
  std::erase_if(expected, [](const auto& named) {
    const Array& x = named.second;
    for (size_t i = 0; i < x.size(); ++i)
      if (!std::isfinite(x.at(i))) return true;
    return false;
  });
  std::string wrong = pass_failure(derived, "gather, inline, simplify, stash(cost), inline", expected, data, zero);
  return wrong.empty() ? "" : "zero_size_" + wrong;
}

// <x, y>, and the sum of the terms' sizes, over pairs of arrays.
struct Inner {
  double sum = 0, size = 0;
  void add(const Array& x, const Array& y) {
    for (size_t i = 0; i < x.size(); ++i) {
      sum += x.reals[i] * y.reals[i];
      size += std::fabs(x.reals[i] * y.reals[i]);
    }
  }
  bool equals(const Inner& other) const {
    if (!std::isfinite(sum) && !std::isfinite(other.sum)) return true;  // a derivative that overflows
    return std::fabs(sum - other.sum) <= kTolerance * (1 + std::max(size, other.size));
  }
};

// Tangents for the last inputs of p, as many as the gradient has.
Arrays tangents(const Program& p, const Program& derived, const DimValues& dims, uint64_t seed) {
  Arrays all;
  for (size_t k = 0; k < derived.gradients.size(); ++k) {
    TensorId t = p.inputs[p.inputs.size() - derived.gradients.size() + k];
    all[p.tensor(t).name] = random_normals(p.tensor(t).type, shape_of(p, t, dims), seed + k);
  }
  return all;
}

// <dy, J v> is <J^T dy, v>, and <w, H v> is <v, H w>. data has what derived takes, all what it gives.
std::string forward_failure(const Program& op, const Program& derived, const Arrays& data, const Arrays& all,
                            const DimValues& dims, uint64_t seed) {
  Program forward = jvp(op), curvature = hvp(op);
  if (std::string t = text_failure(forward, "the jvp"); !t.empty()) return "jvp_" + t;
  Arrays v = tangents(forward, derived, dims, seed + 100), w = tangents(forward, derived, dims, seed + 200);
  auto with = [&](Arrays directions) {
    directions.insert(data.begin(), data.end());
    return directions;
  };
  Arrays pushed = evaluate_on(forward, with(v), dims);
  if (std::string d = difference(evaluate_on(op, data, dims), pushed, kTolerance); !d.empty()) return "value_jvp: " + d;
  Inner left, right, one, other;
  auto name = [](const Program& p, TensorId t) { return p.tensor(t).name; };
  size_t first = forward.outputs.size() - derived.cotangents.size(), inputs = forward.inputs.size() - v.size();
  for (size_t k = 0; k < derived.cotangents.size(); ++k)
    left.add(data.at(name(derived, derived.cotangents[k])), pushed.at(name(forward, forward.outputs[first + k])));
  for (size_t k = 0; k < derived.gradients.size(); ++k)
    right.add(all.at(name(derived, derived.gradients[k])), v.at(name(forward, forward.inputs[inputs + k])));
  if (!left.equals(right))
    return fmt::format("inner_product: jvp {} vjp {}\n{}{}", left.sum, right.sum, print(forward), print(derived));
  Arrays hv = evaluate_on(curvature, with(v), dims), hw = evaluate_on(curvature, with(w), dims);
  for (size_t k = 0; k < derived.gradients.size(); ++k) {
    const std::string& product = curvature.tensor(curvature.outputs[k]).name;
    const std::string& tangent = forward.tensor(forward.inputs[inputs + k]).name;
    one.add(w.at(tangent), hv.at(product));
    other.add(v.at(tangent), hw.at(product));
  }
  if (!one.equals(other)) return fmt::format("symmetric: {} {}\n{}", one.sum, other.sum, print(curvature));
  return "";
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
    if (std::string f = zero_size_failure(op, derived, seed); !f.empty()) return f;
    if (derived.gradients.empty()) return "";
    if (std::string f = forward_failure(op, derived, data, all, dims, seed); !f.empty()) return f;
    GradcheckReport report = check_gradient(derived, dims, {.seed = seed, .directions = 1, .elements = 2});
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
  auto program = [](uint64_t seed) { return random_program(seed); };
  EXPECT_EQ(failing_programs(GetParam(), kParts, property_count(2000, 2000), program, failure), "");
}
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, PropertyPartTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, PropertyPartTest, ::testing::Values(1));
INSTANTIATE_TEST_SUITE_P(Third, PropertyPartTest, ::testing::Values(2));
INSTANTIATE_TEST_SUITE_P(Fourth, PropertyPartTest, ::testing::Values(3));

// Programs that failed once, reduced: tests/reduced/*.xh.
TEST(PropertyTest, ReducedProgramsKeepTheirMeaning) {
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder().parent_path() / "reduced")) {
    std::ifstream in(entry.path());
    std::string text{std::istreambuf_iterator<char>(in), {}};
    for (uint64_t seed = 0; seed < 2 * std::size(kPipelines); ++seed)
      EXPECT_EQ(failure(text, seed), "") << entry.path() << ", seed " << seed;
    ++programs;
  }
  EXPECT_GT(programs, 0);
}

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
