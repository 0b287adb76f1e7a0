// Code for GPUs in libraries compiled ahead of time: on PoCL the bits of the engine's own kernels there; what is wrong with a call
// is said before anything is launched.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "ad/reverse/gradient.h"
#include "runtime/ahead/build/ahead.h"
#include "runtime/device/device.h"
#include "tests/helpers/ahead_library.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/need_device.h"
#include "tests/helpers/opencl.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::ahead_gpu_test {
namespace {

using namespace xhat::testing;
using runtime::DeviceDriver;
using runtime::DeviceMemory;

constexpr int kOk = 0, kBadArgument = 1, kBadSize = 2, kBadData = 3, kNoDevice = 7, kBadPointer = 8;  // of the generated headers

class AheadGpu : public Tool {
 protected:
  void SetUp() override {
    Tool::SetUp();
    XHAT_NEED_DEVICE(Target::opencl);
    cl_ = std::make_unique<OpenCl>();
  }
  std::unique_ptr<OpenCl> cl_;  // a context that is not the engine's
  int copies_ = 0;              // libraries loaded: each has a path of its own

  AheadOptions options(Target target) const {
    AheadOptions o;
    o.levels = {CpuLevel::sse41};
    o.support = XHAT_BUILD_DIR "/libxhat_ahead.a";
    o.devices = {target};
    return o;
  }

  // On OpenCL the bits that the engine has there, and what the evaluator says. same_bits: not of atomic additions, which come in
  // any order.
  void as_the_engine(const std::string& text, const std::vector<DimValues>& calls, bool same_bits = true, double tolerance = 1e-4) {
    AheadOptions o = options(Target::opencl);
    for (const auto& [name, value] : calls[0]) o.sizes[name] = {value};  // of the CPU, which is not asked
    for (const DimValues& dims : calls)
      for (const auto& [name, value] : dims) {
        auto& list = o.device_sizes[name];
        if (std::ranges::find(list, value) == list.end()) list.push_back(value);
      }
    as_the_engine(text, o, calls, same_bits, tolerance);
  }

  // One library for all batch sizes.
  void any_batch(const std::string& text, const DimValues& given, const std::vector<int64_t>& batches, bool same_bits = true) {
    AheadOptions o = options(Target::opencl);
    for (const auto& [name, value] : given) o.sizes[name] = {value};
    std::vector<DimValues> calls;
    for (int64_t n : batches) {
      calls.push_back(given);
      calls.back()["N"] = n;
    }
    as_the_engine(text, o, calls, same_bits);
  }

  void as_the_engine(const std::string& text, const AheadOptions& o, const std::vector<DimValues>& calls, bool same_bits,
                     double tolerance = 1e-4) {
    SCOPED_TRACE(text);
    void* queue = cl_->queue();
    Program op = parse_op(text), all = gradient(op);
    build_ahead(op, o, path("lib"));
    Program derived = derive(op, o.compile).program;
    Loaded library(path("lib"), op.name, derived, copies_++, "opencl");
    CompileOptions engine;
    engine.target = Target::opencl;
    CompiledOp compiled = compile(op, engine);
    DeviceDriver& driver = runtime::device_driver(Target::opencl, queue);
    for (const DimValues& dims : calls) {
      DimValues solved = solve_dims(derived, {}, dims);
      Arrays data = random_data(all, solved, 3);
      Arrays results = library.run_on(driver, queue, data, solved);
      Arrays expected = run_both(compiled, data, solved);
      for (auto& [name, array] : run_infer(compiled, data, solved)) expected["infer " + name] = array;
      if (same_bits) {
        EXPECT_EQ(bits_differ(expected, results), "") << dims_text(dims);
      }
      std::erase_if(results, [](const auto& r) { return r.first.starts_with("infer "); });
      EXPECT_EQ(difference(evaluate_on(all, data, solved), results, tolerance), "") << dims_text(dims);
      EXPECT_EQ(library.release(queue), kOk);  // the next call allocates anew
    }
  }
};

TEST_F(AheadGpu, NormsWithAScalarByValue) {
  as_the_engine(R"(op bn(x: f32[N,C,H,W], g: f32[C], b: f32[C], eps: f32) -> (y) {
    mu[c] = mean(n,h,w: x[n,c,h,w]); v[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
    y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(v[c] + abs(eps)) * g[c] + b[c] })",
                {{{"N", 8}, {"C", 3}, {"H", 20}, {"W", 36}}, {{"N", 1}, {"C", 3}, {"H", 20}, {"W", 36}}});
}

