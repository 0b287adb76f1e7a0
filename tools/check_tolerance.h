// How far results may be off where two ways to compute them are compared.
#pragma once
#include <map>

#include "expr/core/array.h"
#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat::tool {

// Errors of one element's arithmetic, in units of its type's epsilon: a few dozen operations, functions to 4
// ulp.
constexpr double kOperations = 64;
// The evaluator's own rounding in the declared types says how sensitive the op is; kernels round elsewhere,
// as much.
constexpr double kSensitivity = 8;

// f16 and bf16 are computed in f32 and rounded where a definition ends: a value has a few such roundings behind it.
constexpr double kStored = 16;

double epsilon_of(DType t);  // 0 of integers

// Of values that are computed with that epsilon, by reductions of at most so many terms; relative.
double tolerance(double epsilon, int64_t length);

// By tensor: the largest epsilon of the types that its values are computed in, from the parameters on, which are exact. An f64 result
// that a sum in f32 goes into is no better than f32. What decides (conditions, integers, indices) does not count.
std::map<TensorId, double> coarsest_epsilons(const Program& p);

// Elements that the largest reduction adds up, with ranges that depend on axes counted as nothing.
int64_t longest_reduction(const Program& p, const DimValues& dims);

// How many operations the evaluator does for a program at these sizes, as it reads: for each element, and for each term of a reduction; and the
// definition with most of them.
struct Visits {
  double all = 0, most = 0;
  std::string of = {};
};
Visits visits(const Program& p, const DimValues& dims);

struct Worst {
  bool passed = true;
  double error = 0;  // in units of the tolerance's scale
  size_t element = 0;
  double got = 0, wanted = 0;
};
// Is the first one worse: a failure, or the larger error of two of a kind?
bool worse(const Worst& a, const Worst& b);

// |got - wanted| <= tolerance * max(|wanted|, typical of the tensor) + slack.
Worst compare(const Array& got, const Array& wanted, double tolerance, double slack = 0);

// How many times worse a gradient may be than its formula evaluated operation by operation in the same types: what reading an
// output may cost (cse/algebra/accuracy.h).
constexpr double kBesidePlain = 32;

// A gradient by kernels and by its formula as derived, before any pass (plain), both held against the formula in f64.
struct Precision {
  Worst ours;        // fails only if it is beyond both: the tolerance, and kBesidePlain times plain's error
  double plain = 0;  // relative, as ours.error
};
Precision precision(const Array& got, const Array& plain, const Array& exact, double tolerance, double slack = 0);

}  // namespace xhat::tool
