// Choices in reductions: a value where conditions hold, and elsewhere what changes nothing.
#pragma once
#include "ad/common/guards.h"

namespace xhat {

// Of sum: if ids[e] == v then a[e] else 0, if ids[e] != v then 0 else a[e], f32(ids[e] == v); of max: if ids[e] == v then a[e] else -inf.
// What is no such choice has no conditions.
struct Choice {
  Literals conditions;
  Id value = kNone;
};
Choice choice_in(Arena& a, Op reduction, Id value);

}  // namespace xhat
