// Kernels that a library computes: on PoCL beside our kernels, by a library of ours. (cuBLAS and cuDNN: calls/cuda_libraries_test.cpp.)
#include <gtest/gtest.h>

#include <set>

#include "fusion/library/library_operands.h"
#include "runtime/device/device.h"
#include "runtime/device/drivers/math_library.h"
#include "tests/fake_math/fake_math.h"
#include "tests/helpers/agreement.h"
#include "tests/helpers/gpu_ops.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/reference_library.h"

namespace xhat::gpu_library_test {
namespace {

using namespace xhat::testing;
using namespace xhat::runtime;

// Computes on the host, on any device's memory.
struct HostMath : MathLibrary {
  bool takes_all = true, fails = false, cannot_prepare = false;
  std::vector<std::string> calls;
  std::mutex mutex;

  struct Call : MathCall {
    HostMath& math;
    DeviceDriver& driver;
    LibraryCall call;
    Call(HostMath& m, DeviceDriver& d, const LibraryCall& c) : math(m), driver(d), call(c) {}
    int64_t scratch_bytes() const override { return 256; }
    void run(DeviceStream stream, DeviceMemory a, DeviceMemory b, DeviceMemory c, DeviceMemory scratch) const override {
      EXPECT_NE(scratch, 0u);
      if (math.fails) throw DeviceError(DeviceFailure::failed, "target opencl: HostMath: " + to_text(call) + " failed");
      auto sides = operands_of(call);
      auto fetch = [&](const LibrarySide& s, DeviceMemory m) {
        std::vector<uint8_t> bytes(static_cast<size_t>(reach(call, s)) * byte_size(s.type));
        driver.download(stream, bytes.data(), m, static_cast<int64_t>(bytes.size()));
        return bytes;
      };
      std::vector<uint8_t> x = fetch(*sides[0], a), y = fetch(*sides[1], b);
      std::vector<uint8_t> z(static_cast<size_t>(reach(call, result_of(call))) * byte_size(result_of(call).type));
      auto read = [&](const LibrarySide& s, int64_t i) { return fake_math::load((&s == sides[0] ? x : y).data(), s.type, i); };
      auto write = [&](const LibrarySide& s, int64_t i, double v) { fake_math::save(z.data(), s.type, i, v); };
      if (const auto* m = std::get_if<MatrixProduct>(&call)) compute(*m, read, write);
      else compute(std::get<Convolution>(call), reach(call, result_of(call)), read, write);
      driver.upload(stream, c, z.data(), static_cast<int64_t>(z.size()));
      std::lock_guard lock(math.mutex);
      math.calls.push_back(to_text(call));
    }
  };

