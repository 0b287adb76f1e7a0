// The forward and gradients of five ops: compiled as an op; by lazy arrays realized together; and by lazy arrays whose values are realized
// first, and the gradients then. In turns; the counters are least times over those of the op.
#include <benchmark/benchmark.h>

#include <chrono>

#include "xhat.h"
#include "xhat/lazy.h"

namespace xhat::lazy_beside_ops_bench {
namespace {

using lazy::Shape;
using Arrays = std::vector<lazy::Array>;

double seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Case {
  const char* text;
  std::vector<std::pair<std::string, Shape>> inputs;
  Shape result;
  std::function<lazy::Array(const Arrays&)> by_arrays;
};

lazy::Array by_channel(const lazy::Array& x) { return reshape(x, {1, x.size(0), 1, 1}); }
lazy::Array normal(const lazy::Array& x, const lazy::Axes& axes) {
  const lazy::Array c = x - mean(x, axes, lazy::keepdim);
  return c / sqrt(mean(square(c), axes, lazy::keepdim) + 1e-5f);
}

Case layer_norm() {
  return {R"(op f(x: f32[N,D], g: f32[D], b: f32[D]) -> (y) {
  m[n] = sum(d: x[n,d])/D
  v[n] = sum(d: (x[n,d]-m[n])^2)/D
  y[n,d] = g[d]*(x[n,d]-m[n])/sqrt(v[n]+1e-5)+b[d]
})",
          {{"x", {2048, 1024}}, {"g", {1024}}, {"b", {1024}}},
          {2048, 1024},
          [](const Arrays& a) { return a[1] * normal(a[0], 1) + a[2]; }};
}
Case batch_norm() {
  return {R"(op f(x: f32[N,C,H,W], g: f32[C], b: f32[C]) -> (y) {
  m[c] = sum(n,h,w: x[n,c,h,w])/(N*H*W)
  v[c] = sum(n,h,w: (x[n,c,h,w]-m[c])^2)/(N*H*W)
  y[n,c,h,w] = g[c]*(x[n,c,h,w]-m[c])/sqrt(v[c]+1e-5)+b[c]
})",
          {{"x", {32, 64, 28, 28}}, {"g", {64}}, {"b", {64}}},
          {32, 64, 28, 28},
          [](const Arrays& a) {
            return by_channel(a[1]) * normal(a[0], {0, 2, 3}) + by_channel(a[2]);
          }};
}
Case softmax() {
  return {R"(op f(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d])
  e[n,d] = exp(x[n,d]-m[n])
  y[n,d] = e[n,d]/sum(k: e[n,k])
})",
          {{"x", {2048, 1024}}},
          {2048, 1024},
          [](const Arrays& a) { return lazy::softmax(a[0]); }};
}
Case mlp2() {
  return {R"(op f(x: f32[N,D], w: f32[D,H], u: f32[H,E]) -> (y) {
  h[n,j] = tanh(sum(d: x[n,d]*w[d,j]))
  y[n,e] = sum(j: h[n,j]*u[j,e])
})",
          {{"x", {512, 256}}, {"w", {256, 256}}, {"u", {256, 64}}},
          {512, 64},
          [](const Arrays& a) { return matmul(tanh(matmul(a[0], a[1])), a[2]); }};
}
Case conv_relu() {
  return {R"(op f(x: f32[N,C,H,W], k: f32[O,C,3,3]) -> (y) {
  y[n,o,h in 0..28,w in 0..28] = relu(sum(c,i,j: x[n,c,h+i-1,w+j-1 else 0]*k[o,c,i,j]))
})",
          {{"x", {16, 16, 28, 28}}, {"k", {32, 16, 3, 3}}},
          {16, 32, 28, 28},
          [](const Arrays& a) { return relu(conv(a[0], a[1], {.padding = {1}})); }};
}

void beside(benchmark::State& state, Case (*make)()) {
  using namespace lazy;
  const Case c = make();
  const CompiledOp op = compile(parse_op(c.text));
  Arrays inputs, gradients;
  std::vector<std::string> names;
  std::vector<Argument> forward, backward;
  for (const auto& [name, shape] : c.inputs) names.push_back("grad_" + name);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back((random(static_cast<int>(i), c.inputs[i].second) - 0.4f).realize());
    gradients.push_back(zeros(c.inputs[i].second).contiguous().realize());
    forward.push_back({c.inputs[i].first, inputs[i].view()});
    backward.push_back({names[i], gradients[i].view()});
  }
  const lazy::Array y = zeros(c.result).contiguous().realize(), dy = random(99, c.result).realize();
  forward.push_back({"y", y.view()});
  backward.push_back({"dy", dy.view()});
  Stash stash;
  auto as_op = [&] {
    op.forward(forward, stash);
    op.backward(backward, stash);
  };
  Arrays held;  // what a step made, until the next one
  auto by_arrays = [&](bool in_two) {
    const lazy::Array made = c.by_arrays(inputs);
    Arrays all = grad(sum(made * dy), inputs);
    if (in_two) made.realize();
    all.push_back(made);
    realize(all);
    held = all;
  };
  double least[3] = {1e9, 1e9, 1e9};
  for (auto _ : state) {
    least[0] = std::min(least[0], seconds(as_op));
    for (bool in_two : {false, true}) {
      held.clear();
      least[1 + in_two] = std::min(least[1 + in_two], seconds([&] { by_arrays(in_two); }));
    }
  }
  state.counters["op_ms"] = least[0] * 1e3;
  state.counters["together"] = least[1] / least[0];
  state.counters["in_two"] = least[2] / least[0];
}
BENCHMARK_CAPTURE(beside, layer_norm, layer_norm)->Name("lazy_beside_ops/layer_norm")->Iterations(40)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(beside, batch_norm, batch_norm)->Name("lazy_beside_ops/batch_norm")->Iterations(40)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(beside, softmax, softmax)->Name("lazy_beside_ops/softmax")->Iterations(40)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(beside, mlp2, mlp2)->Name("lazy_beside_ops/mlp2")->Iterations(40)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(beside, conv_relu, conv_relu)->Name("lazy_beside_ops/conv_relu")->Iterations(40)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xhat::lazy_beside_ops_bench
