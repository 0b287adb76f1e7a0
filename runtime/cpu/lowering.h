// The lowering of one kernel while it is under way: shared by lower.cpp (members, maps, placement), lower_reduce.cpp
// (reductions), lower_scatter.cpp and lower_contract.cpp. Includes Halide; for these files only.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "expr/index/linear.h"
#include "expr/index/recurrence.h"
#include "runtime/cpu/assumptions.h"
#include "runtime/cpu/ir/scatter_list.h"
#include "runtime/cpu/ir/several_turns.h"
#include "runtime/cpu/lower.h"
#include "runtime/emit/emit.h"
#include "runtime/emit/emit_ops.h"
#include "runtime/emit/read_always.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

// Of a window whose terms are written out, at most: more arithmetic than in 25 products takes long to compile.
constexpr int64_t kWrittenOut_ps = 1600;

constexpr int64_t kDenseStep = 8;  // every so manieth element at most Halide takes from whole vectors

class Lowering {
 public:
  Lowering(const KernelSpec& spec, const Halide::Target& target, Care care, const Borders& borders = {})
      : spec_(spec),
        target_(target),
        vectors_(care != Care::no_vectors),
        all_stages_(care != Care::none),
        emit_{spec, {}, {}, {}, {}, {}},
        borders_(borders) {
    emit_.borders = &borders_;
  }

  LoweredKernel run();
  bool element_by_element();

 private:
  const KernelSpec& spec_;
  const Halide::Target& target_;
  bool vectors_, all_stages_;
  Emitter emit_;
  const Borders borders_;
  Padding padding_;
  LoweredKernel out_;
  std::unordered_map<Id, Var> vars_;
  std::unordered_map<Id, Halide::Param<int>> counts_;  // of axes whose extent in the tile is an argument
  std::unordered_map<uint32_t, Func> results_;
  std::map<uint32_t, Halide::ImageParam> carried_;  // results that hold what earlier tiles have summed up
  // Set when everything else is computed inside the rows of one result.
  size_t row_result_ = SIZE_MAX;
  Id row_axis_ = kNone;
  // A map and sums of columns over its rows, which its loop computes too.
  struct Beside {
    std::vector<size_t> map, sums;
    std::string map_loop, sum_loop;  // over the rows
  } beside_;
  std::vector<std::pair<const SpecMember*, std::string>> result_buffers_;
  std::vector<Func> inside_;  // placed in the row loop once the result's Func exists

  const SpecAxis& axis(Id id) const { return spec_.axes.at(id); }
  // All of it in every tile, and as much as the code knows.
  bool constant(Id id) const { return axis(id).kind() == AxisKind::untiled && axis(id).static_extent; }
  int vectors_or(int rule) const { return spec_.vectors > 0 ? spec_.vectors : rule; }
  int natural(DType t) const { return target_.natural_vector_size(storage_type(t)); }

  // Tensor and axis names must not collide with libm's or Halide's own: prefixed and numbered.
  std::string name(const char* kind, size_t i) const { return std::string("xh_") + kind + std::to_string(i); }

  using Groups = std::vector<std::vector<size_t>>;
  Groups groups() const;
  void declare();
  bool same_walk(const SpecMember& m, const SpecMember& f) const;
  // Reductions that one pass can do: the same axes and condition, and nothing of one needed by another.
  std::vector<size_t> same_domain(size_t first, const std::vector<bool>& emitted) const;

  // Where vectors run: a map along the last axis it writes; a reduction along the axis that is contiguous in most of the
  // bytes it reads, if that is reduced or the last one written. kNone if there is none.
  Id vector_axis(const std::vector<size_t>& group) const;

  std::vector<Var> func_vars(const SpecMember& m) const {
    std::vector<Var> v;
    auto dims = tile_dimensions(spec_, m);
    for (size_t i = dims.size(); i-- > 0;) v.push_back(vars_.at(m.left[dims[i]]));
    return v;
  }

  Emitter::Axes left_locals(const SpecMember& m) const {
    Emitter::Axes axes;
    for (Id x : m.left) axes[x] = axis(x).kind() == AxisKind::point ? Expr(0) : Expr(vars_.at(x));
    return axes;
  }

  // Elements of an axis in this tile: a constant, or an argument: the last tile may have fewer, and a batch any number.
  Expr extent(Id x) const;

