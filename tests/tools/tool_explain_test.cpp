// `xhat explain`: what it says, and that it says it of the program it was given.
#include <map>
#include <set>

#include "expr/core/program.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::tool_explain_test {
namespace {

using testing::Json;
using testing::Result;
using ToolExplain = testing::Tool;

const std::vector<std::string> kDirectionKeys = {
    "text", "kernels", "kernel_count", "bytes_moved", "bytes_unavoidable", "flops", "reductions"};

// What is made of an op is an op, for every subcommand.
TEST_F(ToolExplain, DerivedOpsAreTakenInItsPlace) {
  EXPECT_EQ(json("explain --json --derive vmap=x,vjp $F/softmax.xh")["op"], "softmax_vmap_vjp");
  EXPECT_EQ(json("explain --json --derive jacobian $F/softmax.xh")["outputs"][1]["shape"], Json::parse(R"(["N", "D", "N", "D"])"));
  for (const char* what : {"vmap", "jacobian", "hvp"}) {
    Result r = call(std::string("check --dims N=3,D=20 --derive ") + what + " $F/softmax.xh");
    EXPECT_EQ(r.status, 0) << what << r.out << r.err;
  }
}

TEST_F(ToolExplain, JsonHasEveryKey) {
  Json j = json("explain $F/softmax.xh --json --dims N=256,D=128");
  for (const char* key :
       {"op", "inputs", "outputs", "gradients", "stash", "recomputed", "candidates", "certificate", "forward",
        "backward"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_EQ(j["op"], "softmax");
  EXPECT_EQ(j["inputs"], Json::parse(R"([{"name": "x", "dtype": "f32", "shape": ["N", "D"]}])"));
  EXPECT_EQ(j["gradients"][0]["name"], "grad_x");
  EXPECT_FALSE(j.contains("nominal"));
  EXPECT_TRUE(j["certificate"]["optimal"].get<bool>());
  EXPECT_EQ(j["stash"], Json::array());  // the output is all the backward needs
  for (const char* direction : {"forward", "backward"}) {
    const Json& d = j[direction];
    for (const std::string& key : kDirectionKeys) EXPECT_TRUE(d.contains(key)) << direction << " " << key;
    int64_t moved = 0, flops = 0, sweeps = 0;
    for (const Json& k : d["kernels"]) {
      moved += k["bytes_moved"].get<int64_t>();
      flops += k["flops"].get<int64_t>();
      sweeps += !k.contains("finish");
      EXPECT_TRUE(k.contains("bytes_unavoidable") && k["computes"].is_array());
    }
    EXPECT_EQ(moved, d["bytes_moved"]);
    EXPECT_EQ(flops, d["flops"]);
    EXPECT_EQ(sweeps, d["kernel_count"]);
  }
  EXPECT_EQ(j["forward"]["bytes_unavoidable"], 2 * 256 * 128 * 4);   // x, y
  EXPECT_EQ(j["backward"]["bytes_unavoidable"], 3 * 256 * 128 * 4);  // y, dy, grad_x
}

TEST_F(ToolExplain, DirectionsAreOpsOfTheirOwn) {
  for (const char* file : {"batch_norm.xh", "strided.xh"}) {
    Json j = json(std::string("explain --json $F/") + file);
    for (const char* direction : {"forward", "backward"}) {
      Program p = parse_op(j[direction]["text"].get<std::string>());
      EXPECT_FALSE(p.outputs.empty());
    }
  }
}

TEST_F(ToolExplain, FinishingStepsAreNoKernels) {
  // Two sums per channel over a batch larger than any cache: tiles leave partial results.
  Json j = json("explain $F/batch_norm.xh --json --dims N=64,C=64,H=64,W=64");
  int finishes = 0, of_partials = 0;
  for (const Json& k : j["backward"]["kernels"])
    if (k.contains("finish")) {
      ++finishes;
      EXPECT_TRUE(k["finish"].get<bool>());
      EXPECT_TRUE(k["name"].get<std::string>().ends_with("_finish"));
      of_partials += k["bytes_moved"].get<int64_t>() > k["bytes_unavoidable"].get<int64_t>();
    }
  EXPECT_GT(of_partials, 0);
  EXPECT_EQ(j["backward"]["kernel_count"].get<int>(),
            static_cast<int>(j["backward"]["kernels"].size()) - finishes);
}

TEST_F(ToolExplain, ChecksOfDataAreListed) {
  write("gathered.xh", "op f(z: f32[N,D], nbr: i32[N,K]) -> (e) { e[n,k] = sum(d: z[nbr[n,k],d]^2) }");
  const std::string file = "$T/gathered.xh";
  Json j = json("explain --json " + file + " --dims N=64,K=5,D=3");
  EXPECT_EQ(j["forward"]["checks"],
            Json::parse(R"j([{"checked": "z[nbr[n,k],d]", "definition": "e", "reads": ["nbr"], "bytes": 1280}])j"));
  EXPECT_FALSE(j["backward"].contains("checks"));  // under nbr[n,k] == i the index is i
  Result r = call("explain " + file);
  EXPECT_HAS(r.out, "checked before the forward");
  EXPECT_HAS(call("bench " + file + " --dims N=64,K=5,D=3 --repeats 1").out, "forward: checks of the data");
}

TEST_F(ToolExplain, RelationsAreText) {
  write("chained.xh", "op f(A: f32[8,8], B: f32[8,8], D: f32[8,8]) -> (E) { C[i,j] = sum(k: A[i,k]*B[j,k]); E[i,j] = sum(k: C[i,k]*D[j,k]) }");
  const std::string file = "$T/chained.xh";
  Result r = call("explain --relations " + file);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.out, "E[i,j] <- A[i,0:8], B[0:8,0:8], D[j,0:8]");
  Json j = json("explain --relations --json " + file);
  EXPECT_EQ(j["forward"]["results"], Json::parse(R"j([{"element": "E[i,j]", "needs": ["A[i,0:8]", "B[0:8,0:8]", "D[j,0:8]"]}])j"));
  EXPECT_EQ(j["forward"]["producers"][0]["tiles"][0], Json::parse(R"({"tile": [1, 1], "elements": 8, "computed": 8.0})"));
  EXPECT_EQ(j["backward"]["results"].size(), 3u);
}

TEST_F(ToolExplain, ReadsThatSizesDecideAreNamed) {
  write("flat.xh", "op f(x: f32[K], z: f32[N,M]) -> (y) { y[i in 0..N, j in 0..M] = x[i*M+j]*z[i,j] }");
  const std::string file = "$T/flat.xh";
  Result r = call("explain " + file + " --dims K=20,N=4,M=5");
  EXPECT_HAS(r.out, "not proved for all sizes, but inside at these: x[i*M+j] reads element i * M + j of x's dimension 0 (K)");
  EXPECT_HAS(call("check " + file + " --dims K=20,N=4,M=5").out, "not proved for all sizes");
  r = call("explain " + file + " --dims K=19,N=4,M=5");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "falls outside: i = 3, j = 4 with K = 19, M = 5, N = 4: index 19");
}

TEST_F(ToolExplain, RelayShowsItsWorking) {
  write("relay.xh",
                                 "op g(x: f32[N]) -> (y) { y[i] = exp(x[i]) }\n"
                                 "op f(x: f32[N]) -> (y) { a[i] = x[i] * 2; b = g(a); y[i] = b[i] + 1 }");
  const std::string file = "$T/relay.xh";
  Result r = call("explain --fuse relay " + file);
  EXPECT_HAS(r.out, "level 1, groups of at most 256 ops, kernels of any number of arguments");
  EXPECT_HAS(r.out, "{a b y}");
  r = call("explain --fuse relay --opaque g --relay depth=2,arguments=8 " + file);
  EXPECT_HAS(r.out, "groups of at most 2 ops, kernels of at most 8 arguments");
  EXPECT_HAS(r.out, "inside of g b");
  EXPECT_EQ(json("explain --json --fuse relay --opaque g " + file)["forward"]["kernel_count"], 3);
  EXPECT_EQ(call("explain --opaque g " + file).status, 2);
  EXPECT_EQ(call("explain --fuse relay --relay width=3 " + file).status, 2);
}

TEST_F(ToolExplain, NominalSizesAreListed) {
  EXPECT_EQ(json("explain $F/softmax.xh --json --dims N=8")["nominal"], Json::parse(R"({"D": 64})"));
  Result r = call("explain $F/softmax.xh");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.out, "nominal: D, N");
}

