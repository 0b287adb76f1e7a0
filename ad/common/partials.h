// The derivative column of ops.def, parsed once per op and operand, and multiplied onto an adjoint.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "ad/common/guards.h"

namespace xhat {

// adjoint * (d result / d operand).
struct Scaled {
  Id value = kNone;       // kNone: exactly zero everywhere
  Literals guards;        // zero unless all hold; value may be anything where one does not
  Literals implied;       // value is zero already where one of these fails
  bool number = false;    // the partial is one, of dims at most
  bool singular = false;  // the partial can be infinite or NaN at finite operands (1/a, log, a^-1/2, exp)
};

class Partials {
 public:
  // "0" for this operand (or an op without partials).
  bool is_zero(Op op, size_t operand);
  Scaled scale(Arena& a, Id adjoint, Op op, size_t operand, std::span<const Id> args, Id result);

  // A parsed text; children before parents, the last node is the root.
  struct Term {
    enum class Kind : uint8_t { number, operand, apply, choose } kind;
    double number = 0;      // number
    int operand = 0;        // operand: 0 1 2 for a b c, 3 for r
    Op op = Op::add;        // apply
    std::vector<int> args;  // apply, choose (condition, then, else)
  };
  using Template = std::vector<Term>;

 private:
  const Template& of(Op op, size_t operand);
  std::map<std::pair<Op, size_t>, Template> templates_;
};

}  // namespace xhat
