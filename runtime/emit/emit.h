// Scalar expressions of a kernel as Halide expressions.
//
// Contraction is ours: a*b + c becomes one fma wherever an addition stands on one product, and the pipeline is
// compiled strict_float, so that the same expression has the same bits in every kernel.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "Halide.h"
#include "runtime/kernel/borders.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

Halide::Type storage_type(DType t);  // bool is stored as UInt(8)
Halide::Expr hidden_zero();          // that only LLVM knows to be one

// What a tile reads of an input, or of what it has made, copied with what `else` says (or anything, where nobody looks) around it: then vectors are
// read without clamps, masks and gathers. By tensor and `else`; arguments: its dimensions, innermost first.
struct Padding {
  std::map<std::pair<uint32_t, Id>, Halide::Func> funcs;
  std::map<Id, Halide::Func> values;            // by node: what is computed from such reads, all at one place
  std::set<std::string> used;                   // names of those that the sum under way reads
  std::map<std::string, Halide::LoopLevel> at;  // where they are made
  std::map<std::string, int64_t> rows;          // elements of a row, of those that are copied row by row
  std::map<std::string, size_t> innermost;      // the argument along which vectors read, of those where it is not the first
  Id along = kNone;                             // the axis along which the vectors of the sum under way run, where it is known
  bool of_made = true;                          // also of what is made in the tile
};

// Where the tensors and axes of a kernel are found.
struct Emitter {
  const KernelSpec& spec;
  std::vector<Halide::ImageParam> inputs;                   // by tensor; undefined for those made here
  std::unordered_map<uint32_t, Halide::Func> made;          // by tensor; arguments: dimensions(tensor), innermost first
  std::unordered_map<Id, Halide::Param<int>> origin;        // of shared axes that are not whole
  std::unordered_map<uint32_t, std::vector<Id>> left_axes;  // of tensors made here
  std::unordered_map<Id, Halide::Expr> given;               // what these nodes are, computed elsewhere
  std::unordered_map<Id, Halide::Param<int>> counts = {};   // of axes whose extent in the tile is an argument; of dims, their value
  // Most places are inside, where read_or reads and conditions hold: Halide makes a loop of its own for these, with
  // neither clamps nor choices.
  bool mostly_inside = false;
  std::set<std::pair<Id, size_t>> moved = {};  // reads and dimensions: moved_reads(spec)
  bool loops_by_halide = true;       // Halide makes the loops, cuts them by what a select chooses, and infers what they read: on CPUs
  Id cut_along = kNone;              // vectors run along this axis, and Halide may make a loop of its own for the longest run of places
  Id inside_along = kNone;           // all reads at places that depend on this axis are inside there
  Halide::Expr only = {};            // steps of sums happen where this holds; undefined: everywhere
  Padding* padding = nullptr;        // null: reads outside are clamped where they stand
  const Borders* borders = nullptr;  // of reads whose `else` stands for these
  bool values_once = true;           // with padding: also what is computed from reads of one place

  // What each axis is at the place an expression is emitted for: a Var, an RVar, or 0 (local to the tile).
  using Axes = std::unordered_map<Id, Halide::Expr>;

  Halide::Expr value(Id root, const Axes& axes) const;
  Halide::Expr condition(Id root, const Axes& axes) const { return value(root, axes); }

  // Reduction steps.
  static Halide::Expr identity(Op op, DType type);
  static Halide::Expr combine(Op op, Halide::Expr accumulated, Halide::Expr value);
  // accumulated (op) body, with the product of a sum contracted, and only where condition holds.
  Halide::Expr step(const SpecMember& m, Halide::Expr accumulated, const Axes& axes) const { return steps({&m}, {accumulated}, axes)[0]; }
  std::vector<Halide::Expr> steps(const std::vector<const SpecMember*>& group, std::vector<Halide::Expr> accumulated,
                                  const Axes& axes) const;
  // What a read_or reads of an input, from a copy with what it says around it: at any place, not only where the axes are.
  Halide::Expr padded(Id read, const Axes& axes) const;
  // Likewise what is computed from these reads at one place.
  Halide::Expr padded_value(Id root, const std::vector<Id>& reads, const Axes& axes) const;
  // Where along the axis, counted from the tile's first element, an index expression points: for scatter.
  Halide::Expr local_index(Id index, Id axis, const Axes& axes) const;
};

}  // namespace xhat::runtime
