// Random programs through everything that needs no kernels: text, passes, gradients. A failure prints the seed and the
// reduced program; XHAT_PROPERTY_SEED=that seed XHAT_PROPERTY_COUNT=1 runs it alone.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "ad/check/gradcheck.h"
#include "ad/check/random_inputs.h"
#include "ad/forward/jvp.h"
#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/random_program.h"

namespace xhat::property_test {
namespace {

using namespace xhat::testing;

constexpr double kTolerance = 1e-8;  // passes may reorder sums, and divide by products
const char* const kPipelines[] = {"gather, inline, reductions, simplify", "lift, simplify, gather, inline, stash(none)",
                                  "inline, stash(largest)", "lift, gather, inline, simplify, stash(cost), inline",
                                  "lift, gather, inline, simplify, stash(dropped), inline"};

// Data for a program, and what it makes of it.
struct Case {
  const char* name;  // starts the message
  DimValues dims;
  Arrays data, expected;
};

// What is wrong, starting with the name of the property; empty if nothing is.
std::string text_failure(const Program& p, const std::string& text, const std::string& after) {
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
  for (const Definition& d : p.definitions())
    for (Id id : reachable(*p.arena, d.body))
      if (is_reduction((*p.arena)[id].op) && id != d.body) return print(p, d);
  return "";
}

std::string pass_failure(const Program& start, const std::string& passes, const std::vector<Case>& cases) {
  std::string wrong, last = "the start";
  Program checked = start;
  std::string checked_text = print(start);
  try {
    run_passes(start, passes, [&](const std::string& pass, const Program& p) {
      last = pass;
      if (!wrong.empty()) return;
      if (std::string n = nested_reduction(p); pass == "inline" && !n.empty()) wrong = "nested: " + n;
      std::string text = print(p);
      if (text == checked_text && equal(p, checked)) return;  // the pass found nothing to do
      for (const Case& c : cases) {
        std::string d = difference(c.expected, evaluate_on(p, c.data, c.dims), kTolerance);
        if (!d.empty() && wrong.empty()) wrong = fmt::format("{}value_{}: {} (in {})\n{}", c.name, pass, d, passes, text);
      }
      if (std::string t = text_failure(p, text, pass); !t.empty() && wrong.empty()) wrong = "text_" + pass + "_" + t;
      checked = p;
      checked_text = text;
    });
  } catch (const std::exception& e) {
    return fmt::format("exception_after_{}_{}: in {}: {}", last, failure_kind(e.what()), passes, e.what());
  }
  return wrong;
}

// Does the program look up a place that data name in a tensor without elements? An error, which passes may find earlier.
bool looks_into_nothing(const Program& p, const DimValues& dims) {
  for (const Definition& d : p.definitions())
    for (Id id : reachable(*p.arena, d.body)) {
      const Node& n = (*p.arena)[id];
      if (!is_read(n.op) || std::ranges::none_of(read_indices(n), [&](Id x) { return !tensors_read(*p.arena, x).empty(); })) continue;
      if (std::ranges::count(shape_of(p, n.symbol, dims), 0)) return true;
    }
  return false;
}

bool all_finite(const Array& x) {
  for (size_t i = 0; i < x.size(); ++i)
    if (!std::isfinite(x.at(i))) return false;
  return true;
}

// One dim is 0: gradients that are numbers before the passes are the same numbers after them. None where sizes are given, 0
// is refused (a precondition, argmax over nothing), or something in the op is no number (a mean over nothing).
std::vector<Case> zero_size(const Program& op, const Program& derived, uint64_t seed) {
  std::vector<std::string> dims;
  for (const Dim& d : op.dims)
    if (d.definition == kNone) dims.push_back(op.arena->name(d.dim));
  if (dims.empty()) return {};
  Case c{"zero_size_", {}, {}, {}};
  try {
    c.dims = sample_dims(op, seed, {{dims[seed / std::size(kPipelines) % dims.size()], 0}});
    c.data = random_inputs(op, c.dims, seed, {.finite = false});
    c.data.merge(random_cotangents(derived, c.dims, seed + 1));
    c.expected = evaluate_on(derived, c.data, c.dims);
  } catch (const Error&) {
    return {};
  }
  Program inside = op;  // what stands between counts, too
  for (const Definition& d : op.definitions())
    for (TensorId t : d.targets)
      if (std::ranges::find(op.outputs, t) == op.outputs.end()) inside.outputs.push_back(t);
  for (const auto& [name, x] : evaluate_on(inside, c.data, c.dims))
    if (!all_finite(x)) return {};
  if (looks_into_nothing(op, c.dims)) return {};
  std::erase_if(c.expected, [](const auto& named) { return !all_finite(named.second); });
  return {c};
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
  if (std::string t = text_failure(forward, print(forward), "the jvp"); !t.empty()) return "jvp_" + t;
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

// Data on which the derivatives stay within a double: that of 1 / (1 + exp(-x)) at -1000 takes exp(1000) on its way, and is
// no number. Inputs nearer to 0 then; what is no number there, either, is for the checks to find.
Arrays moderate_data(const Program& op, const Program& derived, const DimValues& dims, uint64_t seed) {
  constexpr double kNearer = 1.0 / 64;
  Arrays data = random_inputs(op, dims, seed);
  data.merge(random_cotangents(derived, dims, seed + 1));
  auto finite = [](const auto& named) { return std::ranges::all_of(named.second.reals, [](double v) { return std::isfinite(v); }); };
  if (std::ranges::all_of(evaluate_on(derived, data, dims), finite)) return data;
  for (TensorId t : derived.inputs)
    for (double& v : data.at(derived.tensor(t).name).reals) v *= kNearer;
  return data;
}

std::string failure(const std::string& text, uint64_t seed) {
  Program op;
  try {
    op = parse_op(text);
    verify(op);
  } catch (const std::exception& e) {
    return fmt::format("source: {}", e.what());
  }
  if (std::string t = text_failure(op, print(op), "the source"); !t.empty()) return t;
  try {
    DimValues dims = sample_dims(op, seed);
    Program derived = gradient(op);
    verify(derived);
    Arrays data = moderate_data(op, derived, dims, seed);
    Arrays forward = evaluate_on(op, data, dims);
    if (std::string f = pass_failure(op, "simplify, calls, inline", {{"", dims, data, forward}}); !f.empty()) return f;
    std::string derived_text = print(derived);
    if (print(gradient(parse_op(text))) != derived_text) return "deterministic: two gradients print differently";
    Arrays all = evaluate_on(derived, data, dims);
    if (std::string d = difference(forward, all, kTolerance); !d.empty()) return "value_grad: " + d + "\n" + derived_text;
    if (std::string t = text_failure(derived, derived_text, "the gradient"); !t.empty()) return t;
    std::string passes = kPipelines[seed % std::size(kPipelines)];
    std::vector<Case> cases = {{"", dims, data, all}};
    // Sums over nothing are guarded at the end of the step that may forget them.
    if (passes.find("stash") != std::string::npos)
      for (Case& c : zero_size(op, derived, seed)) cases.push_back(std::move(c));
    if (std::string f = pass_failure(derived, passes, cases); !f.empty()) return f;
    if (derived.gradients.empty()) return "";
    if (std::string f = forward_failure(op, derived, data, all, dims, seed); !f.empty()) return f;
    GradcheckReport report = check_gradient(derived, data, dims, {.seed = seed, .directions = 1, .elements = 2});
    if (!report.passed) return "finite_differences: " + report.text() + "\n" + print(derived);
  } catch (const std::exception& e) {
    return fmt::format("exception_{}: {}", failure_kind(e.what()), e.what());
  }
  return "";
}

// Every kParts-th program, so that ctest can run the parts side by side.
constexpr int kParts = 2;
class PropertyPartTest : public ::testing::TestWithParam<int> {};

TEST_P(PropertyPartTest, ProgramsKeepTheirMeaning) {
  auto program = [](uint64_t seed) { return random_program(seed); };
  std::string report = failing_programs(GetParam(), kParts, property_count(1000, 20000), program, failure);
  EXPECT_TRUE(report.empty()) << report;
}
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, PropertyPartTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, PropertyPartTest, ::testing::Values(1));

// Reductions that must not be computed where conditions around them fail.
class ShieldedPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(ShieldedPropertyTest, ProgramsKeepTheirMeaning) {
  auto program = [](uint64_t seed) { return random_program(seed, {.shielded = true}); };
  std::string report = failing_programs(GetParam(), 2, property_count(200, 2000), program, failure);
  EXPECT_TRUE(report.empty()) << report;
}
INSTANTIATE_TEST_SUITE_P(First, ShieldedPropertyTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(Second, ShieldedPropertyTest, ::testing::Values(1));

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
}  // namespace xhat::property_test
