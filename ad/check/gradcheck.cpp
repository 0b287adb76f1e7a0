#include "ad/check/gradcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>

#include "ad/check/perturbed.h"
#include "ad/check/slope.h"
#include "ad/check/tangent_check.h"
#include "ad/common/differentiation.h"
#include "ad/forward/jvp.h"
#include "expr/index/without_points.h"

namespace xhat {
namespace {

using Kind = DerivativeComparison::Kind;

// The inner products agree but for the order of additions: relative to the sum of the terms' sizes, and to what
// may have cancelled in them.
constexpr double kInnerProductTolerance = 1e-9;
constexpr double kCancellation = 1e-12;

std::vector<TensorId> float_outputs(const Program& p) {
  std::vector<TensorId> found;
  for (TensorId t : p.outputs)
    if (is_float(p.tensor(t).type)) found.push_back(t);
  return found;
}

class Checker {
 public:
  Checker(const Program& program, Arrays all, const DimValues& dim_values, const GradcheckOptions& o)
      : p(program), dims(dim_values), options(o), data(std::move(all)), random(o.seed) {}

  GradcheckReport run() {
    GradcheckReport report;
    results = evaluate(p, data, dims, kExact);
    forward_program = without_backward(p);
    forward = data;
    for (TensorId t : p.cotangents) forward.erase(p.tensor(t).name);
    perturbed.emplace(forward_program, forward);
    for (const auto& [name, x] : forward)
      for (double v : x.reals) largest = std::max(largest, std::fabs(v));
    for (size_t k = 0; k < p.gradients.size() && !moves_what_is_stopped(p); ++k)
      report.comparisons.push_back(
          check(p.gradient_of[k], p.gradients[k], results.at(p.tensor(p.gradients[k]).name)));
    bool kinks = std::ranges::any_of(report.comparisons, [](auto& c) { return c.kinks > 0; });
    if (!p.gradients.empty() && !p.cotangents.empty()) report.comparisons.push_back(inner_product(kinks));
    for (const DerivativeComparison& c : report.comparisons) report.passed &= c.passed;
    report.data = data;
    return report;
  }

 private:
  const Program& p;
  const DimValues& dims;
  const GradcheckOptions& options;
  Arrays data;     // inputs and cotangents
  Arrays forward;  // inputs only: moved about
  double largest = 0;  // of them
  Arrays results;
  Program forward_program;
  std::optional<Perturbed> perturbed;  // the same, for finite differences
  std::mt19937_64 random;

  // Cotangents of the outputs, in order; outputs without one (integers) do not count.
  std::vector<std::pair<std::string, const Array*>> weights() const {
    std::vector<std::pair<std::string, const Array*>> list;
    for (TensorId t : float_outputs(p))
      if (list.size() < p.cotangents.size())
        list.emplace_back(p.tensor(t).name, &data.at(p.tensor(p.cotangents[list.size()]).name));
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
    Arrays y = perturbed->evaluate(forward, dims);
    x.reals = std::move(kept);
    return y;
  }

  // <cotangents, to - from>, and the size of the terms that were added up. What cancelled inside them, as in min(x) - x,
  // nobody sees here: the largest input stands for it.
  Difference difference(const Arrays& to, const Arrays& from) const {
    Difference d;
    for (const auto& [name, weight] : weights()) {
      const std::vector<double>& x = to.at(name).reals;
      const std::vector<double>& y = from.at(name).reals;
      for (size_t i = 0; i < x.size(); ++i) {
        if (weight->reals[i] == 0) continue;
        d.value += weight->reals[i] * (x[i] - y[i]);
        d.size += std::fabs(weight->reals[i]) * std::max({std::fabs(x[i]), std::fabs(y[i]), largest});
      }
    }
    return d;
  }

