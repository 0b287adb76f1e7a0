// For tests of kernels on disk: a folder for them, a small op, and the program `xhat` as another process.
#pragma once
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/cpu/kernel_cache.h"
#include "runtime/store/disk_cache.h"
#include "runtime/store/kernel_file.h"
#include "tests/helpers/environment.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::testing {

inline constexpr const char* kOp = "op f(x: f32[N,D]) -> (y) { y[n,d] = exp(x[n,d]) / sum(k: exp(x[n,k])) }";
inline const DimValues kDims = {{"N", 5}, {"D", 37}};

// `folder_/kernels` is the cache. A kernel was read from it if its file is the one that was there.
class KernelsOnDisk : public Tool {
 protected:
  void SetUp() override {
    Tool::SetUp();
    cache_ = path("kernels");
  }

  std::vector<fs::path> files() const {
    std::set<fs::path> sorted;
    if (fs::exists(cache_))
      for (const auto& entry : fs::directory_iterator(cache_)) sorted.insert(entry.path());
    return {sorted.begin(), sorted.end()};
  }
  // Each file with what tells it from one that took its place.
  std::map<fs::path, ino_t> inodes() const {
    std::map<fs::path, ino_t> all;
    for (const fs::path& file : files()) all[file] = status(file).st_ino;
    return all;
  }
  static struct stat status(const fs::path& file) {
    struct stat s = {};
    EXPECT_EQ(lstat(file.c_str(), &s), 0) << file;
    return s;
  }
  static runtime::KernelRecord record(const fs::path& file) {
    auto found = runtime::read_record(content(file));
    EXPECT_TRUE(found) << file;
    return found.value_or(runtime::KernelRecord{});
  }
  std::unique_ptr<runtime::CompiledKernel> load(const std::string& key) const { return runtime::DiskCache(cache_).load(key); }

  // Inference with the kernels of the folder and nothing from memory.
  Arrays infer(const char* text = kOp, int64_t bytes = runtime::DiskCache::kDefaultBytes) const {
    CompileOptions options;
    options.cache = std::make_shared<runtime::KernelCache>(std::make_shared<runtime::DiskCache>(cache_, bytes));
    return run_infer(compile(parse_op(text), options), random_data(parse_op(text), kDims, 3), kDims);
  }
  // The only file after one inference.
  fs::path filled() const {
    infer();
    EXPECT_EQ(files().size(), 1u);
    return files().at(0);
  }
  // What lies at `file` is no kernel for anyone, and afterwards it is one again.
  void expect_made_anew(const fs::path& file, const std::string& key) const {
    EXPECT_EQ(load(key), nullptr);
    ino_t before = status(file).st_ino;
    EXPECT_EQ(difference(expected(), infer(), 0), "");
    EXPECT_NE(status(file).st_ino, before);
    EXPECT_EQ(status(file).st_mode & 07777, 0600u);
    EXPECT_NE(load(key), nullptr);
  }
  static Arrays expected() {
    CompileOptions options;
    options.cache = std::make_shared<runtime::KernelCache>();
    return run_infer(compile(parse_op(kOp), options), random_data(parse_op(kOp), kDims, 3), kDims);
  }

  // The program `xhat`, in a process of its own: `before` is shell. Softmax, with its gradient, into the folder `out`.
  Result softmax(const std::string& out, const std::string& before = "", const std::string& options = "") const {
    if (!fs::exists(path("x.npy"))) {
      write_npy<float>("x.npy", "<f4", "(2, 3)", {1, 2, 3, 4, 6, 5});
      write_npy<float>("dy.npy", "<f4", "(2, 3)", {1, 0, 2, -1, 3, 1});
    }
    std::string arguments = " run $F/softmax.xh --in x=$T/x.npy --dy y=$T/dy.npy " + options + " --out $T/" + out;
    replace(arguments, "$F", XHAT_SOURCE_DIR "/tests/tool");
    replace(arguments, "$T", folder_.string());
    std::string command = before + " exec " XHAT_BUILD_DIR "/xhat" + arguments + " >" + path(out + ".out") + " 2>" + path(out + ".err") +
                          " </dev/null";
    int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(path(out + ".out")), said(content(path(out + ".err")))};
  }
  // Without what the address sanitizer says of Halide's coroutines.
  static std::string said(const std::string& err) {
    std::string lines;
    std::stringstream all(err);
    for (std::string line; std::getline(all, line);)
      if (line.find("WARNING: ASan doesn't fully support") == std::string::npos) lines += line + "\n";
    return lines;
  }
  std::string results(const std::string& out) const { return content(path(out + "/y.npy")) + content(path(out + "/grad_x.npy")); }
  // Of a run with no cache.
  std::string results_without() const {
    Environment none("XHAT_CACHE_DIR", "");
    Result r = softmax("without");
    EXPECT_EQ(r.status, 0);
    EXPECT_EQ(r.err, "");
    return results("without");
  }
  // Softmax runs, says once that nothing is kept and why, and keeps nothing.
  void expect_one_warning(const std::string& why, const std::string& before = "") const {
    SCOPED_TRACE(why);
    Environment here("XHAT_CACHE_DIR", cache_);
    Result r = softmax("warned", before);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(results("warned"), results_without());
    EXPECT_HAS(r.err, "xhat: kernels are not kept in " + cache_ + ": ");
    EXPECT_HAS(r.err, why);
    EXPECT_EQ(std::ranges::count(r.err, '\n'), 1) << r.err;
  }

  std::string cache_;
};

}  // namespace xhat::testing
