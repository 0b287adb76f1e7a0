#include "ad/check/harder_ranges.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ad/check/random_inputs.h"
#include "expr/core/error.h"

namespace xhat {
namespace {

// Of the usual size of a tensor: more than that, and rounding hides what is wrong.
constexpr double kTellingPart = 0.1;
// Two steps by which inputs are moved, relative to each element, far above the rounding of doubles; and by how much more the larger one
// moves a result than the smaller one, at least, if it is no jump.
constexpr double kMove = 0x1p-40, kMoves = 16, kGrowth = 4;

bool has_decades(Range range) { return range == Range::large || range == Range::tiny || range == Range::alternating; }

// Every element by a few steps, up or down by chance.
Arrays moved(const Arrays& inputs, double step, uint64_t seed) {
  Arrays result = inputs;
  for (auto& [name, a] : result) {
    const Array by = random_normals(DType::f64, a.shape, ++seed);
    for (size_t i = 0; i < a.reals.size(); ++i) a.reals[i] *= 1 + step * by.reals[i];
  }
  return result;
}

// results: of each program, in the declared types.
bool tells(const HarderData& d, const std::vector<Arrays>& results) {
  return std::ranges::all_of(d.exact, [&](const auto& named) {
    const auto& [name, exact] = named;
    const double most = kTellingPart * rms(exact);
    return d.moves.at(name) <= most && std::ranges::all_of(results, [&](const Arrays& of_program) {
             const Array& got = of_program.at(name);
             for (size_t i = 0; i < exact.reals.size(); ++i)
               if (std::fabs(got.reals[i] - exact.reals[i]) > most) return false;
             return true;
           });
  });
}

}  // namespace

void note_moves(const Program& p, const DimValues& dims, uint64_t seed, const std::function<double(const std::string&)>& unit, HarderData& d) {
  struct Moved {
    Arrays near, far;
  };
  auto inputs = [&](double step) { return evaluate(p, moved(d.data, step, seed), dims, kExact); };
  auto operations = [&](double step) { return evaluate(p, d.data, dims, {.rounding = Rounding::exact, .noise = step}); };
  const std::array<Moved, 2> ways = {{{inputs(kMove), inputs(kMove * kMoves)}, {operations(kMove), operations(kMove * kMoves)}}};
  for (const auto& [name, here] : d.exact) {
    double most = 0;
    for (size_t i = 0; i < here.reals.size(); ++i) {
      for (const Moved& way : ways) {
        const double one = std::fabs(way.near.at(name).reals[i] - here.reals[i]), many = std::fabs(way.far.at(name).reals[i] - here.reals[i]);
        if (many >= kGrowth * one) most = std::max(most, many / (kMove * kMoves) * unit(name));
      }
      if (const double rounded = std::fabs(d.wanted.at(name).reals[i] - here.reals[i]); std::isfinite(rounded)) most = std::max(most, rounded);
    }
    d.moves[name] = most;
  }
}

void raise_moves(const Program& other, const DimValues& dims, uint64_t seed, const std::function<double(const std::string&)>& unit,
                 HarderData& d) {
  HarderData own = d;
  own.wanted = evaluate(other, d.data, dims);
  own.exact = evaluate(other, d.data, dims, kExact);
  note_moves(other, dims, seed, unit, own);
  for (const auto& [name, most] : own.moves)
    if (d.exact.contains(name)) d.moves[name] = std::max(d.moves[name], most);
}

std::string_view name_of(Range range) {
  switch (range) {
    case Range::large: return "large";
    case Range::tiny: return "tiny";
    case Range::alternating: return "alternating";
    case Range::zeros: return "zeros";
    case Range::equal: return "equal";
    case Range::whole: return "whole";
  }
  throw Bug("unknown range");
}

Arrays in_range(const Arrays& normals, Range range, int decades, uint64_t seed) {
  const double large = std::pow(10.0, decades), tiny = 1 / large;
  Arrays result = normals;
  for (auto& [name, a] : result) {
    const Array chance = random_normals(DType::f64, a.shape, ++seed);
    for (size_t i = 0; i < a.reals.size(); ++i) {
      double& v = a.reals[i];
      switch (range) {
        case Range::large: v *= large; break;
        case Range::tiny: v *= tiny; break;
        case Range::alternating: v *= i % 2 == 0 ? large : tiny; break;
        case Range::zeros: v = chance.reals[i] > 0 ? v : 0; break;
        case Range::equal: v = normals.at(name).reals[0]; break;
        case Range::whole: v = std::round(2 * v); break;
      }
    }
    a = rounded(std::move(a));
  }
  return result;
}

std::optional<HarderData> harder_data(const std::vector<const Program*>& programs, const Arrays& inputs, const Arrays& cotangents,
                                      const DimValues& dims, Range range, uint64_t seed,
                                      const std::function<double(const std::string&)>& unit) {
  for (int decades : kDecades) {
    HarderData d;
    d.data = in_range(inputs, range, decades, seed);
    d.data.insert(cotangents.begin(), cotangents.end());
    d.decades = has_decades(range) ? decades : 0;
    try {
      std::vector<Arrays> results;
      for (const Program* p : programs) {
        results.push_back(evaluate(*p, d.data, dims));
        d.finite &= all_finite(results.back());
      }
      d.wanted = results[0];
      if (d.decades > 0 && !d.finite) continue;
      d.exact = evaluate(*programs[0], d.data, dims, kExact);
      d.finite &= all_finite(d.exact);
      if (d.decades > 0 && !d.finite) continue;
      note_moves(*programs[0], dims, seed, unit, d);
      for (size_t k = 1; k < programs.size(); ++k) raise_moves(*programs[k], dims, seed, unit, d);
      if (d.decades == 0 || tells(d, results)) return d;
    } catch (const Error&) {  // an index that is computed from floats
      if (!has_decades(range)) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace xhat
