// The programs of bench/npbench at the sizes that their lines `# check:` say: values beside the interpreter, which really overwrites memory;
// derivatives beside finite differences; and how many loops become neither axes nor sums, `# loops that stay:`.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "ad/check/gradcheck.h"
#include "expr/eval/interpret.h"
#include "tests/helpers/audit_cases.h"
#include "tests/helpers/op_of_text.h"

namespace xhat {
namespace {

using namespace xhat::testing;

std::vector<std::filesystem::path> npbench_files() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(XHAT_SOURCE_DIR) / "bench" / "npbench" / "programs"))
    found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

class NpbenchTest : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    std::ifstream in(GetParam());
    text_ = {std::istreambuf_iterator<char>(in), {}};
    std::smatch m;
    ASSERT_TRUE(std::regex_search(text_, m, std::regex("\n?# check: (.*)\n")));
    case_ = read_case(GetParam(), m[1]);
    case_.op = GetParam().stem().string();
  }

  // Normals, but positive definite where a root is taken of what is left of a diagonal.
  Arrays data(const Program& made, const DimValues& dims) const {
    Arrays found = random_inputs(made, dims, case_.seed, {.finite = case_.op != "cholesky"});
    if (case_.op == "cholesky") {
      Array& a = found.at("a");
      for (int64_t i = 0; i < a.shape[0]; ++i) a.reals[static_cast<size_t>(i * (a.shape[0] + 1))] = 10;
    }
    return found;
  }

  std::string text_;
  AuditCase case_;
};

TEST_P(NpbenchTest, AgreesWithTheInterpreterAndWithFiniteDifferences) {
  const Program made = op_of_text(text_, case_.op);
  const DimValues dims = solve_dims(made, {}, sample_dims(made, case_.seed, case_.dims));
  const Arrays inputs = data(made, dims);
  const auto file = ast::parse(text_);
  for (const ast::Op& op : file->ops) {
    if (op.name != case_.op || op.kind != ast::Op::Kind::prog) continue;
    Arrays wanted = interpret(*file, op, inputs, dims);
    for (const ast::Parameter& p : op.body.parameters)
      if (p.inout) {
        wanted[p.name + "_out"] = wanted.at(p.name);
        wanted.erase(p.name);
      }
    EXPECT_EQ(difference(wanted, evaluate(made, inputs, dims, kExact), 1e-9), "");
  }
  const GradcheckReport report = gradcheck(made, inputs, dims, {.seed = case_.seed, .directions = 1, .elements = 3, .orders = 1});
  EXPECT_TRUE(report.passed) << report.text();
}

TEST_P(NpbenchTest, KeepsTheLoopsThatItSays) {
  const std::string printed = print(op_of_text(text_, case_.op));
  size_t loops = 0;
  for (size_t at = printed.find(" carrying "); at != std::string::npos; at = printed.find(" carrying ", at + 1)) ++loops;
  std::smatch m;
  const size_t said = std::regex_search(text_, m, std::regex("# loops that stay: ([0-9]+)\n")) ? std::stoul(m[1]) : 0;
  EXPECT_EQ(loops, said) << printed;
}

INSTANTIATE_TEST_SUITE_P(Files, NpbenchTest, ::testing::ValuesIn(npbench_files()),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace xhat
