// The built program, called as people call it: output, exit status, messages. (`explain` and `run` have files of their own.)
#include "runtime/explain/explain.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::tool_test {
namespace {

using testing::Json;
using testing::Result;
using ToolCheck = testing::Tool;
using ToolBench = testing::Tool;
using ToolUsage = testing::Tool;

TEST_F(ToolCheck, RightGradientsPass) {
  Result r = call("check $F/softmax.xh --dims N=3");
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_HAS(r.out, "N = 3");
  for (const char* part : {"gradient", "inner product", "jvp_y", "hvp_x", "jvp kernels", "hvp kernels",
                           "passes", "infer", "forward", "backward", "precision", "plain: off by", "tolerance", "1.0e-05", "passed"})
    EXPECT_HAS(r.out, part);
}

TEST_F(ToolCheck, AWrongCustomGradientFails) {
  Result r = call("check $F/wrong_gradient.xh");
  EXPECT_EQ(r.status, 1) << r.out << r.err;
  EXPECT_HAS(r.out, "FAILED");
  // Found three times over; the passes and kernels do what was stated.
  std::istringstream lines(r.out);
  std::vector<std::string> wrong;
  for (std::string line; std::getline(lines, line);)
    if (line.find("WRONG") != std::string::npos) wrong.push_back(line.substr(2, line.find("  ", 2) - 2));
  EXPECT_EQ(wrong, (std::vector<std::string>{"gradient", "inner product", "jvp"})) << r.out;
}

TEST_F(ToolCheck, AStatedGradientThatIsNotLinearFails) {
  write("clip.xh",
        "op f(x: f32[N]) -> (y) { y[n] = x[n] }\ngrad f(x, dy) -> (dx) { dx[n] = clamp(dy[n], -9, 9) }\n");
  Result r = call("check $T/clip.xh");
  EXPECT_EQ(r.status, 1) << r.out << r.err;
  EXPECT_HAS(r.out, "jvp: op f has no forward derivative: its `grad` is not linear in the cotangent dy");
}

// What a program was made into is compared with what it means as it is written, also parameters that it writes.
TEST_F(ToolCheck, ValuesOfAProgramAsItIsWritten) {
  write("shift.xh", "prog f(x: inout f32[N], n: u8) -> (m) {\n  for i in 1..N { x[i] += x[i-1] }\n  m = n % 2 + 254\n}\n");
  Result r = call("check $T/shift.xh");
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_HAS(r.out, "  program        m ");
  EXPECT_HAS(r.out, "  program        x_out ");
}

TEST_F(ToolCheck, HalfPrecision) {
  Result r = call("check $F/half.xh");
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_HAS(r.out, "f16");
}

TEST_F(ToolBench, JsonHasEveryKey) {
  Json j = json("bench $F/softmax.xh --dims N=64,D=32 --threads 1 --repeats 3 --json");
  for (const char* key : {"infer_ms", "forward_ms", "backward_ms"}) {
    EXPECT_GT(j[key]["min"].get<double>(), 0);
    EXPECT_LE(j[key]["min"].get<double>(), j[key]["median"].get<double>());
  }
  for (const char* key : {"forward_gbps", "backward_gbps", "forward_gflops", "backward_gflops"})
    EXPECT_GT(j[key].get<double>(), 0) << key;
  for (const char* phase : {"infer", "forward", "backward"})
    EXPECT_GT(j["compile_ms"][phase].get<double>(), 0);
  for (const char* without : {"no_stash", "no_fusion"})
    for (const char* phase : {"forward_ms", "backward_ms"})
      EXPECT_GT(j["ablations"][without][phase]["median"].get<double>(), 0);
  EXPECT_EQ(j["dims"], Json::parse(R"({"N": 64, "D": 32})"));
  EXPECT_EQ(j["threads"], 1);
  EXPECT_EQ(j["repeats"], 3);
  EXPECT_EQ(j["target"], "cpu");
  EXPECT_EQ(j["stash_bytes"], 0);
  EXPECT_TRUE(j["noisy"].is_object());
}

// A loop whose every iteration calls kernels may take a thousand times as long as the loop as one function.
TEST_F(ToolBench, WhatIsComparedWithIsStoppedAtALimit) {
  write("loop.xh", "prog f(x: f64[N]) -> (y) { var y = clone(x)\nfor i in 1..N { y[i] = sin(y[i-1]) + x[i] } }\n");
  Json j = json("bench $T/loop.xh --dims N=3000 --repeats 1 --limit 0.001 --json");
  const Json& unfused = j["ablations"]["no_fusion"];
  EXPECT_EQ(unfused["forward_ms"]["at_least"], true) << unfused;
  EXPECT_LT(unfused["forward_ms"]["min"].get<double>(), 3000 * 0.1);
  EXPECT_TRUE(unfused["backward_ms"].is_null()) << unfused;
  EXPECT_FALSE(j["forward_ms"].contains("at_least"));
  Result r = call("bench $T/loop.xh --dims N=3000 --repeats 1 --limit 0.001");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.out, "without fusion: forward   > ");
  EXPECT_HAS(r.out, "without fusion: backward  not timed");
  EXPECT_HAS(r.out, "what took more than 1.00 ms is stopped (--limit)");
}