  // Vectorizes v of a stage by what fits: the natural width, less for short constant extents.
  template <class Stage>
  void vectorize(Stage stage, const VarOrRVar& v, Id x, DType type, int unroll, TailStrategy tail = TailStrategy::GuardWithIf) const {
    const SpecAxis& a = axis(x);
    int width = vectors_ ? natural(type) : 1;
    if (constant(x))
      while (width > 1 && a.extent < width) width /= 2;
    if (width <= 1) return;
    if (constant(x) && a.extent < static_cast<int64_t>(width) * unroll) unroll = 1;
    const VarOrRVar vectors(v.name() + (unroll > 1 ? suffix_of_turns(unroll) : "_v"), v.is_rvar), lanes(v.name() + "_i", v.is_rvar);
    if (tail == TailStrategy::ShiftInwards && a.extent % width != 0) {
      stage.split(v, vectors, lanes, width, tail).vectorize(lanes);
      if (a.extent < 2 * width) stage.unroll(vectors);  // both have a border: Halide finds no middle, and asks about either in both
    } else if (unroll > 1) {
      stage.split(v, vectors, lanes, width, TailStrategy::GuardWithIf).vectorize(lanes);
    } else {
      stage.vectorize(v, width, TailStrategy::GuardWithIf);
    }
  }

  // A last vector that begins where a whole one fits computes some elements again: it needs no mask, nor code of its own. Not where what is
  // written was read (an input written over, a sum that goes on), nor in rows long enough to be written past the cache.
  TailStrategy tail_of(const std::vector<size_t>& group, Id v) const {
    constexpr int64_t kLongRow = 256;
    const bool again = constant(v) && axis(v).extent < kLongRow && spec_.over.empty() && group != beside_.map &&
                       std::ranges::all_of(group, [&](size_t g) { return spec_.carried_over(spec_.members[g]) == kNone; });
    return again ? TailStrategy::ShiftInwards : TailStrategy::GuardWithIf;
  }

  // What is read along another axis than vectors run along (x[j,i] for y[i,j]): see lower_turned.cpp.
  struct Turned {
    Id v = kNone, along = kNone;
    std::vector<Id> parts;
    std::vector<Func> squares = {};
    std::vector<Expr> reads = {};  // of the squares
    explicit operator bool() const { return !parts.empty(); }
  };
  // padded: what is outside is read from a copy with a border.
  Turned turned(const std::vector<Id>& roots, Id v, DType type, bool padded = false) const;
  Turned turned_map(const std::vector<size_t>& group) const;
  void choose_transposes(Turned& t, const std::vector<Var>& vars, const Emitter::Axes& inside);
  void turn(const Turned& t, Func f, int vector) const;

  // Results in short rows, along which most lanes would idle: see lower_short_rows.cpp.
  struct ShortRows {
    std::vector<Id> row = {};  // its axes, the innermost first
    Id across = kNone;
    explicit operator bool() const { return across != kNone; }
  };
  std::optional<int64_t> step_in_memory(Id read, Id x) const;
  std::vector<int> known_strides(const SpecTensor& t) const;  // from its second dimension on, the fastest first
  void know_strides(const std::vector<size_t>& group, Id x);  // of inputs that are read in vectors along x across short rows
  ShortRows in_short_rows(const std::vector<size_t>& group, Id v) const;
  bool read_across(const SpecMember& made, const ShortRows& s) const;
  void map_across(Func f, const std::vector<size_t>& group, const ShortRows& s, TailStrategy tail);
  void sum_across(const std::vector<size_t>& group, const ShortRows& s);

  Expr begin_of(const SpecMember& m, const std::string& buffer) const;

  // Is there one result into whose row loop the rest can go?
  bool sums_wait() const;
  void find_row_loop(const Groups& all);
  bool sums_columns_of(const std::vector<size_t>& sums, const std::vector<size_t>& map, Id row) const;

  // What is computed inside of the row loop has one element along its axis there: no vectors, no blocks.
  bool one_in_row(Id x) const { return row_result_ != SIZE_MAX && x == row_axis_; }

  void place(Func f) {
    if (row_result_ == SIZE_MAX)
      f.compute_root();
    else
      inside_.push_back(f);
  }

