// Code for CUDA in libraries compiled ahead of time, on a driver of ours that has no GPU (tests/fake_cuda): what is launched on
// which memory and stream, what is allocated when, graphs, and what is said of wrong calls.
#include <unistd.h>

#include <algorithm>

#include "runtime/ahead/build/ahead.h"
#include "tests/helpers/ahead_library.h"
#include "tests/helpers/fake_cuda.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::ahead_cuda_test {
namespace {

using namespace xhat::testing;

constexpr int kOk = 0, kBadArgument = 1, kNoMemory = 4, kNoDevice = 7, kBadPointer = 8, kDeviceFailed = 9;  // of the generated headers

// Sums across blocks, so that there are temporaries, and a scalar that is passed by value.
const char kNorm[] = R"(op norm(x: f32[N,C], g: f32[C], eps: f32 const) -> (y) {
  squares = sum(n,c: x[n,c]^2); y[n,c] = x[n,c] / sqrt(squares + eps) * g[c] })";
constexpr int64_t kN = 4096, kC = 32, kLarge = kN * kC * 4, kSmall = kC * 4;

struct Built {
  fs::path folder = fs::temp_directory_path() / ("xhat-ahead-cuda-" + std::to_string(getpid()));
  Program derived;
  Built() {
    AheadOptions o;
    o.levels = {CpuLevel::sse41};
    o.support = XHAT_BUILD_DIR "/libxhat_ahead.a";
    o.devices = {Target::cuda};
    o.sizes = {{"C", {kC}}};
    Program op = parse_op(kNorm);
    derived = derive(op, o.compile).program;
    build_ahead(op, o, folder.string());
  }
  ~Built() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

class AheadCuda : public Tool {
 protected:
  void SetUp() override {
    Tool::SetUp();
    driver_.reset();
    driver_.make_current(nullptr);
    static const Built built;  // once, for all tests
    derived_ = built.derived;
    lib_ = built.folder.string();
    library_ = load();
    context_ = driver_.primary(0);
    stream_ = driver_.new_stream(context_);
    eps_ = 1e-5f;
    for (uint64_t* p : {&x_, &y_, &dy_, &dx_}) *p = driver_.allocate(context_, kLarge);
    for (uint64_t* p : {&g_, &dg_}) *p = driver_.allocate(context_, kSmall);
    stash_ = driver_.allocate(context_, static_cast<int64_t>(library_->stash_bytes(dims_)));
  }
  void TearDown() override {
    library_->release(stream_);
    EXPECT_EQ(state_.mistakes, std::vector<std::string>());
    Tool::TearDown();
  }

  std::unique_ptr<Loaded> load() { return std::make_unique<Loaded>(lib_, "norm", derived_, copies_++, "cuda"); }
  static void* at(uint64_t p) { return reinterpret_cast<void*>(p); }
  int forward(void* stream) { return library_->side(1, dims_, {stream, at(x_), at(g_), &eps_, at(y_), at(stash_)}); }
  int backward(void* stream) { return library_->side(2, dims_, {stream, at(x_), at(g_), &eps_, at(dy_), at(dx_), at(dg_), at(stash_)}); }
  int infer(void* stream, uint64_t x, uint64_t y) { return library_->side(0, dims_, {stream, at(x), at(g_), &eps_, at(y)}); }

  // What launches since `first` take that is not the caller's: temporaries.
  std::vector<uint64_t> not_ours(size_t first = 0) const {
    const uint64_t large = kLarge, small = kSmall;
    const std::vector<std::pair<uint64_t, uint64_t>> ours = {
        {x_, large}, {y_, large}, {dy_, large}, {dx_, large}, {g_, small}, {dg_, small}, {stash_, library_->stash_bytes(dims_)}};
    std::vector<uint64_t> others;
    for (size_t i = first; i < state_.launches.size(); ++i)
      for (uint64_t p : state_.launches[i].pointers)
        if (std::ranges::none_of(ours, [&](auto& o) { return o.first <= p && p < o.first + o.second; })) others.push_back(p);
    std::ranges::sort(others);
    others.erase(std::ranges::unique(others).begin(), others.end());
    return others;
  }
  bool takes(uint64_t p) const {
    return std::ranges::any_of(state_.launches, [&](auto& l) { return std::ranges::find(l.pointers, p) != l.pointers.end(); });
  }

