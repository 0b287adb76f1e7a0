// A caller's own memory and queues on a GPU, on PoCL's, which uses the CPU: tensors in place, calls that do not wait, two queues at a
// time, DLPack, and what goes wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "runtime/device/device.h"
#include "runtime/interop/dlpack.h"
#include "tests/helpers/device_call.h"
#include "tests/helpers/device_failure.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/opencl.h"

namespace xhat::gpu_memory_test {
namespace {

using namespace xhat::testing;
using runtime::DeviceFailure;

class GpuMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    XHAT_NEED_DEVICE(Target::opencl);
    cl_ = std::make_unique<OpenCl>();
    op_ = LayerNorm::compiled(Target::opencl);
  }

  // An op's tensors in memory of this program's own context.
  struct Call {
    OpenCl& cl;
    LayerNorm norm;
    void* queue;
    std::map<std::string, void*> memory;
    Call(OpenCl& c, const LayerNorm& n, void* q, int seed) : cl(c), norm(n), queue(q) {
      for (const auto& names : {norm.forward_names(), norm.backward_names()})
        for (const std::string& name : names)
          if (!memory.contains(name)) memory[name] = cl.memory(queue, norm.numbers(name, seed));
    }
    TensorView view(const std::string& name) const { return device_view<float>(Target::opencl, memory.at(name), norm.shape(name)); }
    std::vector<Argument> arguments(const std::vector<std::string>& names) const {
      std::vector<Argument> list;
      for (const std::string& name : names) list.push_back({memory.find(name)->first, view(name)});
      return list;
    }
    std::pair<CallCounts, CallCounts> run(const CompiledOp& op, Stash& stash) const {
      CallCounts forward = op.forward(arguments(norm.forward_names()), stash, {.stream = queue});
      return {forward, op.backward(arguments(norm.backward_names()), stash, {.stream = queue})};
    }
    void expect(const Numbers& wanted) const {
      for (const std::string& name : norm.results())
        EXPECT_EQ(cl.read<float>(queue, memory.at(name), norm.elements(name)), wanted.at(name)) << name;
    }
  };

