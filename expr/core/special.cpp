#include "expr/core/special.h"

namespace xhat::special {
namespace code {
#define XHAT_CODE(...) __VA_ARGS__
#include "expr/core/special.inc"
#undef XHAT_CODE
}  // namespace code

double sinc(double a) { return code::sinc(a); }
double logaddexp(double a, double b) { return code::logaddexp(a, b); }
double erfinv(double a) { return code::erfinv(a); }
double digamma(double a) { return code::digamma(a); }
double polygamma(double order, double a) { return code::polygamma(order, a); }
double scaled_bessel(int order, double a) { return code::scaled_bessel(order, a); }

const char* source() {
#define XHAT_CODE(...) #__VA_ARGS__ "\n"
  return
#include "expr/core/special.inc"
      ;
#undef XHAT_CODE
}

}  // namespace xhat::special