  // What the tiles before have summed up, and what this one has: see lower_carried.cpp.
  void declare_carried();
  Expr carry(const SpecMember& m, const Expr& own) const;
  Func added_up(const SpecMember& m, Func own);

  // carried: f is what is carried, added up already.
  void publish(const SpecMember& m, Func f, bool carried = false) {
    if (!carried && spec_.carried_over(m) != kNone) f = added_up(m, f);
    emit_.made[m.tensor] = f;
    emit_.left_axes[m.tensor] = m.left;
    bool leaves = spec_.tensors[m.tensor].use != SpecTensor::Use::temporary;
    if (leaves)
      results_[m.tensor] = f;
    else
      place(f);
  }

  Expr to_storage(const SpecMember& m, const Expr& e) const { return ops::as_stored(storage_type(spec_.tensors[m.tensor].type), e); }

  void member(const std::vector<size_t>& group);
  void emit_member(const std::vector<size_t>& group);
  void pads_at(const Halide::LoopLevel& where);
  void pads_in_loop(const SpecMember& m, const Halide::LoopLevel& where);
  std::vector<Access> reads(const SpecMember& m) const;
  // Maps over the same axes whose values nobody else in the kernel reads: one loop writes them all.
  std::vector<size_t> side_by_side(size_t first, const std::vector<bool>& emitted) const;
  void join_temporaries(Groups& groups) const;
  // A temporary that a group of maps computes for itself.
  bool joined(const std::vector<size_t>& group, const SpecMember& m) const {
    return &m != &spec_.members[group[0]] && spec_.tensors[m.tensor].use == SpecTensor::Use::temporary;
  }
  bool is_view(const SpecMember& m) const;
  // Vectors along v that a step of a loop computes, by the price of one element.
  int vectors_per_step(const std::vector<size_t>& group, Id v, int64_t cost_ps, int most = 4) const;
  int64_t body_ps(const std::vector<size_t>& group) const;
  void map(const std::vector<size_t>& group);
  // A member that reads its own results of the place before: see lower_recurrence.cpp.
  std::optional<Recurrence> recurrence(const SpecMember& m) const { return recurrence_of(*spec_.arena, m.tensor, m.left, m.body); }
  void walk(const SpecMember& m, const Recurrence& own);
  void give_map(const Emitter::Axes& axes);
  // Vectors along rows of few results each: see lower_rows.cpp.
  struct Rows {
    Id along = kNone;
    std::vector<Id> outer = {};  // of all members, with a loop each
    int lanes = 1;
  };
  std::optional<Rows> rows_of_few() const;
  struct PriceOfRow {
    double together = 0, apart = 0;  // all values once, and turned; each result by itself
  };
  std::optional<PriceOfRow> price_of(const Rows& rows) const;
  std::vector<Id> in_row(const SpecMember& m, const Rows& rows) const;
  void at_places(const std::vector<Id>& axes, const std::function<void(const std::vector<int64_t>&)>& each) const;
  void by_rows(const Rows& rows);
  // Axes of a map that it reads by their quotients (y[k/2,l/2] for g[k,l]), and by how much they are divided.
  using Quotients = std::map<Id, int>;
  Quotients quotients_of(const std::vector<size_t>& group) const;
  void in_phases(Func f, const SpecMember& m, Id v, const Quotients& by) const;

  // Shared axes outermost, so that a row is finished before the next; the vector axis innermost.
  void order_rows(Func f, const SpecMember& m, Id v) const;
  // So many results along v at a time: their accumulators stay in registers over all steps.
  void by_panels(Func result, Func acc, const SpecMember& m, Id v, int panel, const RDom& steps) const;
  std::vector<Id> rows_of(const SpecMember& m, Id v) const;  // its axes but v, the innermost first
  template <class Stage>
  void write_out(Stage stage, const SpecMember& m) const {
    for (Id x : m.left)
      if (axis(x).unrolled) stage.unroll(vars_.at(x));
  }

  // The widest element type that a member computes with decides the vector width.
  DType widest(const SpecMember& m) const;

  DType accumulated(const SpecMember& m) const { return (*spec_.arena)[m.body].type; }

