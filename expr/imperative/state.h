// The state of a program that is run symbolically: names are views of storages, and a storage has a current value.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "expr/imperative/form.h"
#include "expr/text/elaborate_number.h"
#include "expr/text/elaborate_scope.h"

namespace xhat::imperative {

using Shape = std::vector<Id>;

// A name that a loop binds anew.
using LoopName = std::pair<const ast::Statement*, std::string>;
struct Ambiguous {
  std::set<LoopName> names;
};

struct Storage {
  std::string name;  // what messages and new values are called by
  DType type = DType::f32;
  Shape shape;  // may depend on the iteration; the shape of its value then does not (Context::define)
  TensorId value = 0;
  bool parameter = false;  // is never written
  bool inout = false;
  bool loop_variable = false;  // of a loop whose bounds are data
  // The name of this storage may stand for one of these, by how often a loop runs: the storage holds the value, and is written only where
  // that makes no difference. Else the program is made anew with the loop handing on which it is (Ambiguous).
  std::vector<size_t> maybe;
  std::set<LoopName> maybe_by;
};

// Element `axes` of the view is element `indices` of the storage.
struct View {
  size_t storage = 0;
  std::vector<AxisRange> axes;  // from 0
  std::vector<Id> indices;      // one for each dimension of the storage, over axes, loop variables and scalars
  // Where unless[k] holds, and none before it, it is others[k] instead. Axes are the same.
  std::vector<Id> unless = {};
  std::vector<View> others = {};
  Shape shape() const {
    Shape s;
    for (const AxisRange& r : axes) s.push_back(r.end);
    return s;
  }
  bool operator==(const View&) const = default;
};

struct Binding {
  View view;
  bool variable = false;  // declared with var
  size_t depth = 0;       // of the block that declares it
  Pos pos;
};

struct LoopVariable {
  std::string name;
  AxisRange range;
  size_t depth = 0;
  bool bounds_read = false;  // its range depends on data
};

struct State {
  std::map<std::string, Binding> names;
  std::vector<Storage> storages;
  std::map<std::string, Id> numbers;  // loop variables of unrolled loops: i64 expressions
  std::vector<LoopVariable> loops;    // that are being run symbolically, outer first
  std::vector<Id> conditions;         // of branches around, which hold here
  std::vector<Id> guards;             // those of them whose sides are run one after the other, so that writes must ask
  size_t depth = 0;
};

// What all parts share: the program that grows, what its text says, the state, and the items of the block that is being run.
struct Context {
  const ast::File& file;
  Program program;
  OpScope scope;
  State state;
  Items* items = nullptr;
  std::set<std::string> words;        // every name in the text of the program
  std::set<std::string> assigned;     // those that it assigns
  std::map<Id, TensorId> positions;   // tables of the positions in a dimension, by extent
  std::map<TensorId, Value> decided;  // what scalars are that sizes and loop variables alone decide
  std::set<TensorId> chosen;          // scalars that are f32 as data choose between numbers without a type
  std::vector<Definition> tables;     // their definitions, which stand before all others
  std::set<TensorId> padded;          // larger than what they hold in some iterations
  bool all_loops = false;             // loops stay, whatever they could become
  std::set<LoopName> handed_on;       // names of which loops hand on what they stand for
  std::string axis_prefix;            // axes of elements are called axis_prefix0, ...

  Context(const ast::File& f, const std::shared_ptr<Arena>& arena, const std::map<std::string, std::shared_ptr<const Program>>& ops)
      : file(f), scope{f, *arena, program, ops} {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Arena& arena() { return *program.arena; }
  // The same integer: constants folded, sums collected.
  Id tidy(Id index);
  Id element_axis(size_t k) { return arena().axis(axis_prefix + std::to_string(k)); }
  std::vector<AxisRange> element_axes(const Shape& shape);
  TensorId new_tensor(const std::string& base, DType type, Shape shape);
  size_t new_storage(const std::string& name, DType type, Shape shape, TensorId value);
  View whole(size_t storage);
  // The value of the storage that the view is all of.
  std::optional<TensorId> whole_value(const View& v);
  Id element(const View& v, std::span<const Id> positions);
  // An index by way of the table of positions.
  Id looked_up(Id index, Id extent);
  // The condition of all branches around, kNone if there are none.
  Id guard();
  // A value that is looked at only where all branches around are taken; 0 elsewhere, so that nothing is read there.
  Id guarded(Id value);
  std::vector<AxisRange> loop_ranges() const;
  // The tensor of the body at all axes. Where ranges depend on the iteration, it is as large as the largest, and 0 behind them.
  TensorId define(const std::string& base, const std::vector<AxisRange>& axes, Id body, Pos pos);
  // Does the extent depend on the iteration?
  bool varies(Id extent) const;
  // The largest that it is in any iteration of the loops around, over sizes alone.
  Id largest(Id extent, const std::string& of);
  std::optional<Id> known_largest(Id extent);

  // What the program needs of its sizes, as far as is known by now: holds whenever it runs.
  std::vector<Id> needs();

  // Facts (facts.cpp): hold for all values of the axes in their ranges at which the conditions hold.
  bool never(std::span<const AxisRange> axes, std::span<const Id> conditions);
  bool implied(std::span<const AxisRange> axes, std::span<const Id> conditions, Id fact);
  bool excluded(std::span<const AxisRange> axes, std::span<const Id> conditions, Id fact);
  // `what` must be inside of `of` for all iterations and axes: proved, a precondition, left to the run (data), or an error.
  void require_inside(Id index, Id extent, const std::string& what, const std::string& of, Pos pos, std::span<const AxisRange> axes = {});
};

bool reads_data(const Arena& a, Id expression);
std::string shape_text(const OpScope& s, const Shape& shape);

}  // namespace xhat::imperative
