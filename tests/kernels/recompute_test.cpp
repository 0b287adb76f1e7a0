// What the backward recomputes has the forward's bits, where they matter, and its value: every recomputed value of every example,
// delivered by both passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "ad/check/random_inputs.h"
#include "cse/match/bodies.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::recompute_test {
namespace {

using namespace xhat::testing;
namespace fs = std::filesystem;
using Policy = StashOptions::Policy;

std::vector<std::string> op_files() {
  std::vector<std::string> files;
  for (const char* folder : {"/examples", "/bench/peer_ops", "/tests/golden/softmax", "/tests/golden/pool",
                             "/tests/golden/reduce"})
    for (const auto& entry : fs::directory_iterator(std::string(XHAT_SOURCE_DIR) + folder))
      if (entry.path().extension() == ".xh") files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

struct Pair {
  TensorId first, again;
};

// Recomputed values whose definition the forward has, too.
std::vector<Pair> recomputed(const StashPlan& plan) {
  std::vector<Pair> pairs;
  for (const StashCandidate& c : plan.candidates) {
    if (c.verdict != StashCandidate::Verdict::recomputed || !plan.program.definition_of(c.tensor)) continue;
    auto again = plan.program.find(c.name + "_again");
    if (again && plan.program.definition_of(*again)) pairs.push_back({c.tensor, *again});
  }
  return pairs;
}

Arrays run(const Program& p, const Arrays& data, const DimValues& dims) {
  CompileOptions options;
  options.differentiate = false;
  options.threads = 2;
  for (const std::string& name : free_dims(p)) options.dims[name] = dims.at(name);
  return run_infer(compile(p, options), data, dims);
}

// Maps that the backward's algebra writes with other products: 0.044715*(t*t*t) is not 0.044715*t*t*t.
const std::set<std::string> kRegrouped = {"mlp2 g"};

// Where the bits matter: what decides a branch or a tie, what a maximum is subtracted from before exp, and all maps but those. A
// sum that only carries a value goes through the backward's algebra.
bool bits_matter(const Program& p, TensorId first, TensorId again) {
  const Arena& a = *p.arena;
  if (feeds_control(p).contains(again)) return true;
  if (!is_reduction(a[p.definition_of(again)->body].op)) return !kRegrouped.contains(p.name + " " + p.tensors[first].name);
  for (const Definition& d : p.definitions())
    for (Id id : reachable(a, d.body))
      if (a[id].op == Op::exp && has_tensor(tensors_read(a, id), again)) return true;
  return false;
}

int compared = 0, deciders = 0, by_bits = 0;  // by all tests of the process

// As real numbers, of f32 in a few operations.
bool close(const Array& x, const Array& y) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < x.reals.size(); ++i) {
    largest = std::max(largest, std::abs(x.reals[i]));
    difference = std::max(difference, std::abs(x.reals[i] - y.reals[i]));
  }
  return difference <= 1e-5 * largest;
}

void compare(const Program& op, const Program& normal, const StashOptions& stash, int64_t size) {
  StashPlan plan = plan_stash(normal, stash);
  std::vector<Pair> pairs = recomputed(plan);
  if (pairs.empty()) return;
  DimValues dims = sample_dims(op, size);
  Arrays data = random_data(normal, dims, 5);
  Program forward = forward_program(plan.program), backward = backward_program(plan.program);
  for (const Pair& p : pairs) {
    if (!has_tensor(forward.outputs, p.first)) forward.outputs.push_back(p.first);
    backward.outputs.push_back(p.again);
    ++compared;
    deciders += feeds_control(plan.program).contains(p.again);
  }
  Arrays kept = run(forward, data, dims);
  for (const auto& [name, array] : kept) data[name] = array;
  Arrays gradients = run(backward, data, dims);
  for (const Pair& p : pairs) {
    const Array& x = kept.at(plan.program.tensors[p.first].name);
    const Array& y = gradients.at(plan.program.tensors[p.again].name);
    ASSERT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.integers, y.integers);
    // Arrays hold doubles, to which every float type is widened without loss.
    ASSERT_EQ(x.reals.size(), y.reals.size());
    const bool exact = bits_matter(plan.program, p.first, p.again);
    by_bits += exact;
    if (x.reals.empty()) continue;
    EXPECT_TRUE(exact ? std::memcmp(x.reals.data(), y.reals.data(), x.reals.size() * sizeof(double)) == 0 : close(x, y))
        << print(plan.program, *plan.program.definition_of(p.again)) << (exact ? "\nis not to the bit\n" : "\nis not\n")
        << print(plan.program, *plan.program.definition_of(p.first));
  }
}

class RecomputeTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    if (::testing::UnitTest::GetInstance()->test_to_run_count() < 30) return;  // a few were picked
    EXPECT_GT(compared, 35);
    EXPECT_GT(deciders, 10);
    EXPECT_GT(by_bits, 35) << compared;
  }
};

TEST_P(RecomputeTest, HasTheForwardsBits) {
  Program op = parse_op(read_golden(GetParam()).program), normal;
  if (op.steps) return;  // their blocks are ops of their own
  for (const PassStep& s : derive(op).steps)
    if (s.name == "simplify") normal = s.program;
  StashOptions cost, none, least;
  none.policy = Policy::none;
  least.kept_by_caller.emplace();
  least.policy = Policy::budget;
  least.budget = pareto_front(normal, least).back().bytes;
  std::vector<int64_t> sizes = {3};
  if (op.dims.size() <= 2) sizes.push_back(37);
  for (int64_t size : sizes)
    for (const StashOptions& stash : {cost, none, least}) {
      SCOPED_TRACE("policy " + std::to_string(static_cast<int>(stash.policy)) + " size " +
                   std::to_string(size));
      compare(op, normal, stash, size);
    }
}

std::string name_of_file(const ::testing::TestParamInfo<std::string>& file) {
  fs::path path = file.param;
  return path.parent_path().filename().string() + "_" + path.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Ops, RecomputeTest, ::testing::ValuesIn(op_files()), name_of_file);

}  // namespace
}  // namespace xhat::recompute_test
