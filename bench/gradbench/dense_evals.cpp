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

Shared kmeans(const json& input, const Program& program, bool differentiate) {
  auto problem = std::make_shared<Problem>(program, ProblemOptions{.differentiate = differentiate});
  const json &points = input["points"], &centroids = input["centroids"];
  const int64_t d = size(points[0]);
  problem->input("points", {size(points), d}, flat(points));
  problem->input("centroids", {size(centroids), d}, flat(centroids));
  return problem;
}

// Newton's step: the gradient over the diagonal of the Hessian, which has nothing else, and so is its product with ones.
Call kmeans_step(const json& input) {
  static const Program newton = jvp(vjp(parse_op(op_text("kmeans.xh"))), {.wrt = {"centroids"}});
  const json& centroids = input["centroids"];
  const int64_t d = size(centroids[0]), k = size(centroids);
  Shared problem = kmeans(input, newton, false);
  problem->input("dcost", 1.0);
  problem->input("t_centroids", {k, d}, std::vector<double>(static_cast<size_t>(k * d), 1.0));
  auto step = std::make_shared<std::vector<double>>(k * d);
  auto run = [=] {
    problem->infer();
    const double *first = problem->data("grad_centroids"), *second = problem->data("jvp_grad_centroids");
    for (size_t i = 0; i < step->size(); ++i) (*step)[i] = first[i] / second[i];
  };
  return {run, [=] { return rows_of(*step, static_cast<size_t>(d)); }};
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

// The layers are written out in the op.
Shared lstm(const json& input) {
  const int64_t layers = size(input["main_params"]) / 2, bits = size(input["extra_params"][0]), characters = size(input["sequence"]);
  auto problem = std::make_shared<Problem>(parse_op(op_text("lstm.xh", {{"L", layers}})));
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
       {{"cost", [](const json& in) { return value_of(kmeans(in, parse_op(op_text("kmeans.xh")), true), "cost"); }}, {"dir", kmeans_step}}},
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
