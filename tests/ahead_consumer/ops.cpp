// Ops in C++: of ops.xh the same, so that xhat run can check what comes of them.
#include "xhat.h"

using namespace xhat::dsl;

XHAT_OP(rms_norm) {
  Op op("rms_norm");
  Dim N("N"), D("D");
  Axis n("n"), d("d"), k("k");
  Tensor x = op.input("x", f32, {N, D}), gain = op.input("gain", f32, {D}), y("y");
  y(n, d) = gain(d) * x(n, d) / sqrt(mean({k}, x(n, k) * x(n, k)) + 1e-6);
  op.output(y);
  return op.build();
}

// What a program says may be computed: powers of x, as many as there are weights.
XHAT_OP(polynomial) {
  Op op("polynomial");
  Dim N("N");
  Axis n("n");
  Tensor x = op.input("x", f32, {N}), w = op.input("w", f32, {4}), y("y");
  Expr value = 0.0;
  for (int power = 3; power >= 0; --power) value = value * x(n) + w(power);
  y(n) = value;
  op.output(y);
  return op.build();
}