  static Expr element(Func f, const std::vector<Expr>& args, size_t i, size_t of) {
    return of == 1 ? Expr(f(args)) : Expr(f(args)[static_cast<int>(i)]);
  }

  // In the plain way every stage is computed that is read at all, whatever conditions say (read_always.h).
  void define(Func f, const std::vector<Expr>& args, const std::vector<Expr>& values) const {
    const std::vector<Expr> always = all_stages_ ? reading_stages_always(values, f.name()) : values;
    if (values.size() == 1)
      f(args) = always[0];
    else
      f(args) = Halide::Tuple(always);
  }

  std::vector<const SpecMember*> members_of(const std::vector<size_t>& group) const;
  std::vector<Expr> identities(const std::vector<size_t>& group) const;

  // The loops of a sum in one tile, its last axis first; and what every axis is at a point of them.
  struct Loops {
    RDom r;
    Emitter::Axes axes;
  };
  Loops loops_of(const SpecMember& m) const;

  // The group's next accumulated values, at a point of r.
  std::vector<Expr> steps(const std::vector<size_t>& group, Func f, const std::vector<Expr>& args, const Emitter::Axes& axes,
                          const RDom& r) const;
  static void mention(const RDom& r, Expr& value);

  static std::vector<Expr> exprs(const std::vector<Var>& vars) { return {vars.begin(), vars.end()}; }

  // One result Func per member of a group, from the finished accumulators. stored: `value` is in memory, so that who reads a
  // temporary reads it there.
  template <class F>
  void results_of(const std::vector<size_t>& group, F&& value, bool stored = false) {
    for (size_t i = 0; i < group.size(); ++i) {
      const SpecMember& m = spec_.members[group[i]];
      Func r(name("red", m.tensor));
      r(func_vars(m)) = to_storage(m, value(i));
      if (stored && spec_.tensors[m.tensor].use == SpecTensor::Use::temporary) {
        emit_.made[m.tensor] = r;
        emit_.left_axes[m.tensor] = m.left;
        continue;
      }
      along_memory(r, m);
      publish(m, r);
    }
  }

  // Vectors along the last dimension.
  void along_memory(Func f, const SpecMember& m) const {
    auto dims = tile_dimensions(spec_, m);
    if (!dims.empty()) vectorize(f, vars_.at(m.left[dims.back()]), m.left[dims.back()], widest(m), 1);
  }

  // Sums that are computed side by side, vectors along the terms, because they share what they read: so many along each of these axes
  // of the result.
  struct SumsInRegisters {
    std::vector<std::pair<Id, int64_t>> along = {};
    int64_t sums = 1;
    double loads = 0;  // of vectors, by term and sum
  };
  static constexpr int kFewestLanes = 4;
  bool places_choose_terms(const SpecMember& m) const;
  int shortest_row(const SpecMember& m) const;
  int width_of_sum(const SpecMember& m, Id v) const;
  int lanes_of_sum(const std::vector<size_t>& group, Id v) const;
  SumsInRegisters sums_in_registers(const std::vector<size_t>& group, Id v) const;
  std::vector<Id> terms_of_columns(const std::vector<size_t>& group, Id v) const;
  int lanes_written_out(const std::vector<size_t>& group, const std::vector<Id>& columns, int lanes, int width) const;
  void row_sum(const std::vector<size_t>& group, Id v);
  Func fold_halves(std::vector<Func>& vectors, int width, const std::vector<size_t>& group, const Var& u,
                   const std::vector<Var>& left) const;

