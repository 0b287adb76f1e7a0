// Numbers in a GPU's code that sizes decide. Includes Halide; for gpu_*.cpp only.
#pragma once
#include "Halide.h"
#include "runtime/host/size_value.h"

namespace xhat::runtime {

// How many: a number, or one that comes with the launch. In code that serves all of those, `like` stands for it where something has
// to be chosen.
class Count {
 public:
  Count(int64_t n) : like_(n) { amount_.times = n; }  // NOLINT: a number is a count
  // The kernel's value of that number, which is `given` in its code, a multiple of `multiple`.
  Count(int64_t like, int64_t value, const Halide::Expr& given, int64_t multiple) : like_(like), given_(given), multiple_(multiple) {
    amount_.value = value;
  }

  int64_t like() const { return like_; }
  bool open() const { return given_.defined(); }
  bool is(int64_t n) const { return !open() && like_ == n; }
  bool divisible_by(int64_t n) const { return (open() ? multiple_ : like_) % n == 0; }
  const Amount& amount() const { return amount_; }
  Halide::Expr expr() const;
  Count operator*(const Count& other) const;
  Count over(int64_t n) const;  // rounded up

 private:
  int64_t like_;
  Amount amount_;
  Halide::Expr given_;    // undefined: it is `like`
  int64_t multiple_ = 1;  // of which it is one, as far as we know
};

}  // namespace xhat::runtime
