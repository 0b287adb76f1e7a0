// Kernels on disk: the bits are those of kernels in memory; one process leaves them to the next; and where none can be kept,
// the op runs all the same. (Files that are no good: kernel_file_test.cpp.)
#include "tests/helpers/disk_cache_helper.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "ad/reverse/gradient.h"
#include "runtime/store/work_folder.h"

namespace xhat::disk_cache_test {
namespace {

using namespace xhat::testing;
using runtime::DiskCache;
using runtime::KernelCache;

TEST_F(KernelsOnDisk, HaveTheSameBits) {
  struct Case {
    const char* text;
    bool gradient, streams = false;
  };
  for (const Case& c : {Case{kOp, true},
                        {"op f(x: f32[N,D], w: f32[D,M]) -> (y) { y[n,m] = tanh(sum(d: x[n,d]*w[d,m])) }", true},  // packs: scratch
                        {"op f(x: f64[N], a: f64) -> (y) { y[i] = sin(x[i])^a + erf(x[i]) }", true},
                        {"op f(x: f16[N,D]) -> (y) { y[n] = mean(d: x[n,d]*x[n,d]) }", true},
                        {"op f(x: f32[N,D], t: i32[M]) -> (y) { y[m,d] = x[t[m] % N,d]*2 }", false},
                        {"op f(x: f32[N,D]) -> (k) { k[n] = argmax(d: x[n,d]) }", false},
                        {"op f(x: f32[N,D]) -> (y) { y[n,d] = exp(x[n,d]) }", true, true}}) {
    SCOPED_TRACE(c.text);
    fs::remove_all(cache_);
    Program op = parse_op(c.text);
    const DimValues dims = {{"N", 300}, {"D", 67}, {"M", 21}};
    Arrays data = random_data(c.gradient ? gradient(op) : op, dims, 7);
    auto run = [&](std::shared_ptr<DiskCache> disk) {
      CompileOptions options;
      options.cache = std::make_shared<KernelCache>(disk);
      options.threads = 2;
      options.machine.serial_bytes = 0;
      if (c.streams) options.machine.stream_bytes = 0, options.machine.stream_ps_per_byte = std::numeric_limits<int32_t>::max();
      CompiledOp compiled = compile(op, options);
      return c.gradient ? run_both(compiled, data, dims) : run_infer(compiled, data, dims);
    };
    auto same = [](const Arrays& a, const Arrays& b) {
      for (const auto& [name, array] : a) {
        EXPECT_EQ(array.reals, b.at(name).reals) << name;
        EXPECT_EQ(array.integers, b.at(name).integers) << name;
      }
    };
    Arrays in_memory = run(nullptr);
    same(in_memory, run(std::make_shared<DiskCache>(cache_)));  // which makes them
    auto before = inodes();
    EXPECT_FALSE(before.empty());
    same(in_memory, run(std::make_shared<DiskCache>(cache_)));  // which loads them
    EXPECT_EQ(inodes(), before);
    EXPECT_EQ(std::ranges::any_of(files(), [&](const fs::path& f) { return record(f).kernels.at(0).arguments.streams; }), c.streams);
  }
}

TEST_F(KernelsOnDisk, ServeTheNextProcess) {
  Environment here("XHAT_CACHE_DIR", cache_);
  Result first = softmax("first");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.err, "");
  auto before = inodes();
  EXPECT_GE(before.size(), 2u);
  EXPECT_EQ(status(cache_).st_mode & 07777, 0700u);
  for (const fs::path& file : files()) EXPECT_EQ(status(file).st_mode & 07777, 0600u);

  Environment no_linker("PATH", "/nowhere");  // nor need of one
  Result second = softmax("second");
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(inodes(), before);
  EXPECT_EQ(results("first"), results_without());
  EXPECT_EQ(results("second"), results_without());
}

TEST_F(KernelsOnDisk, AreForTheProcessorLevelThatIsAskedFor) {
  infer();
  const size_t own = files().size();
  Environment level("XHAT_CPU_LEVEL", "sse41");
  infer();
  EXPECT_EQ(files().size(), 2 * own);
  infer();
  EXPECT_EQ(files().size(), 2 * own);
}

// Memory that can be executed and belongs to no file: where a compiler in the process puts code.
bool has_generated_code() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::stringstream words(line);
    std::string range, rights, offset, device, inode, path;
    words >> range >> rights >> offset >> device >> inode >> path;
    if (rights[2] == 'x' && path.empty()) return true;
  }
  return false;
}

using KernelsOnDiskDeathTest = KernelsOnDisk;  // runs in processes of its own, which have compiled nothing yet