std::string dense(const std::string& constant) {
  return "op dense(x: f32[N,I]" + constant + ", w: f32[I,O]" + constant + R"(, b: f32[O]) -> (y, total) {
    h[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]); m[n] = max(o: h[n,o]); e[n,o] = exp(h[n,o] - m[n])
    y[n,o] = e[n,o] / sum(k: e[n,k]); total = sum(n,o: y[n,o]^2) })";
}
const DimValues kDenseSizes = {{"N", 66}, {"I", 40}, {"O", 130}};

TEST_F(AheadGpu, RowsProductsAndSumsAcrossBlocks) { as_the_engine(dense(" const"), {kDenseSizes}); }

// What the gradients' products both read is computed once, as the engine does at these sizes (fusion/plan/for_sizes.h).
TEST_F(AheadGpu, ProductsThatReadTheSame) { as_the_engine(dense(""), {kDenseSizes}); }

TEST_F(AheadGpu, PhasesAndTables) {
  const std::string to_odd = "op to_odd(x: f32[N,C,T], w: f32[C,K,3]) -> (y) { "
                             "y[n,k,t in 0..2*T-1] = sum(c,r if (t+1-r)%2 == 0: x[n,c,(t+1-r)/2 else 0]*w[c,k,r]) }";
  as_the_engine(to_odd, {{{"N", 5}, {"C", 6}, {"K", 7}, {"T", 24}}});
  any_batch(to_odd, {{"C", 6}, {"K", 7}, {"T", 24}}, {1, 33});
  as_the_engine("op rotated(x: f32[N,T,K]) -> (y) { y[n,t,k] = x[n,t,k] * cos(f32(t) * exp(-0.2*f32(k))) }",
                {{{"N", 40}, {"T", 32}, {"K", 48}}});
}

// A scalar that forward has computed, and its gradient, lie on the device.
TEST_F(AheadGpu, ScalarResults) {
  as_the_engine(R"(op loss(x: f32[N,C], label: i32[N] const) -> (loss) {
    m[n] = max(c: x[n,c]); z[n] = log(sum(c: exp(x[n,c] - m[n]))) + m[n]
    loss = mean(n: z[n] - x[n,label[n]]) })",
                {{{"N", 130}, {"C", 57}}}, false);
  as_the_engine("op norm(x: f32[N], eps: f32) -> (y, total) { total = sum(i: x[i]^2) + eps; y[i] = x[i] / sqrt(abs(total)) }",
                {{{"N", 5001}}});
}

TEST_F(AheadGpu, OtherTypes) {
  as_the_engine(R"(op types(x: f16[N,D], g: bf16[D], k: i64 const, s: f16, t: bf16, on: bool const, mask: bool[N] const,
                            a: f64[D]) -> (y, z) {
    y[n,d] = if mask[n] && on then x[n,d] * g[d] * s else x[n,d] + t
    z[d] = sum(n: a[d] * x[n,d]) + f64(k) })",
                {{{"N", 33}, {"D", 12}}}, true, 1e-2);
}

TEST_F(AheadGpu, EmptyArrays) {
  as_the_engine("op rows(x: f32[N,D]) -> (y, best) { y[n] = sum(d: x[n,d]^2); best[n] = argmax(d: x[n,d]) }",
                {{{"N", 0}, {"D", 8}}, {{"N", 3}, {"D", 8}}});
}