TEST_F(ToolExplain, PoliciesDiffer) {
  auto stash = [&](const std::string& options) {
    return json("explain $F/batch_norm.xh --json " + options)["stash"];
  };
  EXPECT_EQ(stash("--stash none").size(), 0u);
  Json largest = stash("--stash largest"), cost = stash("--stash cost"), small = stash("--stash budget=300");
  bool whole = false;
  for (const Json& s : largest) whole |= s["shape"] == Json::parse(R"(["N", "C", "H", "W"])");
  EXPECT_TRUE(whole) << largest;  // x̂
  for (const Json& s : cost) EXPECT_EQ(s["shape"], Json::parse(R"(["C"])")) << cost;
  int64_t bytes = 0;
  for (const Json& s : small) bytes += s["bytes"].get<int64_t>();
  EXPECT_LE(bytes, 300);
  EXPECT_FALSE(cost[0]["reason"].get<std::string>().empty());
}

// What was chosen adds up to the cost, and no budget is needed to read the certificate.
TEST_F(ToolExplain, TheCertificateAddsUp) {
  for (const char* options : {"", " --drop x", " --stash none", " --stash budget=300"}) {
    SCOPED_TRACE(options);
    Json j = json(std::string("explain $F/batch_norm.xh --json --dims N=8,C=64,H=4,W=4") + options);
    double cost = 0;
    int64_t kept = 0;
    for (const Json& c : j["candidates"]) {
      const bool again = c["verdict"] == "recompute";
      cost += c[again ? "price" : "price_to_keep"].get<double>();
      if (c["verdict"] == "keep") kept += c["bytes"].get<int64_t>();
      EXPECT_GT(c["uses"].get<int>(), 0) << c;
      EXPECT_FALSE(c["reason"].get<std::string>().empty());
    }
    EXPECT_FALSE(j["candidates"].empty());
    EXPECT_NEAR(cost, j["certificate"]["cost"].get<double>(), 1e-6 * cost);
    EXPECT_LE(j["certificate"]["lower_bound"].get<double>(), cost * (1 + 1e-12));
    int64_t stash = 0;
    for (const Json& s : j["stash"]) stash += s["bytes"].get<int64_t>();
    EXPECT_EQ(kept, stash);
  }
  EXPECT_HAS(call("explain $F/batch_norm.xh").out, "uses");
}

