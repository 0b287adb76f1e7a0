// Tests that need a device. PoCL (OpenCL) and lavapipe (Vulkan), on the CPU, do; where they are not installed the test is
// skipped, unless XHAT_NEED_DEVICES is set, as CI does.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/device/device.h"

namespace xhat::testing {

// What keeps ops from running there, or nothing.
inline std::string missing(Target target) {
  try {
    runtime::require_device(target);
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

// Where tests of a GPU's code run: on CUDA if this machine has a device for it, else on OpenCL, which PoCL runs on the CPU.
inline Target tested_gpu() {
  static const Target target = missing(Target::cuda).empty() ? Target::cuda : Target::opencl;
  return target;
}

}  // namespace xhat::testing

#define XHAT_NEED_DEVICE(target)                                         \
  do {                                                                   \
    std::string why = xhat::testing::missing(target);                    \
    if (!why.empty() && std::getenv("XHAT_NEED_DEVICES")) FAIL() << why; \
    if (!why.empty()) GTEST_SKIP() << why;                               \
  } while (false)
