// What a program does, in order, while it is made pure: every tensor gets its value once, and a write is a value of its own.
//
//   b[1:3] = x     =>     b_1 = b, but b_1[v + 1] = x[v] for v in 0..2
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "expr/core/program.h"

namespace xhat::imperative {

// result = base, but result[indices] = body for all axes in their ranges, where the guard holds. No two points of the axes have equal
// indices. Loop variables around it, which are free, are axis nodes.
struct Write {
  TensorId base = 0;
  TensorId result = 0;
  std::vector<AxisRange> axes;
  std::vector<Id> indices;  // one for each dimension of base
  Id body = kNone;
  Id guard = kNone;  // bool: where it fails, result is base; kNone: true
  Pos pos;
};

// A value that an iteration hands to the next (see steps.h).
struct CarriedValue {
  TensorId initial = 0, entering = 0, leaving = 0, result = 0;
};

struct Item;
using Items = std::vector<Item>;

struct LoopItem {
  Id variable = kNone;
  Id begin = kNone, end = kNone;
  std::vector<CarriedValue> carried;
  Items test;  // of `while`: evaluated on entering values
  std::optional<TensorId> condition;
  Items body;
  std::string why;
  Pos pos;
};

struct Merge {
  TensorId then = 0, otherwise = 0, result = 0;
};

struct BranchItem {
  TensorId condition = 0;
  Items then, otherwise;
  std::vector<Merge> merges;
  Pos pos;
};

struct Item {
  std::variant<Definition, Write, LoopItem, BranchItem> is;
};

// Only definitions and writes?
bool is_straight(const Items& items);

}  // namespace xhat::imperative
