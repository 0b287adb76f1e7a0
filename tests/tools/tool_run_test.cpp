// `xhat run`: arrays from files and into files.
#include <cmath>

#include "tests/helpers/tool_helper.h"

namespace xhat::tool_run_test {
namespace {

using testing::Result;
using ToolRun = testing::Tool;

TEST_F(ToolRun, OutputsAndGradientsGoToFiles) {
  write_npy<float>("x.npy", "<f4", "(3,)", {1, -2, 3});
  write_npy<float>("dy.npy", "<f4", "(3,)", {1, 10, 100});
  Result r = call("run $F/scale.xh --op square --in x=$T/x.npy --dy y=$T/dy.npy --out $T/new/folder");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("new/folder/y.npy", "'<f4', 'fortran_order': False, 'shape': (3,)"),
            (std::vector<float>{1, 4, 9}));
  EXPECT_EQ(read_npy<float>("new/folder/grad_x.npy", "(3,)"), (std::vector<float>{2, -40, 600}));
}

TEST_F(ToolRun, AnyByteAndMemoryOrder) {
  std::vector<float> rows = {1, 2, 3, 1, 2, 4}, columns = {1, 1, 2, 2, 3, 4};
  write_npy("c.npy", "<f4", "(2, 3)", rows);
  write_npy("f.npy", "<f4", "(2, 3)", columns, true);
  write_npy("b.npy", ">f4", "(2, 3)", rows, false, true);
  for (const char* name : {"c", "f", "b"})
    ASSERT_EQ(call(std::string("run $F/softmax.xh --out $T/") + name + " --in x=$T/" + name + ".npy").status,
              0);
  auto y = read_npy<float>("c/y.npy", "(2, 3)");
  ASSERT_EQ(y.size(), 6u);
  EXPECT_NEAR(y[5], std::exp(4) / (std::exp(1) + std::exp(2) + std::exp(4)), 1e-6);
  EXPECT_EQ(read_npy<float>("f/y.npy", "(2, 3)"), y);
  EXPECT_EQ(read_npy<float>("b/y.npy", "(2, 3)"), y);
}

TEST_F(ToolRun, ScalarsBySetOrFile) {
  write_npy<float>("x.npy", "<f4", "(2,)", {1, 2});
  write_npy<float>("a.npy", "<f4", "()", {0.5f});
  write_npy<float>("dtotal.npy", "<f4", "()", {1});
  ASSERT_EQ(call("run $F/scale.xh --in x=$T/x.npy a=$T/a.npy --set k=1 --out $T/one").status, 0);
  EXPECT_EQ(read_npy<float>("one/y.npy", "(2,)"), (std::vector<float>{1.5, 2}));
  EXPECT_EQ(read_npy<uint8_t>("one/big.npy", "'|b1'"), (std::vector<uint8_t>{1, 1}));
  Result r = call(
      "run $F/scale.xh --in x=$T/x.npy --set a=0.5 --set k=1 --dy y=$T/x.npy total=$T/dtotal.npy --out "
      "$T/two");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("two/total.npy", "'shape': ()"), (std::vector<float>{3.5}));
  EXPECT_EQ(read_npy<float>("two/grad_a.npy", "'shape': ()"), (std::vector<float>{1 * 2 + 2 * 3}));
  EXPECT_FALSE(std::filesystem::exists(path("two/grad_k.npy")));
}

TEST_F(ToolRun, ProductsWithTheDerivativesGoToFiles) {
  write_npy<float>("x.npy", "<f4", "(3,)", {1, -2, 3});
  write_npy<float>("v.npy", "<f4", "(3,)", {1, 2, 10});
  write_npy<float>("dy.npy", "<f4", "(3,)", {1, 10, 100});
  // y = x^2: J v = 2*x*v, and the Hessian of <dy, y> is the diagonal 2*dy.
  Result r = call(
      "run $F/scale.xh --op square --in x=$T/x.npy --jvp x=$T/v.npy --hvp x=$T/v.npy --dy y=$T/dy.npy --out "
      "$T/o");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("o/y.npy", "(3,)"), (std::vector<float>{1, 4, 9}));
  EXPECT_EQ(read_npy<float>("o/jvp_y.npy", "(3,)"), (std::vector<float>{2, -8, 60}));
  EXPECT_EQ(read_npy<float>("o/grad_x.npy", "(3,)"), (std::vector<float>{2, -40, 600}));
  EXPECT_EQ(read_npy<float>("o/hvp_x.npy", "(3,)"), (std::vector<float>{2, 40, 2000}));
}

