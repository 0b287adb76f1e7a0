// The functions of bench/spellings, and what a derivation of one of their ops costs by its plan; nothing is timed. For bench/spellings.cpp
// and tests/fuzz.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ad/check/harder_ranges.h"
#include "ad/check/random_inputs.h"
#include "ad/reverse/gradient.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"

namespace xhat::bench {

struct Function {
  std::string name;
  DimValues sizes, small;
  std::vector<std::shared_ptr<const Program>> spellings;
};

// "# sizes: N=64,D=1024"
inline DimValues dims_after(const std::string& word, const std::string& text, const std::string& file) {
  const std::string mark = "\n# " + word + ": ";
  const size_t at = text.find(mark);
  if (at == std::string::npos) throw Error(file + ": there is no line '# " + word + ": N=64,…' at its head");
  std::istringstream line(text.substr(at + mark.size(), text.find('\n', at + 1) - at - mark.size()));
  DimValues dims;
  for (std::string part; std::getline(line, part, ',');) dims[part.substr(0, part.find('='))] = std::stoll(part.substr(part.find('=') + 1));
  return dims;
}

inline void names_called(const Program& p, std::set<std::string>& names) {
  for (const Definition& d : p.definitions())
    if (d.is_call() && names.insert(d.callee->name).second) names_called(*d.callee, names);
}

inline Function read_function(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  Function f{path.stem(), dims_after("sizes", text.str(), path), dims_after("small", text.str(), path), {}};
  const Module module = parse(text.str(), path);
  std::set<std::string> parts;
  for (const auto& op : module.ops) names_called(*op, parts);
  for (const auto& op : module.ops)
    if (!parts.contains(op->name)) f.spellings.push_back(op);
  return f;
}

// All of bench/spellings, or those with these names.
inline std::vector<Function> read_functions(const std::vector<std::string>& names = {}) {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(XHAT_SOURCE_DIR "/bench/spellings"))
    if (names.empty() || std::ranges::count(names, file.path().stem().string())) files.push_back(file.path());
  std::ranges::sort(files);
  std::vector<Function> functions;
  for (const auto& file : files) functions.push_back(read_function(file));
  return functions;
}

// Forward and backward together.
struct SpellingCost {
  static constexpr std::array<const char*, 6> kColumns = {"sums fwd", "sums bwd", "kernels", "stash", "moved", "flops"};
  std::array<int64_t, 6> values{};
};

inline SpellingCost cost_of(const Program& op, const DimValues& sizes) {
  const Explanation e = explain(op, {}, sizes);
  return {{e.forward.reductions, e.backward.reductions, e.forward.kernel_count + e.backward.kernel_count, e.stash_bytes(),
           e.forward.bytes_moved + e.backward.bytes_moved, e.forward.flops + e.backward.flops}};
}

// Above another one in this column by more than a tenth. Ignored are a hundredth of the traffic for the stash (a number per row), and one
// operation per eight bytes of it (a chosen branch is no operation, a maximum is one; both wait for memory).
inline bool worse(const SpellingCost& x, const SpellingCost& other, size_t column) {
  constexpr size_t kStash = 3, kMoved = 4, kFlops = 5;
  const double moved = static_cast<double>(other.values[kMoved]);
  const double ignored = column == kStash ? 0.01 * moved : column == kFlops ? moved / 8 : 0;
  return static_cast<double>(x.values[column]) > 1.1 * static_cast<double>(other.values[column]) + ignored;
}

// Is it above another one in some column, and below it in none?
inline bool worse(const SpellingCost& x, const SpellingCost& other) {
  bool above = false;
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (worse(other, x, i)) return false;
    above = above || worse(x, other, i);
  }
  return above;
}

// Inputs and cotangents for every spelling of a function.
inline Arrays data_for(const Program& op, const DimValues& small) {
  Arrays data = random_inputs(op, small, 7);
  data.merge(random_cotangents(derive(op).program, small, 8));
  return data;
}

// Results and gradients after all passes, by the evaluator in f64.
inline Arrays results_of(const Program& op, const Arrays& data, const DimValues& small) {
  return evaluate(derive(op).program, data, small, kExact);
}

// Data that normals are not: whole numbers, at which operands of extremes are equal and choices by a comparison are at its edge.
inline std::vector<Arrays> data_at_ties(const Program& op, const DimValues& small) {
  constexpr int kDraws = 8;
  const Arrays cotangents = random_cotangents(derive(op).program, small, 8);
  std::vector<Arrays> all;
  for (int k = 0; k < kDraws; ++k) {
    Arrays normals = random_inputs(op, small, static_cast<uint64_t>(100 + k), {.finite = false});
    for (auto& [name, a] : normals)
      for (double& x : a.reals) x *= 1 + k % 2;
    all.push_back(in_range(normals, Range::whole, 0, static_cast<uint64_t>(200 + k)));
    all.back().insert(cotangents.begin(), cotangents.end());
  }
  return all;
}

