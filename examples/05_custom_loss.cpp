// Lesson 5: a loss of your own. Conditions, scalar parameters, inputs that need no gradient, a scalar result;
// then look at the gradient that comes out, and have it checked.
#include <cstdio>
#include <vector>

#include "lesson.h"
#include "xhat.h"

using namespace xhat::dsl;

int main() {
  // Quadratic near zero, linear far out; too low a prediction costs `tilt` times what too high a one costs.
  Op op("tilted_huber");
  Dim N("N");
  Axis i("i");
  Tensor prediction = op.input("prediction", f32, {N});
  Tensor target = op.constant("target", f32, {N}),
         weight = op.constant("weight", f32, {N});  // no gradients wanted
  Tensor delta = op.input("delta", f32), tilt = op.input("tilt", f32);
  Tensor r("r"), side("side"), cost("cost"), loss("loss");
  r(i) = target(i) - prediction(i);
  side(i) = select(r(i) > 0, tilt, 1);
  cost(i) = select(abs(r(i)) <= delta, 0.5 * pow(r(i), 2), delta * (abs(r(i)) - 0.5 * delta));
  loss() = sum({i}, weight(i) * side(i) * cost(i)) / sum({i}, weight(i));
  op.output(loss);
  Program program = op.build();
  std::printf("%s\n", print(program).c_str());

  CompiledOp run = compile(program);
  std::printf("derived gradients, as compiled\n%s\n", lesson::backward(run.program()).c_str());

  // Random directions and single elements, in double. Where the loss has a kink there is nothing to compare.
  GradcheckReport report = check_gradient(gradient(program), {{"N", 40}});
  std::printf("against finite differences\n%s\n", report.text().c_str());

  // Fit the best constant to some numbers: with tilt 3 it must lie above their middle.
  std::vector<float> targets = {1, 2, 3, 4, 5, 6, 7, 8, 9}, weights(9, 1.0f), guess(9, 0.0f), slope(9);
  float delta_value = 0.5f, tilt_value = 3, loss_value = 0, one = 1;
  std::vector<Argument> arguments = {{"prediction", TensorView(guess.data(), {9})},
                                     {"target", TensorView(targets.data(), {9})},
                                     {"weight", TensorView(weights.data(), {9})},
                                     {"delta", TensorView(&delta_value, {})},
                                     {"tilt", TensorView(&tilt_value, {})},
                                     {"loss", TensorView(&loss_value, {})},
                                     {"dloss", TensorView(&one, {})},
                                     {"grad_prediction", TensorView(slope.data(), {9})}};
  Stash stash;
  float first = 0;
  for (int step = 0; step < 200; ++step) {
    run.forward(arguments, stash);
    if (step == 0) first = loss_value;
    run.backward(arguments, stash);
    float whole = 0;  // of the one constant: the sum of its copies' slopes
    for (float s : slope) whole += s;
    for (float& g : guess) g -= 0.5f * whole;
  }
  std::printf("best constant for 1..9, errors below costing 3 times: %.2f (loss %.2f, was %.2f)\n\n",
              static_cast<double>(guess[0]), static_cast<double>(loss_value), static_cast<double>(first));

  lesson::Checks check;
  check.that(equal(program, lesson::from_file("custom_loss.xh")),
             "the C++ above and examples/custom_loss.xh are the same program");
  check.that(report.passed, "the gradient agrees with finite differences");
  // At 7, six numbers below pull as hard as two above that count three times.
  check.near(static_cast<double>(guess[0]), 7, 0.01, "the best constant is 7, where the pulls balance");
  check.that(loss_value < first / 2, "the loss fell to less than half");
  return check.status();
}