const char kSoftmax[] = R"(op softmax(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) })";

TEST_F(AheadGpu, WhatIsWrongIsSaidBeforeALaunch) {
  OpenCl other;
  void* queue = cl_->queue();
  AheadOptions o = options(Target::opencl);
  o.sizes = {{"D", {70}}};
  o.device_sizes = {{"N", {8, 9}}};
  Program op = parse_op(kSoftmax), derived = derive(op, o.compile).program;
  build_ahead(op, o, path("lib"));
  Loaded library(path("lib"), op.name, derived, 0, "opencl");
  DeviceDriver& driver = runtime::device_driver(Target::opencl, queue);
  DeviceDriver& elsewhere = runtime::device_driver(Target::opencl, other.queue());
  constexpr int64_t kBytes = 8 * 70 * 4;
  DeviceMemory x = driver.allocate(kBytes), y = driver.allocate(kBytes), small = driver.allocate(kBytes - 4);
  DeviceMemory foreign = elsewhere.allocate(kBytes);
  std::vector<float> ones(8 * 70, 1), on_host(8 * 70), read(8 * 70);
  driver.upload(queue, x, ones.data(), kBytes);
  driver.upload(queue, y, ones.data(), kBytes);
  auto pointer = [](DeviceMemory m) { return reinterpret_cast<void*>(m); };
  auto call = [&](int64_t n, void* stream, void* in, void* out) {
    int status = library.side(0, {n, 70}, {stream, in, out});
    return std::to_string(status) + " " + library.message();
  };
  auto starts = [&](const std::string& said, int status, const std::string& words) {
    EXPECT_EQ(said.substr(0, 2), std::to_string(status) + " ");
    EXPECT_HAS(said, words);
  };
  starts(call(10, queue, pointer(x), pointer(y)), kBadSize, "not compiled for N = 10, D = 70 on opencl, but for N = 8 or 9, D = 70");
  starts(call(8, nullptr, pointer(x), pointer(y)), kBadArgument, "the stream is null");
  starts(call(8, queue, nullptr, pointer(y)), kBadArgument, "x is null; it takes 2240 bytes");
  starts(call(8, queue, pointer(x), pointer(x)), kBadArgument, "y overlaps x");
  starts(call(8, queue, on_host.data(), pointer(y)), kBadPointer, "x is no memory of the device");
  starts(call(8, queue, pointer(foreign), pointer(y)), kBadPointer, "x belongs to another context");
  starts(call(8, queue, pointer(small), pointer(y)), kBadPointer, "x is too small; it takes 2240 bytes");
  driver.download(queue, read.data(), y, kBytes);
  EXPECT_EQ(read, ones) << "nothing was written";
  EXPECT_EQ(library.stash_bytes({-1, 70}), 0u);
  EXPECT_EQ(library.side(0, {8, 70}, {queue, pointer(x), pointer(y)}), kOk) << library.message();
  driver.download(queue, read.data(), y, kBytes);
  EXPECT_NEAR(read[5], 1 / 70.0f, 1e-6f);
  // The backward without its gradient: it is computed for nobody.
  EXPECT_EQ(library.side(2, {8, 70}, {queue, pointer(y), pointer(x), nullptr, nullptr}), kOk) << library.message();
  for (DeviceMemory m : {x, y, small}) driver.release(m);
  elsewhere.release(foreign);
}

