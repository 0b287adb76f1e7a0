// What the passes of cse/ share about definitions' bodies.
#pragma once
#include <map>
#include <memory>
#include <set>

#include "cse/match/unify.h"
#include "expr/core/conditions.h"
#include "expr/core/program.h"

namespace xhat {

// A tensor's value at a point: what its definition says, free of reductions.
struct PointValue {
  std::vector<Id> axes;  // one per dimension
  Id value;
};
// Reads of these tensors become their values at the read's indices. scope: the axes around root.
Id inline_reads(Arena& a, Id root, const std::map<TensorId, PointValue>& values, std::span<const AxisRange> scope);

// A body (or the body of its root reduction) with axes that no program uses, so that it can be a pattern
// for bodies that use the same names.
struct Pattern {
  std::vector<AxisRange> free;   // the definition's axes, renamed
  std::vector<AxisRange> bound;  // the root reduction's, renamed
  Id condition = kNone;          // the root reduction's
  Id body = kNone;
  std::vector<Id> names;  // the original axes: of free, then of bound
  std::set<Id> axes() const;
};
Pattern pattern_of(Arena& a, const Definition& d);
// A definition that is a reduction, without the names of its axes: equal ones have the same values.
std::vector<Id> nameless_reduction(Arena& a, const Definition& d);

// Is the index in [0, extent) for all values of the axes?
// conditions: known to hold.
bool in_bounds(Arena& a, Id index, Id extent, std::span<const AxisRange> axes, std::span<const Id> conditions = {});
// While one lives, in_bounds remembers its answers about this arena: a proof takes up to a millisecond, and sharing asks the
// same again and again (an LSTM cell: 26 questions, 2,000 times). Not for longer than a pass, so that equal questions to the
// pass find equal arenas.
class RememberBounds {
 public:
  explicit RememberBounds(const Arena& a);
  ~RememberBounds();
  RememberBounds(const RememberBounds&) = delete;
  RememberBounds& operator=(const RememberBounds&) = delete;

 private:
  friend bool in_bounds(Arena&, Id, Id, std::span<const AxisRange>, std::span<const Id>);
  struct Answers;
  static thread_local Answers* remembering;
  std::unique_ptr<Answers> answers_;
};
// Does the binding give every one of the pattern's axes a value inside its range?
bool covers(Arena& a, std::span<const AxisRange> pattern, const Binding& binding, std::span<const AxisRange> scope);

// Defined tensors whose values decide something in the backward, directly or through what they are computed from: they
// stand in a condition, an argmax, a cast to integers, or below what jumps (floor, %, copysign). In the backward these keep their bits:
// a tie found by x == max(x) is lost if either side is computed in another order, and s - floor(s) is 0 or 1 by the last bit of s.
// Through maps: not what reductions are made of.
enum class Through : uint8_t { everything, maps };
std::set<TensorId> feeds_control(const Program& p, Through through = Through::everything);

// What the ranges say of their axes, as conditions.
std::vector<Id> ranges_as_conditions(Arena& a, std::span<const AxisRange> ranges);
// Is the condition among those known to hold, as it is or as the same bound on positions (j < i + 1 is j <= i)?
bool is_known(const Arena& a, std::span<const Id> known, Id condition);

// Definitions that read fewer others of the region first, so that a sum of plain inputs is known to whatever contains it.
std::vector<Definition> fewest_reads_first(const Arena& a, const Region& r);
// A gradient that only copies a backward sum becomes that sum's definition.
void name_after_gradients(Program& p);

bool backward_reads(const Program& p, TensorId t);
bool depends_on_any(const Arena& a, Id expression, std::span<const AxisRange> axes);
Id read_at(Arena& a, const Program& p, TensorId t, const std::vector<Id>& indices);
std::vector<Id> axes_of(std::span<const AxisRange> ranges);

}  // namespace xhat
