// The documentation keeps up with the code: README.md and docs/*.md.
//
//   ```xh            the block is a file of the language: it parses, elaborates, and reads back from its own text, and
//                    its gradients agree with finite differences
//   ```xh error      it is wrong in one place, at the line of `#!`, with the message that follows there, as in
//                    tests/errors: `#! @17 k is not a tensor` also wants column 17
//   ```cpp           a block with a main() is examples/readme.cpp, which is built and run as a test, word for word; those of
//                    docs/howto.md are built and run by tests/docs/test_pages.py
//
// Links to files of the project lead somewhere, and docs/language.md tells of every function of the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "ad/check/gradcheck.h"
#include "ad/forward/jvp.h"
#include "expr/core/program.h"
#include "expr/index/dims.h"
#include "tests/helpers/pages.h"

namespace xhat::docs_test {
namespace {

namespace fs = std::filesystem;

using testing::kRoot;
using testing::read;

struct Block {
  fs::path page;
  int line = 0;       // of the fence
  std::string fence;  // what stands after ```
  std::string text;
  std::string place() const { return fs::relative(page, kRoot).string() + ":" + std::to_string(line); }
};

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {kRoot / "README.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::vector<Block> blocks_of(const fs::path& page) {
  std::vector<Block> found;
  std::istringstream lines(read(page));
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.starts_with("```")) {
      if (!inside) found.push_back({page, number, line.substr(3), ""});
      inside = !inside;
    } else if (inside) {
      found.back().text += line + "\n";
    }
  }
  EXPECT_FALSE(inside) << page << ": the last ``` is not closed";
  return found;
}

// The page without its code: neither fenced nor indented nor between backticks.
std::string prose_of(const fs::path& page) {
  std::istringstream lines(read(page));
  std::string line, prose;
  for (bool fenced = false; std::getline(lines, line);) {
    if (line.starts_with("```")) fenced = !fenced;
    if (fenced || line.starts_with("    ")) continue;
    bool code = false;
    for (char c : line + "\n") {
      code ^= c == '`';
      if (!code) prose += c;
    }
  }
  return prose;
}

std::vector<Block> blocks(const std::string& fence) {
  std::vector<Block> found;
  for (const fs::path& page : pages())
    for (Block& b : blocks_of(page))
      if (b.fence == fence) found.push_back(std::move(b));
  return found;
}

TEST(DocsTest, ProgramsElaborateAndReadBack) {
  std::vector<Block> programs = blocks("xh");
  EXPECT_GE(programs.size(), 15u);
  for (const Block& b : programs) {
    SCOPED_TRACE(b.place());
    try {
      for (const auto& op : parse(b.text, b.place()).ops) {
        verify(*op);
        if (op->steps) continue;  // what a program is made into is for people to read
        EXPECT_TRUE(equal(parse_op(print(*op), op->name), *op)) << print(*op);
      }
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(DocsTest, ErrorsAreTheOnesShown) {
  std::vector<Block> mistakes = blocks("xh error");
  EXPECT_GE(mistakes.size(), 5u);
  for (const Block& b : mistakes) {
    SCOPED_TRACE(b.place());
    size_t at = b.text.find("#!");
    ASSERT_NE(at, std::string::npos) << "write #! and the message on the wrong line";
    auto line = static_cast<int>(1 + std::ranges::count(b.text.substr(0, at), '\n'));
    std::string expected = b.text.substr(at + 2, b.text.find('\n', at) - at - 2);
    expected.erase(0, expected.find_first_not_of(' '));
    int column = 0;
    if (expected.starts_with('@')) {
      size_t digits = 0;
      column = std::stoi(expected.substr(1), &digits);
      expected.erase(0, expected.find_first_not_of(' ', digits + 1));
    }
    try {
      parse(b.text, b.place());
      ADD_FAILURE() << "no error; expected: " << expected;
    } catch (const Error& e) {
      EXPECT_EQ(e.pos().line, line) << e.what();
      if (column) {
        EXPECT_EQ(e.pos().column, column) << e.what();
      }
      EXPECT_NE(e.message().find(expected), std::string::npos) << e.what();
    }
  }
}

// Derived, stated with `grad`, or written out in a backward block.
TEST(DocsTest, GradientsAgreeWithFiniteDifferences) {
  for (const Block& b : blocks("xh")) {
    SCOPED_TRACE(b.place());
    for (const auto& op : parse(b.text, b.place()).ops) {
      Program derived = op->cotangents.empty() ? gradient(*op) : *op;
      if (derived.gradients.empty()) continue;
      GradcheckReport report = check_gradient(derived, sample_dims(derived, 1));
      EXPECT_TRUE(report.passed) << op->name << "\n" << report.text();
    }
  }
}

// A typo in a fence would take its block out of the tests.
// What the pages show of forward mode is what it gives.
TEST(DocsTest, ProductsAreTheOnesShown) {
  Program squash = parse_op("op squash(x: f32[N], s: f32) -> (y) { y[i] = s * tanh(x[i]) }");
  std::string language = read(kRoot / "docs/language.md");
  for (const Program& p : {vjp(squash, {{"x"}}), jvp(squash, {{"x"}}), hvp(squash, {.wrt = {"x"}, .along = {"x"}})})
    EXPECT_NE(language.find(print(p)), std::string::npos) << print(p);
  std::string softmax = print(jvp(parse_op(read(kRoot / "examples/softmax.xh"))));
  EXPECT_NE(read(kRoot / "docs/passes.md").find(softmax), std::string::npos) << softmax;
}

TEST(DocsTest, FencesAreKnown) {
  const std::set<std::string> known = {"", "text", "sh", "cpp", "cmake", "xh", "xh error", "mermaid", "python", "c"};
  for (const fs::path& page : pages())
    for (const Block& b : blocks_of(page)) EXPECT_TRUE(known.contains(b.fence)) << b.place() << ": ```" << b.fence;
}

TEST(DocsTest, TheReadmesProgramIsAnExample) {
  int programs = 0;
  for (const Block& b : blocks("cpp")) {
    if (b.text.find("int main()") == std::string::npos || b.page.filename() == "howto.md") continue;
    ++programs;
    EXPECT_EQ(b.text, read(kRoot / "examples" / "readme.cpp")) << b.place();
  }
  EXPECT_EQ(programs, 1);
}

TEST(DocsTest, LinksLeadSomewhere) {
  for (const fs::path& page : pages()) {
    std::string text = prose_of(page);
    for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      std::string target = text.substr(at + 2, text.find(')', at) - at - 2);
      if (target.find("://") != std::string::npos || target.starts_with('#')) continue;
      target = target.substr(0, target.find('#'));
      EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links to " << target;
    }
  }
}

TEST(DocsTest, EveryFunctionAndReductionIsInTheLanguagePage) {
  std::string text = read(kRoot / "docs" / "language.md");
  for (auto i = static_cast<size_t>(Op::sum); i <= static_cast<size_t>(Op::random); ++i) {
    const OpInfo& row = info(static_cast<Op>(i));
    if (row.syntax == Syntax::function || is_reduction(static_cast<Op>(i))) {
      EXPECT_NE(text.find("`" + std::string(row.text)), std::string::npos) << row.text << " is not explained in docs/language.md";
    }
  }
}

}  // namespace
}  // namespace xhat::docs_test