  fake_cuda::Control& driver_ = fake_cuda_driver();
  fake_cuda::State& state_ = *driver_.state;
  Program derived_;
  std::string lib_;
  std::unique_ptr<Loaded> library_;
  static inline int copies_ = 0;
  const std::vector<int64_t> dims_ = {kN, kC};
  void *context_ = nullptr, *stream_ = nullptr;
  uint64_t x_, y_, dy_, dx_, g_, dg_, stash_;
  float eps_;
};

TEST_F(AheadCuda, RunsOnTheCallersStreamAndMemory) {
  ASSERT_EQ(forward(stream_), kOk) << library_->message();
  ASSERT_EQ(backward(stream_), kOk) << library_->message();
  ASSERT_FALSE(state_.launches.empty());
  for (const fake_cuda::Launch& l : state_.launches) EXPECT_EQ(l.stream, stream_);
  for (uint64_t p : {x_, y_, dy_, dx_, g_, dg_, stash_}) EXPECT_TRUE(takes(p));
  EXPECT_GT(not_ours().size(), 0u) << "the test wants an op with temporaries";
  EXPECT_GT(state_.modules, 0);
  EXPECT_EQ(state_.copies, 0) << "scalars come with the launches";
  EXPECT_EQ(state_.waits, 0);
}

TEST_F(AheadCuda, TheSecondCallAllocatesNothing) {
  EXPECT_EQ(forward(stream_) + backward(stream_), kOk) << library_->message();
  auto allocations = state_.allocations, modules = state_.modules, questions = state_.questions;
  size_t launches = state_.launches.size();
  std::vector<uint64_t> before = not_ours();
  EXPECT_EQ(questions, 2) << "each call asks once whether the stream is being captured";
  EXPECT_EQ(forward(stream_) + backward(stream_), kOk) << library_->message();
  EXPECT_EQ(state_.allocations, allocations);
  EXPECT_EQ(state_.modules, modules);
  EXPECT_EQ(state_.questions, 2 * questions);
  EXPECT_EQ(state_.launches.size(), 2 * launches);
  EXPECT_EQ(not_ours(launches), before);
}

// One library for all N.
TEST_F(AheadCuda, LargerSizesMakeLargerMemory) {
  constexpr int64_t kFew = 64;
  auto infer_of = [&](int64_t n) {
    EXPECT_EQ(library_->side(0, {n, kC}, {stream_, at(x_), at(g_), &eps_, at(y_)}), kOk) << library_->message();
  };
  const auto at_first = state_.in_use;
  infer_of(kFew);
  auto in_use = state_.in_use, allocations = state_.allocations;
  infer_of(kFew - 1);
  infer_of(1);
  EXPECT_EQ(state_.allocations, allocations);
  infer_of(kN);
  const auto grown = state_.in_use;
  EXPECT_GT(grown, in_use);
  EXPECT_EQ(library_->release(stream_), kOk);
  EXPECT_EQ(state_.in_use, at_first);
  // What a graph uses stays.
  infer_of(kFew);
  driver_.capture(stream_, true);
  infer_of(kFew);
  driver_.capture(stream_, false);
  infer_of(kN);
  EXPECT_EQ(library_->release(stream_), kOk);
  EXPECT_EQ(state_.in_use, at_first);
}

TEST_F(AheadCuda, BlocksFollowTheSizes) {
  auto blocks = [&](int64_t n) {
    const size_t first = state_.launches.size();
    EXPECT_EQ(library_->side(0, {n, kC}, {stream_, at(x_), at(g_), &eps_, at(y_)}), kOk) << library_->message();
    unsigned most = 0;
    for (size_t i = first; i < state_.launches.size(); ++i) most = std::max(most, state_.launches[i].blocks[0]);
    return most;
  };
  EXPECT_EQ(blocks(4095), 512u);  // 16 rows, 16 columns each
  const auto modules = state_.modules;
  EXPECT_EQ(blocks(4080), 510u);
  EXPECT_EQ(blocks(4000), 500u);
  EXPECT_EQ(state_.modules, modules) << "the same code";
}

TEST_F(AheadCuda, StreamsShareNoTemporaries) {
  void* other = driver_.new_stream(context_);
  const auto at_first = state_.in_use;  // by libraries of other tests
  EXPECT_EQ(forward(stream_), kOk) << library_->message();
  std::vector<uint64_t> mine = not_ours();
  size_t launches = state_.launches.size();
  auto modules = state_.modules, in_use = state_.in_use;
  EXPECT_EQ(forward(other), kOk) << library_->message();
  EXPECT_EQ(state_.modules, modules) << "code is loaded once per context";
  for (uint64_t p : not_ours(launches)) EXPECT_FALSE(std::ranges::binary_search(mine, p));
  EXPECT_GT(state_.in_use, in_use);
  EXPECT_EQ(library_->release(other), kOk);
  EXPECT_EQ(state_.in_use, in_use);
  EXPECT_EQ(library_->release(stream_) + library_->release(stream_), kOk);
  EXPECT_EQ(state_.in_use, at_first);
}

TEST_F(AheadCuda, GraphsOfForwardAndBackward) {
  driver_.capture(stream_, true);
  EXPECT_EQ(forward(stream_), kDeviceFailed);
  EXPECT_HAS(library_->message(), "the stream is being captured, and code must be loaded first; make this call once before");
  driver_.capture(stream_, false);
  EXPECT_EQ(forward(stream_) + backward(stream_), kOk) << library_->message();
  void* other = driver_.new_stream(context_);
  driver_.capture(other, true);
  EXPECT_EQ(forward(other), kDeviceFailed);  // the code is there now
  EXPECT_HAS(library_->message(), "and memory for temporaries must be allocated first; make this call once before, with N = 4096, C = 32");
  driver_.capture(other, false);
  size_t launches = state_.launches.size();
  auto allocations = state_.allocations;
  driver_.capture(stream_, true);
  EXPECT_EQ(forward(stream_) + backward(stream_), kOk) << library_->message();
  driver_.capture(stream_, false);
  EXPECT_EQ(state_.launches.size(), 2 * launches);
  for (size_t i = launches; i < state_.launches.size(); ++i) EXPECT_TRUE(state_.launches[i].captured);
  EXPECT_EQ(state_.allocations, allocations);
  EXPECT_EQ(state_.waits, 0);
}

TEST_F(AheadCuda, GradientsThatNobodyWants) {
  EXPECT_EQ(forward(stream_), kOk) << library_->message();
  dx_ = 0;
  EXPECT_EQ(backward(stream_), kOk) << library_->message();
  auto allocations = state_.allocations;
  EXPECT_EQ(backward(stream_), kOk) << library_->message();
  EXPECT_EQ(state_.allocations, allocations);
}

TEST_F(AheadCuda, PointersAreLookedAt) {
  std::vector<float> host(kN * kC);
  uint64_t managed = driver_.allocate_managed(context_, kLarge), far = driver_.allocate(driver_.primary(1), kLarge);
  uint64_t apart = driver_.allocate(driver_.new_context(0), kLarge);
  auto says = [&](int status, int expected, const std::string& words) {
    EXPECT_EQ(status, expected);
    if (expected != kOk) {
      EXPECT_HAS(library_->message(), words);
    }
  };
  says(infer(stream_, managed, y_), kOk, "");
  size_t launches = state_.launches.size();
  const auto on_host = reinterpret_cast<uint64_t>(host.data());
  says(infer(stream_, on_host, y_), kBadPointer, "x is no memory of the device that the stream is of; copy it there");
  says(infer(stream_, x_, on_host), kBadPointer, "y is no memory of the device");
  says(infer(stream_, far, y_), kBadPointer, "x lies on another device");
  says(infer(stream_, apart, y_), kBadPointer, "x belongs to another context");
  says(infer(stream_, x_ + 4, y_), kBadArgument, "x is not aligned to 16 bytes");
  says(infer(stream_, x_, x_), kBadArgument, "y overlaps x in memory");
  says(infer(stream_, x_, 0), kBadArgument, "y is null");
  says(infer(at(0x1234), x_, y_), kDeviceFailed, "CUDA_ERROR_INVALID_HANDLE");
  EXPECT_EQ(state_.launches.size(), launches);
}

TEST_F(AheadCuda, WhatTheDriverSays) {
  state_.memory = 0;
  EXPECT_EQ(backward(stream_), kNoMemory);
  EXPECT_HAS(library_->message(), "out of memory");
  state_.memory = int64_t{1} << 30;
  EXPECT_EQ(backward(stream_), kOk) << library_->message();
  state_.fail_launch = 700;
  EXPECT_EQ(backward(stream_), kDeviceFailed);
  EXPECT_HAS(library_->message(), "launching ");
  state_.fail_launch = 0;
  // Another copy of the library looks for a driver of its own.
  EXPECT_EQ(library_->release(stream_), kOk);
  state_.devices = 0;
  library_ = load();
  EXPECT_EQ(forward(nullptr), kNoDevice);
  EXPECT_HAS(library_->message(), "no device found");
}

}  // namespace
}  // namespace xhat::ahead_cuda_test
