// Functions of the table that the standard library has not, of double: what special.inc says.
#pragma once
#include <cmath>

namespace xhat::special {

double sinc(double a);
double logaddexp(double a, double b);
double erfinv(double a);
double digamma(double a);
double polygamma(double order, double a);
double scaled_bessel(int order, double a);  // e^-|a| I(a)

const char* source();  // their text, in C++

}  // namespace xhat::special
