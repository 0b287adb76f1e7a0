// Expressions and programs in another arena. (One expression: import(), expr.h.)
#pragma once
#include "expr/core/program.h"

namespace xhat {

// The roots and all that they need, children first, in the order of their ids. memo: what stands there for a node from here.
void import_all(Arena& to, const Arena& from, std::span<const Id> roots, const std::vector<TensorId>& tensors,
                std::unordered_map<Id, Id>& memo);

// A copy in another arena.
Program copy_into(std::shared_ptr<Arena> arena, const Program& p);
// A copy with an arena of its own. Programs share their arena, and one thread at a time may build in it; what is done to the copy,
// in whatever thread, does not touch the original. Nodes keep their order, so that passes treat both alike.
Program own_copy(const Program& p);

}  // namespace xhat
