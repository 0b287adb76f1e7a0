#include "ad/gradcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace xhat {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// Step sizes of the central differences. Large ones suffer from curvature, small ones from rounding; the
// first whose estimated error is small enough is taken. The last also serves to look at both sides of a kink.
constexpr double kSteps[] = {1e-3, 1e-4, 1e-5, 1e-6};
// Rounding errors of a forward, in units of epsilon times the size of what it adds up.
constexpr double kRoundingErrors = 16;
// Elements whose derivative is this much smaller than the input's typical one are held to the typical one's
// error.
constexpr double kNegligible = 1e-2;

struct Slope {
  double value = 0;
  double error = kInfinity;  // estimated
  double noise = 0;          // the part of it that is rounding
  double left = 0, right = 0;
};

class Checker {
 public:
  Checker(const Program& program, Arrays all, const DimValues& dim_values, const GradientCheckOptions& o)
      : p(program), dims(dim_values), options(o), data(std::move(all)), random(o.seed) {
    exact.rounding = Rounding::exact;
  }

  GradientReport run() {
    GradientReport report;
    report.tolerance = options.tolerance;
    Arrays results = evaluate(p, data, dims, exact);
    forward = data;
    for (TensorId t : p.cotangents) forward.erase(p.tensor(t).name);
    for (size_t k = 0; k < p.gradients.size(); ++k) {
      report.inputs.push_back(
          check(p.gradient_of[k], p.gradients[k], results.at(p.tensor(p.gradients[k]).name)));
      report.passed &= report.inputs.back().passed;
    }
    report.data = data;
    return report;
  }

 private:
  const Program& p;
  const DimValues& dims;
  const GradientCheckOptions& options;
  Arrays data;     // inputs and cotangents
  Arrays forward;  // inputs only: moved about
  EvaluateOptions exact;
  std::mt19937_64 random;

  // Cotangents of the outputs, in order; outputs without one (integers) do not count.
  std::vector<std::pair<std::string, const Array*>> weights() const {
    std::vector<std::pair<std::string, const Array*>> list;
    size_t next = 0;
    for (TensorId t : p.outputs)
      if (is_float(p.tensor(t).type) && next < p.cotangents.size())
        list.emplace_back(p.tensor(t).name, &data.at(p.tensor(p.cotangents[next++]).name));
    return list;
  }

  // Outputs where `input` is moved by step * direction (element < 0) or in one element.
  Arrays at(const std::string& input, std::ptrdiff_t element, const std::vector<double>& direction,
            double step) {
    Array& x = forward.at(input);
    std::vector<double> kept = x.reals;
    if (element >= 0)
      x.reals[static_cast<size_t>(element)] += step;
    else
      for (size_t i = 0; i < x.reals.size(); ++i) x.reals[i] += step * direction[i];
    Arrays y = evaluate(p_forward(), forward, dims, exact);
    x.reals = std::move(kept);
    return y;
  }

  const Program& p_forward() {
    if (!forward_program_.arena) {
      forward_program_ = p;
      std::erase_if(forward_program_.body.definitions,
                    [](const Definition& d) { return d.direction == Direction::backward; });
      forward_program_.gradients.clear();
      forward_program_.cotangents.clear();
    }
    return forward_program_;
  }
  Program forward_program_;

  // <cotangents, to - from>, and the size of the terms that were added up.
  std::pair<double, double> difference(const Arrays& to, const Arrays& from) const {
    double sum = 0, size = 0;
    for (const auto& [name, weight] : weights()) {
      const std::vector<double>& x = to.at(name).reals;
      const std::vector<double>& y = from.at(name).reals;
      for (size_t i = 0; i < x.size(); ++i) {
        if (weight->reals[i] == 0) continue;
        sum += weight->reals[i] * (x[i] - y[i]);
        size += std::fabs(weight->reals[i]) * std::max(std::fabs(x[i]), std::fabs(y[i]));
      }
    }
    return {sum, size};
  }

  Slope measure(const std::string& input, std::ptrdiff_t element, const std::vector<double>& direction,
                double derived) {
    Slope best;
    for (double h : kSteps) {
      auto [wide, size] = difference(at(input, element, direction, h), at(input, element, direction, -h));
      auto narrow =
          difference(at(input, element, direction, h / 2), at(input, element, direction, -h / 2)).first;
      double c1 = wide / (2 * h), c2 = narrow / h;
      double value = (4 * c2 - c1) / 3;  // Richardson: the term in h^2 cancels
      double noise = kRoundingErrors * kEpsilon * size / h;
      double error = std::fabs(c2 - c1) + noise;
      if (std::isfinite(error) && error < best.error) best = {value, error, noise, 0, 0};
      if (best.error <= 0.1 * options.tolerance * std::max(std::fabs(derived), std::fabs(value))) break;
    }
    return best;
  }

  void look_at_both_sides(const std::string& input, std::ptrdiff_t element,
                          const std::vector<double>& direction, Slope& slope) {
    double h = kSteps[std::size(kSteps) - 1];
    Arrays here = at(input, element, direction, 0);
    slope.right = difference(at(input, element, direction, h), here).first / h;
    slope.left = difference(here, at(input, element, direction, -h)).first / h;
  }