TEST_F(ToolRun, InputsWithoutATangentStandStill) {
  write_npy<float>("x.npy", "<f4", "(2,)", {1, 2});
  write_npy<float>("ta.npy", "<f4", "()", {10});
  write_npy<float>("dy.npy", "<f4", "(2,)", {1, 3});
  write_npy<float>("dtotal.npy", "<f4", "()", {100});
  Result r = call("run $F/scale.xh --in x=$T/x.npy --set a=0.5 k=1 --jvp a=$T/ta.npy --out $T/o");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("o/jvp_y.npy", "(2,)"), (std::vector<float>{10, 20}));
  EXPECT_EQ(read_npy<float>("o/jvp_total.npy", "()"), (std::vector<float>{30}));
  EXPECT_EQ(read_npy<float>("o/total.npy", "()"), (std::vector<float>{3.5}));
  EXPECT_EQ(read_npy<uint8_t>("o/big.npy", "'|b1'"), (std::vector<uint8_t>{1, 1}));  // has no tangent
  EXPECT_FALSE(std::filesystem::exists(path("o/jvp_big.npy")));
  // hvp for the gradients wanted, along a alone: grad_x = a*(dy + dtotal).
  r = call(
      "run $F/scale.xh --in x=$T/x.npy --set a=0.5 k=1 --hvp a=$T/ta.npy --dy y=$T/dy.npy "
      "total=$T/dtotal.npy "
      "--wrt x --out $T/h");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("h/hvp_x.npy", "(2,)"), (std::vector<float>{1010, 1030}));
  EXPECT_FALSE(std::filesystem::exists(path("h/hvp_a.npy")));
}

TEST_F(ToolRun, StashPolicyAndFusionDoNotChangeGradients) {
  write_npy<float>("x.npy", "<f4", "(2, 3)", {1, 2, 3, 1, 2, 4});
  write_npy<float>("dy.npy", "<f4", "(2, 3)", {1, 0, -1, 2, 0.5f, 0});
  std::string base = "run $F/softmax.xh --in x=$T/x.npy --dy y=$T/dy.npy --out $T/";
  ASSERT_EQ(call(base + "cost").status, 0);
  auto wanted = read_npy<float>("cost/grad_x.npy", "(2, 3)");
  ASSERT_EQ(wanted.size(), 6u);
  for (std::string options :
       {"largest --stash largest", "none --stash none", "off --fuse off", "relay --fuse relay", "dropped --drop y"}) {
    Result r = call(base + options);
    ASSERT_EQ(r.status, 0) << r.err;
    auto got = read_npy<float>(options.substr(0, options.find(' ')) + "/grad_x.npy", "(2, 3)");
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << options;
  }
}

TEST_F(ToolRun, HalfPrecision) {
  write_npy<uint16_t>("x.npy", "<f2", "(2,)", {0x4200, 0xC000});  // 3, -2
  Result r = call("run $F/half.xh --in x=$T/x.npy --out $T/o");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<uint16_t>("o/y.npy", "<f2"), (std::vector<uint16_t>{0x4880, 0x4400}));  // 9, 4
}

TEST_F(ToolRun, EmptyTensors) {
  write_npy<float>("x.npy", "<f4", "(0,)", {});
  Result r = call("run $F/scale.xh --in x=$T/x.npy --set a=1 k=0 --out $T/o");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(read_npy<float>("o/total.npy", "()"), (std::vector<float>{0}));
  EXPECT_TRUE(read_npy<float>("o/y.npy", "(0,)").empty());
}

