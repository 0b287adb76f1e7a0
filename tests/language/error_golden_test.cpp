// Errors as golden files: every tests/errors/*.xh is wrong in one place, and says so there:
//
//   y[i] = x[i] + k  #! @17 k is not a tensor, dim or axis in scope
//
// The file must fail at the line of `#!` (and at column 17), with a message that contains the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "expr/core/program.h"

namespace xhat::error_golden_test {
namespace {

struct Expected {
  int line = 0;
  int column = 0;  // 0: any
  std::string message;
};

Expected expectation(const std::string& text) {
  Expected e;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    size_t at = line.find("#!");
    if (at == std::string::npos) continue;
    EXPECT_EQ(e.line, 0) << "two expectations";
    e.line = number;
    e.message = line.substr(line.find_first_not_of(' ', at + 2));
    if (!e.message.starts_with('@')) continue;
    size_t rest = 0;
    e.column = std::stoi(e.message.substr(1), &rest);
    e.message = e.message.substr(e.message.find_first_not_of(' ', rest + 1));
  }
  EXPECT_NE(e.line, 0) << "no expectation: write #! and the message on the wrong line";
  return e;
}

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(XHAT_SOURCE_DIR) / "tests" / "errors"))
    if (entry.path().extension() == ".xh") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

class ErrorGoldenTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ErrorGoldenTest, FailsAtItsPlace) {
  std::ifstream in(GetParam());
  std::stringstream text;
  text << in.rdbuf();
  Expected expected = expectation(text.str());
  std::string file = GetParam().filename().string();
  try {
    parse(text.str(), file);
    FAIL() << "no error; expected: " << expected.message;
  } catch (const Error& e) {
    EXPECT_EQ(e.pos().line, expected.line) << e.what();
    if (expected.column) {
      EXPECT_EQ(e.pos().column, expected.column) << e.what();
    }
    EXPECT_NE(e.message().find(expected.message), std::string::npos) << e.what();
    EXPECT_TRUE(std::string(e.what()).starts_with(file + ":" + std::to_string(expected.line) + ":"))
        << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ErrorGoldenTest, ::testing::ValuesIn(golden_files()),
                         [](const auto& instance) { return instance.param.stem().string(); });

}  // namespace
}  // namespace xhat::error_golden_test
