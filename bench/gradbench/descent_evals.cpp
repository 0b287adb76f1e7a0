// particle, saddle: descents along the gradient of what contains a derivative itself. The two letters of a function are the modes of the outer
// and of the inner one, f or r.
#include <cmath>
#include <memory>

#include "ad/forward/jvp.h"
#include "ad/forward/transform.h"
#include "bench/gradbench/evals.h"
#include "bench/gradbench/problem.h"

namespace xhat::gradbench {

namespace {

using Point = std::vector<double>;

// Where f is least, near x. Steps become twice as long after ten gains, and half as long after a loss, as the evals want it.
Point descend(const std::function<double(const Point&)>& f, const std::function<Point(const Point&)>& slope, Point x) {
  constexpr double kClose = 1e-5;
  auto length = [](const Point& v) {
    double sum = 0;
    for (double e : v) sum += e * e;
    return std::sqrt(sum);
  };
  double value = f(x), rate = 1e-5;
  Point down = slope(x);
  for (int gains = 0; length(down) > kClose;) {
    if (gains == 10) {
      rate *= 2;
      gains = 0;
      continue;
    }
    Point next = x, step = x;
    for (size_t i = 0; i < x.size(); ++i) {
      next[i] -= rate * down[i];
      step[i] -= next[i];
    }
    if (length(step) <= kClose) break;
    const double there = f(next);
    if (there < value) {
      x = next;
      value = there;
      down = slope(x);
      ++gains;
    } else {
      rate /= 2;
      gains = 0;
    }
  }
  return x;
}

// The program of a file, with the op `slope` that it calls: the derivative of its op `potential` by x, by one of the two modes.
Program with_slope(const std::string& file, char mode) {
  const std::string text = op_text(file);
  const Program potential = parse_op(text.substr(0, text.find("\nprog ")));
  const Program derived = mode == 'f' ? jacobian(potential, {.wrt = {"x"}}) : vjp(potential, {.wrt = {"x"}});
  const std::string parameters = print(potential).substr(print(potential).find('('));
  return parse_op(
      print(derived) + "op slope" + parameters.substr(0, parameters.find(" -> ")) + " -> (s) {\n" +
      (mode == 'f' ? "  (value, s) = potential_jacobian(x, w)\n" : "  one = f64(1)\n  (value, s) = potential_vjp(x, w, one)\n") + "}\n" +
      text);
}

// A number that a program makes of w, and its gradient by one of the two modes.
class Scalar {
 public:
  Scalar(const Program& program, char mode, const std::string& output, int64_t size, const std::function<void(Problem&)>& others = {})
      : output_(output), reverse_(mode == 'r'), value_(program, {.differentiate = reverse_}) {
    if (!reverse_) forward_.emplace(jvp(program, {.wrt = {"w"}}), ProblemOptions{.differentiate = false});
    const std::vector<int64_t> shape = size == 0 ? std::vector<int64_t>{} : std::vector{size};
    const Point zeros(static_cast<size_t>(std::max<int64_t>(size, 1)));
    value_.input("w", shape, zeros);
    if (forward_) {
      forward_->input("w", shape, zeros);
      forward_->input("t_w", shape, zeros);
    }
    if (!others) return;
    others(value_);
    if (forward_) others(*forward_);
  }

  double operator()(const Point& w) {
    std::copy(w.begin(), w.end(), value_.data("w"));
    value_.infer();
    return value_.value(output_);
  }
  Point slope(const Point& w) {
    if (reverse_) {
      std::copy(w.begin(), w.end(), value_.data("w"));
      value_.gradient();
      return value_.values("grad_w");
    }
    Point slope;
    std::copy(w.begin(), w.end(), forward_->data("w"));
    for (size_t i = 0; i < w.size(); ++i) {
      for (size_t j = 0; j < w.size(); ++j) forward_->data("t_w")[j] = i == j;
      forward_->infer();
      slope.push_back(forward_->value("jvp_" + output_));
    }
    return slope;
  }
  Problem& problem() { return value_; }

 private:
  std::string output_;
  bool reverse_;
  Problem value_;
  std::optional<Problem> forward_;
};

Point least(Scalar& f, const Point& start) {
  return descend([&](const Point& w) { return f(w); }, [&](const Point& w) { return f.slope(w); }, start);
}

Call particle(const std::string& modes, const json& input) {
  auto flight = std::make_shared<Scalar>(with_slope("particle.xh", modes[1]), modes[0], "miss", 0);
  auto w = std::make_shared<double>();
  return {[=, start = Point{input["w"]}] { *w = least(*flight, start)[0]; }, [=] { return json(*w); }};
}

// The least of the largest values; then where that is.
Call saddle(const std::string& modes, const json& input) {
  const Point start = input["start"];
  auto begin = [=](Problem& p) {
    p.input("start", {2}, start);
    p.input("dx", {2}, Point{0, 0});  // its place has no part in the value
  };
  auto most = std::make_shared<Scalar>(with_slope("saddle.xh", modes[1]), modes[0], "best", 2, begin);
  auto last = std::make_shared<Scalar>(with_slope("saddle.xh", modes[0]), 'r', "best", 2, begin);
  auto both = std::make_shared<Point>();
  auto run = [=] {
    *both = least(*most, start);
    (*last)(*both);
    const Point there = last->problem().values("x");
    both->insert(both->end(), there.begin(), there.end());
  };
  return {run, [=] { return json(*both); }};
}

Module of_modes(Call (*eval)(const std::string&, const json&)) {
  Module module;
  for (const char* modes : {"ff", "fr", "rf", "rr"}) module[modes] = [=](const json& input) { return eval(modes, input); };
  return module;
}

}  // namespace

std::map<std::string, Module> descent_modules() { return {{"particle", of_modes(particle)}, {"saddle", of_modes(saddle)}}; }

}  // namespace xhat::gradbench
