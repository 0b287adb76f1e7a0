// Tensors that come and go by DLPack.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/interop/dlpack.h"

namespace xhat::dlpack_test {
namespace {

// The ABI, number by number: other libraries were compiled with other headers.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20);
static_assert(offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);

struct Made {
  std::vector<float> data = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int64_t> shape = {2, 3}, strides = {4, 1};
  int given_back = 0;
  DLManagedTensor managed = {};
  Made() {
    managed.dl_tensor = {data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), strides.data(), 4};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* m) { ++static_cast<Made*>(m->manager_ctx)->given_back; };
  }
};

TEST(DlpackTest, StridesAndOffsetsAreKept) {
  Made made;
  {
    DlpackTensor held(&made.managed);
    const TensorView& v = held.view();
    EXPECT_EQ(v.data, made.data.data() + 1);
    EXPECT_EQ(v.type, DType::f32);
    EXPECT_EQ(v.place, Target::cpu);
    EXPECT_EQ((std::vector<int64_t>{v.shape[0], v.shape[1], v.strides[0], v.strides[1]}), (std::vector<int64_t>{2, 3, 4, 1}));
    EXPECT_EQ(made.given_back, 0);
    // It runs where it lies.
    CompiledOp op = compile(parse_op("op f(x: f32[N,M]) -> (y) { y[n] = sum(m: x[n,m]) }"));
    std::vector<float> sums(2);
    op.infer({{"x", v}, {"y", TensorView(sums.data(), {2})}});
    EXPECT_EQ(sums, (std::vector<float>{1 + 2 + 3, 5 + 6 + 7}));
  }
  EXPECT_EQ(made.given_back, 1);
}

TEST(DlpackTest, WhatIsNotUnderstoodIsRefused) {
  struct Case {
    const char* says;
    std::function<void(DLTensor&)> change;
  };
  static int64_t negative[] = {-1, 1};
  const std::vector<Case> cases = {
      {"a device of type 7", [](DLTensor& t) { t.device.device_type = kDLVulkan; }},
      {"type code 5 with 64 bits", [](DLTensor& t) { t.dtype = {5, 64, 1}; }},
      {"type code 0 with 16 bits", [](DLTensor& t) { t.dtype = {kDLInt, 16, 1}; }},
      {"vectors of 4", [](DLTensor& t) { t.dtype.lanes = 4; }},
      {"has 13 dimensions; kernels take up to 12", [](DLTensor& t) { t.ndim = 13; }},
      {"dimension 0 has the extent -1", [](DLTensor& t) { t.shape = negative; }},
      {"dimension 0 has the stride -1", [](DLTensor& t) { t.strides = negative; }},
      {"begins 2 bytes into its memory", [](DLTensor& t) { t.byte_offset = 2; }},
      {"begins 4 bytes into its cl_mem", [](DLTensor& t) { t.device.device_type = kDLOpenCL; }},
  };
  for (const Case& c : cases) {
    Made made;
    c.change(made.managed.dl_tensor);
    try {
      DlpackTensor refused(&made.managed);
      ADD_FAILURE() << "nothing was thrown; expected: " << c.says;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(c.says), std::string::npos) << e.message();
    }
    EXPECT_EQ(made.given_back, 1) << c.says;
  }
}

TEST(DlpackTest, EveryTypeAndDeviceComesBackAsItWent) {
  alignas(16) static char memory[256];
  for (DType type : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean})
    for (Target place : {Target::cpu, Target::cuda, Target::opencl}) {
      TensorView v(memory, type, std::vector<int64_t>{2, 1, 3}, std::vector<int64_t>{9, 5, 2});
      v.place = place;
      int released = 0;
      DLManagedTensor* m = to_dlpack(v, [&] { ++released; }, 1);
      EXPECT_EQ(m->dl_tensor.device.device_id, place == Target::cuda ? 1 : 0);
      {
        DlpackTensor back(m);
        EXPECT_EQ(back.view().data, v.data);
        EXPECT_EQ(back.view().type, type);
        EXPECT_EQ(back.view().place, place);
        EXPECT_EQ(back.view().shape, v.shape);
        EXPECT_EQ(back.view().strides, v.strides);
        EXPECT_EQ(released, 0);
      }
      EXPECT_EQ(released, 1);
    }
}

TEST(DlpackTest, WithoutStridesItIsRowMajor) {
  Made made;
  made.managed.dl_tensor.strides = nullptr;
  TensorView v = view_of(made.managed.dl_tensor, false);
  EXPECT_TRUE(v.dense());
  EXPECT_FALSE(v.writable);
}

}  // namespace
}  // namespace xhat::dlpack_test
