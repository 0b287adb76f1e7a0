// A file of choices that were measured: read as written, and taken only where it was made.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/explain/tuning.h"

namespace xhat::tuning_file_test {
namespace {

namespace fs = std::filesystem;

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
}  // namespace xhat::tuning_file_test