TEST_F(ToolBench, OpsThatSmallSizesDoNotFit) {
  write("pairs.xh", "op pairs(x: f32[N]) -> (y) { at[i in 0..N] = bit_xor(i, 1); y[i in 0..N] = x[at[i]] }\n");  // N is even
  Result r = call("bench $T/pairs.xh --dims N=64 --repeats 1");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(call("bench $T/pairs.xh --dims N=63 --repeats 1").status, 2);
}

TEST_F(ToolBench, AllDimsMustBeGiven) {
  Result r = call("bench $F/softmax.xh --dims N=64");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "missing: D");
}

// An f64 result of a sum in f32 is as good as f32, what is stopped stays where it is, and a product keeps its order on harder data.
TEST_F(ToolUsage, CheckAcceptsWhatIsRight) {
  write("mixed.xh", "op f(x: f32[N], z: f64[M]) -> (y) { y[i] = z[i] * sum(k: x[k]) - z[i] }\n");
  write("stop.xh", "op f(x: f32[N]) -> (y) { y[i] = x[i]*stop_gradient(x[i]) }\n");
  write("prod.xh", "op f(x: f32[N,D]) -> (y) { y[n] = prod(d: x[n,d]) }\n");
  for (const char* arguments : {"mixed.xh --dims N=64,M=9 --seed 2", "stop.xh --dims N=8", "prod.xh --dims N=4,D=40"}) {
    Result r = call("check $T/" + std::string(arguments));
    EXPECT_EQ(r.status, 0) << arguments << r.out << r.err;
    EXPECT_HAS(r.out, " draws");
  }
}

TEST_F(ToolUsage, FormatKeepsCommentsAndIsStable) {
  write("a.xh", "# head\nop f( x:f32[N] )->( y ){ y[i]=x[i]*(2+1)   # why\n}\n");
  Result once = call("fmt $T/a.xh");
  EXPECT_EQ(once.status, 0) << once.err;
  EXPECT_HAS(once.out, "# head\nop f(x: f32[N]) -> (y) {\n  y[i] = x[i] * (2 + 1)  # why\n}\n");
  write("b.xh", once.out);
  EXPECT_EQ(call("fmt $T/b.xh").out, once.out);
}

