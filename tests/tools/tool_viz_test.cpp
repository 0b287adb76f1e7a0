// `xhat viz`: what is on the page; tests/viz opens pages in a browser.
#include "tests/helpers/tool_helper.h"

namespace xhat::tool_viz_test {
namespace {

using testing::Json;
using testing::Result;
using ToolViz = testing::Tool;

TEST_F(ToolViz, TheDataHaveBothDirectionsWithPricesAndKernels) {
  Json d = json("viz $F/batch_norm.xh --json");
  auto named = [&](const std::string& name) {
    for (const Json& n : d["nodes"])
      if (n["name"] == name) return n;
    return Json();
  };
  EXPECT_EQ(named("mean_sum")["kind"], "stash");
  EXPECT_EQ(named("grad_x")["direction"], "backward");
  EXPECT_EQ(named("y")["element"], "y[n,c,h,w]");
  bool relation = false;
  const Json y = named("y"), x = named("x");
  for (const Json& list : y["reads"]) relation |= list[1] == x["id"] && d["patterns"][list[0].get<size_t>()] == "@[n,c,h,w]";
  EXPECT_TRUE(relation);
  for (const Json& k : d["kernels"]) {
    EXPECT_GT(k["bytes_unavoidable"], 0);
    EXPECT_TRUE(k.contains("schedule") && k.contains("loops") && k.contains("source")) << k.dump();
  }
  EXPECT_GT(d["stash"]["values"].size(), 2u);
  EXPECT_GT(d["pareto"].size(), 1u);
  EXPECT_EQ(d["passes"].size(), 8u);
  EXPECT_TRUE(d["timeline"].empty());  // no sizes, no run
}

TEST_F(ToolViz, ThePageIsOneFileWithItsLicences) {
  Result r = call("viz $F/softmax.xh --dims N=8,D=16 --listed 1 -o $T/page.html");
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string page = testing::content(path("page.html"));
  EXPECT_LT(page.size(), 600'000u);
  EXPECT_HAS(page, "Permission is hereby granted");
  EXPECT_HAS(page, "Mike Bostock");
  EXPECT_HAS(page, "\"direction\":\"backward\",\"kernel\":");  // of the run
  for (const char* loads : {"<link", "src=", "@import", "url("}) {
    const size_t head = page.find(loads), scripts = page.find("<script");
    EXPECT_TRUE(head == std::string::npos || head > scripts) << loads;
  }
  EXPECT_EQ(page.find("{{"), page.rfind("{{")) << "a part of the page is missing";
}

TEST_F(ToolViz, PagesOfARunningProgram) {
  write_npy<float>("x.npy", "<f4", "(2, 3)", {1, 2, 3, 1, 2, 4});
  ::setenv("XHAT_VIZ", path("pages").c_str(), 1);
  Result r = call("run $F/softmax.xh --in x=$T/x.npy --dy y=$T/x.npy --out $T/o");
  ::unsetenv("XHAT_VIZ");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.err, "XHAT_VIZ: ");
  EXPECT_HAS(testing::content(path("pages/softmax.1.html")), "The first call of each direction");
}

}  // namespace
}  // namespace xhat::tool_viz_test
