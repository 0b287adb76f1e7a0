// ba, ht: residuals and their Jacobian.
#include <memory>

#include "ad/forward/transform.h"
#include "bench/gradbench/evals.h"
#include "bench/gradbench/problem.h"

namespace xhat::gradbench {

namespace {

// Bundle adjustment: p observations of m points by n cameras. One camera, point, weight and feature are given, of which all are copies, as the
// eval wants it; nothing here makes use of that.
class Bundle {
 public:
  explicit Bundle(const json& input)
      : n_(input["n"]),
        m_(input["m"]),
        p_(input["p"]),
        observed_(op("observed"), {.differentiate = false}),
        weight_(op("weight")),
        places_(op("places"), {.differentiate = false}),
        reprojection_(op("reprojection")),
        rows_first_(op("rows_first"), {.differentiate = false}),
        slopes_(static_cast<size_t>(30 * p_) * sizeof(double)),
        values_(static_cast<size_t>(31 * p_) * sizeof(double)),
        cols_(static_cast<size_t>(31 * p_) * sizeof(int32_t)) {
    std::vector<int32_t> camera(p_), point(p_);
    for (int64_t i = 0; i < p_; ++i) {
      camera[i] = static_cast<int32_t>(i % n_);
      point[i] = static_cast<int32_t>(i % m_);
    }
    for (Problem* problem : {&observed_, &places_}) {
      problem->input("camera", {p_}, camera);
      problem->input("point", {p_}, point);
    }
    observed_.input("cameras", {n_, 11}, copies(flat(input["cam"]), n_));
    observed_.input("points", {m_, 3}, copies(flat(input["x"]), m_));
    places_.whole_number("cameras", n_);
    places_.whole_number("points", m_);
    const std::vector<double> w = copies({input["w"].get<double>()}, p_);
    weight_.input("w", {p_}, w);
    reprojection_.input("w", {p_}, w);
    reprojection_.input("seen", {p_, 2}, copies(flat(input["feat"]), p_));

    gather();
    auto* values = reinterpret_cast<double*>(values_.data());
    auto* cols = reinterpret_cast<int32_t*>(cols_.data());
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (i < 14) reprojection_.place(kNames[i], TensorView((i < 11 ? observed_.data("c") : observed_.data("x") - 11 * p_) + i * p_, {p_}));
      reprojection_.place("grad_" + kNames[i], TensorView(slope(0, i), {p_}));
    }
    rows_first_.place("slope", TensorView(slope(0, 0), {2, 15, p_}));
    rows_first_.place("value", TensorView(values, {p_, 2, 15}));
    weight_.place("grad_w", TensorView(values + 30 * p_, {p_}));
    places_.place("cols", TensorView(cols, {p_, 2, 15}));
    places_.place("weight_cols", TensorView(cols + 30 * p_, {p_}));
    reprojection_.place("de0", TensorView(&row_[0], {p_}, {0}));
    reprojection_.place("de1", TensorView(&row_[1], {p_}, {0}));
  }

  void objective() {
    gather();
    reprojection_.infer();
    weight_.infer();
  }

  // One cotangent for each of the two rows of an observation.
  void jacobian() {
    gather();
    reprojection_.forward();
    for (int64_t row = 0; row < 2; ++row) {
      row_[0] = row == 0;
      row_[1] = row == 1;
      for (size_t i = 0; i < kNames.size(); ++i) reprojection_.move("grad_" + kNames[i], slope(row, i));
      reprojection_.backward();
    }
    rows_first_.infer();
    weight_.gradient();
    places_.infer();
  }

  // The first and the last, of which all are copies.
  json errors() {
    return {{"reproj_error", {{"elements", {reprojection_.value("e0"), reprojection_.value("e1")}}, {"repeated", p_}}},
            {"w_err", {{"element", weight_.value("e")}, {"repeated", p_}}}};
  }
  json sparse() {
    const auto* rows = reinterpret_cast<const int32_t*>(places_.data("rows"));
    const auto* cols = reinterpret_cast<const int32_t*>(cols_.data());
    const auto* values = reinterpret_cast<const double*>(values_.data());
    auto ends = [](const auto* all, int64_t last) {
      json some = std::vector(all, all + 30);
      some.push_back(all[last]);
      return some;
    };
    return {{"rows", ends(rows, 3 * p_)}, {"cols", ends(cols, 31 * p_ - 1)}, {"vals", ends(values, 31 * p_ - 1)}};
  }

