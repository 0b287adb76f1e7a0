// Choices that were measured: values agree whatever they are, and a file of them is taken only where it was made.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ad/gradient.h"
#include "runtime/tuning.h"
#include "tests/golden.h"
#include "tests/runtime_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;
namespace fs = std::filesystem;

// All kernels of both directions with one choice.
CompileOptions with_choice(const Program& op, const DimValues& dims, const KernelChoice& choice) {
  CompiledOp rules = compile(op);
  CompileOptions options;
  for (CompiledOp::Phase phase : {CompiledOp::Phase::forward, CompiledOp::Phase::backward})
    for (const Kernel& k : rules.plan(phase, dims).kernels) options.fusion.choices[k.key] = choice;
  return options;
}

std::vector<KernelChoice> some_choices() {
  return {{16 << 10, 0, 0}, {64 << 10, 64, 0}, {KernelChoice::kOneTile, 1, 0}, {0, 0, 1}, {0, 0, 3}, {32 << 10, 3, 8}};
}

TEST(Tuning, ValuesAgreeWhateverTheChoice) {
  struct Case {
    const char* text;
    DimValues dims;
  };
  for (const auto& [text, dims] : std::vector<Case>{
           {"op softmax(x: f32[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
            {{"N", 150}, {"D", 133}}},
           {"op norm(x: f32[N,D], g: f32[D]) -> (y) { v[n] = mean(d: x[n,d]^2); y[n,d] = g[d] * x[n,d] / sqrt(v[n] + 1e-5) }",
            {{"N", 333}, {"D", 65}}},
           {"op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = max(0, sum(i: x[n,i]*w[i,o]) + b[o]) }",
            {{"N", 70}, {"I", 48}, {"O", 72}}},
           {"op blur(x: f32[H,W]) -> (y) { y[i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[i+r-1,j+s-1 else 0]) }",
            {{"H", 97}, {"W", 130}}},
           {"op bag(t: f32[V,D], ids: i32[B,L]) -> (y) { y[b,d] = sum(l: t[ids[b,l],d]) }",
            {{"V", 500}, {"D", 24}, {"B", 60}, {"L", 3}}}}) {
    SCOPED_TRACE(text);
    Program op = parse_op(text), derived = gradient(op);
    Arrays data = random_data(derived, dims, 3), wanted = evaluate_on(derived, data, dims);
    for (const KernelChoice& choice : some_choices())
      EXPECT_EQ(difference(wanted, run_both(compile(op, with_choice(op, dims, choice)), data, dims), 1e-4), "")
          << choice.tile_bytes << " " << choice.least_tiles << " " << choice.vectors;
  }
}

// Only sums across tiles are added in another order.
TEST(Tuning, WithoutSumsAcrossTilesTheBitsStay) {
  for (const auto& [text, dims] : std::vector<std::pair<const char*, DimValues>>{
           {"op f(x: f32[N,D]) -> (y) { s[n] = sum(d: exp(x[n,d])); y[n,d] = exp(x[n,d]) / s[n] }", {{"N", 200}, {"D", 301}}},
           {"op g(a: f32[M,K], b: f32[K,P]) -> (y) { y[i,j] = tanh(sum(k: a[i,k]*b[k,j])) }", {{"M", 61}, {"K", 77}, {"P", 96}}}}) {
    Program op = parse_op(text);
    Arrays data = random_data(gradient(op), dims, 5), rules = run_infer(compile(op), data, dims);
    for (const KernelChoice& choice : some_choices()) {
      Arrays tuned = run_infer(compile(op, with_choice(op, dims, choice)), data, dims);
      for (const auto& [name, array] : rules) EXPECT_EQ(array.reals, tuned.at(name).reals) << text << name;
    }
  }
}

class TuningFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string wanted = (fs::temp_directory_path() / "xhat-tuning-XXXXXX").string();
    ASSERT_NE(mkdtemp(wanted.data()), nullptr);
    folder_ = wanted;
    path_ = (folder_ / "new" / "tuned.json").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string text() const {
    std::ifstream in(path_);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  // The file with one thing changed is refused, and why.
  std::string refused(const std::string& from, const std::string& to) const {
    write_tuning(path_, some());
    std::string changed = text();
    size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at == std::string::npos) return "";
    changed.replace(at, from.size(), to);
    std::ofstream(path_) << changed;
    try {
      read_tuning(path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.message().rfind(path_, 0), 0u) << e.message();
      return e.message();
    }
    return "accepted";
  }
  static Tuning some() {
    return {this_machine(),
            {{"f", {{"N", 3}, {"D", 4}}, 2, {{"00000000000000aa", "y", "forward", {65536, 8, 0}, 2, 1}, {"bb", "z", "infer", {}, 1, 1}}},
             {"g", {}, 1, {{"cc", "y", "forward", {0, 0, 4}, 3, 2}}}}};
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(TuningFile, IsReadAsItWasWritten) {
  write_tuning(path_, some());  // in a folder that is made for it
  Tuning read = read_tuning(path_);
  EXPECT_EQ(read.machine, this_machine());
  ASSERT_EQ(read.ops.size(), 2u);
  EXPECT_EQ(read.ops[0].op, "f");
  EXPECT_EQ(read.ops[0].dims, (DimValues{{"N", 3}, {"D", 4}}));
  EXPECT_EQ(read.ops[0].kernels.size(), 2u);
  EXPECT_EQ(choices_of(read, 2), (KernelChoices{{"00000000000000aa", {65536, 8, 0}}}));  // no choice is none
  EXPECT_EQ(choices_of(read, 1), (KernelChoices{{"cc", {0, 0, 4}}}));
  EXPECT_TRUE(choices_of(read, 7).empty());
  for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) EXPECT_EQ(entry.path(), path_);
}

TEST_F(TuningFile, MergingKeepsWhatIsThere) {
  Tuning t = some();
  const std::vector<TunedKernel> found = {{"00000000000000aa", "y", "forward", {4096, 0, 0}, 2, 1},
                                          {"dd", "w", "backward", {0, 0, 1}, 1, 1}};
  merge(t, {"f", {{"N", 3}, {"D", 4}}, 2, found});
  merge(t, {"f", {{"N", 9}, {"D", 4}}, 2, {{"ee", "y", "forward", {0, 0, 2}, 2, 1}}});
  ASSERT_EQ(t.ops.size(), 3u);
  EXPECT_EQ(t.ops[0].kernels.size(), 3u);
  EXPECT_EQ(choices_of(t, 2), (KernelChoices{{"00000000000000aa", {4096, 0, 0}}, {"dd", {0, 0, 1}}, {"ee", {0, 0, 2}}}));
  EXPECT_EQ(choices_of(t, 1).size(), 1u);
}

TEST_F(TuningFile, OfAnotherVersionOrMachineIsRefused) {
  EXPECT_NE(refused("\"xhat\": \"", "\"xhat\": \"9.").find("it was made by xhat 9."), std::string::npos);
  EXPECT_NE(refused("\"cpu\": \"", "\"cpu\": \"Abacus ").find("it was measured on another machine (Abacus "), std::string::npos);
  EXPECT_NE(refused("\"vectors\": \"", "\"vectors\": \"x").find("another machine"), std::string::npos);
  EXPECT_NE(refused("\"cache_bytes\": [", "\"cache_bytes\": [ 77,").find("another machine"), std::string::npos);
}

TEST_F(TuningFile, WhatIsWrongIsNamed) {
  EXPECT_EQ(refused("\"ops\"", "\"ops"), path_ + ":13:10: it is no JSON from here on; write the file again with xhat tune");
  EXPECT_NE(refused("\"ops\"", "\"pos\"").find("it has no \"ops\""), std::string::npos);
  EXPECT_NE(refused("65536", "-1").find("ops[0].kernels[0].choice.tile_bytes is no integer from 1 to"), std::string::npos);
  EXPECT_NE(refused("\"vectors\": 4", "\"vectors\": 4.5").find("ops[1].kernels[0].choice.vectors is no integer"), std::string::npos);
  EXPECT_NE(refused("\"least_tiles\"", "\"most_tiles\"").find("ops[0].kernels[0].choice.most_tiles is no choice"), std::string::npos);
  EXPECT_NE(refused("\"N\": 3", "\"N\": \"3\"").find("ops[0].dims.N is no integer"), std::string::npos);
  EXPECT_NE(refused("\"default_ms\": 2.0", "\"default_ms\": null").find("default_ms is no number"), std::string::npos);
  EXPECT_THROW(read_tuning((folder_ / "nothing.json").string()), Error);
  EXPECT_THROW(write_tuning("/proc/nothing/tuned.json", some()), Error);
}

}  // namespace
}  // namespace xhat
