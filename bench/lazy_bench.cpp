// Lazy arrays: what a step of training costs beside the calls of its compiled programs, and beside the same step as one compiled op;
// how long a graph of ten thousand nodes is planned.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>

#include "xhat.h"
#include "xhat/lazy.h"

namespace xhat::lazy_bench {
namespace {

constexpr int64_t kWidths[] = {64, 64, 64, 64, 10};
constexpr int kLayers = 4;

// A step of a 4-layer MLP with its updates: about 60 nodes, of which kernels take most of the time from a batch of about 100 on.
struct Mlp {
  std::vector<lazy::Array> parameters;
  lazy::Array x, wanted;

  explicit Mlp(int64_t batch) {
    using namespace lazy;
    for (int i = 0; i < kLayers; ++i) {
      const auto scale = 2 / std::sqrt(static_cast<float>(kWidths[i]));
      parameters.push_back(((random(i, {kWidths[i], kWidths[i + 1]}) - 0.5f) * scale).realize());
      parameters.push_back(lazy::zeros({kWidths[i + 1]}).contiguous().realize());
    }
    x = random(77, {batch, kWidths[0]}).realize();
    wanted = random(78, {batch, kWidths[kLayers]}).realize();
  }

  void step() const {
    using namespace lazy;
    lazy::Array loss;
    std::vector<lazy::Array> gradients;
    {
      lazy::Array h = x;
      for (size_t i = 0; i < parameters.size(); i += 2) {
        h = matmul(h, parameters[i]) + parameters[i + 1];
        if (i + 2 < parameters.size()) h = relu(h);
      }
      loss = mean(square(h - wanted));
      gradients = grad(loss, parameters);
    }
    std::vector<lazy::Array> all_of_it = {loss};
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] -= 0.01f * gradients[i];
      all_of_it.push_back(parameters[i]);
    }
    gradients.clear();
    realize(all_of_it);
  }
};

void lazy_mlp(benchmark::State& state) {
  const Mlp mlp(state.range(0));
  for (int i = 0; i < 10; ++i) mlp.step();
  const lazy::Counts before = lazy::counts();
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) mlp.step();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const lazy::Counts after = lazy::counts();
  const auto steps = static_cast<double>(state.iterations());
  const double calls = static_cast<double>(after.nanoseconds - before.nanoseconds) / steps / 1000;
  state.counters["calls_us"] = calls;
  state.counters["above_us"] = seconds * 1e6 / steps - calls;
  state.counters["kernels"] = static_cast<double>(after.kernels - before.kernels) / steps;
  state.counters["copies"] = static_cast<double>(after.copies - before.copies) / steps;
}
BENCHMARK(lazy_mlp)->Name("lazy/mlp_step")->Arg(1)->Arg(64)->Arg(512);

// The loss and its gradients as one op, without the updates, and the same from lazy arrays.
void op_mlp(benchmark::State& state) {
  const CompiledOp op = compile(parse_op(R"(
op mlp(x: f32[N,A] const, t: f32[N,E] const, w0: f32[A,B], b0: f32[B], w1: f32[B,C], b1: f32[C], w2: f32[C,D], b2: f32[D],
       w3: f32[D,E], b3: f32[E]) -> (loss) {
  h0[n,j] = relu(sum(k: x[n,k]*w0[k,j]) + b0[j])
  h1[n,j] = relu(sum(k: h0[n,k]*w1[k,j]) + b1[j])
  h2[n,j] = relu(sum(k: h1[n,k]*w2[k,j]) + b2[j])
  y[n,j] = sum(k: h2[n,k]*w3[k,j]) + b3[j]
  loss = sum(n,j: (y[n,j] - t[n,j])^2) / (N*E)
})"));
  const Mlp mlp(state.range(0));
  float loss = 0, one = 1;
  std::vector<Argument> arguments = {
      {"x", mlp.x.view()}, {"t", mlp.wanted.view()}, {"loss", TensorView(&loss, {})}, {"dloss", TensorView(&one, {})}};
  const char* names[] = {"w0", "b0", "w1", "b1", "w2", "b2", "w3", "b3"};
  const char* gradients[] = {"grad_w0", "grad_b0", "grad_w1", "grad_b1", "grad_w2", "grad_b2", "grad_w3", "grad_b3"};
  std::vector<lazy::Array> memory;
  std::vector<Argument> forward;
  for (size_t i = 0; i < 8; ++i) {
    arguments.push_back({names[i], mlp.parameters[i].view()});
    memory.push_back(lazy::zeros(mlp.parameters[i].shape()).contiguous().realize());
  }
  forward = arguments;
  std::erase_if(forward, [](const Argument& a) { return a.name == "dloss"; });
  for (size_t i = 0; i < 8; ++i) arguments.push_back({gradients[i], memory[i].view()});
  Stash stash = op.forward(forward);
  op.backward(arguments, stash);  // compiles
  for (auto _ : state) {
    op.forward(forward, stash);
    op.backward(arguments, stash);
  }
}
BENCHMARK(op_mlp)->Name("lazy/mlp_gradients_as_an_op")->Arg(1)->Arg(64)->Arg(512);

void lazy_gradients(benchmark::State& state) {
  using namespace lazy;
  const Mlp mlp(state.range(0));
  auto step = [&] {
    lazy::Array h = mlp.x;
    for (size_t i = 0; i < mlp.parameters.size(); i += 2) {
      h = matmul(h, mlp.parameters[i]) + mlp.parameters[i + 1];
      if (i + 2 < mlp.parameters.size()) h = relu(h);
    }
    std::vector<lazy::Array> all_of_it = {mean(square(h - mlp.wanted))};
    for (lazy::Array& g : grad(all_of_it[0], mlp.parameters)) all_of_it.push_back(g);
    realize(all_of_it);
  };
  step();  // compiles
  for (auto _ : state) step();
}
BENCHMARK(lazy_gradients)->Name("lazy/mlp_gradients")->Arg(1)->Arg(64)->Arg(512);

void lazy_plan(benchmark::State& state) {
  using namespace lazy;
  const lazy::Array x = random(1, {1000}).realize();
  float changed = 0.999f;
  for (auto _ : state) {
    lazy::Array y = x;
    for (int64_t i = 0; i < state.range(0) / 3; ++i) y = tanh(y * changed + 0.001f);
    benchmark::DoNotOptimize(y.describe());
    // Another structure each time: nothing is found.
    state.PauseTiming();
    y = lazy::Array();
    changed -= 0.01f;
    state.ResumeTiming();
  }
}
BENCHMARK(lazy_plan)->Name("lazy/plan_nodes")->Arg(1000)->Arg(10000)->Iterations(3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xhat::lazy_bench
