// The site that docs/site/build makes, without its generator: every page of docs/ is in its order, what that names exists, and links between
// pages, with their anchors, lead somewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/helpers/pages.h"

namespace xhat::docs_site_test {
namespace {

namespace fs = std::filesystem;

using testing::kRoot;
using testing::read;

// The pages that docs/site/mkdocs.yml names below `nav:`, as paths of the repository.
std::vector<std::string> navigation() {
  const std::string order = read(kRoot / "docs/site/mkdocs.yml");
  const std::string nav = order.substr(order.find("\nnav:"));
  const std::regex page(R"([\w/.]+\.md)");
  return {std::sregex_token_iterator(nav.begin(), nav.end(), page), std::sregex_token_iterator()};
}

// Lines that are no code: neither fenced nor indented; of those, what stands between backticks is taken out where `plain` says so.
std::vector<std::string> lines_of(const fs::path& page, bool plain) {
  std::vector<std::string> found;
  std::istringstream text(read(page));
  bool fenced = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) fenced = !fenced;
    if (fenced || line.starts_with("```") || line.starts_with("    ")) continue;
    if (!plain) {
      found.push_back(line);
      continue;
    }
    std::string kept;
    bool code = false;
    for (char c : line) {
      code ^= c == '`';
      if (!code) kept += c;
    }
    found.push_back(kept);
  }
  return found;
}

// Of each heading the anchor that GitHub and the site give it: small letters, digits, - and _; blanks become -. The second of one name ends in -1.
std::set<std::string> anchors_of(const fs::path& page) {
  std::set<std::string> anchors;
  std::map<std::string, int> times;
  for (const std::string& line : lines_of(page, false)) {
    const size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || level > 6 || line[level] != ' ') continue;
    std::string anchor;
    for (char c : line.substr(level + 1)) {
      if (c == ' ')
        anchor += '-';
      else if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || static_cast<unsigned char>(c) > 127)
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const int before = times[anchor]++;
    anchors.insert(before ? anchor + "-" + std::to_string(before) : anchor);
  }
  return anchors;
}

TEST(DocsSiteTest, TheNavigationNamesEveryPage) {
  const std::vector<std::string> named = navigation();
  std::set<std::string> once(named.begin(), named.end());
  EXPECT_EQ(once.size(), named.size()) << "a page stands twice in docs/site/mkdocs.yml";
  for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") {
      EXPECT_TRUE(once.contains("docs/" + entry.path().filename().string())) << entry.path() << " is not in docs/site/mkdocs.yml";
    }
  const std::string generator = read(kRoot / "docs/site/reference.py");
  for (const std::string& page : named)
    if (page.starts_with("reference/"))
      EXPECT_NE(generator.find('"' + page + '"'), std::string::npos) << page << " is made by nothing";
    else
      EXPECT_TRUE(fs::exists(kRoot / page)) << page;
}

// The pages of docs/ are listed for readers of the repository, too.
TEST(DocsSiteTest, TheListOfPagesNamesEveryPage) {
  const std::string list = read(kRoot / "docs/README.md");
  for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
    if (const std::string name = entry.path().filename().string(); name.ends_with(".md") && name != "README.md") {
      EXPECT_NE(list.find("[" + name + "](" + name + ")"), std::string::npos) << name << " is not listed in docs/README.md";
    }
}

TEST(DocsSiteTest, LinksAndTheirAnchorsLeadSomewhere) {
  const std::regex link(R"(\]\(([^)\s#]*)(?:#([^)\s]*))?\))");
  int anchors = 0;
  for (const std::string& name : navigation()) {
    if (name.starts_with("reference/")) continue;
    const fs::path page = kRoot / name;
    for (const std::string& line : lines_of(page, true))
      for (std::sregex_iterator at(line.begin(), line.end(), link), end; at != end; ++at) {
        const std::string target = (*at)[1], anchor = (*at)[2];
        if (target.find("://") != std::string::npos) continue;
        const fs::path leads = target.empty() ? page : page.parent_path() / target;
        ASSERT_TRUE(fs::exists(leads)) << name << " links to " << target;
        EXPECT_FALSE(fs::relative(leads, kRoot).string().starts_with(".."))
            << name << " links to " << target << ", outside of the repository";
        if (anchor.empty()) continue;
        ++anchors;
        EXPECT_TRUE(anchors_of(leads).contains(anchor)) << name << " links to " << target << "#" << anchor;
      }
  }
  EXPECT_GE(anchors, 10);
}

TEST(DocsSiteTest, TheCookbookHasFortyRecipes) {
  const std::string page = read(kRoot / "docs/cookbook.md");
  int recipes = 0, headings = 0;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    headings += line.starts_with("### ");
    recipes += line == "```xh";
  }
  EXPECT_EQ(recipes, headings);
  EXPECT_GE(recipes, 40);
}

}  // namespace
}  // namespace xhat::docs_site_test
