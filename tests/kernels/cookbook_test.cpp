// The ops of docs/cookbook.md, through what `xhat check` does, at the sizes that their lines `# check: N=5,D=7` name.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/helpers/audit_cases.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_check.h"

namespace xhat::cookbook_test {
namespace {

using namespace xhat::testing;

struct Recipe {
  std::string heading, block;
  AuditCase at;
};

// Each block marked xh, with the last `# check:` in it and the op below that line.
std::vector<Recipe> recipes() {
  const std::filesystem::path page = golden_folder().parent_path().parent_path() / "docs" / "cookbook.md";
  std::ifstream in(page);
  std::vector<Recipe> found;
  std::string heading;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("### ")) heading = line.substr(4);
    if (line == "```xh") {
      inside = true;
      found.push_back({heading, "", {page, "", {}}});
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      Recipe& r = found.back();
      r.block += line + "\n";
      if (line.starts_with("# check:"))
        r.at = read_case(page, line.substr(8));
      else if (r.at.op.empty() && !r.at.dims.empty())
        r.at.op = line.substr(line.find(' ') + 1, line.find('(') - line.find(' ') - 1);
    }
  }
  return found;
}

std::vector<Recipe> part_of_recipes(size_t part) {
  std::vector<Recipe> mine;
  const std::vector<Recipe> all = recipes();
  for (size_t i = part; i < all.size(); i += 2) mine.push_back(all[i]);
  return mine;
}
void PrintTo(const Recipe& r, std::ostream* out) { *out << r.heading; }

class CookbookTest : public ::testing::TestWithParam<Recipe> {};

TEST_P(CookbookTest, PassesWhatCheckCompares) {
  const Recipe& r = GetParam();
  ASSERT_FALSE(r.at.op.empty()) << "write # check: with sizes above the op of '" << r.heading << "'";
  const Program op = parse_op(r.block, r.at.op);
  const DimValues dims = solve_dims(op, {}, r.at.dims);
  for (const CheckConfig& config : check_configs(std::hash<std::string>{}(r.at.op), long_run()))
    EXPECT_EQ(check_failure(op, dims, r.at.seed, config), "") << check_command("op.xh --op " + r.at.op, r.at.dims, r.at.seed, config);
}

std::string name_of_recipe(const ::testing::TestParamInfo<Recipe>& info) {
  return info.param.at.op.empty() ? "block" + std::to_string(info.index) : info.param.at.op;
}
// Two suites, which ctest runs side by side.
INSTANTIATE_TEST_SUITE_P(First, CookbookTest, ::testing::ValuesIn(part_of_recipes(0)), name_of_recipe);
INSTANTIATE_TEST_SUITE_P(Second, CookbookTest, ::testing::ValuesIn(part_of_recipes(1)), name_of_recipe);

}  // namespace
}  // namespace xhat::cookbook_test
