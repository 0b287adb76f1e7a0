// What cuBLAS and cuDNN are told, by fakes of them that compute on the host (tests/fake_math). Neither library has been called on a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>

#include "fusion/library/library_operands.h"
#include "runtime/device/device.h"
#include "runtime/device/drivers/math_library.h"
#include "tests/fake_math/fake_math.h"
#include "tests/helpers/agreement.h"
#include "tests/helpers/fake_cuda.h"
#include "tests/helpers/reference_library.h"

namespace xhat::cuda_libraries_test {
namespace {

using namespace xhat::testing;
using namespace xhat::runtime;

// cuBLAS and cuDNN, told through their own functions, on a device whose memory is the host's.
struct HostDriver : DeviceDriver {
  Target target() const override { return Target::cuda; }
  std::string device_name() const override { return "the host"; }
  std::unique_ptr<LoadedKernel> load(const DeviceKernel&) override { throw Bug("it runs no kernels"); }
  DeviceMemory allocate(int64_t bytes) override {
    return reinterpret_cast<DeviceMemory>(std::aligned_alloc(256, static_cast<size_t>(bytes + 255) / 256 * 256));
  }
  void release(DeviceMemory m) noexcept override { std::free(reinterpret_cast<void*>(m)); }
  void upload(DeviceStream, DeviceMemory to, const void* from, int64_t n) override {
    std::memcpy(reinterpret_cast<void*>(to), from, static_cast<size_t>(n));
  }
  void download(DeviceStream, void* to, DeviceMemory from, int64_t n) override {
    std::memcpy(to, reinterpret_cast<void*>(from), static_cast<size_t>(n));
  }
  void synchronize(DeviceStream) override {}
  void in_context(const std::function<void()>& call) override {
    ++inside;
    call();
    --inside;
  }
  bool capturing(DeviceStream) override { return false; }
  MemoryPlace place_of(DeviceMemory, int64_t) override { return MemoryPlace::here; }
  int inside = 0;
};

class CudaLibraries : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("XHAT_CUBLAS_LIBRARY", XHAT_BUILD_DIR "/tests/libfake_cublas.so", 1);
    setenv("XHAT_CUDNN_LIBRARY", XHAT_BUILD_DIR "/tests/libfake_cudnn.so", 1);
  }
  void SetUp() override {
    ASSERT_EQ(cublas_problem(), "");
    ASSERT_EQ(cudnn_problem(), "");
    blas = state(XHAT_BUILD_DIR "/tests/libfake_cublas.so", "fake_cublas_state");
    dnn = state(XHAT_BUILD_DIR "/tests/libfake_cudnn.so", "fake_cudnn_state");
    blas->fail = dnn->fail = 0;
    dnn->nothing_fits = false;
  }
  static fake_math::State* state(const char* file, const char* name) {
    auto* f = reinterpret_cast<fake_math::State* (*)()>(dlsym(dlopen(file, RTLD_NOW), name));
    return f();
  }
  fake_math::State *blas = nullptr, *dnn = nullptr;
  static inline HostDriver& driver = *new HostDriver;  // stays, as a driver does

