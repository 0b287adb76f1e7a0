// Lesson 6: train a small network on Eigen's matrices. They are passed in place, in whatever order they are
// stored; the gradients arrive in Eigen matrices too, and the optimizer is two lines of Eigen.
#include <cmath>
#include <cstdio>
#include <random>

#include <Eigen/Core>

#include "lesson.h"
#include "runtime/eigen.h"
#include "xhat.h"

using namespace xhat::dsl;

namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Ops {
  Program network, loss;
};

// One op may call another.
Ops build_ops() {
  Dim N("N"), K("K"), J("J");
  Axis n("n"), k("k"), j("j");
  Op network("network");
  {
    Tensor x = network.input("x", f32, {N, K}), w1 = network.input("w1", f32, {K, J}),
           b1 = network.input("b1", f32, {J});
    Tensor w2 = network.input("w2", f32, {J}), b2 = network.input("b2", f32), h("h"), z("z");
    h(n, j) = tanh(sum({k}, x(n, k) * w1(k, j)) + b1(j));
    z(n) = sum({j}, h(n, j) * w2(j)) + b2;
    network.output(z);
  }
  Op op("network_loss");
  Tensor x = op.constant("x", f32, {N, K}), label = op.constant("label", f32, {N});
  Tensor w1 = op.input("w1", f32, {K, J}), b1 = op.input("b1", f32, {J});
  Tensor w2 = op.input("w2", f32, {J}), b2 = op.input("b2", f32), loss("loss");
  Tensor z = call(network, {x, w1, b1, w2, b2}).result("z");
  loss() = sum({n}, softplus(-label(n) * z(n))) / N + 1e-5 * sum({k, j}, pow(w1(k, j), 2));
  op.output(loss);
  return {network.build(), op.build()};
}

// Two half moons that no straight line separates.
void make_moons(Eigen::MatrixXf& x, Eigen::VectorXf& label) {
  std::mt19937 bits(1);
  auto uniform = [&] { return static_cast<float>(bits() >> 8) * 0x1p-24f; };
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    bool upper = i % 2 == 0;
    float angle = 3.14159265f * uniform(), radius = 1 + 0.2f * (uniform() - 0.5f);
    x(i, 0) = upper ? radius * std::cos(angle) : 1 - radius * std::cos(angle);
    x(i, 1) = upper ? radius * std::sin(angle) : 0.5f - radius * std::sin(angle);
    label(i) = upper ? 1 : -1;
  }
}

// A parameter with its gradient and velocity; gradient descent with momentum.
template <class M>
struct Parameter {
  M value, gradient, velocity;
  explicit Parameter(const M& start)
      : value(start), gradient(M::Zero(start.rows(), start.cols())), velocity(gradient) {}
  void step(float rate) {
    velocity = 0.9f * velocity + gradient;
    value -= rate * velocity;
  }
};

template <class M>
M small_numbers(Eigen::Index rows, Eigen::Index columns) {
  M m(rows, columns);
  for (Eigen::Index i = 0; i < rows; ++i)
    for (Eigen::Index j = 0; j < columns; ++j) m(i, j) = std::sin(static_cast<float>(7 * i + 3 * j + 1));
  return m;
}

}  // namespace

int main() {
  Ops ops = build_ops();
  std::printf("%s\n", print(ops.loss).c_str());
  CompiledOp train = compile(ops.loss), predict = compile(ops.network, {.differentiate = false});

  constexpr Eigen::Index samples = 400, hidden = 32;
  constexpr float target_loss = 0.02f;
  Eigen::MatrixXf x(samples, 2);  // column-major, Eigen's default
  Eigen::VectorXf label(samples);
  make_moons(x, label);
  Parameter<RowMajor> w1(small_numbers<RowMajor>(2, hidden));
  Parameter<Eigen::VectorXf> b1(small_numbers<Eigen::VectorXf>(hidden, 1)),
      w2(small_numbers<Eigen::VectorXf>(hidden, 1) * 0.1f);
  float b2 = 0, grad_b2 = 0, loss = 0;
  const float one = 1;

  // The views show the matrices' memory, so they are made once and stay true while the values change.
  std::vector<Argument> arguments = {{"x", view(x)},
                                     {"label", view(label)},
                                     {"w1", view(w1.value)},
                                     {"b1", view(b1.value)},
                                     {"w2", view(w2.value)},
                                     {"b2", view(b2)},
                                     {"loss", view(loss)},
                                     {"dloss", view(one)},
                                     {"grad_b2", view(grad_b2)},
                                     {"grad_w1", view(w1.gradient)},
                                     {"grad_b1", view(b1.gradient)},
                                     {"grad_w2", view(w2.gradient)}};
  Stash stash;  // its memory is used again in every step
  int step = 0;
  float first = 0;
  for (; step < 3000; ++step) {
    train.forward(arguments, stash);
    if (step == 0) first = loss;
    if (step % 100 == 0) std::printf("step %4d   loss %.4f\n", step, static_cast<double>(loss));
    if (loss < target_loss) break;
    train.backward(arguments, stash);
    w1.step(0.1f);
    b1.step(0.1f);
    w2.step(0.1f);
    b2 -= 0.1f * grad_b2;
  }
  std::printf("step %4d   loss %.4f\n\n", step, static_cast<double>(loss));

  // Part of a matrix is an argument too: the last 100 samples, a block with gaps between its columns.
  auto last = x.bottomRows(100);
  Eigen::VectorXf z(100);
  predict.infer({{"x", view(last)},
                 {"w1", view(w1.value)},
                 {"b1", view(b1.value)},
                 {"w2", view(w2.value)},
                 {"b2", view(b2)},
                 {"z", view(z)}});
  auto right = (z.array() * label.tail(100).array() > 0).count();
  // The same network in Eigen.
  Eigen::MatrixXf h = ((last * w1.value).rowwise() + b1.value.transpose()).array().tanh();
  float apart = ((h * w2.value).array() + b2 - z.array()).abs().maxCoeff();

  lesson::Checks check;
  check.that(equal(ops.loss, lesson::from_file("eigen.xh")),
             "the C++ above and examples/eigen.xh are the same program");
  check.that(check_gradient(gradient(ops.loss), sample_dims(ops.loss, 1)).passed,
             "the gradient agrees with finite differences");
  check.that(loss < target_loss, "the loss fell below 0.02, from " + std::to_string(first));
  check.that(right >= 99, std::to_string(right) + " of the last 100 samples are on their side");
  check.near(static_cast<double>(apart), 0, 1e-4, "the network's values agree with Eigen's own");
  return check.status();
}
