// Conditions on quotients become ranges, once sizes are known.
//
//   sum(i in 0..P if i*H/P <= r && r < (i+1)*H/P: f)     =>     sum(i in (P*(r+1)-H+H-1)/H .. (P*(r+1)-1)/H+1: f)      for H = 30, P = 7: …
//
// which visits one or two i for each r instead of all: gradients of adaptive pooling, of resampling to any size, of chunks of equal length.
// `if o/8 == c/4` becomes o in 8*(c/4)..8*(c/4)+8: gradients of grouped convolutions. What is divided must rise with the axis of the reduction;
// without a division the condition is a range already (ad/gather).
//
// Needs: a program of one direction, sizes for all dims. Keeps: every value and every bit.
#pragma once
#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat {

// Divisors that are expressions of dims become numbers.
Program with_numbers_as_divisors(const Program& p, const DimValues& sizes);
Program quotients_as_ranges(const Program& p, const DimValues& sizes);

}  // namespace xhat