  // The call, through the library and by plain loops.
  void expect_same(const LibraryCall& call, double tolerance) {
    SCOPED_TRACE(to_text(call));
    auto prepared = cuda_math().prepare(driver, call);
    ASSERT_TRUE(prepared);
    auto sides = operands_of(call);
    const LibrarySide& made = result_of(call);
    auto random = [&](const LibrarySide& s) {
      std::vector<uint8_t> bytes(static_cast<size_t>(reach(call, s)) * byte_size(s.type));
      for (int64_t i = 0; i < reach(call, s); ++i) fake_math::save(bytes.data(), s.type, i, std::sin(static_cast<double>(7 * i + 3)));
      return bytes;
    };
    std::vector<uint8_t> x = random(*sides[0]), y = random(*sides[1]), z = random(made), want = z;
    const DeviceMemory scratch = driver.allocate(std::max<int64_t>(1, prepared->scratch_bytes()));
    int stream = 0;
    auto at = [](std::vector<uint8_t>& v) { return reinterpret_cast<DeviceMemory>(v.data()); };
    prepared->run(&stream, at(x), at(y), at(z), scratch);
    EXPECT_EQ((std::holds_alternative<MatrixProduct>(call) ? blas : dnn)->stream, &stream);
    driver.release(scratch);
    auto read = [&](const LibrarySide& s, int64_t i) { return fake_math::load((&s == sides[0] ? x : y).data(), s.type, i); };
    auto write = [&](const LibrarySide& s, int64_t i, double v) { fake_math::save(want.data(), s.type, i, v); };
    if (const auto* m = std::get_if<MatrixProduct>(&call)) compute(*m, read, write);
    else compute(std::get<Convolution>(call), reach(call, made), read, write);
    for (int64_t i = 0; i < reach(call, made); ++i)
      ASSERT_NEAR(fake_math::load(z.data(), made.type, i), fake_math::load(want.data(), made.type, i), tolerance) << "at " << i;
  }

  void expect_same(const std::string& text, const DimValues& dims, size_t calls, double tolerance = 1e-5) {
    Program p = derive(parse_op(text)).program;
    size_t found = 0;
    for (const Program& direction : {forward_program(p), backward_program(p)})
      for (const auto& c : fusion::library_candidates(direction, dims).all) {
        expect_same(c.call, tolerance);
        ++found;
      }
    EXPECT_EQ(found, calls);
  }
};

TEST_F(CudaLibraries, ProductsInEveryLayout) {
  for (const char* x : {"x: f32[N,K]", "x: f32[K,N]"})
    for (const char* w : {"w: f32[K,M]", "w: f32[M,K]"})
      for (const char* y : {"y[n,m]", "y[m,n]"}) {
        auto read = [](std::string t) {
          for (char& c : t) c = static_cast<char>(std::tolower(c));
          return t.substr(0, 1) + t.substr(t.find('['));
        };
        expect_same(std::string("op f(") + x + ", " + w + ") -> (y) { " + y + " = 0.5 * sum(k: " + read(x) + " * " + read(w) + ") }",
                    {{"N", 5}, {"K", 7}, {"M", 3}}, 3);
      }
  EXPECT_EQ(blas->math, 16);  // sums in f32, no TF32
  EXPECT_EQ(driver.inside, 0);
}

TEST_F(CudaLibraries, BatchesAndParts) {
  expect_same("op f(x: f32[B,H,S,D], w: f32[B,H,T,D]) -> (y) { y[b,h,s,t] = sum(d: x[b,h,s,d] * w[b,h,t,d]) }",
              {{"B", 2}, {"H", 3}, {"S", 5}, {"T", 4}, {"D", 6}}, 3);
  const int64_t before = blas->calls;
  expect_same("op f(x: f32[B,S,H,D], w: f32[B,T,H,D]) -> (y) { y[b,h,s,t] = sum(d: x[b,s,h,d] * w[b,t,h,d]) }",
              {{"B", 2}, {"H", 3}, {"S", 5}, {"T", 4}, {"D", 6}}, 3);
  EXPECT_EQ(blas->calls - before, 6);  // two of each: heads are a batch, images a call
  expect_same("op f(x: f32[B,T,I], w: f32[I,O]) -> (y) { y[b,t,o] = sum(i: x[b,t,i] * w[i,o]) }",
              {{"B", 2}, {"T", 3}, {"I", 5}, {"O", 4}}, 3);
  expect_same("op f(x: f32[N,K], w: f32[2*M,K+1]) -> (y) { y[n, m in 0..M] = sum(k: x[n,k] * w[m+M,k+1]) }",
              {{"N", 5}, {"K", 7}, {"M", 3}}, 3);
  expect_same("op f(x: f64[N,K], w: f64[K,M]) -> (y) { y[n,m] = sum(k: x[n,k] * w[k,m]) }", {{"N", 5}, {"K", 7}, {"M", 3}}, 3, 1e-13);
  expect_same("op f(x: bf16[N,K], w: bf16[K,M]) -> (y) { y[n,m] = sum(k: x[n,k] * w[k,m]) }", {{"N", 5}, {"K", 7}, {"M", 3}}, 3, 1e-6);
}