  // Makes the calls while the queue is held up: they must return all the same. The event is for the test to let go.
  void* held_up(void* queue, const std::function<void()>& calls) {
    void* event = cl_->hold(queue);
    std::atomic<bool> returned = false, late = false;
    std::thread rescue([&] {
      for (int i = 0; i < 1000 && !returned; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      late = !returned;
      if (late) cl_->let_go(event);
    });
    calls();
    returned = true;
    rescue.join();
    if (late) throw std::runtime_error("the call waited for the queue");
    return event;
  }

  std::unique_ptr<OpenCl> cl_;
  CompiledOp op_;
  LayerNorm norm_;
};

TEST_F(GpuMemoryTest, TensorsAreUsedWhereTheyLie) {
  Call call(*cl_, norm_, cl_->queue(), 1);
  Stash stash;
  for (bool first : {true, false}) {
    auto [forward, backward] = call.run(op_, stash);
    EXPECT_EQ(forward.uploads + forward.downloads + backward.uploads + backward.downloads, 0);
    EXPECT_GT(forward.launches, 0);
    EXPECT_GT(backward.launches, 0);
    if (first) EXPECT_GT(forward.allocations, 0);  // the stash
    else EXPECT_EQ(forward.allocations + backward.allocations, 0);
  }
  call.expect(on_host_buffers(op_, norm_, 1));
}

TEST_F(GpuMemoryTest, HostAndDeviceInOneCall) {
  void* queue = cl_->queue();
  Call call(*cl_, norm_, queue, 2);
  const Numbers wanted = on_host_buffers(op_, norm_, 2);
  std::vector<float> gamma = norm_.numbers("gamma", 2), y(norm_.elements("y"));
  CallCounts counts = op_.infer({{"x", call.view("x")},
                                 {"gamma", TensorView(gamma.data(), {norm_.width})},
                                 {"beta", call.view("beta")},
                                 {"y", TensorView(y.data(), {norm_.rows, norm_.width})}},
                                {.stream = queue});
  EXPECT_EQ(y, wanted.at("y"));
  EXPECT_EQ(counts.uploads, 1);
  EXPECT_EQ(counts.downloads, 1);
}

TEST_F(GpuMemoryTest, CallsReturnWhenAllIsEnqueued) {
  void* queue = cl_->queue();
  Call call(*cl_, norm_, queue, 3);
  Stash stash;
  call.run(op_, stash);  // compiles and allocates
  Call again(*cl_, norm_, queue, 4);
  synchronize(Target::opencl, queue);
  void* event = held_up(queue, [&] { again.run(op_, stash); });
  // Nothing has happened yet: another queue sees what was there.
  EXPECT_EQ(cl_->read<float>(cl_->queue(), again.memory.at("y"), norm_.elements("y")), norm_.numbers("y", 4));
  cl_->let_go(event);
  synchronize(Target::opencl, queue);
  again.expect(on_host_buffers(op_, norm_, 4));
}

// Calls on one queue, while another one is held up in the middle of the same op.
TEST_F(GpuMemoryTest, QueuesDoNotWaitForEachOther) {
  Call held(*cl_, norm_, cl_->queue(), 5), free(*cl_, norm_, cl_->queue(), 6);
  Stash of_held, of_free;
  held.run(op_, of_held);
  synchronize(Target::opencl, held.queue);
  void* event = held_up(held.queue, [&] { held.run(op_, of_held); });
  free.run(op_, of_free);
  synchronize(Target::opencl, free.queue);
  free.expect(on_host_buffers(op_, norm_, 6));
  cl_->let_go(event);
  synchronize(Target::opencl, held.queue);
  held.expect(on_host_buffers(op_, norm_, 5));
}

TEST_F(GpuMemoryTest, ThreadsOnTheirQueuesAndOnOne) {
  constexpr int kThreads = 4, kCalls = 20;
  std::vector<Numbers> wanted;
  for (int t = 0; t < kThreads; ++t) wanted.push_back(on_host_buffers(op_, norm_, 10 + t));
  for (bool one_queue : {false, true}) {
    void* shared = cl_->queue();
    std::vector<std::unique_ptr<Call>> calls;
    for (int t = 0; t < kThreads; ++t)
      calls.push_back(std::make_unique<Call>(*cl_, norm_, one_queue ? shared : cl_->queue(), 10 + t));
    std::vector<std::thread> threads;
    for (auto& call : calls)
      threads.emplace_back([&, c = call.get()] {
        Stash stash;
        for (int i = 0; i < kCalls; ++i) c->run(op_, stash);
        synchronize(Target::opencl, c->queue);
      });
    for (std::thread& t : threads) t.join();
    for (size_t t = 0; t < calls.size(); ++t) calls[t]->expect(wanted[t]);
  }
}

TEST_F(GpuMemoryTest, GradientsAreAddedWhereTheyLie) {
  void* queue = cl_->queue();
  Call call(*cl_, norm_, queue, 9);
  const Numbers once = on_host_buffers(op_, norm_, 9);
  Stash stash;
  call.run(op_, stash);
  auto arguments = call.arguments(norm_.backward_names());
  for (Argument& a : arguments) a.accumulate = a.name == "grad_x" || a.name == "grad_gamma";
  op_.backward(arguments, stash, {.stream = queue});
  void* event = held_up(queue, [&] { EXPECT_EQ(op_.backward(arguments, stash, {.stream = queue}).allocations, 0); });
  cl_->let_go(event);
  Numbers wanted = once;
  for (const char* name : {"grad_x", "grad_gamma"})
    for (float& f : wanted[name]) f = f + f + f;
  call.expect(wanted);
}

TEST_F(GpuMemoryTest, DlpackTensorsAreUsedWhereTheyLie) {
  void* queue = cl_->queue();
  Call call(*cl_, norm_, queue, 7);
  int given_back = 0;
  {
    std::vector<DlpackTensor> held;
    for (const std::string& name : norm_.forward_names()) held.emplace_back(to_dlpack(call.view(name), [&] { ++given_back; }));
    CallCounts counts = op_.infer({{"x", held[0].view()}, {"gamma", held[1].view()}, {"beta", held[2].view()}, {"y", held[3].view()}},
                                  {.stream = queue});
    EXPECT_EQ(counts.uploads + counts.downloads, 0);
    synchronize(Target::opencl, queue);
  }
  EXPECT_EQ(given_back, 4);
  EXPECT_EQ(cl_->read<float>(queue, call.memory.at("y"), norm_.elements("y")), on_host_buffers(op_, norm_, 7).at("y"));
}

TEST_F(GpuMemoryTest, WrongMemoryIsRefused) {
  void* queue = cl_->queue();
  Call call(*cl_, norm_, queue, 8);
  std::vector<float> host(norm_.elements("x"));
  OpenCl elsewhere;
  Call foreign(elsewhere, norm_, elsewhere.queue(), 8);
  auto infer = [&](const std::string& name, const TensorView& v, void* stream) {
    return [&, name, v, stream] {
      auto arguments = call.arguments(norm_.forward_names());
      for (Argument& a : arguments)
        if (a.name == name) a.view = v;
      op_.infer(arguments, {.stream = stream});
    };
  };
  auto shape = norm_.shape("x");
  TensorView not_there = device_view<float>(Target::opencl, host.data(), shape);
  expect_failure(DeviceFailure::bad_pointer, "x is given as memory of target opencl, but its driver knows of none there",
                 infer("x", not_there, queue));
  TensorView not_here(static_cast<float*>(call.memory.at("x")), std::span<const int64_t>(shape));
  expect_failure(DeviceFailure::bad_pointer, "x is given as memory of the host, but that is memory of a device",
                 infer("x", not_here, queue));
  expect_failure(DeviceFailure::bad_pointer, "x belongs to another context", infer("x", foreign.view("x"), queue));
  expect_failure(DeviceFailure::bad_pointer, "x belongs to another context", infer("x", call.view("x"), nullptr));
  TensorView too_small = device_view<float>(Target::opencl, call.memory.at("gamma"), shape);
  expect_failure(DeviceFailure::bad_pointer, "x has shape [300,132], 158400 bytes, but its memory is smaller",
                 infer("x", too_small, queue));
  TensorView of_cuda = device_view<float>(Target::cuda, call.memory.at("x"), shape);
  expect_failure(DeviceFailure::bad_pointer, "x is memory of target cuda, but the op is compiled for opencl",
                 infer("x", of_cuda, queue));
  expect_failure(DeviceFailure::bad_stream, "runs out of order", infer("x", call.view("x"), cl_->queue(OpenCl::kOutOfOrder)));

  Stash stash;
  op_.forward(call.arguments(norm_.forward_names()), stash, {.stream = queue});
  expect_failure(DeviceFailure::bad_pointer, "the stash lies in another context",
                 [&] { op_.backward(foreign.arguments(norm_.backward_names()), stash, {.stream = foreign.queue}); });

  auto refused = [&](const std::string& says, const std::function<void()>& run) {
    try {
      run();
      ADD_FAILURE() << "nothing was thrown; expected: " << says;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(says), std::string::npos) << e.message();
    }
  };
  const std::vector<int64_t> steps = {1, norm_.rows};
  refused("on a device, tensors must be row-major without gaps",
          infer("x", device_view<float>(Target::opencl, call.memory.at("x"), shape, steps), queue));
  refused("y is written, but its buffer is const", infer("y", device_view<const float>(Target::opencl, call.memory.at("y"), shape), queue));
  refused("y overlaps x in memory", infer("y", call.view("x"), queue));
  CompiledOp on_cpu = LayerNorm::compiled(Target::cpu);
  refused("x is memory of target opencl, but the op is compiled for cpu", [&] { on_cpu.infer(call.arguments(norm_.forward_names())); });
  refused("target cpu: there are no streams for it", [&] { on_cpu.infer(call.arguments(norm_.forward_names()), {.stream = queue}); });
}

