// Lesson 10: programs that mutate tensors, in C++. What is done to the handles is noted as the text of a prog; loops that can become axes
// and sums do, the others stay, and gradients go through all of it.
#include <vector>

#include "lesson.h"

using namespace xhat::dsl;

namespace {

// An implicit layer: z = tanh(z w + x), repeated until it moves no more; then the rows of what it found, one added to the next.
Prog fixed_point() {
  Prog p("fixed_point");
  Dim N("N"), D("D");
  Axis n("n"), j("j"), k("k"), i("i");
  Var x = p.input("x", f32, {N, D}), w = p.input("w", f32, {D, D});
  Var z = p.var("z", zeros(f32, {N, D})), moved = p.var("moved", 1.0), next = p.local("next");
  p.While(moved > 1e-6, 60, [&] {
    next(n, j) = tanh(x(n, j) + 0.2 * sum({k}, z(n, k) * w(k, j)));
    moved = max({n, j}, abs(next(n, j) - z(n, j)));
    z = next;
  });
  Var y = p.var("y", clone(z));
  p.For(i, 1, N, [&] { y(i) += 0.5 * y(i - 1); });
  p.output(y);
  return p;
}

}  // namespace

int main() {
  lesson::Checks checks;
  const Prog p = fixed_point();
  std::printf("%s\n", p.text().c_str());
  const Program program = p.build();
  checks.that(print(program) == print(lesson::from_file("programs.xh")), "the text in programs.xh is the same program");

  xhat::CompiledOp run = xhat::compile(program);
  std::vector<float> x = {0.5f, -1, 0.25f, 2, 0, 1}, w = {1, -2, 0.5f, 1}, y(6), dy = {0, 0, 0, 0, 1, 0}, dx(6), dw(4);
  xhat::TensorView vx(x.data(), {3, 2}), vw(w.data(), {2, 2}), vy(y.data(), {3, 2});
  xhat::Stash stash = run.forward({{"x", vx}, {"w", vw}, {"y", vy}});
  run.backward({{"x", vx},
                {"w", vw},
                {"dy", xhat::TensorView(dy.data(), {3, 2})},
                {"grad_x", xhat::TensorView(dx.data(), {3, 2})},
                {"grad_w", xhat::TensorView(dw.data(), {2, 2})}},
               stash);
  std::printf("  y[2] = %.4f %.4f, dL/dx[1,0] = %.4f\n", y[4], y[5], dx[2]);

  // y[2,0] along x[1,0], by differences.
  const float h = 1e-2f;
  float at[2];
  for (int side = 0; side < 2; ++side) {
    std::vector<float> moved = x, out(6);
    moved[2] += side == 0 ? -h : h;
    run.infer({{"x", xhat::TensorView(moved.data(), {3, 2})}, {"w", vw}, {"y", xhat::TensorView(out.data(), {3, 2})}});
    at[side] = out[4];
  }
  checks.near(dx[2], (at[1] - at[0]) / (2 * h), 1e-3, "the gradient through the loops is what differences say");
  return checks.status();
}