  std::unique_ptr<MathCall> prepare(DeviceDriver& driver, const LibraryCall& call) override {
    if (cannot_prepare) throw DeviceError(DeviceFailure::failed, "target opencl: HostMath: starting failed");
    return takes_all ? std::make_unique<Call>(*this, driver, call) : nullptr;
  }
};

CompileOptions on_opencl(const std::shared_ptr<HostMath>& math, LibraryUse use = LibraryUse::on) {
  CompileOptions options;
  options.target = Target::opencl;
  options.libraries = use;
  options.math = math;
  return options;
}

const std::set<std::string> kWithProducts = {"attention", "conv3x3_bias_relu", "dense_gelu", "depthwise_conv3x3", "lstm_cell",
                                             "matmul_chain_512", "matmul_chain_8x8_b1024", "mlp2"};

class GpuLibraryKernels : public ::testing::TestWithParam<GpuOp> {};

TEST_P(GpuLibraryKernels, BesideOursAgreeWithTheEvaluator) {
  XHAT_NEED_DEVICE(Target::opencl);
  auto math = std::make_shared<HostMath>();
  expect_agreement(GetParam().parse(), on_opencl(math), GetParam().small);
  EXPECT_FALSE(math->calls.empty());
}

TEST(GpuLibraryUses, OpsWithoutProductsCallNone) {
  for (const GpuOp& op : gpu_ops()) {
    Program p = derive(op.parse()).program;
    size_t calls = 0;
    for (const Program& direction : {forward_program(p), backward_program(p)})
      calls += fusion::library_candidates(direction, solve_dims(p, {}, op.small)).all.size();
    EXPECT_EQ(calls > 0, kWithProducts.contains(op.name)) << op.name;
  }
}

std::vector<GpuOp> with_products() {
  std::vector<GpuOp> ops = gpu_ops();
  std::erase_if(ops, [](const GpuOp& op) { return !kWithProducts.contains(op.name); });
  return ops;
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuLibraryKernels, ::testing::ValuesIn(with_products()), name_of_gpu_op);

const char* const kDense = "op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i] * w[i,o]) + b[o]) }";
const DimValues kSizes = {{"N", 5}, {"I", 7}, {"O", 9}};

TEST(GpuLibraryUses, CallsAreCounted) {
  XHAT_NEED_DEVICE(Target::opencl);
  auto math = std::make_shared<HostMath>();
  Program op = parse_op(kDense);
  CompiledOp kernels = compile(op, on_opencl(math));
  Arrays data = random_data(gradient(op), kSizes, 5);
  Call call(kernels.program(), kSizes);
  call.give(kernels.program().inputs, data);
  call.give(kernels.program().cotangents, data);
  call.expect(kernels.program().outputs);
  call.expect(kernels.program().gradients);
  Stash stash;
  const Program& p = kernels.program();
  CallCounts forward = kernels.forward(call.arguments({p.inputs, p.outputs}), stash);
  EXPECT_EQ(forward.library_calls, 1);
  EXPECT_EQ(forward.launches, 1);  // what follows the product
  EXPECT_EQ(forward.kernels, 2);
  CallCounts backward = kernels.backward(call.arguments({p.inputs, p.outputs, p.cotangents, p.gradients}), stash);
  EXPECT_EQ(backward.library_calls, 2);
  EXPECT_EQ(math->calls, (std::vector<std::string>{"product 5 x 9 x 7", "product 7 x 5 x 9", "product 7 x 9 x 5"}));
}

TEST(GpuLibraryUses, OursWhereTheLibraryDoesNotOrIsOff) {
  XHAT_NEED_DEVICE(Target::opencl);
  auto math = std::make_shared<HostMath>();
  expect_agreement(parse_op(kDense), on_opencl(math, LibraryUse::off), kSizes);
  expect_agreement(parse_op(kDense), on_opencl(math, LibraryUse::automatic), kSizes);  // too small
  EXPECT_TRUE(math->calls.empty());
  math->takes_all = false;
  expect_agreement(parse_op(kDense), on_opencl(math), kSizes);
  EXPECT_TRUE(math->calls.empty());
}

TEST(GpuLibraryUses, FailuresAreSaid) {
  XHAT_NEED_DEVICE(Target::opencl);
  auto message = [](const CompileOptions& options) {
    Program op = parse_op(kDense);
    try {
      run_infer(compile(op, options), random_data(op, kSizes, 5), kSizes);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string();
  };
  auto math = std::make_shared<HostMath>();
  math->fails = true;
  EXPECT_EQ(message(on_opencl(math)), "target opencl: HostMath: product 5 x 9 x 7 failed");
  auto broken = std::make_shared<HostMath>();
  broken->cannot_prepare = true;
  EXPECT_EQ(message(on_opencl(broken)), "target opencl: HostMath: starting failed");
  EXPECT_EQ(message(on_opencl(broken, LibraryUse::automatic)), "");
  EXPECT_EQ(message(on_opencl(nullptr)), "target opencl: there are no libraries for it, only for cuda; use --libraries auto");
}

TEST(GpuLibraryUses, TypesThatLibrariesHave) {
  XHAT_NEED_DEVICE(Target::opencl);
  auto math = std::make_shared<HostMath>();
  expect_agreement(parse_op("op f(x: f64[N,K], w: f64[K,M]) -> (y) { y[n,m] = exp(sum(k: x[n,k] * w[k,m])) }"), on_opencl(math),
                   {{"N", 5}, {"K", 7}, {"M", 3}}, 1e-12);
  expect_agreement(parse_op("op f(x: f16[N,K], w: f16[K,M]) -> (y) { y[n,m] = sum(k: x[n,k] * w[k,m]) }"), on_opencl(math),
                   {{"N", 5}, {"K", 7}, {"M", 3}}, 1e-2);
  EXPECT_EQ(math->calls.size(), 8u);
}

}  // namespace
}  // namespace xhat::gpu_library_test
