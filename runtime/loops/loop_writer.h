// Writes the functions of a loop (loop_code.h): statements of its steps, forward and backward. For these files only.
#pragma once
#include <map>
#include <set>

#include "runtime/cpu/ir/statements.h"
#include "runtime/loops/loop_adjoints.h"
#include "runtime/loops/loop_code.h"
#include "runtime/loops/loop_tape.h"

namespace xhat::runtime {

struct LoopWriter {
  // A part of memory that is copied.
  struct Part {
    Region region;
    Halide::Type type;
    std::vector<int64_t> extents;
    const Changed* some = nullptr;  // what is copied of it, where that is not all
    const Block* of = nullptr;      // the block that changes it
  };
  // Of what goes on the tapes, as far as it is known before the loop runs.
  struct Pushes {
    std::map<size_t, int64_t> here;                            // elements, by tape
    std::vector<std::pair<size_t, std::vector<Reach>>> boxes;  // likewise
    struct Repeated {
      const Loop* loop;
      std::shared_ptr<Pushes> each;
    };
    std::vector<Repeated> loops;
  };

  const Program& p;
  const Loop& loop;
  const DimValues& dims;
  const std::vector<std::vector<int64_t>>&shapes, &callers_shapes;
  const LoopBlocks& blocks;
  const Halide::Target& target;
  LoopMemory memory, adjoints;  // of values, and of their adjoints
  std::vector<Id> around;       // loop variables that it reads, of loops around
  LoopTape tape_plan;
  std::set<TensorId> carried, carried_adjoints;  // places of what the loop carries
  bool bounded = true;                           // sizes decide how much goes on the tape
  bool in_place = true;                          // what it carries lies where it leaves it

  // Of the function being made.
  NestNames names;
  LoopPhase phase = LoopPhase::infer;
  std::map<std::string, Halide::Type> tapes;  // by name
  std::vector<std::string> tape_order;
  struct Memory {
    std::string name;
    Halide::Type type;
    int64_t elements;
    bool zero;  // at the beginning
  };
  std::vector<Memory> wanted;
  std::set<std::string> has;                                   // names of memory that is used
  std::unordered_map<Id, Expr> variables;                      // of loops, i64
  std::unordered_map<Id, std::pair<int64_t, int64_t>> ranges;  // of these variables
  std::vector<std::pair<std::string, Expr>> lets;              // of the step being made
  Pushes pushes, *pushing = nullptr;

  LoopWriter(const Program& p_, const Loop& l, const DimValues& d, const std::vector<std::vector<int64_t>>& s,
             const std::vector<std::vector<int64_t>>& callers, const LoopBlocks& b, const Halide::Target& t);