TEST_F(ToolExplain, ParetoTradesBytesForTime) {
  size_t longest = 0;
  for (const char* file : {"softmax.xh", "batch_norm.xh", "strided.xh"})
    for (const char* options : {"", " --drop x", " --drop y"}) {
      std::string call_text = std::string("explain --json $F/") + file + options;
      Json front = json(call_text + " --pareto");
      const Json& points = front["pareto"];
      ASSERT_FALSE(points.empty());
      longest = std::max(longest, points.size());
      for (size_t i = 0; i < points.size(); ++i) {
        EXPECT_TRUE(points[i]["optimal"].get<bool>());
        Json plan = json(call_text + " --stash budget=" + std::to_string(points[i]["stash_bytes"].get<int64_t>()));
        EXPECT_EQ(plan["certificate"]["cost"], points[i]["cost"]) << call_text << i;
        if (i == 0) continue;
        EXPECT_LT(points[i]["stash_bytes"].get<int64_t>(), points[i - 1]["stash_bytes"].get<int64_t>());
        EXPECT_GT(points[i]["cost"].get<double>(), points[i - 1]["cost"].get<double>());
      }
    }
  EXPECT_GE(longest, 3u);
  Result r = call("explain $F/batch_norm.xh --pareto");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.out, "no choice keeps as little and costs less");
}

TEST_F(ToolExplain, DroppedTensorsAreNotReadByTheBackward) {
  Json dropped = json("explain $F/softmax.xh --json --drop y");
  for (const Json& name : dropped["kept_by_caller"]) EXPECT_NE(name, "y");
  EXPECT_EQ(json("explain $F/softmax.xh --json --keep y")["kept_by_caller"], Json::parse(R"(["y"])"));
}

TEST_F(ToolExplain, PricesComeFromAFile) {
  // Writing costs so much that everything is recomputed that may be.
  write("prices.json", R"({"write_ps_per_byte": 1000000})");
  EXPECT_EQ(
      json("explain $F/batch_norm.xh --json --dims N=2,C=64,H=2,W=2 --prices $T/prices.json")["stash"].size(),
      0u);
  write("wrong.json", R"({"speed": 3})");
  Result r = call("explain $F/batch_norm.xh --prices $T/wrong.json");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "there is no price 'speed'");
  write("large.json", R"({"pass_ps": 9000000000000000000})");
  EXPECT_EQ(call("explain $F/batch_norm.xh --prices $T/large.json").status, 2);
}

TEST_F(ToolExplain, WantedGradientsOnly) {
  Json j = json("explain $F/batch_norm.xh --json --wrt gamma,beta");
  ASSERT_EQ(j["gradients"].size(), 2u);
  EXPECT_EQ(j["gradients"][0]["name"], "grad_gamma");
  Result r = call("explain $F/batch_norm.xh --wrt nobody");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "batch_norm.xh:2:4: error: ");
}