TEST_F(GpuMemoryTest, VulkanTakesTensorsOfTheHostOnly) {
  XHAT_NEED_DEVICE(Target::vulkan);
  CompiledOp op = LayerNorm::compiled(Target::vulkan);
  std::vector<float> memory(norm_.elements("x"));
  auto infer = [&](Target place, void* stream) {
    std::vector<Argument> arguments;
    const auto names = LayerNorm::forward_names();
    for (const std::string& name : names) {
      arguments.push_back({name, device_view<float>(Target::cpu, memory.data(), norm_.shape(name))});
      if (name == "x") arguments.back().view.place = place;
    }
    op.infer(arguments, {.stream = stream});
  };
  expect_failure(DeviceFailure::bad_pointer, "x is given as memory of target vulkan, but its driver knows of none there",
                 [&] { infer(Target::vulkan, nullptr); });
  expect_failure(DeviceFailure::bad_stream, "target vulkan: there are no streams for it", [&] { infer(Target::cpu, cl_->queue()); });
}

TEST_F(GpuMemoryTest, IndicesInTheDataAreLookedAtUnlessTrusted) {
  CompileOptions options;
  options.target = Target::opencl;
  CompiledOp op = compile(parse_op("op rows(table: f32[V,D], ids: i32[B] const) -> (y) { y[b,d] = table[ids[b],d] }"), options);
  void* queue = cl_->queue();
  void* table = cl_->memory(queue, std::vector<float>{1, 2, 3, 4, 5, 6});
  void* y = cl_->memory(4 * sizeof(float));
  void* other = cl_->queue();
  auto infer = [&](const std::vector<int32_t>& ids, bool trust) {
    return op.infer({{"table", device_view<float>(Target::opencl, table, {3, 2})},
                     {"ids", device_view<int32_t>(Target::opencl, cl_->memory(other, ids), {2})},
                     {"y", device_view<float>(Target::opencl, y, {2, 2})}},
                    {.stream = queue, .trust_data = trust});
  };
  infer({2, 0}, false);
  EXPECT_EQ(cl_->read<float>(queue, y, 4), (std::vector<float>{5, 6, 1, 2}));
  try {
    infer({1, 3}, false);
    ADD_FAILURE() << "row 3 of 3 was taken";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("table"), std::string::npos) << e.message();
  }
  // Trusted, it does not wait for the data to be there.
  void* event = held_up(queue, [&] { infer({1, 1}, true); });
  cl_->let_go(event);
  EXPECT_EQ(cl_->read<float>(queue, y, 4), (std::vector<float>{3, 4, 3, 4}));
}

}  // namespace
}  // namespace xhat::gpu_memory_test
