// Lesson 9: lazy arrays. A classifier of digits, written as one would write it on paper: nothing runs until a value is asked for, and
// then all that is needed runs together. The digits are drawn by the program: a 5x7 font, moved about on 9x9 pixels, under noise.
#include <chrono>
#include <random>

#include "lesson.h"
#include "xhat/lazy.h"

using namespace xhat::lazy;

namespace {

constexpr int kSide = 9, kPixels = kSide * kSide, kHidden = 64, kBatch = 64, kTraining = 16384, kTest = 1024, kRounds = 6;

// Seven rows of five pixels per digit, the leftmost in the highest bit.
constexpr unsigned char kFont[10][7] = {{14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},  {14, 17, 1, 2, 4, 8, 31},
                                        {31, 2, 4, 2, 1, 17, 14},     {2, 6, 10, 18, 31, 2, 2}, {31, 16, 30, 1, 1, 17, 14},
                                        {6, 8, 16, 30, 17, 17, 14},   {31, 1, 2, 4, 8, 8, 8},   {14, 17, 17, 14, 17, 17, 14},
                                        {14, 17, 17, 15, 1, 2, 12}};

struct Digits {
  std::vector<float> pixels;
  std::vector<int> labels;
  Digits(int count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> noise(0, 0.3f);
    for (int n = 0; n < count; ++n) {
      const auto digit = generator() % 10, left = generator() % 4, top = generator() % 3;
      labels.push_back(static_cast<int>(digit));
      for (unsigned i = 0; i < kSide; ++i)
        for (unsigned j = 0; j < kSide; ++j) {
          const bool inside = i >= top && i < top + 7 && j >= left && j < left + 5;
          const bool ink = inside && (kFont[digit][i - top] >> (4 - (j - left)) & 1);
          pixels.push_back((ink ? 1.f : 0.f) + noise(generator));
        }
    }
  }
};

// A layer's weights, and how they have been moving.
struct Weights {
  Array value, momentum;
  Weights(int seed, const Shape& shape, float scale)
      : value(((random(seed, shape) - 0.5f) * scale).realize()), momentum(zeros(shape).contiguous().realize()) {}
};

}  // namespace

int main() {
  lesson::Checks check;
  const Digits training(kTraining, 1), test(kTest, 2);
  // The program's own memory, no copies.
  const Array images = array(xhat::TensorView(training.pixels.data(), {kTraining, kPixels}));
  const Array labels = array(xhat::TensorView(training.labels.data(), {kTraining, 1}));

  std::vector<Weights> weights = {Weights(1, {kPixels, kHidden}, 0.3f), Weights(2, {kHidden}, 0),
                                  Weights(3, {kHidden, kHidden}, 0.4f), Weights(4, {kHidden}, 0),
                                  Weights(5, {kHidden, 10}, 0.4f),      Weights(6, {10}, 0)};
  auto scores = [&](const Array& x) {
    const Array h = relu(matmul(x, weights[0].value) + weights[1].value);
    const Array k = relu(matmul(h, weights[2].value) + weights[3].value);
    return matmul(k, weights[4].value) + weights[5].value;
  };
  auto loss_of = [&](const Array& x, const Array& wanted) { return -mean(gather(log_softmax(scores(x)), 1, wanted)); };

  // What a step would take: nothing has run yet.
  const Array first = loss_of(images(range(0, kBatch)), labels(range(0, kBatch)));
  std::printf("the loss of a batch is %s\n", first.describe().c_str());

  const auto start = std::chrono::steady_clock::now();
  float rate = 0.1f;
  const Counts before = counts();
  for (int round = 0; round < kRounds; ++round) {
    double total = 0;
    for (int begin = 0; begin < kTraining; begin += kBatch) {
      const Range batch = range(begin, begin + kBatch);
      const Array loss = loss_of(images(batch), labels(batch));
      std::vector<Array> by;
      for (const Weights& w : weights) by.push_back(w.value);
      const std::vector<Array> gradients = grad(loss, by);
      // Loss, gradients and both updates are one program: realize() of what is wanted in the end.
      std::vector<Array> wanted = {loss};
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i].momentum.assign(0.9f * weights[i].momentum + gradients[i]);
        weights[i].value -= rate * weights[i].momentum;
        wanted.insert(wanted.end(), {weights[i].momentum, weights[i].value});
      }
      realize(wanted);
      total += loss.item();
    }
    std::printf("round %d: loss %.4f\n", round + 1, total / (kTraining / kBatch));
    rate *= 0.8f;  // a number that changes becomes an argument of the program
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const Array guesses = argmax(scores(array(xhat::TensorView(test.pixels.data(), {kTest, kPixels}))), 1);
  const Array right = guesses == array(xhat::TensorView(test.labels.data(), {kTest}));
  const double accuracy = mean(cast(right, f32)).item();
  std::printf("%.1f s, %lld programs compiled for %lld steps; %.1f%% of digits it has not seen are right\n", seconds,
              static_cast<long long>(counts().compiles - before.compiles), static_cast<long long>(kRounds * kTraining / kBatch),
              100 * accuracy);
  check.that(accuracy >= 0.95, "at least 95% are right");
  check.that(seconds < 60, "in less than a minute");
  check.that(counts().compiles - before.compiles <= 4, "a few programs are compiled, not one per step");
  return check.status();
}
