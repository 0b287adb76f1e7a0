// A plan as text: kernels with their loops, members and prices. For people; XHAT=dump writes it (docs/passes.md).
#pragma once
#include <string>

#include "fusion/plan/plan.h"

namespace xhat {

//   kernel y: 67108864 B priced (33554432 moved, 0 packed, 0 in short runs, 0 beyond ranges), 33554432 unavoidable, 50331648 flop
//     grid n 4096 by 64
//     each d 1024
//     m[n] = max(d: x[n,d])
//     writes y
std::string to_text(const Program& p, const KernelPlan& plan);

}  // namespace xhat
