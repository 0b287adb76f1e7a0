// `xhat tune`: its file is taken by the others, and nothing in it is lost.
#include "tests/helpers/tool_helper.h"

namespace xhat::tool_tune_test {
namespace {

using testing::Json;
using testing::Result;
using ToolTune = testing::Tool;

TEST_F(ToolTune, ItsFileIsTakenByTheOthers) {
  Result r = call("tune $F/softmax.xh --dims N=64,D=32 --seconds 1 --threads 2 -o $T/sub/tuned.json");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.out, "forward: y");
  EXPECT_HAS(r.out, "backward: grad_x");
  EXPECT_HAS(r.out, "geometric mean: ");
  EXPECT_HAS(r.err, "xhat tune: forward, tiles: ");
  Json j = Json::parse(testing::content(path("sub/tuned.json")));
  EXPECT_EQ(j["ops"][0]["op"], "softmax");
  EXPECT_EQ(j["ops"][0]["dims"], Json::parse(R"({"N": 64, "D": 32})"));
  EXPECT_EQ(j["ops"][0]["threads"], 2);
  ASSERT_EQ(j["ops"][0]["kernels"].size(), 2u);
  for (const Json& k : j["ops"][0]["kernels"]) {
    EXPECT_GT(k["tuned_ms"].get<double>(), 0);
    EXPECT_LE(k["tuned_ms"].get<double>(), k["default_ms"].get<double>());
  }

  // A second op in the same file; a choice of our own for the first is kept beside it, and shown.
  const Json first = j["ops"][0];
  j["ops"][0]["kernels"][0]["choice"] = {{"tile_bytes", 4096}, {"least_tiles", 5}, {"vectors", 2}};
  write("sub/tuned.json", j.dump());
  ASSERT_EQ(call("tune $F/scale.xh --dims N=64 --seconds 0 --threads 2 -o $T/sub/tuned.json").status, 0);
  Json both = Json::parse(testing::content(path("sub/tuned.json")));
  ASSERT_EQ(both["ops"].size(), 2u);
  EXPECT_EQ(both["ops"][0], j["ops"][0]);
  const char* shown = "(tuned: tiles of 4.00 KiB, at least 5 tiles, 2 vectors a step)";
  EXPECT_HAS(call("explain $F/softmax.xh --dims N=64,D=32 --threads 2 --tuned $T/sub/tuned.json").out, shown);
  // It was not measured for these.
  for (const char* other : {"--dims N=65,D=32 --threads 2", "--dims N=64,D=32 --threads 3"}) {
    Result e = call(std::string("explain $F/softmax.xh --tuned $T/sub/tuned.json ") + other);
    EXPECT_EQ(e.status, 0) << e.err;
    EXPECT_EQ(e.out.find("(tuned"), std::string::npos) << e.out;
  }
  std::vector<float> x(64 * 32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  write_npy("x.npy", "<f4", "(64, 32)", x);
  for (const char* how : {"plain", "tuned --threads 2 --tuned $T/sub/tuned.json"})
    EXPECT_EQ(call(std::string("run $F/softmax.xh --in x=$T/x.npy --out $T/") + how).status, 0);
  EXPECT_EQ(testing::content(path("plain/y.npy")), testing::content(path("tuned/y.npy")));
  EXPECT_EQ(call("bench $F/softmax.xh --dims N=64,D=32 --threads 2 --repeats 2 --tuned $T/sub/tuned.json").status, 0);
}

TEST_F(ToolTune, AFileThatIsNoneOfItsOwnStaysAsItIs) {
  for (const char* text : {"{", "{\"xhat\": \"0.0.0-other\"}"}) {
    write("tuned.json", text);
    for (const char* command : {"tune $F/scale.xh --dims N=8 --seconds 0 -o $T/tuned.json", "explain $F/scale.xh --tuned $T/tuned.json"}) {
      Result r = call(command);
      EXPECT_EQ(r.status, 2) << command;
      EXPECT_HAS(r.err, path("tuned.json"));
      EXPECT_EQ(r.out, "");
    }
    EXPECT_EQ(testing::content(path("tuned.json")), text);
  }
  EXPECT_HAS(call("explain $F/scale.xh --tuned $T/nothing.json").err, "nothing.json: it cannot be opened");
}

TEST_F(ToolTune, AllDimsMustBeGiven) {
  Result r = call("tune $F/softmax.xh --dims N=64 -o $T/tuned.json");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "missing: D");
}

// Without -o it goes where caches go; Ctrl-C ends the search and keeps what was found.
TEST_F(ToolTune, AnInterruptKeepsWhatWasFound) {
  std::string command = "export XDG_CACHE_HOME=$T/cache; " XHAT_BUILD_DIR
                        "/xhat tune $F/softmax.xh --dims N=2048,D=1024 --seconds 600 >$T/found 2>$T/said & tune=$!; "
                        "for i in $(seq 600); do grep -q vectors: $T/said && break; sleep 0.1; done; kill -INT $tune; wait $tune";
  replace(command, "$F", XHAT_SOURCE_DIR "/tests/tool");
  replace(command, "$T", folder_.string());
  int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << testing::content(path("said"));
  EXPECT_HAS(testing::content(path("found")), "interrupted: what was found by then is kept");
  Json j = Json::parse(testing::content(path("cache/xhat/tuned.json")));
  ASSERT_EQ(j["ops"][0]["kernels"].size(), 1u);
  EXPECT_EQ(j["ops"][0]["kernels"][0]["kernel"], "y");
}

}  // namespace
}  // namespace xhat::tool_tune_test