TEST_F(KernelsOnDiskDeathTest, StartNoCompiler) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // These processes begin the test again: the kernels are those of the first one.
  const char* given = std::getenv("XHAT_TEST_KERNELS");
  if (given) cache_ = given;
  else infer();
  Environment kernels("XHAT_TEST_KERNELS", cache_), no_linker("PATH", "/nowhere");
  auto end = [&](const Arrays&) {
    fs::remove_all(folder_);
    std::exit(has_generated_code() ? 1 : 0);
  };
  EXPECT_EXIT(end(infer()), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(end(expected()), ::testing::ExitedWithCode(1), "");  // it would be seen
}

TEST_F(KernelsOnDiskDeathTest, CanBeTurnedOff) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto files_after = [&](bool on) {
    setenv("XHAT_CACHE_DIR", cache_.c_str(), 1);
    CompileOptions options;
    options.disk_cache = on;
    run_infer(compile(parse_op(kOp), options), random_data(parse_op(kOp), kDims, 3), kDims);
    auto count = static_cast<int>(files().size());
    fs::remove_all(folder_);
    std::exit(count);
  };
  EXPECT_EXIT(files_after(false), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(files_after(true), ::testing::ExitedWithCode(1), "");
}

TEST_F(KernelsOnDisk, LieWhereTheEnvironmentSays) {
  fs::path home = folder_ / "home", xdg = folder_ / "xdg";
  Environment at_home("HOME", home.string());
  ASSERT_EQ(softmax("home_run", "unset XHAT_CACHE_DIR XDG_CACHE_HOME;").status, 0);
  EXPECT_FALSE(fs::is_empty(home / ".cache/xhat/kernels"));
  ASSERT_EQ(softmax("xdg_run", "unset XHAT_CACHE_DIR; export XDG_CACHE_HOME=" + xdg.string() + ";").status, 0);
  EXPECT_FALSE(fs::is_empty(xdg / "xhat/kernels"));
  fs::remove_all(home);
  ASSERT_EQ(softmax("none", "export XHAT_CACHE_DIR=;").status, 0);
  EXPECT_FALSE(fs::exists(home));

  Result r = softmax("limit", "export XHAT_CACHE_DIR=" + cache_ + " XHAT_CACHE_BYTES=1G;");
  EXPECT_EQ(r.err, "xhat: XHAT_CACHE_BYTES=1G is no number of bytes; kernels are not kept\n");
  EXPECT_EQ(r.status, 0);
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(KernelsOnDisk, ManyProcessesAndThreadsAtOnce) {
  Environment here("XHAT_CACHE_DIR", cache_);
  const std::string want = results_without();
  std::vector<Result> of(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < of.size(); ++i) threads.emplace_back([&, i] { of[i] = softmax("run" + std::to_string(i)); });
  Arrays wanted = expected();
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { wrong += !difference(wanted, infer(), 0).empty(); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  for (size_t i = 0; i < of.size(); ++i) {
    EXPECT_EQ(of[i].status, 0);
    EXPECT_EQ(of[i].err, "");
    EXPECT_EQ(results("run" + std::to_string(i)), want);
  }
  for (const fs::path& file : files()) EXPECT_TRUE(runtime::read_record(content(file))) << file;  // nor is there anything else
}

TEST_F(KernelsOnDisk, ThoseUnusedForLongestGo) {
  const char* texts[] = {"op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d]*2 }", "op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d]*3 }",
                         "op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d]*4 }"};
  std::vector<fs::path> made;
  for (const char* text : {texts[0], texts[1]}) {
    infer(text);
    for (const fs::path& file : files())
      if (std::ranges::find(made, file) == made.end()) made.push_back(file);
  }
  ASSERT_EQ(made.size(), 2u);
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(made[0], now - std::chrono::hours(3));
  fs::last_write_time(made[1], now - std::chrono::hours(2));
  // Abandoned by processes that died, however long ago, and one in which another process may be working.
  fs::create_directory(fs::path(cache_) / "work-abcdef");
  write("kernels/work-ABCDEF", "a kernel of a GPU");
  const runtime::WorkFolder used(cache_ + "/work-");
  infer(texts[0]);  // which makes it the younger one
  auto bytes = static_cast<int64_t>(fs::file_size(made[0]));
  infer(texts[2], 3 * bytes - bytes / 2);
  EXPECT_TRUE(fs::exists(made[0]));
  EXPECT_FALSE(fs::exists(made[1]));
  EXPECT_EQ(files().size(), 3u);
  EXPECT_FALSE(fs::exists(fs::path(cache_) / "work-abcdef"));
  EXPECT_FALSE(fs::exists(fs::path(cache_) / "work-ABCDEF"));
  EXPECT_TRUE(fs::exists(used.path()));

  // Smaller than any kernel: all run, none stays.
  Environment here("XHAT_CACHE_DIR", cache_), little("XHAT_CACHE_BYTES", "10");
  Result r = softmax("little");
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(results("little"), results_without());
  EXPECT_EQ(files(), std::vector<fs::path>{used.path()});
}

// What a process leaves behind that is killed while it makes a kernel.
TEST_F(KernelsOnDisk, WhatAKilledProcessLeftIsRemovedByTheNext) {
  Environment here("XHAT_CACHE_DIR", cache_);
  fs::create_directory(folder_ / "bin");
  write("bin/ld", "#!/bin/sh\nkill -9 $PPID\n");
  fs::permissions(folder_ / "bin/ld", fs::perms(0700));
  EXPECT_EQ(softmax("killed", "PATH=" + path("bin") + ":$PATH;").status, -1);
  auto left = [&] { return std::ranges::count_if(files(), [](const fs::path& f) { return f.filename().string().starts_with("work-"); }); };
  EXPECT_GE(left(), 1);
  EXPECT_EQ(softmax("next").err, "");
  EXPECT_EQ(left(), 0);
  EXPECT_EQ(results("next"), results_without());
}

TEST_F(KernelsOnDisk, ALinkerThatDoesNotEndIsStopped) {
  fs::create_directory(folder_ / "bin");
  write("bin/ld", "#!/bin/sh\necho $$ >>" + path("started") + "\n/bin/sleep 1000\n");
  fs::permissions(folder_ / "bin/ld", fs::perms(0700));
  expect_one_warning("ld has not ended within 0.2 s (XHAT_LINK_SECONDS) and was stopped", "export XHAT_LINK_SECONDS=0.2; PATH=" + path("bin") + ";");
  EXPECT_TRUE(files().empty());
  std::istringstream started(content(path("started")));
  // With what it had started, as soon as whoever inherits orphans has looked.
  for (int process; started >> process;)
    for (int look = 0; kill(-process, 0) == 0; ++look) {
      ASSERT_LT(look, 1000) << "of its group somebody still runs";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

TEST_F(KernelsOnDisk, WithoutALinkerNoneAreKept) {
  expect_one_warning("there is no linker on PATH (ld, ld.lld or cc)", "PATH=/nowhere;");
  EXPECT_TRUE(files().empty());
  fs::create_directory(folder_ / "bin");
  write("bin/ld", "#!/bin/sh\necho out of order >&2\nexit 3\n");
  fs::permissions(folder_ / "bin/ld", fs::perms(0700));
  expect_one_warning("ld failed: out of order", "PATH=" + path("bin") + ";");
  EXPECT_TRUE(files().empty());
}

TEST_F(KernelsOnDisk, WhereNothingCanBeWrittenNoneAreKept) {
  write("kernels", "a file");
  expect_one_warning("");
  fs::remove(cache_);
  if (geteuid() != 0) {  // who may write everywhere
    fs::create_directory(cache_);
    fs::permissions(cache_, fs::perms(0500));
    expect_one_warning("ermission denied");
    fs::remove(cache_);
  }
  cache_ = "/proc/nothing/here";
  expect_one_warning("o such file or directory");
}

TEST_F(KernelsOnDisk, WhereTheDiskIsFullNoneAreKept) {
  Environment here("XHAT_CACHE_DIR", cache_);
  // All kernels are linked to one size, larger than their objects.
  fs::create_directory(folder_ / "bin");
  write("bin/ld", "#!/bin/sh\nPATH=${PATH#*:}\nld \"$@\" || exit 1\nwhile [ \"$1\" != -o ]; do shift; done\ntruncate -s 256K \"$2\"\n");
  fs::permissions(folder_ / "bin/ld", fs::perms(0700));
  const std::string linker = "PATH=" + path("bin") + ":$PATH; export PATH;";
  ASSERT_EQ(softmax("unlimited", linker).status, 0);
  uintmax_t least = std::numeric_limits<uintmax_t>::max();
  for (const fs::path& file : files()) least = std::min(least, fs::file_size(file));
  ASSERT_GT(least, 256 * 1024);
  fs::remove_all(cache_);
  // There is no room for what stands behind the code.
  expect_one_warning("File too large", linker + "trap '' XFSZ; ulimit -f " + std::to_string((least - 1) / 512) + ";");
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace xhat::disk_cache_test
