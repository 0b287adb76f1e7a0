// What the tool does for who uses it the first time: numbers in the place of files, one's own data in check, warnings, one definition of an
// explanation, the manual.
#include "tests/helpers/tool_helper.h"

namespace xhat::tool_answers_test {
namespace {

using testing::Json;
using testing::Result;
using ToolAnswers = testing::Tool;

TEST_F(ToolAnswers, NumbersInThePlaceOfFiles) {
  write("loss.xh", "op f(x: f32[N], s: f32) -> (loss) { loss = s * sum(i: x[i]^2) }\n");
  write_npy<float>("x.npy", "<f4", "(3,)", {1, 2, 3});
  for (const auto& [how, grad] : {std::pair{"--grad", 4.0F}, std::pair{"--dy loss=1", 4.0F}, std::pair{"--dy loss=0.5", 2.0F}}) {
    Result r = call(std::string("run $T/loss.xh --in x=$T/x.npy s=2 --out $T/o ") + how);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(read_npy<float>("o/grad_x.npy", "(3,)"), (std::vector<float>{grad, 2 * grad, 3 * grad})) << how;
  }
  Result r = call("run $T/loss.xh --in x=$T/x.npy --set s=2 --hvp x=1 --jvp x=10 --out $T/o");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("o/hvp_x.npy", "(3,)"), (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(read_npy<float>("o/jvp_loss.npy", "()"), (std::vector<float>{240}));
  // All of a tensor; the shape is known from the op.
  ASSERT_EQ(call("run $F/scale.xh --op square --in x=$T/x.npy --dy y=10 --out $T/o").status, 0);
  EXPECT_EQ(read_npy<float>("o/grad_x.npy", "(3,)"), (std::vector<float>{20, 40, 60}));
  r = call("run $F/scale.xh --op square --in x=$T/x.npy --grad --out $T/p");  // no scalar
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "the cotangent of output y is missing; give it, as --dy y=FILE or a number");
}

TEST_F(ToolAnswers, CheckOnOnesOwnData) {
  write_npy<float>("x.npy", "<f4", "(2, 3)", {1, 2, 3, 4, 5, 6});
  const Json j = json("check $F/softmax.xh --in x=$T/x.npy --json");
  EXPECT_EQ(j["dims"], Json::parse(R"({"N": 2, "D": 3})"));
  EXPECT_TRUE(j["passed"].get<bool>());
  bool infer = false;
  for (const Json& row : j["checks"]) {
    EXPECT_TRUE(row["passed"].get<bool>()) << row;
    // Where numbers are large or tiny, what roundings amount to there counts besides (docs/numerics.md).
    const bool harder = row["at"].get<std::string>().find(", ") != std::string::npos;
    EXPECT_TRUE(harder || row["worst error"].get<double>() <= row["tolerance"].get<double>()) << row;
    infer |= row["check"] == "infer" && row["tensor"] == "y";
  }
  EXPECT_TRUE(infer);
  Result r = call("check $F/softmax.xh --in x=$T/x.npy --dims N=3");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "softmax: x has shape [2,3], but [3,3] with D = 3, N = 3");
  EXPECT_HAS(call("check $F/softmax.xh --in z=$T/x.npy").err, "--in z: op softmax has no input of that name; it has x");
}

TEST_F(ToolAnswers, WarningsStandBesideTheAnswer) {
  write("odd.xh", "op odd(x: f32[N], w: f32[N]) -> (y) {\n  t[i] = x[i] * 2\n  y[i] = x[i] * f32(i/N)\n}\n");
  Result r = call("explain $T/odd.xh");
  EXPECT_EQ(r.status, 0);
  for (const char* part : {"odd.xh:1:19: warning: input w is never read\nop odd(", "odd.xh:2:3: warning: no output needs t",
                           "odd.xh:3:3: warning: f32(i/N) is always 0, since integers divide with floor; write f32(i)/N\n"})
    EXPECT_HAS(r.err, part);
  EXPECT_EQ(r.out.find("warning"), std::string::npos) << r.out;
  EXPECT_EQ(call("explain $F/softmax.xh").err, "");
}

TEST_F(ToolAnswers, SeveralMistakesInOneRun) {
  write("wrong.xh", "op f(x: f32[N]) -> (y) {\n  t[i] = x[i+1]\n  y[i] = x[i] + q\n}\n");
  Result r = call("explain $T/wrong.xh");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "wrong.xh:2:5: error: axis i has no range");
  EXPECT_HAS(r.err, "wrong.xh:3:17: error: q is not a tensor, dim or axis in scope");
}

TEST_F(ToolAnswers, UnknownNamesAndNumbersBeyondReason) {
  for (const char* command : {"explain", "viz --no-run -o $T/page.html", "bench"}) {
    Result r = call(std::string(command) + " $F/softmax.xh --set foo=3");
    EXPECT_EQ(r.status, 2) << command;
    EXPECT_HAS(r.err, "--set foo: op softmax has no scalar parameter of that name; it has none");
  }
  EXPECT_HAS(call("explain $F/softmax.xh --threads -1").err, "--threads: -1 threads: it is 0, which is one per core, or a positive number");
}

TEST_F(ToolAnswers, ExplainsOneDefinition) {
  Result r = call("explain $F/batch_norm.xh --definition var");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.substr(0, 7), "var[c] ") << r.out;
  EXPECT_HAS(r.out, "keeping is cheaper than recomputing it");
  EXPECT_HAS(r.out, "in kernel ");
  EXPECT_EQ(r.out.find("mean[c] ="), std::string::npos) << r.out;
  EXPECT_HAS(call("explain $F/batch_norm.xh --definition vor").err, "--definition vor: op batch_norm defines mean, var, y");
}

TEST_F(ToolAnswers, TheManualKnowsAllSubcommands) {
  const std::string page = call("manual man").out, bash = call("manual bash").out, zsh = call("manual zsh").out;
  for (const char* name : {"explain", "check", "run", "viz", "bench", "tune", "build", "fmt", "calibrate"}) {
    EXPECT_HAS(page, std::string(".SS xhat ") + name + "\n");
    EXPECT_HAS(bash, std::string("    ") + name + ")\n");
    EXPECT_HAS(zsh, std::string("    ") + name + ")\n");
  }
  EXPECT_EQ(call("manual fish").status, 2);
}

}  // namespace
}  // namespace xhat::tool_answers_test
