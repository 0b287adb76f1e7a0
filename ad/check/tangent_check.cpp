#include "ad/check/tangent_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ad/check/perturbed.h"

namespace xhat {
namespace {

class TangentCheck {
 public:
  TangentCheck(const Program& p, const Program& tangents, const std::vector<TangentPair>& pairs,
               const std::vector<std::string>& moving, const Arrays& data, const DimValues& dims,
               const GradcheckOptions& o)
      : perturbed_(p, data), tangents_(tangents), pairs_(pairs), moving_(moving), data_(data), dims_(dims), options_(o) {}

  void along(uint64_t seed, std::vector<DerivativeComparison>& comparisons) {
    Arrays with_tangents = data_;
    directions_.clear();
    for (size_t k = 0; k < moving_.size(); ++k) {
      const Array& x = data_.at(moving_[k]);
      directions_.push_back(random_normals(DType::f64, x.shape, seed + k));
      Array tangent = directions_.back();
      tangent.type = x.type;
      TensorId t = tangents_.inputs[tangents_.inputs.size() - moving_.size() + k];
      with_tangents[tangents_.tensor(t).name] = tangent;
    }
    derived_ = evaluate(tangents_, with_tangents, dims_, kExact);
    measure();
    SidesByStep sides;
    for (size_t k = 0; k < pairs_.size(); ++k) compare(k, comparisons[k], sides);
  }

 private:
  using SidesByStep = std::map<double, std::pair<Arrays, Arrays>>;

  Arrays at(double step) const {
    Arrays moved = data_;
    for (size_t k = 0; k < moving_.size(); ++k)
      for (size_t i = 0; i < directions_[k].size(); ++i)
        moved.at(moving_[k]).reals[i] += step * directions_[k].reals[i];
    return perturbed_.evaluate(moved, dims_);
  }

  // The slopes of all elements, with step sizes until all are known well enough.
  void measure() {
    slopes_.assign(pairs_.size(), {});
    for (double h : kSteps) {
      Arrays right = at(h), left = at(-h), near_right = at(h / 2), near_left = at(-h / 2);
      bool settled = true;
      for (size_t k = 0; k < pairs_.size(); ++k) {
        const std::string& name = pairs_[k].result;
        const Array& derived = derived_.at(pairs_[k].product);
        slopes_[k].resize(derived.size());
        double size = std::max(largest(right), largest(data_));
        auto difference = [&](const Arrays& to, const Arrays& from, size_t i) {
          return Difference{to.at(name).reals[i] - from.at(name).reals[i], size};
        };
        for (size_t i = 0; i < derived.size(); ++i) {
          Slope& s = slopes_[k][i];
          if (s.settled(derived.reals[i], options_.tolerance)) continue;
          s.refine(h, difference(right, left, i), difference(near_right, near_left, i));
          settled &= s.settled(derived.reals[i], options_.tolerance);
        }
      }
      if (settled) break;
    }
  }

  // What cancels inside leaves rounding errors of the size of what it is made of, which nobody sees here: the
  // largest number around stands for it.
  static double largest(const Arrays& arrays) {
    double most = 0;
    for (const auto& [name, x] : arrays)
      for (double v : x.reals)
        if (std::isfinite(v)) most = std::max(most, std::fabs(v));
    return most;
  }

  void compare(size_t k, DerivativeComparison& c, SidesByStep& sides) {
    const Array& derived = derived_.at(pairs_[k].product);
    const std::string& result = pairs_[k].result;
    double squares = 0;
    for (double v : derived.reals) squares += v * v;
    double typical = derived.size() ? std::sqrt(squares / static_cast<double>(derived.size())) : 0;
    for (size_t i = 0; i < derived.size(); ++i) {
      Verdict v = judge(derived.reals[i], slopes_[k][i], typical, options_.tolerance, [&](double h) {
        if (sides.empty()) here_ = at(0);
        if (!sides.contains(h)) sides.emplace(h, std::pair(at(-h), at(h)));
        const auto& [left, right] = sides.at(h);
        double middle = here_.at(result).reals[i];
        return std::pair((middle - left.at(result).reals[i]) / h, (right.at(result).reals[i] - middle) / h);
      });
      ++c.elements;
      if (note(c, v, derived.reals[i], slopes_[k][i].value)) c.position = position_of(i, derived.shape);
    }
    ++c.directions;
  }

  const Perturbed perturbed_;
  const Program& tangents_;
  const std::vector<TangentPair>& pairs_;
  const std::vector<std::string>& moving_;
  const Arrays& data_;
  const DimValues& dims_;
  const GradcheckOptions& options_;
  std::vector<Array> directions_;  // parallel to moving_
  Arrays derived_, here_;
  std::vector<std::vector<Slope>> slopes_;  // per pair, per element
};

}  // namespace

bool note(DerivativeComparison& c, const Verdict& v, double derived, double measured) {
  bool worst = v.good == c.passed ? v.error > c.error : !v.good;  // a failure is worse than any success
  c.kinks += v.kink;
  c.passed &= v.good;
  if (!worst) return false;
  c.error = v.error;
  c.derived = derived;
  c.measured = measured;
  c.position.clear();
  c.direction = false;
  return true;
}

std::vector<DerivativeComparison> check_tangents(DerivativeComparison::Kind kind, const Program& p,
                                                 const Program& tangents,
                                                 const std::vector<TangentPair>& pairs,
                                                 const std::vector<std::string>& moving, const Arrays& data,
                                                 const DimValues& dims, const GradcheckOptions& options) {
  std::vector<DerivativeComparison> comparisons;
  for (const TangentPair& pair : pairs) {
    DerivativeComparison c;
    c.kind = kind;
    c.name = pair.product;
    c.input = pair.input;
    c.tolerance = options.tolerance;
    comparisons.push_back(c);
  }
  TangentCheck check(p, tangents, pairs, moving, data, dims, options);
  for (int k = 0; k < options.directions; ++k)
    check.along(options.seed * 1000 + static_cast<uint64_t>(k) * 100 + 17, comparisons);
  return comparisons;
}

}  // namespace xhat