TEST_F(ToolRun, WrongArraysAreErrorsThatNameOpAndTensor) {
  write_npy<double>("double.npy", "<f8", "(1, 2)", {1, 2});
  write_npy<float>("x.npy", "<f4", "(2,)", {1, 2});
  write_npy<float>("table.npy", "<f4", "(2, 1)", {1, 2});
  write_npy<int32_t>("ids.npy", "<i4", "(1, 2)", {1, 2});
  struct {
    std::string arguments;
    std::vector<std::string> parts;
  } cases[] = {
      {"run $F/softmax.xh --in x=$T/double.npy",
       {"softmax.xh:2:12: error: ", "declared f32", "f64", "\n           ^"}},
      {"run $F/softmax.xh --in x=$T/x.npy", {"softmax.xh:2:4: error: ", "softmax", "x has shape [2]"}},
      {"run $F/softmax.xh", {"the input x is missing"}},
      {"run $F/softmax.xh --in z=$T/x.npy", {"no input of that name"}},
      {"run $F/softmax.xh --in x=$T/nothing.npy", {"nothing.npy: it cannot be opened"}},
      {"run $F/embedding.xh --in table=$T/table.npy ids=$T/ids.npy",
       {"embedding_bag", "table[2,0]", "indices run from 0 to 1"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --dy y=$T/x.npy",
       {"the cotangent of output total is missing"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --dy big=$T/x.npy", {"is bool and has no cotangent"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2.5", {"'2.5' is no value of type i32"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --jvp z=$T/x.npy",
       {"--jvp z: op scale has no input of that name"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --jvp k=$T/x.npy",
       {"scale.xh:3:", "it is i32, not a float"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --jvp x=$T/double.npy",
       {"the tangent of x is declared f32", "f64"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --jvp a=$T/x.npy",
       {"the tangent of a has shape [2], but a has []"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 --hvp x=$T/x.npy",
       {"the cotangent of output", "is missing", "--hvp"}},
      {"run $F/scale.xh --in x=$T/x.npy --set a=1 k=2 N=3",
       {"no scalar parameter of that name; it has a, k"}},
  };
  for (const auto& c : cases) {
    Result r = call(c.arguments + " --out $T/o");
    EXPECT_EQ(r.status, 2) << c.arguments;
    for (const std::string& part : c.parts) EXPECT_HAS(r.err, part);
    EXPECT_FALSE(std::filesystem::exists(path("o"))) << c.arguments;
  }
}

TEST_F(ToolRun, CheckValuesNamesWhatMadeANaN) {
  write("log.xh", "op f(x: f32[N]) -> (y) {\n  t[i] = log(x[i])\n  y[i] = t[i] - t[i]\n}\n");
  write_npy<float>("x.npy", "<f4", "(3,)", {1, 0, 2});
  write_npy<float>("good.npy", "<f4", "(3,)", {1, 3, 2});
  write_npy<float>("dy.npy", "<f4", "(3,)", {1, 1, 1});
  EXPECT_EQ(call("run $T/log.xh --in x=$T/x.npy --out $T/o").status, 0);
  EXPECT_EQ(call("run $T/log.xh --in x=$T/good.npy --dy y=$T/dy.npy --out $T/o --check-values").status, 0);
  Result r = call("run $T/log.xh --in x=$T/x.npy --out $T/o --check-values");
  EXPECT_EQ(r.status, 1);
  EXPECT_HAS(r.err, "log.xh:2:3: error: op f: t[1] is -inf: log(x[i]) makes it of x[i] = 0; y[1] is nan because of it");
}

TEST_F(ToolRun, CheckValuesLooksAtGradientsToo) {
  write("root.xh", "op f(x: f32[N]) -> (y) {\n  y[i] = sqrt(x[i])\n}\n");
  write_npy<float>("x.npy", "<f4", "(2,)", {4, 0});
  write_npy<float>("dy.npy", "<f4", "(2,)", {1, 1});
  Result r = call("run $T/root.xh --in x=$T/x.npy --dy y=$T/dy.npy --out $T/o --check-values");
  EXPECT_EQ(r.status, 1);
  EXPECT_HAS(r.err, "grad_x[1] is inf: dy[i] * 0.5 / y[i] makes it of dy[i] * 0.5 = 0.5, y[i] = 0");
}

}  // namespace
}  // namespace xhat::tool_run_test
