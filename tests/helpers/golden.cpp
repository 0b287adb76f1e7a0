#include "tests/helpers/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "ad/check/random_inputs.h"
#include "expr/index/expand_calls.h"
#include "ad/forward/jvp.h"
#include "ad/gather/gather.h"
#include "cse/algebra/empty_sums.h"
#include "cse/algebra/reduction_algebra.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/lift_reductions.h"
#include "cse/normalize/narrow.h"
#include "cse/stash/stash_planner.h"
#include "expr/rules/simplify.h"

namespace xhat::testing {
namespace {

const std::string kArrow = "==> ";

// "stash(cost)" -> stash, cost.
struct PassCall {
  std::string name, argument;
};

std::vector<PassCall> pass_calls(const std::string& text) {
  std::vector<PassCall> calls;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    size_t begin = item.find_first_not_of(' ');
    size_t end = item.find_last_not_of(' ');
    if (begin == std::string::npos) throw Error("an empty pass name in '" + text + "'");
    item = item.substr(begin, end - begin + 1);
    size_t open = item.find('(');
    if (open == std::string::npos) calls.push_back({item, ""});
    else calls.push_back({item.substr(0, open), item.substr(open + 1, item.size() - open - 2)});
  }
  return calls;
}

StashOptions::Policy policy_named(const std::string& name) {
  if (name == "none") return StashOptions::Policy::none;
  if (name == "largest") return StashOptions::Policy::largest;
  if (name == "cost" || name.empty()) return StashOptions::Policy::cost;
  throw Error("no stash policy " + name);
}

std::vector<std::string> names_in(const std::string& argument) {
  std::vector<std::string> names;
  std::istringstream in(argument);
  for (std::string name; in >> name;) names.push_back(name);
  return names;
}

Program run_pass(const Program& p, const PassCall& call) {
  if (call.name == "calls") return expand_calls(p);
  if (call.name == "grad") return gradient(p, {names_in(call.argument)});
  if (call.name == "vjp") return vjp(p, {names_in(call.argument)});
  if (call.name == "jvp") return jvp(p, {names_in(call.argument)});
  if (call.name == "hvp") return hvp(p, {.wrt = {}, .along = names_in(call.argument)});
  if (call.name == "lift") return lift_reductions(ordered(p), true);
  if (call.name == "gather") return gather(p);
  if (call.name == "inline") return inline_injective(p);
  if (call.name == "narrow") return narrow(p);
  if (call.name == "reductions") return guard_empty_sums(simplify_reductions(p));
  if (call.name == "simplify") return simplify(p);
  if (call.name == "stash") {
    StashOptions options;
    if (call.argument == "dropped")
      for (TensorId t : p.inputs) options.dropped.push_back(p.tensor(t).name);
    else
      options.policy = policy_named(call.argument);
    return plan_stash(p, options).program;
  }
  throw Error("no pass " + call.name);
}

bool agree(double x, double y, double bound) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (std::isinf(x) || std::isinf(y)) return x == y;
  return std::fabs(x - y) <= bound;
}

}  // namespace

std::string GoldenFile::text() const {
  std::string all = program;
  for (const GoldenSection& s : sections) all += kArrow + s.passes + "\n" + s.expected;
  return all;
}

std::filesystem::path golden_folder() { return std::filesystem::path(XHAT_SOURCE_DIR) / "tests" / "golden"; }

std::vector<std::filesystem::path> golden_paths() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden_folder()))
    if (entry.path().extension() == ".xh") found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

GoldenFile read_golden(const std::filesystem::path& path) {
  GoldenFile file;
  file.path = path;
  file.name = path.parent_path().filename().string() + "_" + path.stem().string();
  std::ifstream in(path);
  if (!in) throw Error("cannot read " + path.string());
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kArrow)) file.sections.push_back({line.substr(kArrow.size()), ""});
    else (file.sections.empty() ? file.program : file.sections.back().expected) += line + "\n";
  }
  return file;
}

Program run_passes(Program p, const std::string& passes,
                   const std::function<void(const std::string&, const Program&)>& after) {
  for (const PassCall& call : pass_calls(passes)) {
    p = run_pass(p, call);
    verify(p);
    if (after) after(call.argument.empty() ? call.name : call.name + "(" + call.argument + ")", p);
  }
  return p;
}

DimValues smallest_dims(const Program& p) {
  DimValues small;
  for (const auto& [name, value] : sample_dims(p, 3)) small[name] = 2 + static_cast<int64_t>(small.size()) % 2;
  for (const Dim& d : p.dims)
    if (d.definition != kNone) small.erase(p.arena->name(d.dim));
  try {
    return sample_dims(p, 3, small);
  } catch (const Error&) {
    return sample_dims(p, 3);
  }
}

Arrays random_data(const Program& p, const DimValues& dims, uint64_t seed) {
  Arrays data = random_inputs(p, dims, seed);
  data.merge(random_cotangents(p, dims, seed + 1));
  return data;
}

Arrays evaluate_on(const Program& p, const Arrays& data, const DimValues& dims, Rounding rounding) {
  Arrays taken;
  for (const auto& list : {p.inputs, p.cotangents})
    for (TensorId t : list)
      if (auto it = data.find(p.tensor(t).name); it != data.end()) taken.insert(*it);
  return evaluate(p, taken, dims, {.rounding = rounding});
}

std::string difference(const Arrays& expected, const Arrays& got, double tolerance) {
  for (const auto& [name, x] : expected) {
    auto it = got.find(name);
    if (it == got.end()) return name + " is missing";
    const Array& y = it->second;
    if (x.shape != y.shape) return fmt::format("{} has shape {} instead of {}", name, shape_text(y.shape), shape_text(x.shape));
    double largest = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (std::isfinite(x.at(i))) largest = std::max(largest, std::fabs(x.at(i)));
    for (size_t i = 0; i < x.size(); ++i)
      if (!agree(x.at(i), y.at(i), x.real() ? tolerance * (1 + largest) : 0))
        return fmt::format("{} at {} is {} instead of {}", name, shape_text(position_of(i, x.shape)), y.at(i), x.at(i));
  }
  return "";
}

}  // namespace xhat::testing
