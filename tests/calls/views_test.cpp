// What callers hand over with little to write: containers whose lengths are checked, strides in braces, mdspan, halves, arguments that
// backward finds again; threads that change; what XHAT=compiles says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/cpu/kernel_cache.h"
#include "runtime/mdspan.h"
#include "tests/helpers/error_of.h"

namespace xhat::views_test {
namespace {

using testing::error_of;

TEST(Views, ContainersAreCheckedForTheirLength) {
  std::vector<float> v(6);
  const std::vector<float> read_only(6);
  std::array<double, 4> a = {};
  const std::vector<int64_t> shape = {2, 3};
  EXPECT_TRUE(TensorView(v, {2, 3}).writable);
  EXPECT_FALSE(TensorView(read_only, shape).writable);
  EXPECT_EQ(TensorView(v).rank, 1);
  EXPECT_EQ(TensorView(a, {2, 2}).type, DType::f64);
  EXPECT_EQ(TensorView(std::span(v).first(4), {2, 2}).data, v.data());
  for (const auto& said : {error_of([&] { TensorView(v, {2, 4}); }), error_of([&] { TensorView(std::span(v), {2, 4}); })})
    EXPECT_EQ(said, "a tensor of shape [2,4] has 8 elements, but the memory given for it has 6");
  EXPECT_EQ(error_of([&] { TensorView(v, {5}); }), "a tensor of shape [5] has 5 elements, but the memory given for it has 6");
  EXPECT_EQ(error_of([&] { TensorView(std::vector<float>().empty() ? std::span<float>() : std::span(v), {0, 4}); }), "no error");
  static_assert(!std::is_constructible_v<TensorView, std::vector<float>>, "a temporary vector would be gone before the call");
}

TEST(Views, StridesInBraces) {
  std::vector<float> v(6);
  const TensorView columns(v, {3, 2}, {1, 3});
  EXPECT_EQ(columns.strides[1], 3);
  EXPECT_EQ(TensorView(v.data(), {2, 2}, {3, 1}).strides[0], 3);
  EXPECT_EQ(TensorView(v, {2, 2}, {3, 1}).elements(), 4);  // shorter than the memory
  EXPECT_EQ(error_of([&] {
              TensorView(v, {3, 2}, {3, 1});
            }),
            "a tensor of shape [3,2] with strides [3,1] reaches over 8 elements, but the memory given for it has 6");
}

TEST(Views, Mdspan) {
  std::vector<float> v = {0, 1, 2, 3, 4, 5};
  using Matrix = dextents<int64_t, 2>;
  const mdspan<float, Matrix> rows(v.data(), 2, 3);
  const mdspan<const float, Matrix, layout_left> columns(v.data(), Matrix(3, 2));
  EXPECT_EQ(rows(1, 2), 5);
  EXPECT_EQ(columns(2, 1), 5);
  EXPECT_EQ(columns(1, 0), 1);
  EXPECT_EQ(rows.size(), 6U);
  CompiledOp op = compile(parse_op("op f(x: f32[N,D], z: f32[D,N]) -> (y) { y[n,d] = x[n,d] - z[d,n] }"));
  std::vector<float> y(6, 1);
  op.infer({{"x", view(rows)}, {"z", view(columns)}, {"y", {y, {2, 3}}}});
  EXPECT_EQ(y, std::vector<float>(6, 0));
  EXPECT_FALSE(view(columns).writable);
}

TEST(Views, ElementsOfSixteenBits) {
  std::vector<bfloat16> x = {1.5F, -2.0F, 0.1F};
  std::vector<float16> h = {1.5F, -2.0F, 0.1F};
  EXPECT_EQ(float(x[2]), 0.10009765625F);  // 8 digits of 2
  EXPECT_EQ(float(h[2]), 0.0999755859375F);
  CompiledOp op = compile(parse_op("op f(x: bf16[N], h: f16[N]) -> (y, z) { y[i] = x[i] * 2\n z[i] = h[i] * 2 }"));
  std::vector<bfloat16> y(3);
  std::vector<float16> z(3);
  op.infer({{"x", x}, {"h", h}, {"y", y}, {"z", z}});
  EXPECT_EQ(float(y[0]), 3);
  EXPECT_EQ(float(z[1]), -4);
}

TEST(Backward, FindsWhatForwardWasGiven) {
  CompiledOp op = compile(parse_op("op f(x: f32[N], s: f32) -> (y) { y[i] = s * exp(x[i]) }"));
  std::vector<float> x = {0, 1}, y(2), dy = {1, 1}, dx(2), dx_named(2);
  float ds = 0, ds_named = 0;
  auto scalar = [](float v) { return v; };
  Stash stash;
  {
    float s = scalar(2);  // gone before the backward
    op.forward({{"x", x}, {"s", {&s, {}}}, {"y", y}}, stash);
    s = 100;
  }
  op.backward({{"dy", dy}, {"grad_x", dx}, {"grad_s", {&ds, {}}}}, stash);
  float s = 2;
  op.backward({{"x", x}, {"s", {&s, {}}}, {"y", y}, {"dy", dy}, {"grad_x", dx_named}, {"grad_s", {&ds_named, {}}}}, stash);
  EXPECT_EQ(dx, dx_named);
  EXPECT_EQ(ds, ds_named);
  EXPECT_FLOAT_EQ(dx[1], 2 * std::exp(1.0F));
  // Another place with other values is taken in its stead.
  std::vector<float> elsewhere = {4, 6};
  op.backward({{"y", elsewhere}, {"dy", dy}, {"grad_x", dx}}, stash);
  for (const std::string& kept : op.kept(stash))
    if (kept == "y") {
      EXPECT_EQ(dx, elsewhere);
    }
  EXPECT_EQ(error_of([&] { op.backward({{"grad_x", dx}}, stash); }), "f: 'dy' is missing");
}

TEST(Backward, ALossHasTheCotangentOne) {
  for (const char* type : {"f32", "f64"}) {
    const std::string t = type;
    CompiledOp op = compile(parse_op("op f(x: " + t + "[N]) -> (loss) { loss = sum(i: x[i]^2) }"));
    std::vector<float> x32 = {1, 2, 3}, dx32(3);
    std::vector<double> x64 = {1, 2, 3}, dx64(3);
    double loss64 = 0;
    float loss32 = 0;
    const bool single = t == "f32";
    Stash stash = op.forward(
        {{"x", single ? TensorView(x32) : TensorView(x64)}, {"loss", single ? TensorView(&loss32, {}) : TensorView(&loss64, {})}});
    op.backward({{"grad_x", single ? TensorView(dx32) : TensorView(dx64)}}, stash);
    EXPECT_EQ(single ? dx32[2] : dx64[2], 6) << t;
  }
  // Of two outputs, which is the loss nobody knows.
  CompiledOp two = compile(parse_op("op f(x: f32[N]) -> (a, b) { a = sum(i: x[i])\n b = sum(i: x[i]^2) }"));
  std::vector<float> x = {1, 2}, dx(2);
  float a = 0, b = 0;
  Stash stash = two.forward({{"x", x}, {"a", {&a, {}}}, {"b", {&b, {}}}});
  EXPECT_EQ(error_of([&] { two.backward({{"grad_x", dx}}, stash); }), "f: 'da' is missing");
}

TEST(Backward, OfAProgramWithALoopFindsThem) {
  CompiledOp op =
      compile(parse_op("prog p(x: f32[T,N], h: f32[N]) -> (loss) {\n  var s = h\n  for t in 0..T {\n    s = tanh(s * x[t])\n  }\n"
                       "  var loss = 0.0\n  loss = sum(i: s[i])\n}"));
  ASSERT_TRUE(op.program().steps);
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, h = {0.5F, -0.25F}, named(2), found(2);
  float loss = 0, one = 1;
  Stash stash = op.forward({{"x", {x, {3, 2}}}, {"h", h}, {"loss", {&loss, {}}}});
  op.backward({{"grad_h", found}}, stash);
  stash = op.forward({{"x", {x, {3, 2}}}, {"h", h}, {"loss", {&loss, {}}}});
  op.backward({{"x", {x, {3, 2}}}, {"h", h}, {"dloss", {&one, {}}}, {"grad_h", named}}, stash);
  EXPECT_EQ(found, named);
  EXPECT_NE(found[0], 0);
  op.set_threads(2);
  stash = op.forward({{"x", {x, {3, 2}}}, {"h", h}, {"loss", {&loss, {}}}});
  op.backward({{"grad_h", found}}, stash);
  EXPECT_EQ(found, named);
}

TEST(ThreadCount, ChangesWithoutCompiling) {
  CompileOptions options;
  options.threads = 1;
  options.disk_cache = false;
  options.cache = std::make_shared<runtime::KernelCache>();
  CompiledOp op = compile(parse_op("op f(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]) }"), options);
  std::vector<float> x(64 * 64, 1), y(64);
  op.infer({{"x", {x, {64, 64}}}, {"y", y}});
  const size_t kernels = options.cache->size();
  for (int threads : {2, 0, 1}) {
    op.set_threads(threads);
    std::fill(y.begin(), y.end(), 0.0F);
    op.infer({{"x", {x, {64, 64}}}, {"y", y}});
    EXPECT_EQ(y, std::vector<float>(64, 64));
    EXPECT_EQ(options.cache->size(), kernels);
  }
  for (int wrong : {-1, 1000000}) {
    EXPECT_NE(error_of([&] { op.set_threads(wrong); }).find("threads: "), std::string::npos);
    EXPECT_TRUE(error_of([&] {
                  compile(parse_op("op f(x: f32) -> (y) { y = x }"), {.threads = wrong});
                }).starts_with("f: CompileOptions::threads: " + std::to_string(wrong) + " threads: "));
  }
}

TEST(Compiles, AreLoggedWithTheirCause) {
  setenv("XHAT", "compiles", 1);
  CompileOptions options;
  options.disk_cache = false;
  options.cache = std::make_shared<runtime::KernelCache>();
  size_t told = 0, all = 0;
  options.on_compile = [&](size_t ready, size_t of) { told = std::max(told, ready), all = of; };
  CompiledOp op = compile(parse_op("op f(x: f32[N,D]) -> (y) { y[n,d] = x[n,d] * 3 }"), options);
  unsetenv("XHAT");
  std::vector<float> x(100, 1), y(100);
  ::testing::internal::CaptureStderr();
  op.infer({{"x", {std::span(x).first(12), {3, 4}}}, {"y", {std::span(y).first(12), {3, 4}}}});
  op.infer({{"x", {std::span(x).first(12), {3, 4}}}, {"y", {std::span(y).first(12), {3, 4}}}});  // nothing new
  op.infer({{"x", {std::span(x).first(20), {4, 5}}}, {"y", {std::span(y).first(20), {4, 5}}}});
  op.infer({{"x", {x, {4, 5}, {10, 1}}}, {"y", {std::span(y).first(20), {4, 5}}}});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told, 1U);
  EXPECT_EQ(all, 1U);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
  for (const char* part : {"xhat: f_infer at D = 4, N = 3: compiled 1 kernel, loaded 0, had 0 in memory, ", " ms: first call\n",
                           "new sizes: D was 4, N was 3\n", "a tensor with gaps, or in place of another, where there was none\n"})
    EXPECT_NE(said.find(part), std::string::npos) << said << "\nlacks " << part;
}

}  // namespace
}  // namespace xhat::views_test
