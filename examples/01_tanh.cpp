// Lesson 1: an op is a formula for one element. xhat derives its gradient, and sees that the gradient needs
// only what the forward has computed already: dx = (1 - y*y) * dy.
#include <array>
#include <cmath>

#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

int main() {
  // The op. Handles are cheap: an Axis or a Dim is known by its name.
  Op op("tanh1");
  Dim N("N");
  Axis i("i");
  Tensor x = op.input("x", f32, {N}), y("y");
  y(i) = tanh(x(i));
  op.output(y);
  Program program = op.build();

  // The same in the text form, which every tool of xhat reads and writes.
  std::printf("%s\n", print(program).c_str());

  // Derive, plan and compile. Kernels are built when the first sizes are seen.
  CompiledOp run = compile(program);
  std::printf("the derived gradient\n%s\n", lesson::backward(run.program()).c_str());

  // Your memory, described by views; xhat copies nothing.
  std::array<float, 5> xs = {-2, -0.5, 0, 0.5, 2}, ys = {}, dys = {1, 1, 1, 1, 1}, dxs = {};
  TensorView vy(ys.data(), {5});
  Stash stash = run.forward({{"x", TensorView(xs.data(), {5})}, {"y", vy}});
  run.backward({{"y", vy}, {"dy", TensorView(dys.data(), {5})}, {"grad_x", TensorView(dxs.data(), {5})}},
               stash);

  std::printf("     x        y    dy/dx\n");
  double worst = 0;
  for (size_t k = 0; k < xs.size(); ++k) {
    std::printf("%6.2f %8.5f %8.5f\n", static_cast<double>(xs[k]), static_cast<double>(ys[k]),
                static_cast<double>(dxs[k]));
    double t = std::tanh(static_cast<double>(xs[k]));
    worst = std::max({worst, std::fabs(static_cast<double>(ys[k]) - t),
                      std::fabs(static_cast<double>(dxs[k]) - (1 - t * t))});
  }

  lesson::Checks check;
  check.that(equal(program, lesson::from_file("tanh.xh")),
             "the C++ above and examples/tanh.xh are the same program");
  check.near(worst, 0, 1e-6, "values and gradient agree with std::tanh");
  check.that(run.kept() == std::vector<std::string>{"y"},
             "the backward reads the output y and not the input");
  check.that(stash.bytes() == 0, "nothing else is kept");
  return check.status();
}
