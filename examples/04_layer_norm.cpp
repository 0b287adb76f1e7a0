// Lesson 4: a kernel is one sweep over memory, and most ops need only one for each direction.
//
// LayerNorm's backward wants sums along rows (for dx) and along columns (for dgamma and dbeta). Both come out
// of the same sweep: a tile of rows gives its part of dx whole and one partial row of dgamma and dbeta; a
// small step adds those. Gradients may also be added to what is in your buffer, as optimizers like it.
#include <cstdio>
#include <vector>

#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

namespace {

void show(const char* direction, const xhat::ExplainedDirection& d) {
  for (const auto& k : d.kernels) {
    std::printf("  %-9s %-8s %6.1f MB moved, %6.1f unavoidable:", direction, k.finish ? "(adds)" : "sweep",
                static_cast<double>(k.bytes_moved) / 1e6, static_cast<double>(k.bytes_unavoidable) / 1e6);
    for (const auto& name : k.computes) std::printf(" %s", name.c_str());
    std::printf("\n");
  }
}

}  // namespace

int main() {
  Op op("layer_norm");
  Dim N("N"), D("D");
  Axis n("n"), d("d");
  Tensor x = op.input("x", f32, {N, D}), gamma = op.input("gamma", f32, {D}),
         beta = op.input("beta", f32, {D});
  Tensor mean("mean"), var("var"), y("y");
  mean(n) = sum({d}, x(n, d)) / D;
  var(n) = sum({d}, pow(x(n, d) - mean(n), 2)) / D;
  y(n, d) = gamma(d) * (x(n, d) - mean(n)) / sqrt(var(n) + 1e-5) + beta(d);
  op.output(y);
  Program program = op.build();
  std::printf("%s\n", print(program).c_str());

  Explanation e = explain(program, {}, {{"N", 8192}, {"D", 1024}});
  std::printf("kernels for N = 8192, D = 1024\n");
  show("forward", e.forward);
  show("backward", e.backward);

  // Run it twice on the same gradient buffer for gamma: once writing, once adding.
  const int64_t rows = 6, columns = 33;
  Arrays data = random_inputs(program, {{"N", rows}, {"D", columns}}, 1);
  Arrays cotangents = random_cotangents(gradient(program), {{"N", rows}, {"D", columns}}, 2);
  auto floats = [](const Array& a) { return std::vector<float>(a.reals.begin(), a.reals.end()); };
  std::vector<float> xs = floats(data["x"]), gs = floats(data["gamma"]), bs = floats(data["beta"]),
                     dys = floats(cotangents["dy"]);
  std::vector<float> ys(xs.size()), dxs(xs.size()), dgs(gs.size()), dbs(bs.size());
  CompiledOp run = compile(program);
  auto matrix = [&](std::vector<float>& v) { return TensorView(v.data(), {rows, columns}); };
  auto vector = [&](std::vector<float>& v) { return TensorView(v.data(), {columns}); };
  std::vector<Argument> arguments = {
      {"x", matrix(xs)}, {"gamma", vector(gs)}, {"beta", vector(bs)}, {"y", matrix(ys)}};
  Stash stash = run.forward(arguments);
  arguments.insert(arguments.end(),
                   {{"dy", matrix(dys)}, {"grad_x", matrix(dxs)}, {"grad_beta", vector(dbs)}});
  arguments.push_back({"grad_gamma", vector(dgs)});
  CallCounts counts = run.backward(arguments, stash);
  std::vector<float> once = dgs;
  arguments.back().accumulate = true;
  run.backward(arguments, stash);

  // The evaluator says what the op and its gradient mean, by plain loops in double.
  data.insert(cotangents.begin(), cotangents.end());
  Arrays exact = evaluate(gradient(program), data, EvaluateOptions{.rounding = Rounding::exact});
  double worst = 0, added = 0;
  for (size_t i = 0; i < xs.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(dxs[i]) - exact["grad_x"].reals[i]));
  for (size_t i = 0; i < gs.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(once[i]) - exact["grad_gamma"].reals[i]));
    added = std::max(added, std::fabs(static_cast<double>(dgs[i]) - 2 * static_cast<double>(once[i])));
  }

  lesson::Checks check;
  std::printf("\n");
  check.that(equal(program, lesson::from_file("layer_norm.xh")),
             "the C++ above and examples/layer_norm.xh are the same program");
  check.that(e.forward.kernel_count == 1 && e.backward.kernel_count == 1, "one sweep for each direction");
  check.that(counts.kernels == 1, "and one ran");
  check.near(worst, 0, 1e-4, "gradients agree with the evaluator");
  check.near(added, 0, 1e-4, "grad_gamma was added to");
  return check.status();
}
