// Outputs given the memory of inputs: where that works the bits are those of outputs with memory of their own; where it cannot,
// the message says why, and nothing is written.
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/call/compile.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::write_over_test {
namespace {

using namespace xhat::testing;

const char* const kAdam = R"(
op adam(p: f32[N] const, g: f32[N] const, m: f32[N] const, v: f32[N] const) -> (p1, m1, v1) {
  m1[i] = 0.9*m[i] + 0.1*g[i]
  v1[i] = 0.999*v[i] + 0.001*g[i]*g[i]
  p1[i] = p[i] - 1e-3 * m1[i] / (sqrt(v1[i]) + 1e-8)
}
)";

struct Case {
  const char* name;
  const char* text;
  DimValues dims;
  std::map<std::string, std::string> over;  // by output
};

std::vector<Case> cases() {
  return {
      {"adam", kAdam, {{"N", 100'003}}, {{"p1", "p"}, {"m1", "m"}, {"v1", "v"}}},
      {"adam_of_few", kAdam, {{"N", 7}}, {{"p1", "p"}, {"m1", "m"}, {"v1", "v"}}},
      {"one_of_three", kAdam, {{"N", 40'000}}, {{"m1", "m"}}},
      {"swapped",
       "op f(x: f32[N], z: f32[N]) -> (y, w) { y[i] = 2*z[i]; w[i] = 3*x[i] + z[i] }", {{"N", 50'001}}, {{"y", "x"}, {"w", "z"}}},
      {"past_the_cache", "op f(x: f32[N]) -> (y) { y[i] = 2*x[i] + 1 }", {{"N", 12 << 20}}, {{"y", "x"}}},
      {"rows", "op f(x: f32[N,C], b: f32[C]) -> (y) { y[n,c] = max(x[n,c] + b[c], 0.0) }", {{"N", 301}, {"C", 97}}, {{"y", "x"}}},
      {"images", "op f(x: f64[N,C,H,W], b: f64[C]) -> (y) { y[n,c,h,w] = x[n,c,h,w] * b[c] }",
       {{"N", 5}, {"C", 6}, {"H", 17}, {"W", 23}}, {{"y", "x"}}},
      {"halves", "op f(x: f16[N]) -> (y) { y[i] = x[i] * 0.5 }", {{"N", 9'999}}, {{"y", "x"}}},
      {"integers", "op f(x: i32[N]) -> (y) { y[i] = x[i] * 3 + 1 }", {{"N", 9'999}}, {{"y", "x"}}},
      {"not_read", "op f(x: f32[N], z: f32[N] const) -> (y) { y[i] = 2*x[i] + 0*z[i] }", {{"N", 5'000}}, {{"y", "z"}}},
      {"one_element", "op f(x: f32[N]) -> (y) { y[i] = x[i] + 1 }", {{"N", 1}}, {{"y", "x"}}},
      {"two_arrays", "op f(x: f32[N], z: f32[M]) -> (y, w) { y[i] = 2*x[i]; w[j] = z[j] + 1 }", {{"N", 40'000}, {"M", 70'000}},
       {{"y", "x"}, {"w", "z"}}},
      // What reads x is done before y is written over it, though neither reads what the other makes.
      {"read_before", "op f(x: f32[N,N]) -> (z, y) { z[i,j] = sum(k: x[i,k]*x[k,j]); y[i,j] = 2*x[i,j] }", {{"N", 260}}, {{"y", "x"}}},
  };
}

class WriteOver : public ::testing::TestWithParam<Case> {};

// Buffers by name; those in `over` are the input's.
CallCounts infer(const CompiledOp& op, std::map<std::string, Buffer>& buffers, const std::map<std::string, std::string>& over) {
  std::vector<Argument> arguments;
  for (auto* list : {&op.program().inputs, &op.program().outputs})
    for (TensorId t : *list) {
      const std::string& name = op.program().tensors[t].name;
      auto it = over.find(name);
      arguments.push_back({name, buffers.at(it == over.end() ? name : it->second).view()});
    }
  return op.infer(arguments);
}

TEST_P(WriteOver, HasTheBitsOfMemoryOfItsOwn) {
  const Case& c = GetParam();
  const Program op = parse_op(c.text);
  const Arrays data = random_data(op, c.dims, 3);
  for (int threads : {1, 2, 4}) {
    CompileOptions options;
    options.threads = threads;
    options.differentiate = false;
    const CompiledOp compiled = compile(op, options);
    std::map<std::string, Buffer> apart, shared;
    for (TensorId t : op.inputs) apart.emplace(op.tensors[t].name, Buffer(data.at(op.tensors[t].name)));
    for (TensorId t : op.outputs) apart.emplace(op.tensors[t].name, Buffer(zeros(op.tensors[t].type, shape_of(op, t, c.dims))));
    shared = apart;
    infer(compiled, apart, {});
    infer(compiled, shared, c.over);
    for (TensorId t : op.outputs) {
      const std::string& name = op.tensors[t].name;
      const auto it = c.over.find(name);
      const Array got = shared.at(it == c.over.end() ? name : it->second).array(), want = apart.at(name).array();
      EXPECT_EQ(got.reals, want.reals) << name << ", " << threads << " threads";
      EXPECT_EQ(got.integers, want.integers) << name << ", " << threads << " threads";
    }
    EXPECT_EQ(infer(compiled, shared, c.over).allocations, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, WriteOver, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

struct Refused {
  const char* name;
  const char* text;
  DimValues dims;
  std::string output, input, why;
};

std::vector<Refused> refused() {
  return {
      {"turned", "op f(x: f32[N,N]) -> (y) { y[i,j] = x[j,i] }", {{"N", 64}}, "y", "x", "other elements of it"},
      {"neighbours", "op f(x: f32[N]) -> (y) { y[i] = x[i] + x[i+1 else 0] }", {{"N", 640}}, "y", "x", "other elements of it"},
      {"sums", "op f(x: f32[N,C]) -> (y) { s[n] = sum(c: x[n,c]); y[n,c] = x[n,c] / s[n] }", {{"N", 64}, {"C", 90}}, "y", "x",
       "other elements of it"},
      {"beside_a_sum",
       "op f(x: f32[N,C], w: f32[N,C]) -> (y, s) { y[n,c] = 2*x[n,c] + w[n,c]; s[n] = sum(c: w[n,c]) }", {{"N", 64}, {"C", 90}}, "y", "x",
       "not one loop over the elements"},
      {"read_later",
       "op f(x: f32[N,N]) -> (y, z) { y[i,j] = 2*x[i,j]; z[i,j] = sum(k: x[i,k]*x[k,j]) }", {{"N", 200}}, "y", "x", "after that"},
  };
}

class WriteOverRefused : public ::testing::TestWithParam<Refused> {};

TEST_P(WriteOverRefused, SaysWhyAndWritesNothing) {
  const Refused& c = GetParam();
  const Program op = parse_op(c.text);
  CompileOptions options;
  options.differentiate = false;
  if (std::string(c.name) == "read_later") options.fusion.policy = FusePolicy::off;
  const CompiledOp compiled = compile(op, options);
  std::map<std::string, Buffer> buffers;
  for (auto& [name, array] : random_data(op, c.dims, 3)) buffers.emplace(name, Buffer(array));
  for (TensorId t : op.outputs) buffers.emplace(op.tensors[t].name, Buffer(zeros(op.tensors[t].type, shape_of(op, t, c.dims))));
  const Array before = buffers.at(c.input).array();
  try {
    infer(compiled, buffers, {{c.output, c.input}});
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find(c.output + " overlaps " + c.input + " in memory, and cannot be written over it"), std::string::npos)
        << e.message();
    EXPECT_NE(e.message().find(c.why), std::string::npos) << e.message();
  }
  EXPECT_EQ(buffers.at(c.input).array().reals, before.reals);
}

INSTANTIATE_TEST_SUITE_P(Ops, WriteOverRefused, ::testing::ValuesIn(refused()), [](const auto& c) { return c.param.name; });

// A gradient over its cotangent; an output over what the backward needs.
TEST(WriteOverBackward, TakesTheCotangentAndRefusesWhatIsNeeded) {
  const CompiledOp op = compile(parse_op("op f(x: f32[N]) -> (y) { y[i] = sin(x[i]) }"));
  std::vector<float> x(1000), y(1000), dy(1000), apart(1000);
  std::iota(x.begin(), x.end(), 0.f);
  std::iota(dy.begin(), dy.end(), -300.f);
  Stash stash = op.forward({{"x", {x.data(), {1000}}}, {"y", {y.data(), {1000}}}});
  op.backward({{"x", {x.data(), {1000}}}, {"dy", {dy.data(), {1000}}}, {"grad_x", {apart.data(), {1000}}}}, stash);
  op.backward({{"x", {x.data(), {1000}}}, {"dy", {dy.data(), {1000}}}, {"grad_x", {dy.data(), {1000}}}}, stash);
  EXPECT_EQ(dy, apart);
  try {
    op.forward({{"x", {x.data(), {1000}}}, {"y", {x.data(), {1000}}}});
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("the backward needs x"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace xhat::write_over_test
