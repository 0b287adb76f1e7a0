// Where the system grants fewer threads than are wanted, the work is done by those that there are.
#include <atomic>
#include <stdexcept>

#include "runtime/host/thread_pool.h"
#include "tests/helpers/disk_cache_helper.h"

namespace xhat::testing::threads_test {
namespace {

using FewThreads = Tool;

TEST_F(FewThreads, DoTheWorkOfMany) {
  // A sanitizer's own library is loaded behind ours then, which it would refuse.
  const char* given = std::getenv("ASAN_OPTIONS");
  Environment late("ASAN_OPTIONS", std::string(given ? given : "") + ":verify_asan_link_order=0");
  Environment preload("LD_PRELOAD", XHAT_BUILD_DIR "/tests/libfew_threads.so");
  for (int granted : {0, 1, 2, 3, 5}) {
    SCOPED_TRACE(granted);
    Environment few("XHAT_TEST_THREADS", std::to_string(granted));
    Result r = call("check $F/softmax.xh --dims N=40,D=300 --threads 8");
    EXPECT_EQ(r.status, 0) << r.out << r.err;
    const std::string said = "xhat: the system grants ";
    size_t first = r.err.find(said);
    EXPECT_NE(first, std::string::npos) << r.err;  // kernels are compiled by threads as well
    EXPECT_EQ(r.err.find(said, first + 1), std::string::npos) << r.err;
    EXPECT_HAS(r.err, "the work is done by these");
  }
  Environment many("XHAT_TEST_THREADS", "1000");
  EXPECT_EQ(call("check $F/softmax.xh --dims N=40,D=300 --threads 8").err.find("grants"), std::string::npos);
}

TEST(RunJobs, DoesAllOfThemOnceWhateverTheThreads) {
  for (int threads : {-1, 0, 1, 2, 7})
    for (size_t count : {0, 1, 2, 50}) {
      std::vector<std::atomic<int>> done(count);
      runtime::run_jobs(count, threads, [&](size_t i) { ++done[i]; });
      for (auto& d : done) EXPECT_EQ(d, 1);
    }
}

TEST(RunJobs, ThrowsWhatTheFirstOneThrew) {
  for (int threads : {1, 4}) {
    std::atomic<int> running = 0;
    auto job = [&](size_t i) {
      ++running;
      if (i >= 3) throw std::runtime_error("job " + std::to_string(i));
    };
    try {
      runtime::run_jobs(1000, threads, job);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), std::string("job 3"));
    }
    EXPECT_LT(running, 1000);  // no more were begun
  }
}

}  // namespace
}  // namespace xhat::testing::threads_test