// Empty, or what differs.
inline std::string difference(const Arrays& expected, const Arrays& found, bool among_finite = false) {
  constexpr double kTolerance = 1e-7;  // constants such as 0.7071 are written with 16 digits or fewer
  for (const auto& [name, x] : expected) {
    auto it = found.find(name);
    if (it == found.end() || it->second.shape != x.shape) return name + " is missing, or has another shape";
    double scale = 1;
    for (size_t i = 0; i < x.size(); ++i)
      if (std::isfinite(x.at(i))) scale = std::max(scale, std::abs(x.at(i)));
    for (size_t i = 0; i < x.size(); ++i)
      if (!(among_finite && !(std::isfinite(x.at(i)) && std::isfinite(it->second.at(i)))) &&
          !(std::abs(x.at(i) - it->second.at(i)) <= kTolerance * scale))
        return fmt::format("{} is {} where the first spelling has {}", name, it->second.at(i), x.at(i));
  }
  return "";
}

// A number for each spelling, the same for those with the same results and gradients also at ties, 0 for those like the first one: the
// derivative of max(x, 0) at 0 is 1/2, that of relu(x) is 0, so that no plan serves both.
inline std::vector<int> functions_at_ties(const Function& f) {
  const std::vector<Arrays> data = data_at_ties(*f.spellings[0], f.small);
  std::vector<std::vector<Arrays>> met;
  std::vector<int> numbers;
  for (const auto& op : f.spellings) {
    std::vector<Arrays> found;
    const Program derived = derive(*op).program;
    for (const Arrays& draw : data) found.push_back(evaluate(derived, draw, f.small, kExact));
    auto like = [&](const std::vector<Arrays>& other) {
      for (size_t i = 0; i < found.size(); ++i)
        if (!difference(other[i], found[i], true).empty()) return false;
      return true;
    };
    const auto same = std::ranges::find_if(met, like);
    numbers.push_back(static_cast<int>(same - met.begin()));
    if (same == met.end()) met.push_back(std::move(found));
  }
  return numbers;
}

// The largest error of a gradient after all passes, in the declared types, operation by operation, over that of the derivative as it is
// written down, with its roundings and with others (rounded_ways), both against that derivative in f64; errors are relative to the
// tensor's rms and count as a rounding of f32 at least. On normals and on data that are hard (ad/check/harder_ranges.h); but for tiny ones
// the rms is that of the normals' results at least, as a function that has saturated has slopes of 0.
struct LostDigits {
  double factor = 0;
  std::string where;  // gradient and range
};

// The results in the declared types, and with the roundings of f32 otherwise: what is exact by luck (an average of equal numbers) says nothing.
inline std::vector<Arrays> rounded_ways(const Program& p, const Arrays& data, const DimValues& small) {
  std::vector<Arrays> ways = {evaluate(p, data, small)};
  for (double noise : {0x1p-24, -0x1p-24}) ways.push_back(evaluate(p, data, small, {.rounding = Rounding::exact, .noise = noise}));
  return ways;
}

inline LostDigits lost_digits(const Program& op, const DimValues& small) {
  constexpr double kRounding = 0x1p-23;
  const Program written = gradient(op), derived = derive(op).program;
  const Arrays inputs = random_inputs(op, small, 7), cotangents = random_cotangents(written, small, 8);
  LostDigits worst;
  std::map<std::string, double> usual;
  auto compare = [&](const Arrays& data, std::string_view range) {
    const Arrays exact = evaluate(written, data, small, kExact);
    const std::vector<Arrays> plain = rounded_ways(written, data, small);
    const Arrays after = evaluate(derived, data, small);
    for (TensorId t : written.gradients) {
      const std::string& name = written.tensors[t].name;
      const Array& wanted = exact.at(name);
      const double size = rms(wanted), scale = std::max({size, range == name_of(Range::tiny) ? 0 : usual[name], 1e-30});
      if (range == "normals") usual[name] = size;
      double before = kRounding, now = 0;
      for (size_t i = 0; i < wanted.size(); ++i) {
        auto number = [&](const Arrays& way) { return std::isfinite(way.at(name).at(i)); };
        if (!std::isfinite(wanted.at(i)) || !std::ranges::all_of(plain, number)) continue;
        auto off = [&](const Arrays& way) { return std::abs(way.at(name).at(i) - wanted.at(i)) / scale; };
        for (const Arrays& way : plain) before = std::max(before, off(way));
        now = std::max(now, number(after) ? off(after) : 1);
      }
      if (now / before > worst.factor) worst = {now / before, fmt::format("{}, {}", name, range)};
    }
  };
  Arrays normals = inputs;
  normals.insert(cotangents.begin(), cotangents.end());
  compare(normals, "normals");
  for (Range range : kHarderRanges)
    if (auto hard = harder_data({&written, &derived}, inputs, cotangents, small, range, 9, [](const std::string&) { return kRounding; }))
      compare(hard->data, name_of(range));
  return worst;
}

}  // namespace xhat::bench
