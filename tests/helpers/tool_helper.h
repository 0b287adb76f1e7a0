// For tests that call the built program: a folder of the test's own, and arrays in files, written and read here and not by
// the code under test.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace xhat::testing {

using Json = nlohmann::json;
namespace fs = std::filesystem;

struct Result {
  int status = -1;
  std::string out, err;
};

inline std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A folder of the test's own, gone afterwards.
class Tool : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string wanted = (fs::temp_directory_path() / "xhat-tool-XXXXXX").string();
    ASSERT_NE(mkdtemp(wanted.data()), nullptr);
    folder_ = wanted;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // $F stands for the folder of test ops, $T for the test's own.
  Result call(std::string arguments) const {
    replace(arguments, "$F", XHAT_SOURCE_DIR "/tests/tool");
    replace(arguments, "$T", folder_.string());
    std::string command =
        XHAT_BUILD_DIR "/xhat " + arguments + " >" + path("out") + " 2>" + path("err") + " </dev/null";
    int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(path("out")), content(path("err"))};
  }
  Json json(const std::string& arguments) const {
    Result r = call(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  // An .npy file, put together here and not by the code under test.
  template <class T>
  void write_npy(const std::string& name, const std::string& descr, const std::string& shape,
                 const std::vector<T>& values, bool fortran = false, bool swapped = false) const {
    std::string header = "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
                         ", 'shape': " + shape + ", }";
    header.append(64 - (10 + header.size() + 1) % 64, ' ');
    header += '\n';
    std::string file = std::string("\x93NUMPY\x01", 7) + '\0' + static_cast<char>(header.size()) +
                       static_cast<char>(header.size() >> 8) + header;
    for (T v : values) {
      auto bytes = reinterpret_cast<char*>(&v);
      if (swapped) std::reverse(bytes, bytes + sizeof(T));
      file.append(bytes, sizeof(T));
    }
    write(name, file);
  }
  template <class T>
  std::vector<T> read_npy(const std::string& name, const std::string& header) const {
    std::string file = content(path(name));
    EXPECT_NE(file.find(header), std::string::npos) << name << ": " << file.substr(0, 90);
    if (file.size() < 10) return {};
    size_t start = 10 + static_cast<unsigned char>(file[8]) +
                   256 * static_cast<size_t>(static_cast<unsigned char>(file[9]));
    std::vector<T> values((file.size() - start) / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), file.data() + start, values.size() * sizeof(T));
    return values;
  }

  static void replace(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  }

  fs::path folder_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << text

}  // namespace xhat::testing
