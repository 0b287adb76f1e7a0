#include <cstdio>
#include <vector>

#include <xhat/xhat.h>

using namespace xhat::dsl;  // the only namespace a program needs

int main() {
  // An op, point by point, in C++ ...
  Op op("rms_norm");
  Dim N("N"), D("D");
  Axis n("n"), d("d"), k("k");
  Tensor x = op.input("x", f32, {N, D}), gain = op.input("gain", f32, {D}), y("y");
  y(n, d) = gain(d) * x(n, d) / sqrt(mean({k}, x(n, k) * x(n, k)) + 1e-6);
  op.output(y);
  Program program = op.build();

  // ... or as text. It is the same program.
  Program same = parse_op(R"(
    op rms_norm(x: f32[N,D], gain: f32[D]) -> (y) {
      y[n,d] = gain[d] * x[n,d] / sqrt(mean(k: x[n,k] * x[n,k]) + 1e-6)
    })");
  if (!equal(program, same)) return 1;

  // Derived, planned, compiled: it runs on your own memory, whatever the sizes.
  CompiledOp run = compile(program);
  std::vector<float> xs = {1, 2, 3, 4, -1, 0, 1, 2}, gains = {1, 1, 2, 2}, ys(8);
  std::vector<float> dys = {1, 0, 0, 0, 0, 0, 0, 1}, dxs(8), dgains(4);
  Stash stash = run.forward({{"x", {xs, {2, 4}}}, {"gain", gains}, {"y", {ys, {2, 4}}}});
  run.backward({{"dy", {dys, {2, 4}}}, {"grad_x", {dxs, {2, 4}}}, {"grad_gain", dgains}}, stash);
  std::printf("y[0,0] = %.4f, dL/dx[0,0] = %.4f, dL/dgain[3] = %.4f; kept for it: %d bytes\n", ys[0], dxs[0],
              dgains[3], static_cast<int>(stash.bytes()));
}