  void compare(GradientComparison& c, std::ptrdiff_t element, const std::vector<double>& direction,
               double derived, double typical) {
    Slope slope = measure(c.input, element, direction, derived);
    double scale = std::max({std::fabs(derived), std::fabs(slope.value), kNegligible * typical});
    double off = std::fabs(derived - slope.value);
    bool good = off <= options.tolerance * scale + slope.noise;
    if (!good && std::isfinite(derived)) {
      look_at_both_sides(c.input, element, direction, slope);
      auto [low, high] = std::minmax(slope.left, slope.right);
      // A kink, if the sides differ by much more than curvature over 1e-6 explains.
      double slack = 1e-3 * std::max(std::fabs(low), std::fabs(high));
      if (high - low > 2 * slack && derived >= low - slack && derived <= high + slack) {
        ++c.kinks;
        good = true;
        off = 0;
      }
    }
    double error = off == 0             ? 0
                   : std::isfinite(off) ? off / std::max(scale, std::numeric_limits<double>::min())
                                        : kInfinity;
    if (good && error > options.tolerance) error = options.tolerance;  // within the noise
    // A failure is worse than any success.
    if (good == c.passed ? error > c.error : !good) {
      c.error = error;
      c.derived = derived;
      c.measured = slope.value;
      c.direction = element < 0;
      c.position.clear();
      if (element >= 0) c.position = position_of(static_cast<size_t>(element), forward.at(c.input).shape);
    }
    c.passed &= good;
  }

  std::vector<size_t> elements_to_check(const Array& gradient) {
    std::vector<size_t> all(gradient.size());
    std::iota(all.begin(), all.end(), 0);
    auto wanted = static_cast<size_t>(std::max(options.elements, 0));
    if (all.size() <= wanted) return all;
    std::vector<size_t> chosen;
    for (size_t i = 0; i < wanted; ++i) {  // a partial shuffle, first and last kept in front
      size_t from = i == 0   ? 0
                    : i == 1 ? all.size() - 1
                             : i + static_cast<size_t>(random() % (all.size() - i));
      std::swap(all[i], all[from]);
      chosen.push_back(all[i]);
    }
    return chosen;
  }

  GradientComparison check(TensorId input, TensorId gradient, const Array& derived) {
    GradientComparison c;
    c.input = p.tensor(input).name;
    c.gradient = p.tensor(gradient).name;
    const Array& x = forward.at(c.input);
    if (derived.shape != x.shape)
      throw Error("op " + p.name + ": " + c.gradient + " has shape " + shape_text(derived.shape) + ", but " +
                  c.input + " has " + shape_text(x.shape) + "; a gradient has the shape of its input");
    if (!x.real() || !derived.real())
      throw Error("op " + p.name + ": " + c.input + " is no float input; only those have gradients");
    if (x.size() == 0) return c;
    double squares = 0;
    for (double g : derived.reals) squares += g * g;
    double typical = std::sqrt(squares / static_cast<double>(x.size()));

    // Elements first: of two failures the one with a position says more, unless the direction is further off.
    for (size_t i : elements_to_check(derived)) {
      compare(c, static_cast<std::ptrdiff_t>(i), {}, derived.reals[i], typical);
      ++c.elements;
    }
    for (int k = 0; k < options.directions; ++k) {
      Array v = random_normals(DType::f64, x.shape, random());
      double along = 0;
      for (size_t i = 0; i < v.reals.size(); ++i) along += v.reals[i] * derived.reals[i];
      compare(c, -1, v.reals, along, std::sqrt(squares));
      ++c.directions;
    }
    return c;
  }
};

}  // namespace

GradientReport check_gradient(const Program& p, const Arrays& inputs, const DimValues& dims,
                              const GradientCheckOptions& options) {
  Arrays all = random_cotangents(p, dims, options.seed);
  for (const auto& [name, array] : inputs) all[name] = array;
  return Checker(p, std::move(all), dims, options).run();
}

GradientReport check_gradient(const Program& p, const DimValues& dims, const GradientCheckOptions& options) {
  return check_gradient(p, random_inputs(p, dims, options.seed), dims, options);
}

std::string GradientReport::text() const {
  std::string out;
  for (const GradientComparison& c : inputs) {
    out += fmt::format("{}: {}, {} elements and {} directions, ", c.gradient, c.passed ? "ok" : "WRONG",
                       c.elements, c.directions);
    if (c.kinks) out += fmt::format("{} of them at a kink, ", c.kinks);
    std::string where = c.direction ? "along a random direction" : "at " + shape_text(c.position);
    if (c.passed)
      out += fmt::format("largest error {:.1e} (tolerance {:.1e})\n", c.error, tolerance);
    else
      out += fmt::format("error {:.1e} (tolerance {:.1e}) {}: derived {:.9g}, measured {:.9g}\n", c.error,
                         tolerance, where, c.derived, c.measured);
  }
  return out;
}

}  // namespace xhat
