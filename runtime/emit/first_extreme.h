// Which of two values an argmax or argmin takes: the larger or smaller one, or the first NaN; of equal ones the first. Header only.
#pragma once
#include "expr/core/expr.h"
#include "runtime/emit/vector_math.h"

namespace xhat::runtime {

struct FirstExtreme {
  bool largest, real;
  FirstExtreme(Op op, DType type) : largest(op == Op::argmax), real(is_float(type)) {}

  // A value, and its place; below 0: none yet.
  struct Found {
    Halide::Expr value, place;
  };

  // Is v taken in place of one that came before?
  Halide::Expr better(const Halide::Expr& v, const Halide::Expr& than) const {
    const Halide::Expr more = largest ? v > than : v < than;
    return real ? (more || vmath::is_nan(v)) && !vmath::is_nan(than) : more;
  }
  // Of two that may have come in any order.
  Halide::Expr wins(const Found& a, const Found& over) const {
    const Halide::Expr both_nan =
        real ? vmath::is_nan(a.value) && vmath::is_nan(over.value) : Halide::Internal::make_zero(Halide::Bool(a.value.type().lanes()));
    const Halide::Expr before = (a.value == over.value || both_nan) && a.place < over.place;
    return a.place >= 0 && (over.place < 0 || better(a.value, over.value) || before);
  }
};

}  // namespace xhat::runtime