  // The accumulators of one row live in registers or on the stack: computed where the row's result is.
  Func results_of_sums(const std::vector<size_t>& group, const Func& acc);
  void leave_all(const std::vector<size_t>& group, const Func& all);
  void place_beside(Func inner, Func outer, const std::vector<Var>& left) const;
  static Expr pairwise(Op op, std::vector<Expr> parts);
  std::vector<Id> common_conditions(const std::vector<size_t>& group) const;  // of all sums of a group
  std::vector<Id> ties_by_data(const std::vector<size_t>& group) const;
  std::vector<Id> ends_by_data(const std::vector<size_t>& group, Id x) const;
  Expr compared_as_places(Id condition, const Emitter::Axes& axes) const;
  bool bounds_by_data(const std::vector<size_t>& group, Id x) const;
  bool in_segments(const SpecMember& m, const std::vector<Id>& along) const;
  void ask_before_blocks(Halide::RDom& r, const std::vector<Id>& ends, Emitter::Axes axes, Id x, const Expr& first, int places) const;
  void ask_before_row(Loops& l, const std::vector<size_t>& group, Id v);
  void column_sum(const std::vector<size_t>& group, Id v);
  // Sums of which nearly all terms are 0: see lower_rare.cpp.
  struct Rare {
    Id where;               // the other terms
    Id along;               // of the axes that it depends on, one along which neighbours are asked for together; kNone: none
    std::vector<Id> asked;  // all of them, the last of memory first
  };
  std::optional<Rare> rare_terms(const SpecMember& m) const;
  void rare_sum(const SpecMember& m, const Rare& rare);
  // Sums of few terms (stencils, windows): written out as a map, or with accumulators that live for a vector.
  int64_t written_out_ps(const std::vector<size_t>& group) const;
  bool moves_window(const SpecMember& m, Id x) const;
  bool rows_together(Func f, const SpecMember& m, Id v) const;
  void unrolled(const std::vector<size_t>& group, Id v);
  std::vector<Expr> written_out(const std::vector<size_t>& group, const std::vector<Id>& over, Emitter::Axes axes, bool long_row,
                                Id inside_along = kNone) const;
  std::vector<Expr> add_terms(const Emitter& emit, const std::vector<size_t>& group, const std::vector<Id>& over, Emitter::Axes axes,
                              std::vector<Expr> values) const;
  Id slides_by(const SpecMember& m, Id v) const;
  struct Columns {
    Id v, slide;
    int64_t first, last;  // inside
  };
  Columns columns_inside(const SpecMember& m, Id v, Id slide) const;
  int64_t columns_by_parts(Func columns, const std::vector<size_t>& group, const std::vector<Id>& over, Emitter::Axes axes,
                           const Columns& c) const;
  bool at_every_point(const SpecMember& map, std::span<const Id> indices) const;
  bool part_of_a_map(const SpecMember& m) const;
  bool waits_for_stores(const SpecMember& m, Id v) const;
  bool reads_again(const std::vector<size_t>& group, Id v) const;
  bool may_be_in_registers(const std::vector<size_t>& group, Id v) const;
  void in_registers(const std::vector<size_t>& group, Id v);

  // The terms of a window one by one, and what several of them compute at shifted places: see lower_shifted.cpp.
  struct Shifted {
    struct Use {
      Id value;  // in a term
      size_t function;
      std::vector<int64_t> base;  // where it is this, along the members' axes
    };
    std::vector<std::vector<SpecMember>> terms;
    std::vector<Id> functions;
    std::vector<Use> uses;
    int64_t remaining_ps = 0;  // of arithmetic in the terms
  };
  class ShiftFinder;
  std::optional<Shifted> shifted_values(const std::vector<size_t>& group) const;
  std::vector<Id> reads_at(Id function, const std::vector<Id>& left) const;
  const SpecMember* map_of(const std::vector<size_t>& group) const;
  void by_blocks(Func f, const SpecMember& m, Id v, const std::vector<Func>& functions) const;
  void shifted(const std::vector<size_t>& group, const Shifted& s, Id v);
  std::map<uint32_t, std::vector<Func>> in_blocks_;  // of maps: the shifted functions that they read
  void scatter(const SpecMember& m);
  Loops listed(const SpecMember& m, Func into, Id row, Func rows_of);
  bool read_at_own_place(const SpecMember& made) const;
  bool summed_by_row(const SpecMember& m) const;
  void scatter_rows(const SpecMember& m);
  // What is computed of each term before the terms are added, by the axes `over`, and by axes of the result around all terms.
  struct TableOfTerms {
    Func values;
    std::vector<Id> over, around = {};
    Expr at(const Emitter::Axes& axes) const;
  };
  void fill(TableOfTerms& t, const SpecMember& m, const Func& into, const std::function<Expr(const Emitter::Axes&)>& value);
  std::vector<Id> dear_beside_row(Id root, const std::vector<Id>& row) const;
  void add_rows(Func acc, const SpecMember& m, const std::vector<Id>& row) const;
  std::vector<ScatterList> scatter_lists_;

