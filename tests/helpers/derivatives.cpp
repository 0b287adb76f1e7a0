#include "tests/helpers/derivatives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ad/forward/jvp.h"
#include "ad/gather/gather.h"

namespace xhat::testing {
namespace {

constexpr double kStep = 1e-5;

void expect_readable(const Program& p) {
  verify(p);
  EXPECT_TRUE(equal(parse_op(print(p)), p)) << print(p);
}

// <weights, results of p>; p's results by the weights' names.
double weighted(const Program& p, const Arrays& inputs, const Arrays& weights, const DimValues& dims) {
  Arrays out = evaluate(p, inputs, dims, kExact);
  double sum = 0;
  for (const auto& [name, weight] : weights) sum += inner(weight, out.at(name));
  return sum;
}

// How fast `weighted` changes along the directions.
double measured(const Program& p, const Arrays& inputs, const Arrays& directions, const Arrays& weights,
                const DimValues& dims) {
  Arrays ahead = inputs, behind = inputs;
  for (const auto& [name, v] : directions)
    for (size_t i = 0; i < v.size(); ++i) {
      ahead.at(name).reals[i] += kStep * v.reals[i];
      behind.at(name).reals[i] -= kStep * v.reals[i];
    }
  return (weighted(p, ahead, weights, dims) - weighted(p, behind, weights, dims)) / (2 * kStep);
}

class Check {
 public:
  Check(const Program& p, const DerivativeCase& setup)
      : p_(p), setup_(setup), dims_(setup.dims), g_(gradient(p)), j_(jvp(p)), h_(hvp(p)) {}

  void run() {
    for (const Program& q : {g_, gather(g_), j_, h_}) expect_readable(q);
    draw();
    gradients_ = evaluate(g_, with_cotangents_, dims_, kExact);
    Arrays gathered = evaluate(gather(g_), with_cotangents_, dims_, kExact);
    for (TensorId t : g_.gradients)
      for (size_t i = 0; i < gradients_.at(name(g_, t)).size(); ++i)
        ASSERT_NEAR(gradients_.at(name(g_, t)).at(i), gathered.at(name(g_, t)).at(i), 1e-9)
            << print(gather(g_));
    for (int trial = 0; trial < 3 && !::testing::Test::HasFatalFailure(); ++trial) along_a_direction();
  }

  const Program& gradient_program() const { return g_; }

 private:
  static const std::string& name(const Program& p, TensorId t) { return p.tensor(t).name; }

  Array draw(TensorId t, double shift) {
    return random_array(random_, p_.tensor(t).type, shape_of(p_, t, dims_), shift);
  }

  // p's parameters, cotangents among them; and a weight for every result of p, which is g's cotangent.
  void draw() {
    std::vector<TensorId> parameters = p_.inputs, results = p_.outputs;
    parameters.insert(parameters.end(), p_.cotangents.begin(), p_.cotangents.end());
    results.insert(results.end(), p_.gradients.begin(), p_.gradients.end());
    for (TensorId t : parameters) {
      bool given = setup_.fixed.contains(name(p_, t));
      inputs_[name(p_, t)] =
          given ? setup_.fixed.at(name(p_, t)) : draw(t, p_.tensor(t).role == Role::input ? setup_.shift : 0);
    }
    with_cotangents_ = inputs_;
    for (TensorId t : results)
      if (is_float(p_.tensor(t).type)) {
        Array weight = draw(t, 0);
        with_cotangents_[name(g_, g_.cotangents.at(weights_.size()))] = weight;
        weights_[name(p_, t)] = weight;
        float_results_.push_back(name(p_, t));
      }
  }