TEST_F(AheadGpu, IndicesInTheDataAreLookedAtFirst) {
  void* queue = cl_->queue();
  AheadOptions o = options(Target::opencl);
  o.sizes = {{"V", {50}}, {"D", {8}}, {"N", {6}}, {"L", {3}}};
  Program op = parse_op("op bag(t: f32[V,D], ids: i32[N,L] const) -> (y) { y[n,d] = sum(l: t[ids[n,l],d]) }"), all = gradient(op);
  Program derived = derive(op, o.compile).program;
  build_ahead(op, o, path("lib"));
  Loaded library(path("lib"), op.name, derived, 0, "opencl");
  DimValues dims = {{"V", 50}, {"D", 8}, {"N", 6}, {"L", 3}};
  DeviceDriver& driver = runtime::device_driver(Target::opencl, queue);
  Arrays data = random_data(all, dims, 3), results = library.run_on(driver, queue, data, dims);
  std::erase_if(results, [](const auto& r) { return r.first.starts_with("infer "); });
  EXPECT_EQ(difference(evaluate_on(all, data, dims), results, 1e-4), "");

  constexpr int64_t kTable = 50 * 8 * 4, kIds = 6 * 3 * 4, kRows = 6 * 8 * 4;
  DeviceMemory t = driver.allocate(kTable), ids = driver.allocate(kIds), y = driver.allocate(kRows);
  std::vector<int32_t> wrong(6 * 3, 1);
  wrong[7] = 50;
  std::vector<float> untouched(6 * 8, -1), read(6 * 8);
  driver.upload(queue, ids, wrong.data(), kIds);
  driver.upload(queue, y, untouched.data(), kRows);
  auto pointer = [](DeviceMemory m) { return reinterpret_cast<void*>(m); };
  EXPECT_EQ(library.side(0, {50, 8, 6, 3}, {queue, pointer(t), pointer(ids), pointer(y)}), kBadData);
  EXPECT_HAS(library.message(), "an index into t is out of range");
  driver.download(queue, read.data(), y, kRows);
  EXPECT_EQ(read, untouched);
  // Who says that they are in range does not wait: the queue is held up when the call returns.
  EXPECT_EQ(library.function<int(int)>("bag_opencl_trust_data")(1), kOk);
  std::vector<int32_t> right(6 * 3, 1);
  std::vector<float> table(50 * 8, 2);
  driver.upload(queue, ids, right.data(), kIds);
  driver.upload(queue, t, table.data(), kTable);
  void* event = cl_->hold(queue);
  std::promise<void> returned;
  auto in_time = std::async(std::launch::async, [&] {
    bool fine = returned.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    cl_->let_go(event);
    return fine;
  });
  EXPECT_EQ(library.side(0, {50, 8, 6, 3}, {queue, pointer(t), pointer(ids), pointer(y)}), kOk) << library.message();
  returned.set_value();
  EXPECT_TRUE(in_time.get());
  driver.download(queue, read.data(), y, kRows);
  EXPECT_EQ(read, std::vector<float>(6 * 8, 6));
  for (DeviceMemory m : {t, ids, y}) driver.release(m);
}

// Each with a queue of its own, then all on one.
TEST_F(AheadGpu, AnyNumberOfThreads) {
  AheadOptions o = options(Target::opencl);
  o.sizes = {{"N", {40}}, {"D", {70}}};
  Program op = parse_op(kSoftmax), all = gradient(op), derived = derive(op, o.compile).program;
  build_ahead(op, o, path("lib"));
  Loaded library(path("lib"), op.name, derived, 0, "opencl");
  DimValues dims = {{"N", 40}, {"D", 70}};
  void* shared = cl_->queue();
  DeviceDriver& driver = runtime::device_driver(Target::opencl, shared);
  for (bool own : {true, false}) {
    std::vector<std::thread> threads;
    std::vector<std::string> wrong(4);
    std::vector<void*> queues;
    for (int t = 0; t < 4; ++t) queues.push_back(own ? cl_->queue() : shared);
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        Arrays data = random_data(all, dims, t + 1), expected = evaluate_on(all, data, dims);
        for (int i = 0; i < 10 && wrong[t].empty(); ++i) {
          Arrays results = library.run_on(driver, queues[t], data, dims);
          std::erase_if(results, [](const auto& r) { return r.first.starts_with("infer "); });
          wrong[t] = difference(expected, results, 1e-4);
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& w : wrong) EXPECT_EQ(w, "") << (own ? "own queues" : "one queue");
  }
}