TEST_F(ToolUsage, ErrorsPointIntoTheFile) {
  write("a.xh", "op f(x: f32[N]) -> (y) {\n  y[i] = x[j]\n}\n");
  for (const char* command : {"explain", "check", "bench --dims N=3", "run --out $T/o"}) {
    Result r = call(std::string(command) + " $T/a.xh");
    EXPECT_EQ(r.status, 2) << command;
    EXPECT_HAS(r.err, path("a.xh") + ":2:12: error: ");
    EXPECT_HAS(r.err, "\n  y[i] = x[j]\n           ^\n");
    EXPECT_EQ(r.out, "");
  }
  write("b.xh", "op f(x: f32[N] -> (y) { y[i] = x[i] }\n");
  EXPECT_EQ(call("fmt $T/b.xh").status, 2);
}

TEST_F(ToolUsage, NotYet) {
  write("p.xh", "prog p(x: f32[N]) -> (y) {\n  var y = clone(x)\n  for i in 1..N { y[i] = tanh(y[i-1]) }\n}\n");
  for (const char* arguments :
       {"build $F/softmax.xh --target cpu,vulkan -o $T/lib", "explain $T/p.xh --pareto", "viz $T/p.xh -o $T/p.html",
        "tune $F/softmax.xh --target cuda -o $T/t.json"}) {
    Result r = call(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_HAS(r.err, "not yet");
  }
}

TEST_F(ToolUsage, WithoutLibrariesTheErrorSaysWhichAreMissing) {
  setenv("XHAT_CUDA_LIBRARY", XHAT_BUILD_DIR "/tests/libfake_cuda.so", 1);
  setenv("XHAT_CUBLAS_LIBRARY", "/nonexistent/cublas", 1);
  setenv("XHAT_CUDNN_LIBRARY", "/nonexistent/cudnn", 1);
  Result r = call("check $F/softmax.xh --target cuda --libraries on");
  EXPECT_NE(r.status, 0);
  EXPECT_HAS(r.err, "neither cuBLAS nor cuDNN was found; install one, or use --libraries auto");
  EXPECT_HAS(r.err, "/nonexistent/cublas");
  for (const char* name : {"XHAT_CUDA_LIBRARY", "XHAT_CUBLAS_LIBRARY", "XHAT_CUDNN_LIBRARY"}) unsetenv(name);
}

TEST_F(ToolUsage, ExplainSaysWhatALibraryComputes) {
  write("dense.xh", "op dense(x: f32[N,I], w: f32[I,O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i] * w[i,o])) }\n");
  Result r = call("explain $T/dense.xh --target cuda --libraries on --dims N=512,I=256,O=1024");
  EXPECT_HAS(r.out, "(by a library: product 512 x 1024 x 256)");
  r = call("explain $T/dense.xh --target cuda --libraries off --dims N=512,I=256,O=1024");
  EXPECT_EQ(r.out.find("library"), std::string::npos) << r.out;
}

// Loaders that are shown no drivers find no devices.
TEST_F(ToolUsage, WithoutADeviceTheErrorSaysWhatToInstall) {
  setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
  setenv("VK_ICD_FILENAMES", "/nonexistent", 1);
  setenv("XHAT_CUDA_LIBRARY", "/nonexistent", 1);
  for (const char* target : {"cuda", "opencl", "vulkan"}) {
    Result r = call("check $F/softmax.xh --dims N=3,D=5 --target " + std::string(target));
    EXPECT_EQ(r.status, 2) << r.out << r.err;
    EXPECT_HAS(r.err, "target " + std::string(target) + ": no device found; install ");
    EXPECT_HAS(r.err, "use --target cpu");
  }
  // A driver without a device, and what is no driver of CUDA.
  setenv("FAKE_CUDA_DEVICES", "0", 1);
  const std::pair<const char*, const char*> drivers[] = {{XHAT_BUILD_DIR "/tests/libfake_cuda.so", "the driver knows no device"},
                                                         {"libm.so.6", "the driver is too old: it has no cuLaunchKernel"}};
  for (const auto& [file, says] : drivers) {
    setenv("XHAT_CUDA_LIBRARY", file, 1);
    Result r = call("check $F/softmax.xh --dims N=3,D=5 --target cuda");
    EXPECT_EQ(r.status, 2) << r.out << r.err;
    EXPECT_HAS(r.err, says);
  }
  for (const char* variable : {"OCL_ICD_VENDORS", "VK_ICD_FILENAMES", "XHAT_CUDA_LIBRARY", "FAKE_CUDA_DEVICES"}) unsetenv(variable);
}

// What it makes is tested in ahead_test.cpp and tests/ahead_consumer.
TEST_F(ToolUsage, BuildSaysWhatItNeeds) {
  const std::vector<std::pair<const char*, const char*>> calls = {
      {"build $F/softmax.xh --dims D=8", "-o DIR"},
      {"build $F/softmax.xh --dims D=eight -o $T/lib", "wants an integer"},
      {"build $F/softmax.xh --dims D=8 --levels avx3 -o $T/lib", "sse41, avx2, avx512"},
      {"build $F/softmax.xh --dims D=8 --name 8rows -o $T/lib", "cannot be the name"},
      {"build $F/softmax.xh --dims D=8 --target cuda -o $T/lib", "always has code for the CPU, too: --target cpu,cuda"},
      {"build $F/softmax.xh --dims D=8 --target cpu,abacus -o $T/lib", "there is no target 'abacus'"},
      {"build $F/softmax.xh --dims D=8 --gpu-dims N=8 -o $T/lib", "--gpu-dims go with a GPU"},
      {"build $F/softmax.xh --dims D=8 --gpu-dims M=8 --target cpu,cuda -o $T/lib", "there is no dim M; it has N, D"},
      {"build $F/softmax.xh --dims N=8 --target cpu,cuda -o $T/lib", "the size D must be given, as --gpu-dims"}};
  for (const auto& [arguments, says] : calls) {
    Result r = call(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_HAS(r.err, says);
  }
  EXPECT_FALSE(std::filesystem::exists(path("lib/libsoftmax.a")));
}

TEST_F(ToolUsage, WrongWordsAreAnsweredWithTheNearest) {
  const std::vector<std::pair<const char*, const char*>> calls = {
      {"explan $F/softmax.xh", "there is no subcommand explan; did you mean explain?"},
      {"dance", "there is no subcommand dance; xhat --help"},
      {"check $F/softmax.xh --dim N=3", "there is no option --dim; did you mean --dims?"},
      {"explain $F/softmax.xh --bogus=1", "there is no option --bogus; xhat --help"},
      {"check $F/softmax.xh --dims M=3", "op softmax: there is no dim M; its dims are N, D"}};
  for (const auto& [arguments, says] : calls) {
    Result r = call(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_HAS(r.err, says);
  }
}

TEST_F(ToolUsage, WrongCallsExitWithTwo) {
  for (const char* arguments :
       {"", "dance", "explain", "explain $F/softmax.xh --bogus", "explain $F/softmax.xh --stash most",
        "explain $F/softmax.xh --stash budget=-1", "explain $F/softmax.xh --fuse half",
        "explain $F/softmax.xh --dims N", "explain $F/softmax.xh --dims N=1,N=2",
        "explain $F/softmax.xh --dims K=3", "explain $F/softmax.xh --dims N=-1",
        "explain $F/softmax.xh --op nobody", "explain $F/softmax.xh --keep y --drop x",
        "explain --derive half $F/softmax.xh", "explain --derive hessian $F/softmax.xh", "explain --derive vmap=q $F/softmax.xh",
        "explain $F/softmax.xh --drop z", "explain $F/nothing.xh", "run $F/softmax.xh",
        "check $F/softmax.xh --target abacus", "bench $F/softmax.xh --threads -1"}) {
    Result r = call(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_FALSE(r.err.empty()) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
  }
}

TEST_F(ToolUsage, HelpShowsAnExamplePerCommand) {
  Result all = call("--help");
  EXPECT_EQ(all.status, 0);
  for (const char* command : {"explain", "check", "run", "bench", "tune", "calibrate", "fmt", "build", "viz", "manual"}) {
    EXPECT_HAS(all.out, command);
    Result r = call(std::string(command) + " --help");
    EXPECT_EQ(r.status, 0);
    EXPECT_HAS(r.out, std::string("Example: xhat ") + command);
  }
}

TEST(ToolTables, ColumnsAlign) {
  EXPECT_EQ(table_text({{"name", "n"}, {"x̂", "10"}, {"longer", "5"}}, {1}, "  "),
            "  name     n\n  x̂       10\n  longer   5\n");
  EXPECT_EQ(bytes_text(1023), "1.00 KiB");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(3 * 1048576.0), "3.00 MiB");
  EXPECT_EQ(time_text(1500), "1.50 us");
  EXPECT_EQ(flops_text(12345678), "12.3 Mflop");
}

// What is measured can be read, and decides. A whole time is more than nothing; a difference of two may come out as nothing
// on a machine that others use too.
TEST_F(ToolUsage, CalibrateWritesWhatPricesReads) {
  Result r = call("calibrate -o $T/here.json");
  ASSERT_EQ(r.status, 0) << r.err;
  Json j = Json::parse(testing::content(path("here.json")));
  EXPECT_FALSE(j["machine"].get<std::string>().empty());
  for (const char* key : {"read_ps_per_byte", "write_ps_per_byte"}) EXPECT_GT(j.at(key).get<int64_t>(), 0) << key;
  EXPECT_GE(j.at("pass_ps").get<int64_t>(), 0);
  for (const char* op : {"sin", "exp", "sqrt"}) EXPECT_GE(j.at("ops").at(op).get<int64_t>(), 0) << op;
  EXPECT_TRUE(json("explain $F/batch_norm.xh --json --prices $T/here.json")["certificate"]["optimal"].get<bool>());
}

TEST_F(ToolUsage, SaysItsVersion) {
  Result r = call("--version");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out.substr(0, 5), "xhat ");
  EXPECT_EQ(std::ranges::count(r.out, '.'), 2) << r.out;
}

TEST_F(ToolUsage, AFullDiskIsAnError) {
  for (const char* command : {"fmt", "explain"}) {
    Result r = call(std::string(command) + " $F/softmax.xh >/dev/full #");
    EXPECT_EQ(r.status, 2);
  }
}

TEST_F(ToolUsage, SizesThatTheMachineCannotTakeAreRefusedAtOnce) {
  write("pairs.xh", "op pairs(x: f64[N]) -> (y) { y[i] = sum(j: exp(x[i] - x[j])) }\nop outer(x: f64[N]) -> (y) { y[i,j in 0..N] = x[i] }");
  // More elements than kernels take.
  for (const char* command : {"check", "bench", "tune"}) {
    Result r = call(std::string(command) + " $T/pairs.xh --op outer --dims N=100000");
    EXPECT_EQ(r.status, 2);
    EXPECT_HAS(r.err, "y would have 10000000000 elements, shape [100000,100000] with N = 100000; kernels take up to 2^31-1");
  }
  // More memory than there is: f64[2^31-1] takes 16 GiB, and there are more than 400 of them.
  write("many.xh", [] {
    std::string inputs, sum;
    for (int k = 0; k < 200; ++k) {
      inputs += (k ? ", x" : "x") + std::to_string(k) + ": f64[N]";
      sum += (k ? " + x" : "x") + std::to_string(k) + "[i]";
    }
    return "op many(" + inputs + ") -> (y) { y[i] = " + sum + " }";
  }());
  Result r = call("bench $T/many.xh --dims N=2147483647");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "op many: bench needs about ");
  EXPECT_HAS(r.err, "say --ignore-memory");
  r = call("run $F/softmax.xh --threads 1000000 --out $T/o");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "--threads: 1000000 threads: this machine runs ");
}

}  // namespace
}  // namespace xhat::tool_test
