#include "runtime/call/check_values.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ad/reverse/gradient.h"
#include "expr/eval/nonfinite.h"
#include "expr/text/import.h"

namespace xhat::runtime {
namespace {

[[noreturn]] void fail(const Program& p, const NonFiniteOrigin& origin) {
  throw NonFinite(fmt::format("op {}: {}", p.name, origin.message), origin.pos);
}

// With the gradients that were asked for, before any pass.
Program as_written(const Derivation& d) {
  const Program source = own_copy(d.source);
  if (d.program.gradients.empty()) return source;
  std::vector<std::string> wrt;
  for (TensorId t : d.program.gradient_of) wrt.push_back(d.program.tensors[t].name);
  return gradient(source, {wrt});
}

}  // namespace

void check_values(const OpPlan& plan, const Program& direction, const DimValues& dims, const Arrays& inputs, const Arrays& written,
                  const Arrays& results) {
  if (all_finite(results)) return;
  // The definitions as they were written, and their gradients, have names and places that the user knows.
  if (!written.empty() && plan.derivation.source.arena)
    if (auto origin = find_nonfinite(as_written(plan.derivation), written, dims)) fail(direction, *origin);
  // What is written gives finite values: the form that runs does not.
  if (auto origin = find_nonfinite(direction, inputs, dims)) fail(direction, *origin);
  for (const auto& [name, array] : results)
    for (size_t i = 0; array.real() && i < array.size(); ++i)
      if (!std::isfinite(array.reals[i]))
        throw NonFinite(
            fmt::format("op {}: {}{} is {}, and the evaluator finds finite values there: an intermediate value of the kernel is "
                        "too large or too small for its type",
                        direction.name, name, shape_text(position_of(i, array.shape)), array.reals[i]));
}

}  // namespace xhat::runtime
