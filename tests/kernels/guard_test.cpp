// Memory between guard pages ends a process that touches what lies beside a tensor, and says so. (Under a sanitizer that has the word.)
#include <gtest/gtest.h>

#include "runtime/host/guarded_memory.h"

namespace xhat::guard_test {
namespace {

using runtime::Edge;

// What a kernel may do with the memory of a call: each is seen, at the edge where it happens.
TEST(GuardDeathTest, AccessBesideATensorEndsTheProcess) {
  [[maybe_unused]] volatile float read = 0;
  EXPECT_DEATH(
      {
        runtime::GuardedTensor t(12, Edge::back, "x");
        read = static_cast<float*>(t.data())[3];
      },
      "1 bytes behind x, which has 12 bytes");
  EXPECT_DEATH(
      {
        runtime::GuardedTensor t(12, Edge::front, "x");
        read = static_cast<float*>(t.data())[-1];
      },
      "4 bytes before x, which has 12 bytes");
}

TEST(GuardDeathTest, WritingBesideATensorOnItsPageIsSeenAtTheEnd) {
  EXPECT_DEATH(
      {
        runtime::GuardedTensor t(12, Edge::front, "x");
        static_cast<float*>(t.data())[3] = 1;
      },
      "behind x, which has 12 bytes, was written");
}

}  // namespace
}  // namespace xhat::guard_test
