// Data that shows what normals hide: products and sums that overflow or cancel in another order, ties, exact zeros.
//
//   auto hard = harder_data({plain, derived}, normals, dims, Range::alternating, seed);
//   if (hard) … run the kernels on hard->data, and compare with hard->wanted
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "expr/eval/evaluate.h"

namespace xhat {

enum class Range : uint8_t {
  large,        // normals times 10^d
  tiny,         // normals times 10^-d
  alternating,  // normals times 10^d and 10^-d in turn
  zeros,        // half of the numbers, by chance, are 0
  equal,        // all elements of a tensor are one number
  whole         // integers, most of them from -4 to 4
};
inline constexpr std::array kHarderRanges = {Range::large, Range::tiny,  Range::alternating,
                                             Range::zeros, Range::equal, Range::whole};
std::string_view name_of(Range range);

// The decades d to try, the hardest first.
inline constexpr std::array kDecades = {30, 15, 7, 4, 2, 1};

// These inputs with floats of that range, rounded to their types; integers stay. Equal seeds, equal data.
Arrays in_range(const Arrays& normals, Range range, int decades, uint64_t seed);

struct HarderData {
  Arrays data;           // inputs and cotangents
  int decades = 0;       // 0: the range has none
  Arrays wanted, exact;  // results of the first program: in the declared types, and in double
  bool finite = true;    // all results are
  // By result: how far it moves, at most, when every input, or the result of every operation (EvaluateOptions::noise), moves by a few of
  // `unit`, its type's epsilon: what the roundings of any evaluation amount to. What jumps and does not grow with the step is a decision
  // (a tie), which rounding does not excuse.
  std::map<std::string, double> moves;
};

// Fills moves of what has all else of p. unit: of a result, by name.
void note_moves(const Program& p, const DimValues& dims, uint64_t seed, const std::function<double(const std::string&)>& unit, HarderData& d);
// Raises moves to those of `other`, which is the same program by the algebra of real numbers.
void raise_moves(const Program& other, const DimValues& dims, uint64_t seed, const std::function<double(const std::string&)>& unit,
                 HarderData& d);

// The hardest data of the range: that with the most decades for which, in the declared types, all results of all programs (which are one
// by the algebra of real numbers) are finite, and rounding moves none by more than a tenth of its tensor's usual size. None if there is
// none. Ranges without decades are taken as they are.
std::optional<HarderData> harder_data(const std::vector<const Program*>& programs, const Arrays& inputs, const Arrays& cotangents,
                                      const DimValues& dims, Range range, uint64_t seed,
                                      const std::function<double(const std::string&)>& unit);

}  // namespace xhat
