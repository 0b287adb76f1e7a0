// Lesson 7: products with derivatives. Newton's method asks for p with H p = -g, where H, the Hessian, has D*D
// elements. Conjugate gradients need only its products with vectors, and those come without it.
#include <cmath>
#include <cstdio>
#include <vector>

#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add(Vector& a, double factor, const Vector& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
}

}  // namespace

int main() {
  Op op("logistic");
  Dim N("N"), D("D");
  Axis n("n"), d("d");
  Tensor x = op.constant("x", f64, {N, D}), label = op.constant("label", f64, {N}),
         w = op.input("w", f64, {D});
  Tensor z("z"), loss("loss");
  z(n) = sum({d}, x(n, d) * w(d));
  loss() = mean({n}, softplus(-(label(n) * z(n)))) + 0.01 * sum({d}, pow(w(d), 2));
  op.output(loss);
  Program program = op.build();

  // Each is an op of its own: (x, label, w, dloss, t_w) -> hvp_w, and (x, label, w, t_w) -> (loss, jvp_loss).
  Program curvature = hvp(program), slope = jvp(program);
  std::printf("%s\n%s\n", print(curvature).c_str(), print(slope).c_str());
  CompiledOp run = compile(program);
  CompiledOp run_curvature = compile(curvature, {.differentiate = false});
  CompiledOp run_slope = compile(slope, {.differentiate = false});

  constexpr int kPoints = 60, kFeatures = 4;
  Vector points, labels;
  for (int i = 0; i < kPoints; ++i) {
    for (int k = 0; k < kFeatures; ++k) points.push_back(std::sin(1.7 * i + 2.3 * k * i + k));
    labels.push_back(points[points.size() - 2] + 0.5 * std::cos(5.0 * i) > 0 ? 1 : -1);
  }
  Vector weights(kFeatures, 0.0), gradient(kFeatures), direction(kFeatures), product(kFeatures);
  double loss_value = 0, one = 1, along = 0;
  TensorView vx(points.data(), {kPoints, kFeatures}), vlabel(labels.data(), {kPoints}), vone(&one, {});
  auto features = [](Vector& v) { return TensorView(v.data(), {kFeatures}); };

  int steps = 0;
  double worst_slope = 0;
  for (; steps < 20; ++steps) {
    Stash stash =
        run.forward({{"x", vx}, {"label", vlabel}, {"w", features(weights)}, {"loss", {&loss_value, {}}}});
    run.backward({{"x", vx},
                  {"label", vlabel},
                  {"w", features(weights)},
                  {"dloss", vone},
                  {"grad_w", features(gradient)}},
                 stash);
    std::printf("step %d: loss %.12f, gradient %.1e\n", steps, loss_value,
                std::sqrt(dot(gradient, gradient)));
    if (dot(gradient, gradient) < 1e-24) break;
    // Conjugate gradients: what is left of -g is made orthogonal to one product after the other.
    Vector step(kFeatures, 0.0), rest = gradient;
    for (double& v : rest) v = -v;
    direction = rest;
    for (int k = 0; k < kFeatures; ++k) {
      run_curvature.infer({{"x", vx},
                           {"label", vlabel},
                           {"w", features(weights)},
                           {"dloss", vone},
                           {"t_w", features(direction)},
                           {"hvp_w", features(product)}});
      double before = dot(rest, rest), factor = before / dot(direction, product);
      add(step, factor, direction);
      add(rest, -factor, product);
      double ratio = dot(rest, rest) / before;
      for (size_t i = 0; i < direction.size(); ++i) direction[i] = rest[i] + ratio * direction[i];
    }
    // How fast the loss falls along the step: one forward pass, and the same as by the gradient.
    run_slope.infer({{"x", vx},
                     {"label", vlabel},
                     {"w", features(weights)},
                     {"t_w", features(step)},
                     {"loss", {&loss_value, {}}},
                     {"jvp_loss", {&along, {}}}});
    worst_slope = std::max(worst_slope, std::fabs(along - dot(gradient, step)));
    add(weights, 1, step);
  }
  std::printf("\n");

  GradcheckReport report = gradcheck(program, {{"N", 7}, {"D", 3}});
  std::printf("every derivative, in both modes and both orders\n%s\n", report.text().c_str());

  lesson::Checks check;
  check.that(equal(program, lesson::from_file("newton.xh")),
             "the C++ above and examples/newton.xh are the same program");
  check.that(steps < 8, "Newton's method arrived within a few steps");
  check.that(worst_slope < 1e-12, "forward and reverse mode give the same slope");
  check.that(report.passed, "all derivatives agree with finite differences");
  return check.status();
}