TEST_F(ToolExplain, PricesOfOpsComeFromTheFileToo) {
  write("op.xh", "op f(x: f32[N]) -> (y) { y[n] = x[n] * (1 + tanh(x[n]^3)) }\n");
  write("cheap.json", R"({"machine": "a fast one", "ops": {"tanh": 0}})");
  write("dear.json", R"({"ops": {"tanh": 100000}})");
  EXPECT_EQ(json("explain $T/op.xh --json --prices $T/cheap.json")["stash"].size(), 0u);
  EXPECT_EQ(json("explain $T/op.xh --json --prices $T/dear.json")["stash"].size(), 1u);
  write("wrong.json", R"({"ops": {"tangent": 3}})");
  Result r = call("explain $T/op.xh --prices $T/wrong.json");
  EXPECT_EQ(r.status, 2);
  EXPECT_HAS(r.err, "there is no op 'tangent'");
}

TEST_F(ToolExplain, StashDtype) {
  for (const char* type : {"bf16", "f16"}) {
    Json j = json(std::string("explain $F/batch_norm.xh --json --drop x --stash-dtype ") + type);
    for (const Json& s : j["stash"])
      EXPECT_EQ(s["expression"].get<std::string>().find(std::string(type) + "("), 0u) << s;
    EXPECT_EQ(call(std::string("check $F/batch_norm.xh --drop x --stash-dtype ") + type).status, 0);
  }
  EXPECT_EQ(call("explain $F/batch_norm.xh --stash-dtype u8").status, 2);
}

// XHAT=dump: every step from the text to assembly. Programs read back, a plan is short.
TEST_F(ToolExplain, DumpsEveryStepToTheEnd) {
  setenv("XHAT", ("dump=" + path("steps")).c_str(), 1);
  const Result r = call("explain $F/softmax.xh --dims N=4096,D=1024");
  unsetenv("XHAT");
  ASSERT_EQ(r.status, 0) << r.err;
  std::map<std::string, int> of_kind;
  for (const auto& entry : testing::fs::directory_iterator(path("steps"))) {
    const std::string text = testing::content(entry.path()), kind = entry.path().extension();
    EXPECT_FALSE(text.empty()) << entry.path();
    ++of_kind[kind == ".txt" ? entry.path().stem().extension().string() + kind : kind];
    if (kind == ".xh") {
      EXPECT_EQ(print(parse_op(text)), text) << entry.path();
    }
    if (entry.path().string().ends_with(".plan.txt")) {
      EXPECT_LT(std::ranges::count(text, '\n'), 60) << text;
      EXPECT_HAS(text, "grid n 4096 by ");
    }
  }
  for (const char* step : {"softmax.0.grad", "softmax.5.1.equal_reductions", "softmax.5.2.reduction_algebra", "softmax.5.stash", "softmax.7.narrow"})
    EXPECT_TRUE(testing::fs::exists(path(std::string("steps/") + step + ".xh"))) << step;
  EXPECT_EQ(of_kind[".plan.txt"], 3);  // infer, forward, backward
  EXPECT_EQ(of_kind[".spec.txt"], 3);
  EXPECT_EQ(of_kind[".stmt"], 3);
  EXPECT_EQ(of_kind[".s"], 3);
  const std::string spec = testing::content(path("steps/softmax_backward.0.grad_x.spec.txt"));
  EXPECT_HAS(spec, "grid ");
  EXPECT_HAS(testing::content(path("steps/softmax_backward.0.grad_x.stmt")), "for ");
}

// A kernel's name is that of all its results: here of 20, in 260 letters.
TEST_F(ToolExplain, DumpsKernelsOfManyResults) {
  std::string results, text;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "result_number_" + std::to_string(10 + i);
    results += (i > 0 ? ", " : "") + name;
    text += "  " + name + "[n] = sin(x[n]) + " + std::to_string(i) + "\n";
  }
  write("many.xh", "op many(x: f32[N]) -> (" + results + ") {\n" + text + "}\n");
  setenv("XHAT", ("dump=" + path("steps")).c_str(), 1);
  const Result r = call("explain $T/many.xh --dims N=4096");
  unsetenv("XHAT");
  ASSERT_EQ(r.status, 0) << r.err;
  std::set<std::string> kinds;
  for (const auto& entry : testing::fs::directory_iterator(path("steps")))
    if (const std::string name = entry.path().filename(); name.starts_with("many_forward.0.result_number_10_result_number_11"))
      kinds.insert(entry.path().extension());
  EXPECT_EQ(kinds, (std::set<std::string>{".s", ".stmt", ".txt"}));
}