  // What stands in memory decides. By a name: Halide's simplifier takes a condition for true in all that is under it, also where what was loaded
  // has changed since.
  Stmt where(const Expr& loaded, const Stmt& then, const Stmt& otherwise = {});
  void note_loop(const Loop& l, std::set<Id>& own, std::set<Id>& met);
  void note_axes(Id expression, std::set<Id>& met);
  void note_list(const Steps& steps, std::set<Id>& own, std::set<Id>& met);
  TensorId place(TensorId t) const { return memory.place(t); }
  Halide::Type type(TensorId t) const;
  int64_t elements(TensorId t) const;
  bool is_float_value(TensorId t) const;
  std::string value_name(TensorId t);
  std::string adjoint_name(TensorId t);
  std::string kept_name(const Block* b, size_t k);
  std::string wanted_memory(const std::string& name, Halide::Type t, int64_t n, bool zero, bool given);
  std::pair<int64_t, int64_t> range(Id id) const;
  Expr number(Id id);
  // An element of a tensor of integers; outside of it what `else` says, or an error.
  Expr element(const Node& n);
  // Where a row begins, in elements, clamped into the tensor; inside: whether it was there.
  Expr offset(TensorId t, const std::vector<Id>& row, const std::vector<int64_t>& strides, Expr* inside);
  Expr row_offset(TensorId t, const std::vector<Id>& row, const std::vector<int64_t>& strides);
  std::vector<Expr> guards;  // of the step being made: must hold, or the call is an error
  void guard(const Expr& inside);
  Expr named(const Expr& e);
  // The statement that this makes, with what it computed for itself.
  Stmt with_own_lets(const std::function<Stmt()>& made);
  // The step with what it computed for itself.
  Stmt complete(std::vector<Stmt> made);
  std::string tape_of(Halide::Type t);
  size_t number_of(const std::string& tape) const;
  static std::string top_of(const std::string& tape);
  static Part number_in(const std::string& buffer);
  // A walk over the elements of Part::some: extents of the loops, by axis, and their steps in the region, as far as places are axes or the same
  // for all; of the other dimensions the place is computed for each element.
  struct Walk {
    Region region;
    std::vector<Expr> begins, extents;
    std::vector<size_t> computed;  // dimensions
    Expr inside, elements;         // are places that are the same for all inside; how many there are on the tape
  };
  Walk walk(const Part& part);
  bool depends(const Changed& some, Id place, Id axis) const;
  // Copies them to the tape from `here` on, or back.
  Stmt walked(const Part& part, const Walk& w, const std::string& tape, const Expr& here, bool back);
  // The step between elements along a dimension, times the place, which is clamped into it; inside: whether it was there.
  Expr placed(const Part& part, size_t dimension, Expr* inside);
  // What computes for the block where elements are that it changes.
  std::set<size_t> members_for_places(const Block& b) const;
  void push(std::vector<Stmt>& made, const Part& part);
  void pop(std::vector<Stmt>& made, const Part& part);
  // What a loop leaves, where it lies in the backward.
  static std::string left_name(size_t of_carried);
  // Memory of t is about to be overwritten: all of it, or a part.
  void keep(std::vector<Stmt>& made, TensorId t, const Part& part);
  void take_back(std::vector<Stmt>& made, TensorId t, const Part& part);
  // part: for the type and the extents.
  Stmt copy(const Region& to, const Region& from, const Part& part, bool added = false);
  Stmt clear(const Part& part);
  // Between elements of a value, or of its adjoint, where it lies.
  std::vector<int64_t> value_strides(TensorId t) const;
  std::vector<int64_t> adjoint_strides(TensorId t) const;
  // All of a value, or of its adjoint; or a row that begins at `at`.
  Part whole(const std::string& buffer, TensorId t, std::vector<int64_t> strides) const;
  Part value(TensorId t);
  // Of a block's result, what the block may change of what lies there.
  std::vector<Part> changed(const Block& b, size_t result);
  Part adjoint(TensorId t);
  Part put_aside(TensorId t);
  static Part row_of(Part of, const Row& row, const Expr& at);
  Part kept_part(const Block* b, size_t k);
  // The copy of an operand (LoopMemory::is_copied), or where the backward finds what is kept as it was read.
  Part copied_row(const Block& b, size_t operand);
  // The operands that are copied; to_keep: those that the backward reads, of whose copies the tape has what was there before.
  std::vector<size_t> copied_rows(const Block& b, bool to_keep) const;
  Stmt list(const Steps& steps);
  // What the block's backward reads of an operand goes on the tape as it is read.
  Part part_as_read(const Block& b, size_t operand);
  bool is_kept_as_read(const Block& b, size_t operand) const;
  // Where the tensors of a block's nest lie. Its temporaries are collected, and what comes after the nest.
  struct Temporary {
    std::string name;
    Halide::Type type;
    int64_t elements;
    bool leaves;  // the nest is there for it
  };
  NestPlace place_of(const Block& b, const LoopBlock::Direction& d, uint32_t number_in_spec, std::vector<Temporary>& temporaries);
  // Where the gradient's part of an adjoint goes.
  NestPlace place_of_gradient(const Block& b, const BackwardInPlace& d, uint32_t number_in_spec, std::vector<Temporary>& temporaries,
                              std::vector<Stmt>& before, std::vector<Stmt>& after);
  Stmt nest_of(const Block& b, const LoopBlock::Direction& d, std::vector<Temporary>& temporaries);
  Stmt nest_of(const Block& b, const BackwardInPlace& d, std::vector<Temporary>& temporaries);
  Stmt with_temporaries(Stmt s, const std::vector<Temporary>& temporaries);
  Stmt step(const Block& b);
  Stmt step(const Update& u);
  struct Move {
    TensorId to, from;
  };
  // Without those from a place to itself.
  static std::vector<Move> real(const LoopMemory& in, std::vector<Move> moves);
  // Is what it moves from overwritten by another of them?
  static bool is_overwritten(const LoopMemory& in, const std::vector<Move>& moves, TensorId from);
  std::string aside(TensorId t);
  Stmt moved(const std::vector<Move>& all);
  Stmt moved_back(const std::vector<Move>& all);
  static std::vector<Move> moves(const Loop& l, TensorId Carried::*to, TensorId Carried::*from);
  struct Turns {
    Expr begin, count;  // i64, int32
  };
  Turns turns_of(const Loop& l);
  bool depends_on_data(const Loop& l) const;
  bool is_taping() const { return phase == LoopPhase::forward || phase == LoopPhase::count; }
  // Body of one turn, for the variable.
  Stmt with_variable(const Loop& l, const Turns& turns, const Expr& turn, const std::function<Stmt()>& body);
  Stmt turns(const Loop& l);
  Stmt step(const Loop& l);
  static std::vector<Move> merged(const Branch& b, TensorId Branch::Merge::*from);
  Stmt step(const Branch& b);
  Stmt list_back(const Steps& steps);
  Stmt back(const Block& b);
  Stmt back(const Update& u);
  Stmt turns_back(const Loop& l);
  Stmt back(const Loop& l);
  Stmt back(const Branch& b);
  // Memory that the backward begins with, beside what the loop leaves.
  std::vector<Part> kept_at_the_end();
  LoopFunction function(LoopPhase which);
  LoopFunction finished(std::vector<Stmt> made);
  void count(const Pushes& of, AxisValues& at, int64_t times, std::vector<int64_t>& sums) const;
  bool depends(const Pushes& of, Id variable) const;
};

}  // namespace xhat::runtime