TEST_F(CudaLibraries, Convolutions) {
  expect_same(R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3]) -> (y) {
    y[n,k, i in 0..H, j in 0..W] = sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]) })",
              {{"N", 2}, {"C", 3}, {"H", 5}, {"W", 7}, {"K", 4}}, 3);
  EXPECT_EQ(dnn->math, 3);  // on ordinary units: no TF32
  expect_same(R"(op f(x: f32[N,C,H], w: f32[K,C,3]) -> (y) {
    dim OH = (H + 2 - 3)/2 + 1
    y[n,k, i in 0..OH] = sum(c,r: x[n,c,2*i+r-1 else 0] * w[k,c,r]) })",
              {{"N", 2}, {"C", 3}, {"H", 9}, {"K", 4}, {"OH", 5}}, 3);
  expect_same("op f(x: f32[C,H], w: f32[K,C,3]) -> (y) { y[k, i in 0..H] = sum(c,r: x[c,i+2*r-2 else 0] * w[k,c,r]) }",
              {{"C", 3}, {"H", 9}, {"K", 4}}, 3);
  expect_same("op f(x: f32[N,C,H], w: f32[C,3]) -> (y) { y[n,c, i in 0..H] = sum(r: x[n,c,i+r-1 else 0] * w[c,r]) }",
              {{"N", 2}, {"C", 3}, {"H", 5}}, 3);
  expect_same("op f(x: f32[N,C,H+2], w: f32[K,C,3]) -> (y) { y[n,k, i in 0..H] = sum(c,r: x[n,c,i+2-r] * w[k,c,r]) }",
              {{"N", 2}, {"C", 3}, {"H", 7}, {"K", 4}}, 3);
  expect_same("op f(x: f16[N,C,H], w: f16[K,C,3]) -> (y) { y[n,k, i in 0..H] = sum(c,r: x[n,c,i+r-1 else 0] * w[k,c,r]) }",
              {{"N", 2}, {"C", 3}, {"H", 5}, {"K", 4}}, 3, 1e-2);
  EXPECT_EQ(dnn->math, 1);  // tensor cores
}

TEST_F(CudaLibraries, FailuresAreSaid) {
  MatrixProduct m;
  m.rows = m.columns = m.terms = 2;
  for (LibrarySide* s : {&m.a, &m.b, &m.c}) s->steps = {2, 1};
  auto call = cuda_math().prepare(driver, m);
  std::vector<float> data(4, 1.0F);
  auto at = reinterpret_cast<DeviceMemory>(data.data());
  const DeviceMemory scratch = driver.allocate(call->scratch_bytes());
  blas->fail = 13;
  try {
    call->run(nullptr, at, at, at, scratch);
    ADD_FAILURE() << "nothing was said";
  } catch (const DeviceError& e) {
    EXPECT_EQ(e.message(),
              "target cuda: cuBLAS: product 2 x 2 x 2 failed (CUBLAS_STATUS_EXECUTION_FAILED, status 13); --libraries off does without it");
    EXPECT_EQ(e.why(), DeviceFailure::failed);
  }
  driver.release(scratch);
  dnn->nothing_fits = true;
  Convolution c;
  c.space = {{5, 3, 5, 1}};
  c.input.steps = c.output.steps = {5, 5, 1};
  c.filter.steps = {3, 3, 1};
  EXPECT_EQ(cuda_math().prepare(driver, c), nullptr);  // ours, then
}

