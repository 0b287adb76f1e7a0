// Lesson 3: write the safe formula; what it costs in the gradient falls out again.
//
// Softmax subtracts each row's maximum, so that exp cannot overflow. The derivative through that maximum is
// zero in exact arithmetic; xhat proves it, and what is left needs nothing but y: dx = y * (dy - sum(y *
// dy)).
#include <cmath>
#include <cstdio>
#include <vector>

#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

int main() {
  Op op("softmax");
  Dim N("N"), D("D");
  Axis n("n"), d("d"), k("k");
  Tensor x = op.input("x", f32, {N, D}), m("m"), e("e"), y("y");
  m(n) = max({d}, x(n, d));
  e(n, d) = exp(x(n, d) - m(n));
  y(n, d) = e(n, d) / sum({k}, e(n, k));
  op.output(y);
  Program program = op.build();
  std::printf("%s\n", print(program).c_str());

  // Before and after: the gradient as reverse mode writes it, and after the passes.
  CompiledOp run = compile(program);
  std::printf("the gradient as derived\n%s", lesson::backward(gradient(program)).c_str());
  std::printf("the gradient as compiled\n%s\n", lesson::backward(run.program()).c_str());

  // One CompiledOp serves every size. Row 0 would overflow without the maximum.
  lesson::Checks check;
  check.that(equal(program, lesson::from_file("softmax.xh")),
             "the C++ above and examples/softmax.xh are the same program");
  for (int64_t rows : {2, 3}) {
    const int64_t columns = 1000;
    auto size = static_cast<size_t>(rows * columns);
    std::vector<float> xs(size), ys(size), dys(size), dxs(size);
    for (size_t i = 0; i < size; ++i) {
      xs[i] = static_cast<float>(i % 997) * (i < 1000 ? 1.0f : 0.01f);
      dys[i] = static_cast<float>(i % 7) - 3.0f;
    }
    TensorView vy(ys.data(), {rows, columns});
    Stash stash = run.forward({{"x", TensorView(xs.data(), {rows, columns})}, {"y", vy}});
    run.backward({{"y", vy},
                  {"dy", TensorView(dys.data(), {rows, columns})},
                  {"grad_x", TensorView(dxs.data(), {rows, columns})}},
                 stash);
    double worst = 0;
    for (int64_t r = 0; r < rows; ++r) {
      double total = 0, slope = 0;
      for (int64_t c = 0; c < columns; ++c) {
        auto at = static_cast<size_t>(r * columns + c);
        total += static_cast<double>(ys[at]);
        slope += static_cast<double>(dxs[at]);
      }
      worst = std::max({worst, std::fabs(total - 1), std::fabs(slope)});
    }
    check.near(worst, 0, 1e-5, std::to_string(rows) + " rows: y sums to 1 and dx to 0");
    check.that(stash.bytes() == 0, std::to_string(rows) + " rows: nothing is kept but y");
  }
  check.that(check_gradient(gradient(program), sample_dims(program, 1)).passed,
             "the gradient agrees with finite differences");
  return check.status();
}