// A library with code for CUDA, where there is no driver: it loads, its calls for the CPU work, those for CUDA say what is missing.
TEST_F(AheadGpu, WithoutADriver) {
  AheadOptions o = options(Target::cuda);
  o.sizes = {{"D", {70}}};
  o.device_sizes = {{"N", {8}}};
  Program op = parse_op(kSoftmax), all = gradient(op), derived = derive(op, o.compile).program;
  AheadLibrary made = build_ahead(op, o, path("lib"));
  EXPECT_GT(made.device_kernels, 0u);
  DimValues dims = {{"N", 8}, {"D", 70}};
  Environment none("XHAT_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  Loaded cpu(path("lib"), op.name, derived, 0), cuda(path("lib"), op.name, derived, 1, "cuda");
  Arrays data = random_data(all, dims, 3), results = cpu.run(data, dims);
  std::erase_if(results, [](const auto& r) { return r.first.starts_with("infer "); });
  EXPECT_EQ(difference(evaluate_on(all, data, dims), results, 1e-4), "");
  std::vector<float> memory(8 * 70);
  EXPECT_EQ(cuda.side(0, {8, 70}, {nullptr, memory.data(), memory.data()}), kNoDevice);
  EXPECT_HAS(cuda.message(), "install an NVIDIA driver");
}

// Of the GPU alone: on the CPU, N is given, and D may be open.
TEST_F(AheadGpu, WhatIsNoBatchMustBeGiven) {
  AheadOptions o = options(Target::cuda);
  o.sizes = {{"N", {70}}, {"D", {64}}};
  o.device_sizes = {{"N", {}}};
  auto refused = [&](const std::string& says) {
    try {
      build_ahead(parse_op(kSoftmax), o, path("lib"));
      ADD_FAILURE() << says;
    } catch (const Error& e) {
      EXPECT_HAS(e.message(), says);
    }
  };
  refused("dim N has no value");
  o.sizes = {{"N", {70}}};
  o.device_sizes = {};
  refused("the size D must be given, as --gpu-dims D=VALUE");
}

const std::vector<int64_t> kBatches = {0, 1, 3, 16, 33, 1000};

TEST_F(AheadGpu, RowsOfAnyBatch) { any_batch(kSoftmax, {{"D", 70}}, kBatches); }

TEST_F(AheadGpu, NormsOfAnyBatch) {
  any_batch(R"(op bn(x: f32[N,C,H,W], g: f32[C], b: f32[C], eps: f32) -> (y) {
    mu[c] = mean(n,h,w: x[n,c,h,w]); v[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
    y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(v[c] + abs(eps)) * g[c] + b[c] })",
            {{"C", 5}, {"H", 6}, {"W", 7}}, {1, 3, 33, 257});
}

TEST_F(AheadGpu, ProductsOfAnyBatch) {
  any_batch("op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]) }", {{"I", 40}, {"O", 48}},
            kBatches);
}

TEST_F(AheadGpu, VectorsOfAnyLength) {
  any_batch(
      "op huber(x: f32[N], t: f32[N]) -> (y, total) { d[i] = x[i] - t[i]; y[i] = if abs(d[i]) < 1 then d[i]^2/2 else abs(d[i]) - 0.5; "
      "total = sum(i: y[i]) }",
      {}, {0, 3, 255, 1024, 70001});
}

TEST_F(AheadGpu, GathersAndScattersOfAnyBatch) {
  any_batch("op bag(t: f32[V,D], ids: i32[N,L] const) -> (y) { y[n,d] = sum(l: t[ids[n,l],d]) }", {{"V", 19}, {"D", 12}, {"L", 3}},
            kBatches, false);
}

}  // namespace
}  // namespace xhat::ahead_gpu_test
