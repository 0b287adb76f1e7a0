// The ops of tests/audit/*.xh, written as a user would write them, through what `xhat check` does. A line `# check: N=3,M=17
// seed=4` above an op says at which sizes and on which data; an op may have several, and those that have none are helpers. Each is
// checked in one combination of policies and processor level, or in a long run with all policies.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ad/check/random_inputs.h"
#include "expr/eval/interpret.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat {
namespace {

using namespace xhat::testing;

struct AuditCase {
  std::filesystem::path file;
  std::string op;
  DimValues dims;
  uint64_t seed = 1;
  std::string name() const {
    std::string n = file.stem().string() + "_" + op;
    for (const auto& [dim, value] : dims) n += "_" + dim + std::to_string(value);
    return n;
  }
};
void PrintTo(const AuditCase& c, std::ostream* out) { *out << c.file << " " << c.op; }

// "N=3,M=17 seed=4"
AuditCase read_case(const std::filesystem::path& file, const std::string& line) {
  AuditCase c{file, "", {}};
  std::string spaced = line;
  std::ranges::replace(spaced, ',', ' ');
  std::istringstream words(spaced);
  for (std::string word; words >> word;) {
    const size_t at = word.find('=');
    if (at == std::string::npos) throw std::runtime_error(file.string() + ": no value in '# check:" + line + "'");
    const int64_t value = std::stoll(word.substr(at + 1));
    if (std::string key = word.substr(0, at); key == "seed")
      c.seed = static_cast<uint64_t>(value);
    else
      c.dims[key] = value;
  }
  return c;
}

// Every `parts`-th case, from the part-th on: ctest runs the parts side by side.
std::vector<AuditCase> audit_cases(size_t part, size_t parts) {
  const std::string check = "# check:";
  std::vector<AuditCase> all, waiting;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder().parent_path() / "audit"))
    if (entry.path().extension() == ".xh") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(check)) waiting.push_back(read_case(file, line.substr(check.size())));
      for (const std::string word : {"op ", "prog "}) {
        if (!line.starts_with(word)) continue;
        for (AuditCase& c : waiting) {
          c.op = line.substr(word.size(), line.find('(') - word.size());
          all.push_back(c);
        }
        waiting.clear();
      }
    }
  }
  std::vector<AuditCase> mine;
  for (size_t i = part; i < all.size(); i += parts) mine.push_back(all[i]);
  return mine;
}

// An imperative program, as what it was made into and by the interpreter that overwrites memory.
std::string difference_from_text(const std::string& text, const Program& made, const AuditCase& c, const DimValues& dims) {
  const auto file = ast::parse(text);
  for (const ast::Op& op : file->ops) {
    if (op.name != c.op || op.kind != ast::Op::Kind::prog) continue;
    const Arrays data = random_inputs(made, dims, c.seed);
    Arrays wanted = interpret(*file, op, data, dims), got = evaluate(made, data, dims, kExact);
    for (const ast::Parameter& p : op.body.parameters)
      if (p.inout) wanted.erase(p.name);  // delivered by another name
    for (auto it = got.begin(); it != got.end();) it = wanted.contains(it->first) ? std::next(it) : got.erase(it);
    return difference(wanted, got, 1e-9);
  }
  return "";
}

class AuditTest : public ::testing::TestWithParam<AuditCase> {};

TEST_P(AuditTest, PassesWhatCheckCompares) {
  const AuditCase& c = GetParam();
  std::ifstream in(c.file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Program op = parse_op(text, c.op);
  DimValues dims = solve_dims(op, {}, sample_dims(op, c.seed, c.dims));
  for (const auto& [dim, value] : c.dims) ASSERT_TRUE(dims.contains(dim)) << "the op has no dim " << dim;
  EXPECT_EQ(difference_from_text(text, op, c, dims), "");
  for (const CheckConfig& config : check_configs(std::hash<std::string>{}(c.name()), long_run()))
    EXPECT_EQ(check_failure(op, dims, c.seed, config), "") << check_command(c.file.string() + " --op " + c.op, c.dims, c.seed, config);
}

constexpr size_t kParts = 4;
std::string name_of_case(const ::testing::TestParamInfo<AuditCase>& info) { return info.param.name(); }
// A prefix each makes a suite each, and a suite is what ctest runs.
INSTANTIATE_TEST_SUITE_P(First, AuditTest, ::testing::ValuesIn(audit_cases(0, kParts)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Second, AuditTest, ::testing::ValuesIn(audit_cases(1, kParts)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Third, AuditTest, ::testing::ValuesIn(audit_cases(2, kParts)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Fourth, AuditTest, ::testing::ValuesIn(audit_cases(3, kParts)), name_of_case);

}  // namespace
}  // namespace xhat
