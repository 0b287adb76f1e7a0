// The CUDA driver of tests/fake_cuda, for tests in this process. Header only.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace xhat::testing {

// From here on, target cuda runs on it: asked for before anything else has looked for a driver.
inline fake_cuda::Control& fake_cuda_driver() {
  static fake_cuda::Control* control = [] {
    const char* file = XHAT_BUILD_DIR "/tests/libfake_cuda.so";
    setenv("XHAT_CUDA_LIBRARY", file, 1);
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    auto find = library ? reinterpret_cast<fake_cuda::Control* (*)()>(dlsym(library, "fake_cuda_control")) : nullptr;
    return find ? find() : nullptr;
  }();
  if (!control) throw std::runtime_error("build the target fake_cuda");
  return *control;
}

// Tests on it: every one begins with a driver in which nothing happened yet, and device 0's primary context; at the end nothing may
// have gone wrong in it that nobody reported.
class OnFakeCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_.reset();
    driver_.make_current(nullptr);
  }
  void TearDown() override { EXPECT_EQ(driver_.state->mistakes, std::vector<std::string>()); }

  fake_cuda::Control& driver_ = fake_cuda_driver();
  fake_cuda::State& state_ = *driver_.state;
};

}  // namespace xhat::testing