  void compare(DerivativeComparison& c, std::ptrdiff_t element, const std::vector<double>& direction,
               double derived, double typical) {
    auto apart = [&](double to, double from) {
      return difference(at(c.input, element, direction, to), at(c.input, element, direction, from));
    };
    auto sides = [&](double h) { return std::pair(apart(0, -h).value / h, apart(h, 0).value / h); };
    auto measured = [&](auto from) {
      Slope slope;
      for (auto h = from; h != kSteps.end() && !slope.settled(derived, options.tolerance); ++h)
        slope.refine(*h, apart(*h, -*h), apart(*h / 2, -*h / 2));
      return slope;
    };
    Slope slope = measured(kSteps.begin());
    Verdict v = judge(derived, slope, typical, options.tolerance, sides);
    // A step may come to rest on what is not near: relu(1e4*x % 1.5 - 1) is 0 at most places. Where smaller ones give another
    // slope, they decide.
    for (Slope nearer = slope; !v.good && nearer.step != kSteps.back();) {
      nearer = measured(std::ranges::find(kSteps, nearer.step) + 1);
      if (std::fabs(nearer.value - slope.value) <= slope.error + nearer.error) continue;
      Verdict again = judge(derived, nearer, typical, options.tolerance, sides);
      if (again.good) v = again, slope = nearer;
    }
    if (!note(c, v, derived, slope.value)) return;
    c.direction = element < 0;
    if (element >= 0) c.position = position_of(static_cast<size_t>(element), forward.at(c.input).shape);
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

  DerivativeComparison check(TensorId input, TensorId gradient, const Array& derived) {
    DerivativeComparison c;
    c.input = p.tensor(input).name;
    c.name = p.tensor(gradient).name;
    c.tolerance = options.tolerance;
    const Array& x = forward.at(c.input);
    if (derived.shape != x.shape)
      throw Error("op " + p.name + ": " + c.name + " has shape " + shape_text(derived.shape) + ", but " +
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

  // Forward mode of the definitions themselves against p's gradients, over all inputs and outputs at once. at_kinks:
  // the gradients were found to be one of several that are right, so that another one is no mistake.
  DerivativeComparison inner_product(bool at_kinks) {
    Program push = readable_at(jvp(forward_program, {names_of(p, p.gradient_of)}), dims);
    DerivativeComparison c;
    c.kind = Kind::inner_product;
    c.name = "<dy, J v>";
    c.tolerance = kInnerProductTolerance;
    Arrays with_tangents = forward;
    double size = 0, around = 0;
    for (size_t k = 0; k < p.gradients.size(); ++k) {
      const Array& g = results.at(p.tensor(p.gradients[k]).name);
      TensorId t = push.inputs[push.inputs.size() - p.gradients.size() + k];
      Array v = random_normals(push.tensor(t).type, g.shape, random());
      for (size_t i = 0; i < g.size(); ++i) {
        c.derived += v.reals[i] * g.reals[i];
        size += std::fabs(v.reals[i] * g.reals[i]);
        around += std::fabs(v.reals[i]);
      }
      with_tangents[push.tensor(t).name] = std::move(v);
    }
    Arrays pushed = evaluate(push, with_tangents, dims, kExact);
    size_t next = p.outputs.size();
    for (const auto& [name, weight] : weights()) {
      const Array& y = pushed.at(push.tensor(push.outputs[next++]).name);
      for (size_t i = 0; i < y.size(); ++i) {
        if (weight->reals[i] == 0) continue;
        c.measured += weight->reals[i] * y.reals[i];
        size += std::fabs(weight->reals[i] * y.reals[i]);
        around += std::fabs(weight->reals[i]);
      }
    }
    double off = std::fabs(c.derived - c.measured), allowed = c.tolerance * size + kCancellation * around;
    c.directions = 1;
    c.direction = true;
    c.error = off == 0 ? 0 : std::isfinite(off) ? off / std::max(size, around * kCancellation) : HUGE_VAL;
    c.passed = off <= allowed;
    if (!c.passed && at_kinks) c.passed = std::isfinite(off), c.kinks = 1;
    if (c.passed) c.error = std::min(c.error, c.tolerance);
    return c;
  }
};

// Order 1 forward, and order 2.
void add_tangents(GradcheckReport& report, const Program& op, const Program& derived, const DimValues& dims,
                  const GradcheckOptions& options) {
  std::vector<std::string> moving = names_of(derived, derived.gradient_of);
  auto add = [&](const std::vector<DerivativeComparison>& rows) {
    for (const DerivativeComparison& c : rows) {
      report.passed &= c.passed;
      report.comparisons.push_back(c);
    }
  };
  Arrays inputs;
  for (TensorId t : op.inputs) inputs[op.tensor(t).name] = report.data.at(op.tensor(t).name);
  std::vector<TangentPair> pairs;
  try {
    Program push = readable_at(jvp(op, {moving}), dims);
    for (TensorId t : float_outputs(op))
      pairs.push_back(
          {op.tensor(t).name, push.tensor(push.outputs[op.outputs.size() + pairs.size()]).name, ""});
    if (moves_what_is_stopped(op)) return;
    add(check_tangents(Kind::jvp, op, push, pairs, moving, inputs, dims, options));
  } catch (const Error& e) {  // the names in moving are right, so it is a stated gradient
    DerivativeComparison c;
    c.kind = Kind::jvp;
    c.name = "jvp";
    c.passed = false;
    c.error = HUGE_VAL;
    c.tolerance = options.tolerance;
    c.note = e.message();
    add({c});
  }
  if (options.orders < 2 || op.steps) return;  // through loops and branches there is order 1 as yet
  Program product = readable_at(hvp(op, {.wrt = moving, .along = moving}), dims);
  pairs.clear();
  for (size_t k = 0; k < moving.size(); ++k)
    pairs.push_back(
        {derived.tensor(derived.gradients[k]).name, product.tensor(product.outputs[k]).name, moving[k]});
  add(check_tangents(Kind::hvp, derived, product, pairs, moving, report.data, dims, options));
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::gradient: return "gradient";
    case Kind::inner_product: return "inner product";
    case Kind::jvp: return "jvp";
    case Kind::hvp: return "hvp";
  }
  throw Bug("unknown kind of derivative");
}

GradcheckReport check_gradient(const Program& p, const Arrays& inputs, const DimValues& dims,
                               const GradcheckOptions& options) {
  Arrays all = random_cotangents(p, dims, options.seed);
  for (const auto& [name, array] : inputs) all[name] = array;
  const Program at_sizes = readable_at(p, dims);
  return Checker(at_sizes, std::move(all), dims, options).run();
}

GradcheckReport check_gradient(const Program& p, const DimValues& dims, const GradcheckOptions& options) {
  return check_gradient(p, random_inputs(p, dims, options.seed), dims, options);
}

GradcheckReport gradcheck(const Program& source, const Arrays& inputs, const DimValues& dims,
                          const GradcheckOptions& options) {
  const Program op = as_forward(source), derived = readable_at(gradient(op, {options.wrt}), dims);
  GradcheckReport report = check_gradient(derived, inputs, dims, options);
  if (!derived.gradients.empty()) add_tangents(report, op, derived, dims, options);
  return report;
}

GradcheckReport gradcheck(const Program& op, const DimValues& dims, const GradcheckOptions& options) {
  return gradcheck(op, random_inputs(as_forward(op), dims, options.seed), dims, options);
}

std::string GradcheckReport::text() const {
  std::string out;
  for (const DerivativeComparison& c : comparisons) {
    if (!c.note.empty()) {
      out += c.name + ": WRONG, " + c.note + "\n";
      continue;
    }
    std::string what = c.kind == Kind::inner_product ? "inner product " + c.name : c.name;
    out += fmt::format("{}: {}, {} elements and {} directions, ", what, c.passed ? "ok" : "WRONG", c.elements,
                       c.directions);
    if (c.kinks) out += fmt::format("{} of them at a kink, ", c.kinks);
    if (c.passed) {
      out += fmt::format("largest error {:.1e} (tolerance {:.1e})\n", c.error, c.tolerance);
      continue;
    }
    std::string where = c.direction ? "along a random direction" : "at " + shape_text(c.position);
    std::string other = c.kind == Kind::inner_product ? "by forward mode" : "measured";
    out += fmt::format("error {:.1e} (tolerance {:.1e}) {}: derived {:.9g}, {} {:.9g}\n", c.error,
                       c.tolerance, where, c.derived, other, c.measured);
  }
  return out;
}

}  // namespace xhat