const char* const kProduct = "op f(x: f32[N,K], w: f32[K,M]) -> (y) { y[n,m] = sum(k: x[n,k] * w[k,m]) }";
const DimValues kProductSizes = {{"N", 5}, {"K", 7}, {"M", 3}};

// Whole ops on the fake driver, which runs no kernels of ours: of products and convolutions alone.
struct CudaLibraryOps : CudaLibraries {
  static void SetUpTestSuite() {
    CudaLibraries::SetUpTestSuite();
    fake_cuda_driver().reset();
  }
  CompileOptions options;
  void SetUp() override {
    CudaLibraries::SetUp();
    options.target = Target::cuda;
    options.libraries = LibraryUse::on;
  }
};

TEST_F(CudaLibraryOps, AgreeWithTheEvaluator) {
  const int64_t products = blas->calls, convolutions = dnn->calls;
  expect_agreement(parse_op(kProduct), options, kProductSizes);
  expect_agreement(parse_op("op f(x: f32[B,S,D], w: f32[B,T,D]) -> (y) { y[b,t,s] = sum(d: x[b,s,d] * w[b,t,d]) }"), options,
                   {{"B", 2}, {"S", 5}, {"T", 4}, {"D", 6}});
  EXPECT_EQ(blas->calls - products, 8);  // inference, forward, two gradients
  Program convolution = parse_op(R"(op f(x: f32[N,C,H], w: f32[K,C,3]) -> (y) {
    y[n,k, i in 0..H] = sum(c,r: x[n,c,i+r-1 else 0] * w[k,c,r]) })");
  expect_agreement(convolution, options, {{"N", 2}, {"C", 3}, {"H", 7}, {"K", 4}});
  EXPECT_EQ(dnn->calls - convolutions, 4);
  EXPECT_TRUE(fake_cuda_driver().state->mistakes.empty());
}

TEST_F(CudaLibraryOps, RunOnTheCallersMemoryAndStreamAndInAGraph) {
  fake_cuda::Control& cuda = fake_cuda_driver();
  void* context = cuda.primary(0);
  void* stream = cuda.new_stream(context);
  auto memory = [&](int64_t n) { return reinterpret_cast<float*>(cuda.allocate(context, n * 4)); };
  float *x = memory(35), *w = memory(21), *y = memory(15);
  for (int i = 0; i < 35; ++i) x[i] = static_cast<float>(i);
  for (int i = 0; i < 21; ++i) w[i] = i < 9 && i % 4 == 0 ? 1.0F : 0.0F;  // k == m
  CompiledOp op = compile(parse_op(kProduct), options);
  auto call = [&] {
    return op.infer({{"x", device_view<const float>(Target::cuda, x, {5, 7})},
                     {"w", device_view<const float>(Target::cuda, w, {7, 3})},
                     {"y", device_view<float>(Target::cuda, y, {5, 3})}},
                    {.stream = stream});
  };
  EXPECT_EQ(call().library_calls, 1);
  EXPECT_EQ(blas->stream, stream);
  EXPECT_EQ(y[4 * 3 + 2], 30.0F);
  const int64_t allocations = cuda.state->allocations, handles = blas->handles;
  cuda.capture(stream, true);
  EXPECT_EQ(call().allocations, 0);
  cuda.capture(stream, false);
  EXPECT_EQ(cuda.state->allocations, allocations);
  EXPECT_EQ(blas->handles, handles);
  EXPECT_TRUE(cuda.state->mistakes.empty());
}

TEST_F(CudaLibraryOps, FailuresAreSaid) {
  Program op = parse_op(kProduct);
  const DimValues& dims = kProductSizes;
  CompiledOp kernels = compile(op, options);
  Arrays data = random_data(op, dims, 5);
  run_infer(kernels, data, dims);
  blas->fail = 13;
  try {
    run_infer(kernels, data, dims);
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("cuBLAS: product 5 x 3 x 7 failed"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace xhat::cuda_libraries_test