 private:
  static Program op(const std::string& name) { return parse_op(op_text("ba.xh"), name); }
  static std::vector<double> copies(const std::vector<double>& one, int64_t times) {
    std::vector<double> all;
    all.reserve(one.size() * static_cast<size_t>(times));
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
  void gather() { observed_.infer(); }
  double* slope(int64_t row, size_t i) { return reinterpret_cast<double*>(slopes_.data()) + (15 * row + static_cast<int64_t>(i)) * p_; }

  // In the order of the columns.
  const std::vector<std::string> kNames = {"a0", "a1", "a2", "c0", "c1", "c2", "focus", "u0", "u1", "k1", "k2", "x0", "x1", "x2", "w"};
  int64_t n_, m_, p_;
  Problem observed_, weight_, places_, reprojection_, rows_first_;
  bench::TouchedBuffer slopes_, values_, cols_;
  double row_[2] = {1, 1};
};

Call ba_objective(const json& input) {
  auto bundle = std::make_shared<Bundle>(input);
  return {[=] { bundle->objective(); }, [=] { return bundle->errors(); }};
}
Call ba_jacobian(const json& input) {
  auto bundle = std::make_shared<Bundle>(input);
  return {[=] { bundle->jacobian(); }, [=] { return bundle->sparse(); }};
}

// Hand tracking. With places in triangles ("complicated"), the Jacobian has two columns for each place's own coordinates, then those of theta.
Program hand(bool places, bool jacobian) {
  const Program op = parse_op(op_text("ht.xh"), places ? "hand" : "hand_simple");
  if (!jacobian) return op;
  if (!places) return xhat::jacobian(op, {.wrt = {"theta"}});
  // Its two parts side by side.
  const std::string text = print(xhat::jacobian(op, {.wrt = {"theta", "slide"}}));
  const size_t open = text.find('('), close = text.find(") -> ");
  std::string names;
  for (TensorId t : op.inputs) names += (names.empty() ? "" : ", ") + op.tensor(t).name;
  return parse_op(text + "\nop both" + text.substr(open, close - open) + ") -> (error, jac_error_theta) {\n" +
                  "  (error, by_theta, by_slide) = " + text.substr(3, open - 3) + "(" + names + ")\n" +
                  "  jac_error_theta[c,i,k in 0..28] = if k < 2 then by_slide[c,i,k] else by_theta[c,i,k-2]\n}\n");
}

// The bones 1, 2, 4, 8 and 16 steps above each one, or -1.
std::vector<int32_t> ancestors(const std::vector<int32_t>& parents) {
  if (parents.size() > 32) throw Error("hands have at most 32 bones here");
  std::vector<int32_t> all = parents, last = parents;
  for (int round = 1; round < 5; ++round) {
    std::vector<int32_t> next;
    for (int32_t up : last) next.push_back(up < 0 ? -1 : last[static_cast<size_t>(up)]);
    all.insert(all.end(), next.begin(), next.end());
    last = next;
  }
  return all;
}

std::shared_ptr<Problem> hand_of(const json& input, bool jacobian) {
  const json &data = input["data"], &model = data["model"];
  const std::vector<double> us = flat(input["us"]);
  const auto hits = data["correspondences"].get<std::vector<int32_t>>();
  const int64_t bones = model["parents"].size(), vertices = model["base_positions"].size(), count = static_cast<int64_t>(hits.size());
  const bool places = !us.empty();
  static std::map<std::pair<bool, bool>, Program> programs;
  auto [program, fresh] = programs.try_emplace({places, jacobian});
  if (fresh) program->second = hand(places, jacobian);
  auto made = std::make_shared<Problem>(program->second, ProblemOptions{.differentiate = false});
  Problem& p = *made;
  p.input("theta", {26}, flat(input["theta"]));
  p.input("up", {5, bones}, ancestors(model["parents"].get<std::vector<int32_t>>()));
  p.input("relative", {bones, 4, 4}, flat(model["base_relatives"]));
  p.input("inverse", {bones, 4, 4}, flat(model["inverse_base_absolutes"]));
  p.input("base", {vertices, 4}, flat(model["base_positions"]));
  p.input("share", {vertices, bones}, flat(model["weights"]));
  p.input("mirror", model["is_mirrored"].get<bool>() ? -1.0 : 1.0);
  p.input("point", {count, 3}, flat(data["points"]));
  if (places) {
    const auto triangles = model["triangles"].get<std::vector<std::vector<int32_t>>>();
    std::vector<int32_t> corners;
    for (int32_t hit : hits) {
      const auto& corner = triangles.at(static_cast<size_t>(hit));
      corners.insert(corners.end(), corner.begin(), corner.end());
    }
    p.input("corner", {count, 3}, corners);
    p.input("u", {count, 2}, us);
    p.input("slide", {2}, std::vector<double>{0, 0});
  } else {
    p.input("vertex", {count}, hits);
  }
  return made;
}

Call ht_objective(const json& input) {
  const auto hand = hand_of(input, false);
  return {[=] { hand->infer(); }, [=] { return json(hand->values("error")); }};
}
Call ht_jacobian(const json& input) {
  const auto hand = hand_of(input, true);
  const size_t columns = input["us"].empty() ? 26 : 28;
  return {[=] { hand->infer(); }, [=] { return rows_of(hand->values("jac_error_theta"), columns); }};
}

}  // namespace

std::map<std::string, Module> geometry_modules() {
  return {{"ba", {{"objective", ba_objective}, {"jacobian", ba_jacobian}}},
          {"ht", {{"objective", ht_objective}, {"jacobian", ht_jacobian}}}};
}

}  // namespace xhat::gradbench
