// Which reads stay inside their tensors when an expression is moved to where less is known.
#pragma once
#include <map>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

class ReadBounds {
 public:
  enum class Place : uint8_t {
    inside,   // for all sizes that the program takes
    outside,  // can be outside
    checked,  // depends on data, or is beyond proof: checked when it runs
  };

  explicit ReadBounds(Program& p) : p_(p), a_(*p.arena) {}

  // Is 0 <= index < extent, for these axes (outer ones first) where the conditions hold?
  Place place(Id index, Id extent, const std::vector<AxisRange>& axes, const std::vector<Id>& conditions = {});
  // Of all reads in an expression (a reduction) over its free axes (boxes): one at least that is checked; all inside where
  // the condition holds.
  bool any_checked(Id expression, const std::vector<AxisRange>& free);
  bool all_inside(Id reduction, const std::vector<AxisRange>& free, Id condition);
  // What can be read outside gets a value there, 0: points of the box that nobody asks for.
  Id made_total(Id reduction, const std::vector<AxisRange>& free);
  // Is a size >= 0 for all sizes that the program takes?
  bool is_extent(Id size);

 private:
  using Known = std::vector<Id>;  // conditions that read no tensor
  std::unordered_map<Id, Known> known_at(Id reduction, Id condition);
  std::vector<Place> places(Id read, const std::vector<AxisRange>& axes, const Known& known);
  Id expanded(Id e);

  Program& p_;
  Arena& a_;
  std::map<std::vector<Id>, Place> asked_;
};

}  // namespace xhat