// In a loop that is one function, all that is computed at the points of a vector stands in one loop over vectors, and a gradient whose places
// have expressions of their own (rows of weights that are read by number) has code for each, without choices.
TEST_F(ToolExplain, LoopsOverTheSamePointsAreOne) {
  write("cell.xh", R"(prog cell(w: f64[2,3,B], x: f64[T,B]) -> (h) {
  var h = zeros f64[B]
  for t in 0..T {
    gate[b] = sigmoid(h[b]*w[0,0,b] + w[1,0,b])
    change[b] = tanh(h[b]*w[0,1,b] + x[t,b]*w[1,1,b])
    left[b] = gate[b]*w[0,2,b] + w[1,2,b]
    h[b] = left[b]*h[b] + (1 - gate[b])*change[b]
  }
}
)");
  setenv("XHAT", ("dump=" + path("steps")).c_str(), 1);
  const Result r = call("explain $T/cell.xh --dims B=32,T=7");
  unsetenv("XHAT");
  ASSERT_EQ(r.status, 0) << r.err;
  std::istringstream backward(testing::content(path("steps/cell.loop_t.backward.stmt")));
  int weights = 0, temporaries = 0;
  std::vector<std::string> between;  // from the first of the block's results to its last
  for (std::string line; std::getline(backward, line);) {
    const std::string_view text = std::string_view(line).substr(std::min(line.find_first_not_of(' '), line.size()));
    const bool weight = text.starts_with("xh_outside_adjoint0["), temporary = text.starts_with("xh_temporary");
    weights += weight;
    temporaries += temporary;
    if (weight || temporary || !between.empty()) between.push_back(line);
    if (weights == 6) break;
  }
  EXPECT_EQ(weights, 6);
  EXPECT_GE(temporaries, 1);
  for (const std::string& line : between) {
    EXPECT_EQ(line.find("for ("), std::string::npos) << line;
    EXPECT_EQ(line.find("uint32("), std::string::npos) << line;
  }
}

// Each level of DEBUG shows what it promises, and what those below it do; what is no level is ignored.
TEST_F(ToolExplain, DebugLevels) {
  write("small.xh", "op small(x: f32[N,D]) -> (y) {\n  y[n,d] = x[n,d] / sum(k: abs(x[n,k]))\n}\n");
  const std::pair<const char*, const char*> promised[] = {{"2", "xhat: small_backward grad_x: "},
                                                          {"3", "small_backward.plan.txt"},
                                                          {"4", ".spec.txt"},
                                                          {"5", ".stmt"},
                                                          {"6", "small.0.grad.xh"},
                                                          {"7", ".s\n"}};
  for (const char* level : {"2", "3", "5", "7", "8"}) {
    setenv("DEBUG", level, 1);
    const Result r = call("check $T/small.xh");
    unsetenv("DEBUG");
    EXPECT_EQ(r.status, 0) << r.err;
    const bool is_level = level[0] <= '7';
    EXPECT_EQ(r.err.find("xhat: ") != std::string::npos, is_level) << r.err;
    for (const auto& [from, text] : promised)
      EXPECT_EQ(r.err.find(text) != std::string::npos, is_level && level[0] >= from[0]) << level << ": " << text << "\n" << r.err;
  }
}

TEST_F(ToolExplain, WhySaysWhatWouldChangeAVerdict) {
  const std::string op = "explain --dims N=32,C=64,H=56,W=56 $F/batch_norm.xh --why ";
  const Result kept = call(op + "mean_sum"), recomputed = call(op + "y_part"), given = call(op + "x"), unknown = call(op + "nope");
  EXPECT_EQ(kept.status, 0) << kept.err;
  EXPECT_HAS(kept.out, "mean_sum [C]: kept, because");
  EXPECT_HAS(kept.out, "  made of          x\n");
  EXPECT_HAS(kept.out, "  would go         if keeping it cost more than");
  EXPECT_HAS(recomputed.out, "y_part [N,C,H,W]: recomputed, because");
  EXPECT_HAS(recomputed.out, "  read by          grad_gamma");
  EXPECT_HAS(recomputed.out, "  would be kept    if keeping it cost less than");
  EXPECT_HAS(given.out, "x [N,C,H,W]: free, because it stays with the caller");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "needs no value nope of the forward; it needs x, gamma, mean_sum");
}

}  // namespace
}  // namespace xhat::tool_explain_test