  void along_a_direction() {
    Arrays directions, along_j = inputs_, along_h = with_cotangents_;
    size_t count = g_.gradients.size();
    double expected = 0, scale = 1;
    for (size_t k = 0; k < count; ++k) {
      const std::string& input = name(g_, g_.gradient_of[k]);
      Array v = random_array(random_, DType::f64, inputs_.at(input).shape, 0);
      double change = inner(v, gradients_.at(name(g_, g_.gradients[k])));
      expected += change;
      scale += std::abs(change);
      directions[input] = v;
      v.type = p_.tensor(g_.gradient_of[k]).type;
      along_j[name(j_, j_.inputs.at(j_.inputs.size() - count + k))] = v;
      along_h[name(h_, h_.inputs.at(h_.inputs.size() - count + k))] = v;
    }
    double numeric = measured(p_, inputs_, directions, weights_, dims_);
    ASSERT_NEAR(numeric, expected, 2e-5 * scale + 1e-6 * std::abs(numeric)) << print(g_);

    Arrays forward = evaluate(j_, along_j, dims_, kExact);
    double pushed = 0;
    size_t first = j_.outputs.size() - float_results_.size();
    for (size_t k = 0; k < float_results_.size(); ++k) {
      pushed += inner(weights_.at(float_results_[k]), forward.at(name(j_, j_.outputs[first + k])));
      // The results themselves are among the outputs.
    }
    ASSERT_NEAR(pushed, expected, 1e-9 * scale + 1e-9 * std::abs(numeric)) << print(j_);
    if (setup_.orders > 1) curvature(directions, along_h);
  }

  void curvature(const Arrays& directions, const Arrays& along) {
    Arrays products = evaluate(h_, along, dims_, kExact), weights;
    double expected = 0, scale = 1;
    for (size_t k = 0; k < g_.gradients.size(); ++k) {
      const Array& product = products.at(name(h_, h_.outputs.at(k)));
      Array& weight = weights[name(g_, g_.gradients[k])];
      weight = random_array(random_, DType::f64, product.shape, 0);
      expected += inner(weight, product);
      scale += std::abs(inner(weight, product));
    }
    double numeric = measured(g_, with_cotangents_, directions, weights, dims_);
    ASSERT_NEAR(numeric, expected, 2e-5 * scale + 1e-6 * std::abs(numeric)) << print(h_);
  }

  const Program& p_;
  const DerivativeCase& setup_;
  const DimValues& dims_;
  Program g_, j_, h_;
  std::mt19937_64 random_{7};
  Arrays inputs_, with_cotangents_, weights_, gradients_;
  std::vector<std::string> float_results_;
};

}  // namespace

Array random_array(std::mt19937_64& random, DType type, const std::vector<int64_t>& shape, double shift) {
  Array x = zeros(type, shape);
  std::normal_distribution<double> normal;
  for (double& v : x.reals) {
    v = normal(random);
    v = shift > 0 ? std::abs(v) + shift : v + (v < 0 ? -0.05 : 0.05);
  }
  for (int64_t& v : x.integers) v = static_cast<int64_t>(random() % 3);
  return x;
}

double inner(const Array& x, const Array& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x.reals[i] * y.reals[i];
  return sum;
}

Arrays run(const Program& p, const Arrays& inputs) {
  return evaluate(p, inputs, solve_dims(p, shapes_of(inputs)), kExact);
}

Array vector(std::vector<double> values) {
  auto n = static_cast<int64_t>(values.size());
  return array_of(DType::f64, {n}, std::move(values));
}

void check_derivatives(const Program& p, const DerivativeCase& setup, int order) {
  SCOPED_TRACE("order " + std::to_string(order) + ":\n" + print(p));
  Check check(p, setup);
  check.run();
  if (::testing::Test::HasFatalFailure()) return;
  if (order < setup.orders) check_derivatives(check.gradient_program(), setup, order + 1);
}

void check_derivatives(const std::string& text, const DerivativeCase& setup) {
  SCOPED_TRACE(text);
  try {
    check_derivatives(parse_op(text), setup, 1);
  } catch (const std::exception& e) {
    FAIL() << e.what();
  }
}

}  // namespace xhat::testing
