// lse, llsq, gmm, kmeans, ode, lstm: one number, or the last of many, and its gradient.
#include <memory>

#include "ad/forward/jvp.h"
#include "bench/gradbench/evals.h"
#include "bench/gradbench/problem.h"

namespace xhat::gradbench {

std::vector<double> flat(const json& rows) {
  std::vector<double> all;
  if (!rows.is_array()) return {rows.get<double>()};
  if (rows.empty() || !rows[0].is_array()) return rows.get<std::vector<double>>();
  for (const json& row : rows) {
    std::vector<double> values = flat(row);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

json rows_of(const std::vector<double>& values, size_t columns) {
  json rows = json::array();
  for (size_t i = 0; i < values.size(); i += columns)
    rows.push_back(std::vector<double>(values.begin() + static_cast<int64_t>(i), values.begin() + static_cast<int64_t>(i + columns)));
  return rows;
}

namespace {

using Shared = std::shared_ptr<Problem>;

Call value_of(const Shared& problem, const std::string& output) {
  return {[=] { problem->infer(); }, [=] { return json(problem->value(output)); }};
}
Call gradient_of(const Shared& problem, std::function<json(Problem&)> output) {
  return {[=] { problem->gradient(); }, [=] { return output(*problem); }};
}

int64_t size(const json& list) { return static_cast<int64_t>(list.size()); }

Shared lse(const json& input) {
  auto problem = std::make_shared<Problem>(parse_op(op_text("lse.xh")));
  problem->input("x", {size(input["x"])}, flat(input["x"]));
  return problem;
}

Shared llsq(const json& input) {
  auto problem = std::make_shared<Problem>(parse_op(op_text("llsq.xh")), ProblemOptions{.dims = {{"N", input["n"]}}});
  problem->input("x", {size(input["x"])}, flat(input["x"]));
  return problem;
}

Shared gmm(const json& input) {
  auto problem = std::make_shared<Problem>(parse_op(op_text("gmm.xh")));
  const int64_t d = input["d"], k = input["k"], n = input["n"];
  problem->input("alpha", {k}, flat(input["alpha"]));
  problem->input("mu", {k, d}, flat(input["mu"]));
  problem->input("q", {k, d}, flat(input["q"]));
  problem->input("l", {k, d * (d - 1) / 2}, flat(input["l"]));
  problem->input("x", {n, d}, flat(input["x"]));
  problem->input("gamma", input["gamma"].get<double>());
  problem->input("m", input["m"].get<double>());
  return problem;
}

json gmm_gradient(Problem& problem, size_t d) {
  return {{"alpha", problem.values("grad_alpha")},
          {"mu", rows_of(problem.values("grad_mu"), d)},
          {"q", rows_of(problem.values("grad_q"), d)},
          {"l", rows_of(problem.values("grad_l"), std::max<size_t>(1, d * (d - 1) / 2))}};
}

Shared kmeans(const json& input, const Program& program) {
  auto problem = std::make_shared<Problem>(program);
  const json &points = input["points"], &centroids = input["centroids"];
  const int64_t d = size(points[0]);
  problem->input("points", {size(points), d}, flat(points));
  problem->input("centroids", {size(centroids), d}, flat(centroids));
  return problem;
}

// Newton's step: the gradient over the diagonal of the Hessian, which has nothing else, and so is its product with ones. The gradient is an op
// of its own here, and its backward that product, for the Hessian is symmetric.
Program slope_of_cost() {
  const Program derived = vjp(parse_op(op_text("kmeans.xh")));
  return parse_op(print(derived) +
                  "op slope(points: f64[N,D] const, centroids: f64[K,D]) -> (first) {\n  one = f64(1)\n  (cost, first) = " + derived.name +
                  "(points, centroids, one)\n}\n");
}

Call kmeans_step(const json& input) {
  static const Program slope = slope_of_cost();
  Shared problem = kmeans(input, slope);
  auto step = std::make_shared<std::vector<double>>(flat(input["centroids"]).size());
  auto run = [=] {
    problem->gradient();
    const double *first = problem->data("first"), *second = problem->data("grad_centroids");
    for (size_t i = 0; i < step->size(); ++i) (*step)[i] = first[i] / second[i];
  };
  return {run, [=, d = input["points"][0].size()] { return rows_of(*step, d); }};
}

Shared ode(const json& input) {
  auto problem = std::make_shared<Problem>(parse_op(op_text("ode.xh")));
  problem->input("x", {size(input["x"])}, flat(input["x"]));
  problem->whole_number("steps", input["s"]);
  return problem;
}

// Of the last element.
Call ode_gradient(const json& input) {
  Shared problem = ode(input);
  std::vector<double> last(input["x"].size());
  last.back() = 1;
  problem->input("dy", {size(input["x"])}, last);
  return gradient_of(problem, [](Problem& p) { return json(p.values("grad_x")); });
}

Shared lstm(const json& input) {
  const int64_t layers = size(input["main_params"]) / 2, bits = size(input["extra_params"][0]), characters = size(input["sequence"]);
  auto problem = std::make_shared<Problem>(parse_op(op_text("lstm.xh")));
  problem->input("main", {layers, 2, 4, bits}, flat(input["main_params"]));
  problem->input("extra", {3, bits}, flat(input["extra_params"]));
  problem->input("state", {layers, 2, bits}, flat(input["state"]));
  problem->input("sequence", {characters, bits}, flat(input["sequence"]));
  return problem;
}

json lstm_gradient(Problem& problem) {
  std::vector<double> all = problem.values("grad_main"), extra = problem.values("grad_extra");
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

}  // namespace

std::map<std::string, Module> dense_modules() {
  auto grad_x = [](Problem& p) { return json(p.values("grad_x")); };
  return {
      {"lse",
       {{"primal", [](const json& in) { return value_of(lse(in), "y"); }},
        {"gradient", [=](const json& in) { return gradient_of(lse(in), grad_x); }}}},
      {"llsq",
       {{"primal", [](const json& in) { return value_of(llsq(in), "y"); }},
        {"gradient", [=](const json& in) { return gradient_of(llsq(in), grad_x); }}}},
      {"gmm",
       {{"objective", [](const json& in) { return value_of(gmm(in), "y"); }},
        {"jacobian",
         [](const json& in) { return gradient_of(gmm(in), [d = in["d"].get<size_t>()](Problem& p) { return gmm_gradient(p, d); }); }}}},
      {"kmeans",
       {{"cost", [](const json& in) { return value_of(kmeans(in, parse_op(op_text("kmeans.xh"))), "cost"); }}, {"dir", kmeans_step}}},
      {"ode",
       {{"primal",
         [](const json& in) {
           Shared problem = ode(in);
           return Call{[=] { problem->infer(); }, [=] { return json(problem->values("y")); }};
         }},
        {"gradient", ode_gradient}}},
      {"lstm",
       {{"objective", [](const json& in) { return value_of(lstm(in), "loss"); }},
        {"jacobian", [](const json& in) { return gradient_of(lstm(in), lstm_gradient); }}}},
  };
}

}  // namespace xhat::gradbench
