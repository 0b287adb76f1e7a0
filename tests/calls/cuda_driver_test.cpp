// The CUDA driver's calls, on a driver of ours that has no GPU (tests/fake_cuda).
#include "runtime/device/drivers/driver.h"
#include "tests/helpers/device_failure.h"
#include "tests/helpers/fake_cuda.h"

namespace xhat::runtime::cuda_driver_test {
namespace {

using testing::expect_failure;

class CudaDriverTest : public testing::OnFakeCuda {
 protected:
  static DeviceKernel kernel() {
    const char* text =
        ".version 7.0\n.visible .entry scale(\n\t.param .u64 .ptr .align 1 scale_param_0,\n\t.param .f32 scale_param_1,\n"
        "\t.param .u64 .ptr .align 1 scale_param_2\n)\n{\n\tret;\n}\n";
    DeviceLaunch l;
    l.entry = "scale";
    l.blocks = {.times = 2, .factor = 3, .per = 4, .value = 1};
    l.threads = 128;
    l.shared_bytes = 512;
    l.args = {{true, 1, 0}, {false, 0, 4}, {true, 0, 0}};
    return {text, {}, {l}};
  }
};

TEST_F(CudaDriverTest, CopiesThereAndBack) {
  DeviceDriver& gpu = device_driver(Target::cuda);
  EXPECT_EQ(gpu.device_name(), "Fake GPU");
  DeviceMemory memory = gpu.allocate(12);
  const std::vector<int> there = {1, 2, 3};
  std::vector<int> back(3);
  gpu.upload(nullptr, memory, there.data(), 12);
  gpu.download(nullptr, back.data(), memory, 12);
  EXPECT_EQ(back, there);
  EXPECT_EQ(state_.in_use, 12);
  gpu.release(memory);
  EXPECT_EQ(state_.in_use, 0);
}

TEST_F(CudaDriverTest, LaunchesWhatTheTableSays) {
  void* stream = driver_.new_stream(driver_.primary(0));
  DeviceDriver& gpu = device_driver(Target::cuda, stream);
  auto code = gpu.load(kernel());
  EXPECT_EQ(state_.modules, 1);
  DeviceMemory a = gpu.allocate(4), b = gpu.allocate(4);
  const DeviceMemory buffers[] = {a, b};
  const SizeValue values[] = {size_value(DType::f32, 0.5), size_value(DType::i32, 9)};
  code->run(stream, buffers, values);
  ASSERT_EQ(state_.launches.size(), 1u);
  const fake_cuda::Launch& l = state_.launches[0];
  EXPECT_EQ(l.entry, "scale");
  EXPECT_EQ(l.stream, stream);
  EXPECT_EQ(l.pointers, (std::vector<uint64_t>{b, a}));
  const std::vector<unsigned> size = {l.blocks[0], l.blocks[1], l.blocks[2], l.threads[0], l.shared_bytes};
  EXPECT_EQ(size, (std::vector<unsigned>{14, 1, 1, 128, 512}));
  EXPECT_EQ(state_.waits, 0);
  const SizeValue none[] = {values[0], size_value(DType::i32, 0)};
  code->run(stream, buffers, none);
  EXPECT_EQ(state_.launches.size(), 1u) << "no blocks, no launch";
  gpu.synchronize(stream);
  EXPECT_EQ(state_.waits, 1);
  gpu.release(a);
  gpu.release(b);
}

TEST_F(CudaDriverTest, SetsMemoryToZero) {
  DeviceDriver& gpu = device_driver(Target::cuda);
  DeviceKernel kernel;
  kernel.zeros = {{1, {.times = 1, .factor = 4, .per = 1, .of = 1, .value = 0}}};
  auto code = gpu.load(kernel);
  EXPECT_EQ(state_.modules, 0) << "there is no code";
  const std::vector<int> ones = {1, 1};
  const DeviceMemory buffers[] = {gpu.allocate(8), gpu.allocate(8)};
  for (DeviceMemory b : buffers) gpu.upload(nullptr, b, ones.data(), 8);
  for (int count : {0, 1}) {
    const SizeValue values[] = {size_value(DType::i32, count)};
    code->run(nullptr, buffers, values);
  }
  EXPECT_EQ(state_.sets, 1) << "none of no bytes";
  std::vector<int> first(2), second(2);
  gpu.download(nullptr, first.data(), buffers[0], 8);
  gpu.download(nullptr, second.data(), buffers[1], 8);
  gpu.synchronize(nullptr);
  EXPECT_EQ(first, ones);
  EXPECT_EQ(second, (std::vector<int>{0, 1}));
  for (DeviceMemory b : buffers) gpu.release(b);
}

TEST_F(CudaDriverTest, ContextsAreOfTheStreamElseTheCurrentOneElseDevice0s) {
  DeviceDriver& primary = device_driver(Target::cuda);
  void* other = driver_.new_context(1);
  EXPECT_EQ(&device_driver(Target::cuda, driver_.new_stream(driver_.primary(0))), &primary);
  EXPECT_NE(&device_driver(Target::cuda, driver_.new_stream(other)), &primary);
  driver_.make_current(other);
  DeviceDriver& there = device_driver(Target::cuda);
  EXPECT_NE(&there, &primary);
  // Whatever is current, a driver works in its own context, and leaves the caller's current.
  DeviceMemory memory = primary.allocate(8);
  EXPECT_EQ(primary.place_of(memory, 8), MemoryPlace::here);
  EXPECT_EQ(&device_driver(Target::cuda), &there);
  primary.release(memory);
  void* nowhere = reinterpret_cast<void*>(0x1234);
  expect_failure(DeviceFailure::bad_stream, "CUDA_ERROR_INVALID_HANDLE", [&] { device_driver(Target::cuda, nowhere); });
}

TEST_F(CudaDriverTest, KnowsWhereMemoryLies) {
  DeviceDriver& gpu = device_driver(Target::cuda);
  int here = 0;
  void* context = driver_.primary(0);
  uint64_t device = driver_.allocate(context, 16), managed = driver_.allocate_managed(context, 16), pinned = driver_.allocate_pinned(16);
  uint64_t far = driver_.allocate(driver_.primary(1), 16), apart = driver_.allocate(driver_.new_context(0), 16);
  const std::vector<std::pair<uint64_t, MemoryPlace>> places = {
      {device, MemoryPlace::here}, {device + 8, MemoryPlace::here},  {managed, MemoryPlace::here},  {pinned, MemoryPlace::host},
      {far, MemoryPlace::other_device}, {apart, MemoryPlace::other_context}, {reinterpret_cast<uint64_t>(&here), MemoryPlace::host}};
  for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(gpu.place_of(places[i].first, 4), places[i].second) << i;
  auto hidden = [&](uint64_t p) { return gpu.hidden_from_host(reinterpret_cast<void*>(p), 4); };
  EXPECT_TRUE(hidden(device) && hidden(far) && hidden(apart));
  EXPECT_FALSE(hidden(managed) || hidden(pinned) || hidden(places.back().first));
  for (uint64_t m : {device, managed, pinned, far, apart}) driver_.release(m);
}

TEST_F(CudaDriverTest, FailuresSayWhatTheDriverSaid) {
  DeviceDriver& gpu = device_driver(Target::cuda);
  state_.memory = 100;
  expect_failure(DeviceFailure::no_memory, "the device has no 200 bytes left (CUDA_ERROR_OUT_OF_MEMORY: ", [&] { gpu.allocate(200); });
  const std::string bad_text = "compiling PTX (no entry in this text) failed: CUDA_ERROR_INVALID_PTX";
  expect_failure(DeviceFailure::failed, bad_text, [&] { gpu.load({"nothing", {}, kernel().launches}); });
  DeviceKernel missing = kernel();
  missing.launches[0].entry = "twice";
  const int64_t loaded = state_.loaded;
  expect_failure(DeviceFailure::failed, "looking for the kernel twice failed", [&] { gpu.load(missing); });
  EXPECT_EQ(state_.loaded, loaded);
  state_.fail_launch = 700;
  auto code = gpu.load(kernel());
  DeviceMemory memory = gpu.allocate(4);
  const DeviceMemory buffers[] = {memory, memory};
  const SizeValue values[] = {size_value(DType::f32, 0.5), size_value(DType::i32, 9)};
  expect_failure(DeviceFailure::failed, "launching scale failed: error 700", [&] { code->run(nullptr, buffers, values); });
  gpu.release(memory);
}

// Another thread's capture is no reason not to allocate or load here, nor may it break because of us.
TEST_F(CudaDriverTest, CapturesElsewhereGoOn) {
  void* captured = driver_.new_stream(driver_.primary(0));
  void* stream = driver_.new_stream(driver_.primary(0));
  DeviceDriver& gpu = device_driver(Target::cuda, stream);
  driver_.capture(captured, true);
  EXPECT_TRUE(gpu.capturing(captured));
  EXPECT_FALSE(gpu.capturing(stream));
  DeviceMemory memory = gpu.allocate(8);
  {
    auto code = gpu.load(kernel());
    const DeviceMemory buffers[] = {memory, memory};
    const SizeValue values[] = {size_value(DType::f32, 0.5), size_value(DType::i32, 9)};
    code->run(captured, buffers, values);
    code->run(stream, buffers, values);
  }
  gpu.release(memory);
  EXPECT_TRUE(state_.launches[0].captured);
  EXPECT_FALSE(state_.launches[1].captured);
  EXPECT_EQ(state_.mistakes, std::vector<std::string>());
  // The default stream waits for all others, so that CUDA refuses it now.
  expect_failure(DeviceFailure::bad_stream, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", [&] { gpu.capturing(nullptr); });
  state_.mistakes.clear();
  driver_.capture(captured, false);
}

}  // namespace
}  // namespace xhat::runtime::cuda_driver_test
