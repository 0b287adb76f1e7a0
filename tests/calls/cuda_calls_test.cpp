// Calls of ops on CUDA, on a driver of ours that runs no code (tests/fake_cuda): which memory and stream launches get, what is
// allocated and waited for, captures into graphs, and what goes wrong. Values are tested on OpenCL, by the same code.
#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "runtime/device/device.h"
#include "tests/helpers/device_call.h"
#include "tests/helpers/device_failure.h"
#include "tests/helpers/fake_cuda.h"

namespace xhat::cuda_calls_test {
namespace {

using namespace xhat::testing;
using runtime::DeviceFailure;

class CudaCallsTest : public OnFakeCuda {
 protected:
  void SetUp() override {
    OnFakeCuda::SetUp();
    in_use_before_ = state_.in_use;
    stream_ = driver_.new_stream(driver_.primary(0));
    op_ = LayerNorm::compiled(Target::cuda);
    memory_ = tensors(driver_.primary(0));
  }
  void TearDown() override {
    op_ = CompiledOp();
    EXPECT_EQ(state_.in_use, in_use_before_) << "an op that goes leaves memory behind";
    release(memory_);
    OnFakeCuda::TearDown();
  }

  using Memory = std::map<std::string, uint64_t>;
  Memory tensors(void* context) {
    Memory made;
    for (const auto& names : {norm_.forward_names(), norm_.backward_names()})
      for (const std::string& name : names)
        if (!made.contains(name)) made[name] = driver_.allocate(context, static_cast<int64_t>(norm_.elements(name)) * 4);
    return made;
  }
  void release(const Memory& memory) {
    for (const auto& [name, m] : memory) driver_.release(m);
  }
  TensorView view(const std::string& name, uint64_t memory) const {
    return device_view<float>(Target::cuda, reinterpret_cast<void*>(memory), norm_.shape(name));
  }
  // Those of memory_, but for `other`.
  std::vector<Argument> arguments(const std::vector<std::string>& names, const std::string& other = "",
                                  const TensorView& in_its_place = {}) {
    std::vector<Argument> list;
    for (const std::string& name : names) {
      auto own = memory_.find(name);
      list.push_back({own->first, name == other ? in_its_place : view(name, own->second)});
    }
    return list;
  }
  CallCounts forward(Stash& stash, void* stream) { return op_.forward(arguments(norm_.forward_names()), stash, {.stream = stream}); }
  CallCounts backward(const Stash& stash, void* stream) {
    return op_.backward(arguments(norm_.backward_names()), stash, {.stream = stream});
  }
  std::set<uint64_t> pointers() const {
    std::set<uint64_t> all;
    for (const auto& l : state_.launches) all.insert(l.pointers.begin(), l.pointers.end());
    return all;
  }

