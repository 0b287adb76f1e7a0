#include "runtime/gpu/gpu_count.h"

#include "expr/core/error.h"

namespace xhat::runtime {

Halide::Expr Count::expr() const {
  if (!open()) return static_cast<int>(like_);
  const Amount& a = amount_;
  auto over = [](const Halide::Expr& n, int64_t d) { return d == 1 ? n : (n + static_cast<int>(d - 1)) / static_cast<int>(d); };
  return over(over(given_ * static_cast<int>(a.factor), a.per) * static_cast<int>(a.times), a.of);
}

Count Count::operator*(const Count& other) const {
  if (!open() && other.open()) return other * *this;
  if (other.open() || amount_.of > 1) throw Bug("two sizes of one launch are open");
  Count product = *this;
  product.like_ *= other.like_;
  product.multiple_ *= other.like_;
  (!open() || amount_.per > 1 ? product.amount_.times : product.amount_.factor) *= other.like_;
  return product;
}

Count Count::over(int64_t n) const {
  Count parts = (like_ + n - 1) / n;
  if (!open()) return parts;
  parts.given_ = given_;
  Amount& a = parts.amount_ = amount_;
  if (divisible_by(n)) parts.multiple_ = multiple_ / n;
  (a.times > 1 || a.of > 1 ? a.of : a.per) *= n;
  if (a.times == 1 && a.factor % a.per == 0) {
    a.factor /= a.per;
    a.per = 1;
  }
  return parts;
}

}  // namespace xhat::runtime