  // A sum that is computed in blocks of `rows` of y by `vectors` vectors of v: see lower_contract.cpp.
  struct Contraction {
    Id v, y;
    Id phase = kNone;  // of v, if it is walked in phases: all of them in one block
    int width = 0, vectors = 0, rows = 0;
  };
  std::optional<Contraction> contraction(const SpecMember& m) const;
  // What a vector of terms costs, in those that are multiplied and added meanwhile: in blocks, and with vectors along the terms.
  double price_of(const SpecMember& m, const Contraction& c) const;
  double price_along_terms(const SpecMember& m) const;
  static double load_price(int64_t bytes);  // of a vector out of so many bytes that are loaded again and again
  Id phase_of(const SpecMember& m, Id v) const;
  int phases(const Contraction& c) const { return c.phase == kNone ? 1 : static_cast<int>(axis(c.phase).extent); }
  bool halves_cost_half() const;  // of vectors
  void choose_block(Contraction& c, DType type) const;
  std::vector<Id> parts_along(const SpecMember& m, Id along, Id but_not) const;
  struct Part {
    Func func;
    Expr read;             // where the sum reads it
    std::vector<Id> axes;  // of its dimensions, innermost first
    Turned turned = {};
  };
  int parts_ = 0, squares_ = 0;
  // rows_of: its rows in blocks of their own.
  Part part_of(const SpecMember& m, Id part, std::vector<Id> axes, const Emitter::Axes& at, const Contraction* rows_of = nullptr,
               const Expr& row_at = {});
  Turned turned_panel(const SpecMember& m, Id part, Id v) const;
  int64_t bytes_in_tile(Id part) const;
  int64_t panels(const Contraction& c) const { return axis(c.v).in_tile() / (c.width * c.vectors); }
  int64_t readers_of(const SpecMember& m, Id part) const;
  bool worth_packing_columns(const SpecMember& m, const Contraction& c, Id part) const;
  bool worth_packing_rows(const Contraction& c, Id part, int64_t terms) const;
  bool is_window(const SpecMember& m, const Contraction& c, Id part) const;
  bool rows_collide(const SpecMember& m, const Contraction& c, Id part) const;
  void contract(const SpecMember& m, const Contraction& c);

  // The steps of a contraction, by what its conditions say of a whole block: see lower_bands.cpp.
  struct Band {
    Id condition;
    Linear form;                                                 // which is not negative where the condition holds
    Id summed = kNone;                                           // the axis of the sum that it depends on, if any
    bool is_begin() const { return form.terms.at(summed) > 0; }  // of that axis: 0 <= k - i
  };
  // Where a block of sums is kept: at its results' positions, or `apart`, at places in the block, with the block's numbers.
  struct Block {
    bool apart = false;
    Var lane, row;
    std::vector<Var> args;
    std::vector<Expr> of_result;  // the arguments, at a result's position
    Expr row_at;                  // the row's position, as it is before it is kept from passing the end
    Emitter::Axes first, last, here;
  };
  struct BandSteps {
    struct Loop {
      RDom k;
      Emitter::Axes axes;
      Id chosen;  // in every lane
    };
    Block block;
    std::vector<Loop> loops;
    std::vector<Id> kept;  // conditions on results alone: the others have no terms
  };
  std::optional<Band> band(const SpecMember& m, const Contraction& c, Id condition) const;
  Block block_of(const SpecMember& m, const Contraction& c, bool whole_rows, bool apart) const;
  Expr at_end(const Band& b, const Contraction& c, const Block& block, Emitter::Axes axes, bool likeliest) const;
  BandSteps::Loop loop_within(const SpecMember& m, const Contraction& c, const Block& block, const std::vector<Band>& bands) const;
  BandSteps band_steps(const SpecMember& m, const Contraction& c, bool whole_rows) const;
  static Expr in_loop(const Expr& e, const RDom& from, const RDom& to);
  Expr only_where(const std::vector<Id>& conditions, const Expr& sum, const SpecMember& m) const;

  // The first place of the extreme, or of the first NaN: see lower_extremes.cpp.
  void extreme_index(const SpecMember& m);
  std::vector<SampleCall> sample_calls() const;
  SampleCall sample_call(const KernelSpec& spec, int tile) const;
  void finish();
};

}  // namespace xhat::runtime
