// Products of floats are multiplied up in order on a GPU too. (calls/order_test.cpp)
#include <gtest/gtest.h>

#include "tests/helpers/need_device.h"
#include "tests/helpers/order_helper.h"

namespace xhat::order_gpu_test {
namespace {

using namespace xhat::testing;

TEST(OrderGpu, ProductsAreMultipliedUpInOrder) {
  XHAT_NEED_DEVICE(tested_gpu());
  for (const std::string& text : kProducts) expect_in_order(text, "f32", 9, tested_gpu());
}

}  // namespace
}  // namespace xhat::order_gpu_test
