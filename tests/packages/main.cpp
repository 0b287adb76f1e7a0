// A program of somebody who has xhat installed, or its sources in the project: an op, its gradient, a lazy array.
#include <cstdio>
#include <vector>

#include <xhat/lazy.h>
#include <xhat/mdspan.h>
#include <xhat/xhat.h>

using namespace xhat::dsl;

int main() {
  Op op("square");
  Dim N("N");
  Axis i("i");
  Tensor x = op.input("x", f32, {N}), loss("loss");
  loss() = sum({i}, x(i) * x(i));
  op.output(loss);
  CompiledOp run = compile(op.build());
  std::vector<float> xs = {1, 2, 3}, gradient(3);
  float value = 0;
  Stash stash = run.forward({{"x", xs}, {"loss", {&value, {}}}});
  run.backward({{"grad_x", gradient}}, stash);
  std::printf("%g %g\n", value, gradient[2]);
  return value == 14 && gradient[2] == 6 ? 0 : 1;
}