  LayerNorm norm_;
  CompiledOp op_;
  void* stream_ = nullptr;
  Memory memory_;
  int64_t in_use_before_ = 0;
};

TEST_F(CudaCallsTest, LaunchesGetTheCallersPointersAndStream) {
  Stash stash;
  CallCounts f = forward(stash, stream_), b = backward(stash, stream_);
  EXPECT_EQ(static_cast<int64_t>(state_.launches.size()), f.launches + b.launches);
  EXPECT_GT(f.launches * b.launches, 0);
  for (const auto& l : state_.launches) EXPECT_EQ(l.stream, stream_);
  const std::set<uint64_t> seen = pointers();
  for (const auto& [name, m] : memory_) EXPECT_TRUE(seen.contains(m)) << name;
  EXPECT_EQ(state_.copies, 0);
  EXPECT_EQ(state_.waits, 0);
  EXPECT_EQ(f.uploads + f.downloads + b.uploads + b.downloads, 0);
  synchronize(Target::cuda, stream_);
  EXPECT_EQ(state_.waits, 1);
}

TEST_F(CudaCallsTest, MemoryIsAllocatedOnce) {
  Stash stash;
  CallCounts f = forward(stash, stream_), b = backward(stash, stream_);
  EXPECT_GT(f.allocations, 0);  // the stash
  EXPECT_GT(b.allocations, 0);  // rows of partial sums
  EXPECT_EQ(state_.allocations, f.allocations + b.allocations);
  const std::set<uint64_t> first = pointers();
  state_.launches.clear();
  f = forward(stash, stream_);
  b = backward(stash, stream_);
  EXPECT_EQ(f.allocations + b.allocations, 0);
  EXPECT_EQ(state_.allocations, static_cast<int64_t>(first.size() - memory_.size()));
  EXPECT_EQ(pointers(), first);
}

// What only the stream orders may not be shared by two.
TEST_F(CudaCallsTest, ScratchBelongsToAStream) {
  void* other = driver_.new_stream(driver_.primary(0));
  Stash a, b;
  std::vector<std::set<uint64_t>> scratch;
  for (auto& [stash, stream] : std::vector<std::pair<Stash*, void*>>{{&a, stream_}, {&b, other}, {&a, stream_}, {&b, other}}) {
    state_.launches.clear();
    forward(*stash, stream);
    backward(*stash, stream);
    std::set<uint64_t> own = pointers();
    for (const auto& [name, m] : memory_) own.erase(m);
    scratch.push_back(own);
  }
  std::vector<uint64_t> shared;
  std::ranges::set_intersection(scratch[0], scratch[1], std::back_inserter(shared));
  EXPECT_EQ(shared, std::vector<uint64_t>());
  EXPECT_EQ(scratch[2], scratch[0]);
  EXPECT_EQ(scratch[3], scratch[1]);
}

// Every thread has a stream of its own by the handle 2, CU_STREAM_PER_THREAD.
TEST_F(CudaCallsTest, SoItDoesToTheStreamOfAThread) {
  void* of_thread = reinterpret_cast<void*>(2);
  Stash stash;
  forward(stash, of_thread);
  backward(stash, of_thread);
  const std::set<uint64_t> here = pointers();
  state_.launches.clear();
  CallCounts there;
  std::thread([&] { there = backward(stash, of_thread); }).join();
  EXPECT_GT(there.allocations, 0);
  EXPECT_EQ(backward(stash, of_thread).allocations, 0);
}

TEST_F(CudaCallsTest, ScratchOfStreamsLongGoneGoes) {
  Stash stash;
  int64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    void* stream = driver_.new_stream(driver_.primary(0));
    forward(stash, stream);
    backward(stash, stream);
    if (i == 40) most = state_.in_use;
  }
  EXPECT_EQ(state_.in_use, most);
}

TEST_F(CudaCallsTest, ForwardAndBackwardAreCaptured) {
  Stash stash;
  forward(stash, stream_);
  backward(stash, stream_);
  const auto launches = state_.launches.size();
  driver_.capture(stream_, true);
  CallCounts f = forward(stash, stream_), b = backward(stash, stream_);
  driver_.capture(stream_, false);
  EXPECT_EQ(f.allocations + b.allocations + state_.copies + state_.waits, 0);
  ASSERT_EQ(state_.launches.size(), 2 * launches);
  for (size_t i = 0; i < 2 * launches; ++i) EXPECT_EQ(state_.launches[i].captured, i >= launches) << i;
  // The same work as the call before.
  for (size_t i = 0; i < launches; ++i) EXPECT_EQ(state_.launches[i].pointers, state_.launches[launches + i].pointers) << i;
}

TEST_F(CudaCallsTest, AddingToGradientsIsCapturedToo) {
  Stash stash;
  forward(stash, stream_);
  const CallCounts written = backward(stash, stream_);
  auto adding = arguments(norm_.backward_names());
  for (Argument& a : adding) a.accumulate = a.name == "grad_gamma";
  driver_.capture(stream_, true);
  expect_failure(DeviceFailure::bad_stream, "make the same call once", [&] { op_.backward(adding, stash, {.stream = stream_}); });
  driver_.capture(stream_, false);
  op_.backward(adding, stash, {.stream = stream_});
  driver_.capture(stream_, true);
  CallCounts captured = op_.backward(adding, stash, {.stream = stream_});
  EXPECT_EQ(captured.launches, written.launches + 1);
  EXPECT_EQ(captured.allocations, 0);
  const auto& last = state_.launches.back();
  EXPECT_EQ(std::ranges::count(last.pointers, memory_.at("grad_gamma")), 2);  // read and written
  EXPECT_TRUE(last.captured);
  driver_.capture(stream_, false);
}

TEST_F(CudaCallsTest, ACaptureNeedsTheSameCallBefore) {
  const std::string once = "make the same call once before the capture";
  Stash stash, fresh;
  driver_.capture(stream_, true);
  expect_failure(DeviceFailure::bad_stream, once, [&] { forward(stash, stream_); });
  EXPECT_EQ(state_.launches.size(), 0u);
  driver_.capture(stream_, false);
  forward(stash, stream_);
  void* other = driver_.new_stream(driver_.primary(0));
  driver_.capture(stream_, true);
  driver_.capture(other, true);
  forward(stash, stream_);
  expect_failure(DeviceFailure::bad_stream, "compile kernels", [&] { backward(stash, stream_); });
  expect_failure(DeviceFailure::bad_stream, "allocate memory for the stash", [&] { forward(fresh, stream_); });
  std::vector<float> x(norm_.elements("x"));
  TensorView on_host(x.data(), std::span<const int64_t>(norm_.shape("x")));
  expect_failure(DeviceFailure::bad_stream, "copy x from the host's memory", [&] {
    op_.forward(arguments(norm_.forward_names(), "x", on_host), stash, {.stream = stream_});
  });
  expect_failure(DeviceFailure::bad_stream, "wait for it", [&] { synchronize(Target::cuda, stream_); });
  driver_.capture(stream_, false);
  backward(stash, stream_);
  // Compiled, but not yet run on that stream.
  expect_failure(DeviceFailure::bad_stream, "allocate memory for what its kernels hand on", [&] { backward(stash, other); });
  driver_.capture(other, false);
}

TEST_F(CudaCallsTest, TimedCallsWaitAndAreNotCaptured) {
  int timed = 0;
  CompileOptions options;
  options.target = Target::cuda;
  options.on_kernel = [&](const Kernel&, double) { ++timed; };
  CompiledOp twice = compile(parse_op("op twice(x: f32[N]) -> (y) { y[n] = 2 * x[n] }"), options);
  auto infer = [&] {
    auto at = [&](const char* name) { return device_view<float>(Target::cuda, reinterpret_cast<void*>(memory_.at(name)), {8}); };
    twice.infer({{"x", at("x")}, {"y", at("y")}}, {.stream = stream_});
  };
  infer();
  EXPECT_EQ(timed, 1);
  EXPECT_EQ(state_.waits, 1);
  driver_.capture(stream_, true);
  expect_failure(DeviceFailure::bad_stream, "wait for each kernel", infer);
  driver_.capture(stream_, false);
}

TEST_F(CudaCallsTest, CapturesDoNotLookAtData) {
  CompileOptions options;
  options.target = Target::cuda;
  CompiledOp rows = compile(parse_op("op rows(table: f32[V,D], ids: i32[B] const) -> (y) { y[b,d] = table[ids[b],d] }"), options);
  uint64_t memory = driver_.allocate(driver_.primary(0), 4096);  // of zeros, as ids
  std::memset(reinterpret_cast<void*>(memory), 0, 4096);
  auto at = [&](uint64_t offset) { return reinterpret_cast<void*>(memory + offset); };
  auto infer = [&](bool trust) {
    return rows.infer({{"table", device_view<float>(Target::cuda, at(0), {8, 4})},
                       {"ids", device_view<int32_t>(Target::cuda, at(1024), {16})},
                       {"y", device_view<float>(Target::cuda, at(2048), {16, 4})}},
                      {.stream = stream_, .trust_data = trust});
  };
  infer(false);
  EXPECT_GT(state_.waits, 0);
  driver_.capture(stream_, true);
  expect_failure(DeviceFailure::bad_stream, "set CallOptions::trust_data", [&] { infer(false); });
  infer(true);
  driver_.capture(stream_, false);
  driver_.release(memory);
}

TEST_F(CudaCallsTest, WrongMemoryIsRefused) {
  auto infer = [&](const std::string& name, const TensorView& v, void* stream) {
    return [&, name, v, stream] { op_.infer(arguments(norm_.forward_names(), name, v), {.stream = stream}); };
  };
  const auto bytes = static_cast<int64_t>(norm_.elements("x") * sizeof(float));
  auto shape = norm_.shape("x");
  std::vector<float> host(norm_.elements("x") + 16);
  uint64_t far = driver_.allocate(driver_.primary(1), bytes), apart = driver_.allocate(driver_.new_context(0), bytes);
  uint64_t managed = driver_.allocate_managed(driver_.primary(0), bytes);
  uint64_t aligned = (reinterpret_cast<uint64_t>(host.data()) + 63) / 64 * 64;
  expect_failure(DeviceFailure::bad_pointer, "x is given as memory of target cuda, but its driver knows of none there",
                 infer("x", view("x", aligned), stream_));
  TensorView not_here(reinterpret_cast<float*>(memory_.at("x")), std::span<const int64_t>(shape));
  expect_failure(DeviceFailure::bad_pointer, "x is given as memory of the host, but that is memory of a device",
                 infer("x", not_here, stream_));
  expect_failure(DeviceFailure::bad_pointer, "x lies on another device", infer("x", view("x", far), stream_));
  expect_failure(DeviceFailure::bad_pointer, "x belongs to another context", infer("x", view("x", apart), stream_));
  void* far_stream = driver_.new_stream(driver_.primary(1));
  expect_failure(DeviceFailure::bad_pointer, "x lies on another device", infer("x", view("x", memory_.at("x")), far_stream));
  // Vectors of four: PyTorch's x[1:] may begin anywhere.
  const std::string unaligned = "x is not aligned to 16 bytes, which kernels load at once";
  expect_failure(DeviceFailure::bad_pointer, unaligned, infer("x", view("x", memory_.at("x") + 4), stream_));
  EXPECT_EQ(state_.launches.size(), 0u);
  // Managed memory may be either.
  infer("x", view("x", managed), stream_)();
  infer("x", TensorView(reinterpret_cast<float*>(managed), std::span<const int64_t>(shape)), stream_)();
  for (uint64_t m : {far, apart, managed}) driver_.release(m);
}

TEST_F(CudaCallsTest, NumbersThatFillNoVectorsNeedNoAlignment) {
  CompileOptions options;
  options.target = Target::cuda;
  CompiledOp twice = compile(parse_op("op twice(x: f32[N]) -> (y) { y[n] = 2 * x[n] }"), options);
  uint64_t m = memory_.at("x");
  auto at = [&](uint64_t offset, int64_t n) { return device_view<float>(Target::cuda, reinterpret_cast<void*>(m + offset), {n}); };
  twice.infer({{"x", at(4, 5)}, {"y", at(1024, 5)}}, {.stream = stream_});
  twice.infer({{"x", at(8, 6)}, {"y", at(1024, 6)}}, {.stream = stream_});
  expect_failure(DeviceFailure::bad_pointer, "x is not aligned to 8 bytes", [&] {
    twice.infer({{"x", at(4, 6)}, {"y", at(1024, 6)}}, {.stream = stream_});
  });
}

TEST_F(CudaCallsTest, FailuresOfTheDeviceAreErrorsAndLeaveTheOpUsable) {
  Stash stash;
  forward(stash, stream_);
  const int64_t memory = state_.memory;
  state_.memory = state_.in_use + 10;
  expect_failure(DeviceFailure::no_memory, "out of memory: the device has no ", [&] { backward(stash, stream_); });
  state_.memory = memory;
  state_.fail_launch = 719;
  expect_failure(DeviceFailure::failed, "failed: error 719", [&] { backward(stash, stream_); });
  state_.fail_launch = 0;
  state_.launches.clear();
  const CallCounts counts = backward(stash, stream_);
  EXPECT_EQ(counts.launches, static_cast<int64_t>(state_.launches.size()));
  expect_failure(DeviceFailure::bad_stream, "CUDA_ERROR_INVALID_HANDLE", [&] { forward(stash, reinterpret_cast<void*>(0x1230)); });
  // Of another device than the stash.
  void* far = driver_.new_stream(driver_.primary(1));
  Memory there = tensors(driver_.primary(1));
  std::swap(memory_, there);
  expect_failure(DeviceFailure::bad_pointer, "the stash lies in another context", [&] { backward(stash, far); });
  // forward makes it anew there.
  EXPECT_GT(forward(stash, far).allocations, 0);
  backward(stash, far);
  std::swap(memory_, there);
  release(there);
}

}  // namespace
}  // namespace xhat::cuda_calls_test
