// A box around a range that depends on other axes, by interval arithmetic on expressions of dims.
//
//   k in i-2..i+3 where i in 0..N   =>   k in -2..N+2
//
// May be larger than the smallest box, where an axis stands twice (i - i%2) or a product may have either sign.
#pragma once
#include <optional>
#include <unordered_map>

#include "expr/core/expr.h"

namespace xhat {

using Ranges = std::unordered_map<Id, AxisRange>;  // of axes, by axis

class Hull {
 public:
  // ranges: of every axis that a question may lead to; they may use each other, but not in a circle.
  Hull(Arena& a, const Ranges& ranges) : a_(a), ranges_(ranges) {}

  // The same axis from begin to end over dims alone. None: a side is made of what no bound is known of.
  std::optional<AxisRange> box(const AxisRange& r);
  // Is x <= y for all sizes >= 0, as far as linear forms tell?
  bool surely_le(Id x, Id y) const;

 private:
  // Bounds that belong to it, over dims; kNone: not known. Where there are no points they mean nothing.
  struct Interval {
    Id low = kNone, high = kNone;
  };
  Interval interval(Id e);
  Interval computed(Id e);
  // Of a sum in which an axis meets one that its range depends on: h - i with i in h-8..h+1 lies in 0..9.
  Interval together(Id e, Interval apart);
  Interval product(const Interval& x, const Interval& y);
  Interval quotient(const Interval& x, const Interval& y);
  Interval remainder(const Interval& x, const Interval& y);
  Interval reduced(const Node& n);
  Interval converted(const Node& n);
  std::optional<Interval> of_float(const Node& n);
  Id largest_magnitude(const Interval& x) const;

  // Of bounds; kNone if one of them is not known.
  Id apply(Op op, Id x, Id y) const;
  Id least(Id x, Id y) const;
  Id largest(Id x, Id y) const;
  Id minus_one(Id x) const { return apply(Op::sub, x, a_.integer(1)); }
  Id negated(Id x) const { return apply(Op::sub, a_.integer(0), x); }
  bool nonnegative(Id x) const { return x != kNone && surely_le(a_.integer(0), x); }

  Arena& a_;
  const Ranges& ranges_;
  std::unordered_map<Id, Interval> known_;
};

}  // namespace xhat
