// Pages of lazy arrays. tests/viz opens the one that the first test leaves behind in a browser.
#include <cstdlib>
#include <fstream>

#include "tests/lazy/lazy_helper.h"

namespace xhat::lazy::test::lazy_viz_test {
namespace {

size_t occurrences(const std::string& text, const std::string& of) {
  size_t count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

TEST(LazyViz, OfALossWithItsGradients) {
  const Array x = some({16, 8}, 1), w = some({8, 4}, 2), b = some({4}, 3);
  const Array loss = mean(square(softmax(matmul(x, w) + b)));
  auto [gw, gb] = grad(loss, {w, b});
  std::string page;
  const Spent s = spent([&] { page = viz({loss, gw, gb}); });
  EXPECT_EQ(s.programs, 0);
  EXPECT_FALSE(loss.is_realized());
  for (const char* part :
       {"<!DOCTYPE html>", "\"kind\":\"output\"", "\"name\":\"x0\"", "\"dims\":{\"N0\":", "\"loops\":", "Nothing ran for this page"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(occurrences(page, "\"kind\":\"output\""), 3U);
  // Realized, it shows the same program.
  loss.realize();
  EXPECT_NE(viz(loss).find("\"name\":\"x0\""), std::string::npos);
  if (const char* path = std::getenv("XHAT_LAZY_PAGE")) std::ofstream(path) << page;
}

TEST(LazyViz, OnePagePerProgram) {
  const Array x = some({16}, 1);
  const Array y = sum(exp(x).contiguous() * 2.f);
  EXPECT_EQ(viz_pages(std::span<const Array>(&y, 1)).size(), 2U);
  EXPECT_NE(viz(y).find("Program 2 of 2."), std::string::npos);
}

TEST(LazyViz, OfMemoryThereIsNone) { EXPECT_THROW(viz(some({3})), Error); }

}  // namespace
}  // namespace xhat::lazy::test::lazy_viz_test
