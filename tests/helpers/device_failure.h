// What calls on a device must throw. Header only.
#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "runtime/device/drivers/driver.h"

namespace xhat::testing {

inline void expect_failure(runtime::DeviceFailure why, const std::string& says, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << says;
  } catch (const runtime::DeviceError& e) {
    EXPECT_EQ(e.why(), why) << e.message();
    EXPECT_NE(e.message().find(says), std::string::npos) << e.message();
  }
}

}  // namespace xhat::testing
