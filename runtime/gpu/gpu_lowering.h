// The lowering of one kernel for a GPU while it is under way: shared by gpu_lower.cpp (launches, where tensors lie) and
// gpu_stages.cpp (what a block does for a member). Includes Halide; for these files only.
#pragma once
#include <algorithm>
#include <bit>
#include <optional>

#include "expr/index/recurrence.h"
#include "runtime/emit/emit.h"
#include "runtime/gpu/gpu_count.h"
#include "runtime/gpu/gpu_lower.h"

namespace xhat::runtime {

using Halide::Expr;
using Halide::Internal::Stmt;

constexpr int kWarp = 32;
constexpr int kVector = 4;     // words of 32 bits: the widest load
constexpr int kSector = 8;     // such words: what memory moves at least
constexpr int kThreads = 256;  // of a block with enough to do
constexpr int kSide = 16;      // threads of a rectangle along rows, and along columns
constexpr int kChunk = 16;     // terms of a product that are staged at once
// What a thread of a rectangle reads of shared memory by one instruction. Two words of each thread take a cycle for the whole warp where
// every other thread, or its neighbour's, has the same ones; so neighbouring threads are in two rows, one below the other.
constexpr int kRowsAtOnce = 4, kColumnsAtOnce = 2;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of a block, where there are n results with so many threads for each.
inline int threads_for(const Count& n, int lanes) {
  return static_cast<int>(std::min<int64_t>(kThreads, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n.like()))) * lanes));
}

// The variable of a loop, and a loop from 0 on.
inline Expr counter(const std::string& name) { return Halide::Internal::Variable::make(Halide::Int(32), name); }
inline Stmt loop(const std::string& name, const Expr& n, Halide::Internal::ForType how, const Stmt& s) {
  return Halide::Internal::For::make(name, 0, n, how, Halide::Partition::Auto, Halide::DeviceAPI::None, s);
}

// Points of some axes, slowest first: how many along each, where they begin, and where they must end (undefined: never
// beyond).
struct Points {
  std::vector<Id> axes;
  std::vector<Count> counts;
  std::vector<Expr> origins, limits;
  Count total() const {
    Count n = 1;
    for (const Count& c : counts) n = n * c;
    return n;
  }
  // Along some of the axes.
  Count along(const std::vector<Id>& side) const {
    Count n = 1;
    for (size_t i = 0; i < axes.size(); ++i)
      if (std::ranges::find(side, axes[i]) != side.end()) n = n * counts[i];
    return n;
  }
  bool open() const { return std::ranges::any_of(counts, &Count::open); }
};

// A point: names to give first, where each axis is, and whether there is one.
struct Point {
  std::vector<std::pair<std::string, Expr>> lets;
  Emitter::Axes axes;
  Expr inside;  // undefined: it is
};

// How threads share a reduction: `lanes` of them, a power of two, per result.
struct Sharing {
  int threads = 0, lanes = 1;
  bool lanes_first = true;  // neighbouring threads: lanes of a result, else results
  int results() const { return threads / lanes; }
};

// A sum whose terms several blocks share: each takes a part of the terms along `axis` and leaves a row of partial results, which the launch
// `finish` adds up.
struct Split {
  Id axis = kNone;
  int64_t parts = 1;
  Count each = 1;  // points of the axis in a part
  bool some() const { return parts > 1; }
};

// What is accumulated for a group of members.
struct Accumulation {
  std::vector<size_t> members;  // none: rows of partial results
  std::vector<Expr> identities;
  std::function<std::vector<Expr>(const std::vector<Expr>& now, const Emitter::Axes&)> step;
  std::function<std::vector<Expr>(const std::vector<Expr>&, const std::vector<Expr>&)> combine;
};

class GpuLowering {
 public:
  GpuLowering(const KernelSpec& spec, DeviceKind kind, const std::vector<DType>& stored);
  GpuKernel run();

 private:
  struct Lies {
    enum class In : uint8_t { global, shared } in = In::global;
    int64_t offset = 0;            // bytes, in shared memory
    std::vector<int64_t> extents;  // of what lies there
    std::vector<Expr> origins;     // per dimension: where in the tensor that begins
  };
  const KernelSpec& spec_;
  DeviceKind kind_;
  const std::vector<DType>& stored_;
  Emitter emit_;
  GpuKernel out_;
  std::vector<Lies> lies_;  // by tensor, in the launch being made
  std::vector<Stmt> launches_;
  std::vector<uint32_t> zeros_;               // tensors that are set to zero first
  std::unordered_map<uint32_t, Count> rows_;  // of partial results, by tensor
  int64_t shared_bytes_ = 0, scratch_ = 0;    // of the launch being made; where its scratch begins
  int names_ = 0;

  const SpecAxis& axis(Id id) const { return spec_.axes.at(id); }
  std::string fresh(const std::string& what) { return "xh_" + what + std::to_string(names_++); }
  static std::string buffer_of(uint32_t tensor, bool partial = false) { return (partial ? "xh_p" : "xh_t") + std::to_string(tensor); }
  bool leaves(const SpecMember& m) const { return spec_.tensors[m.tensor].use != SpecTensor::Use::temporary; }

  // gpu_lower.cpp
  std::vector<std::vector<size_t>> groups() const;
  bool one_tile_launch(const std::vector<std::vector<size_t>>& groups) const;
  void tile_launch(const std::vector<std::vector<size_t>>& groups);
  bool sum_launch(const std::vector<std::vector<size_t>>& groups);
  void flat_launch(const std::vector<size_t>& group, const std::vector<size_t>& maps = {});
  void scatter_launches(const SpecMember& m);
  Stmt write(const std::vector<size_t>& group, const std::vector<Expr>& values, const Emitter::Axes& at, const Expr& row);
  // gpu_recurrence.cpp
  bool recurs(const SpecMember& m) const;
  void recurrence_launch(const SpecMember& m);
  std::vector<Id> beside_recurrence(Id body, Id read, Id along) const;
  struct Recurring {  // a member that reads its own results
    const SpecMember& member;
    Recurrence own;
    Id along = kNone;
    Points rows = {};
    std::string values = {};  // registers: of a chunk's steps, after that of the place before
    Halide::Type type = {};
    int chunk = 0;
  };
  static Expr value_in(const Recurring& r, const Expr& slot);
  static Stmt put_in(const Recurring& r, const Expr& slot, const Expr& value);
  Emitter::Axes at_step(const Recurring& r, const Emitter::Axes& row, const Expr& step) const;
  Stmt steps_in_order(const Recurring& r, const Expr& count, const std::function<Expr(const Expr& step)>& value,
                      const std::function<Stmt(const Expr& step, const Expr& value)>& keep);
  Stmt from_the_first(const Recurring& r, const Emitter::Axes& row, const Stmt& steps);
  void rows_by_threads(const Recurring& r);
  void rows_in_blocks(const Recurring& r, const std::vector<Id>& staged);
  void finish_launches(const std::vector<size_t>& members, const std::function<Count(const SpecMember&)>& rows);
  void finish_launch(const std::vector<size_t>& members, const Count& rows, const std::vector<size_t>& maps = {});
  Stmt with_maps(const std::vector<std::vector<size_t>>& sums, const std::vector<std::vector<Expr>>& values,
                 const std::vector<size_t>& maps, const Emitter::Axes& at);
  void reset();
  void launch(const std::string& what, const Count& blocks, int threads, const std::vector<Stmt>& stages);
  Expr device(const Expr& e);
  ElementPlace place(const std::string& image, const std::vector<Expr>& indices) const;
  Expr index_of(uint32_t tensor, const std::vector<Expr>& at) const;  // of an element, slowest dimension first
  std::vector<Id> shared_axes() const;
  Count given(int64_t like, uint32_t count, int64_t multiple) const;
  Count extent(Id x) const { return given(axis(x).extent, axis(x).count, axis(x).multiple); }
  Count dimension(uint32_t tensor, size_t i) const {
    return given(spec_.tensors[tensor].shape[i], i == 0 ? spec_.tensors[tensor].count : kNoCount, 1);
  }
  Count elements(uint32_t tensor) const;
  double bytes(uint32_t tensor) const {
    return static_cast<double>(elements(tensor).like()) * static_cast<double>(byte_size(spec_.tensors[tensor].type));
  }
  Count tiles_along(Id x) const { return extent(x).over(axis(x).tile); }

  // gpu_price.cpp
  double tile_ns(const std::vector<std::vector<size_t>>& groups) const;
  double launches_ns(const std::vector<std::vector<size_t>>& groups) const;
  double group_ns(const std::vector<size_t>& group, double points, double terms, double threads, bool tiled) const;
  double alone_ns(const std::vector<size_t>& group) const;
  double cached_ns(const std::vector<size_t>& group) const;
  double terms_of(const SpecMember& m) const;
  Split split(const std::vector<size_t>& group, int64_t wanted) const;

  // gpu_stages.cpp
  Points all_of(const std::vector<Id>& axes) const;
  Points part_of(const std::vector<Id>& axes, const Split& split, const Expr& part) const;
  Point point(const Points& points, const Expr& number, int vector = 1);
  static Expr as_read(const Expr& kept, DType type);
  Stmt map_at(const std::vector<size_t>& group, const Emitter::Axes& axes);
  bool side_by_side(const std::vector<size_t>& group, Id last) const;
  static bool is_row(const Points& points);
  int vector_of(const std::vector<size_t>& group, const Points& points) const;
  Stmt map_stage(const std::vector<size_t>& group, const Points& points, const Expr& first, int64_t step);
  Sharing sharing(const std::vector<size_t>& group, int64_t results, int64_t terms, int threads) const;
  // All results of `points`: of block `first` of them, or in turns.
  Stmt reduce_stage(const Accumulation& a, const Points& points, const Points& terms, const Sharing& s, const Expr& first,
                    const std::function<Stmt(const Point&, const std::vector<Expr>&)>& store);
  Stmt store(const SpecMember& m, const Expr& value, const Emitter::Axes& axes);
  Stmt store_partial(const SpecMember& m, const Expr& value, const Emitter::Axes& axes, const Expr& row);

  // gpu_accumulate.cpp
  Accumulation accumulation(const std::vector<size_t>& group);
  int terms_at_once(const Accumulation& a, const Points& terms, const Sharing& s) const;
  Stmt accumulate(const Accumulation& a, const std::vector<std::string>& names, const Points& terms, const Emitter::Axes& axes,
                  const Sharing& s);
  Stmt into_registers(const std::vector<std::string>& registers, const std::vector<Expr>& values, const Expr& slot);
  Stmt repeat(const Expr& n, int at_once, const std::function<Stmt(const Expr&)>& body);
  int under_way(const std::vector<size_t>& group, int vector, size_t axes) const;
  std::vector<size_t> loops_of(const Accumulation& a, const Points& terms) const;

  // gpu_rectangle.cpp and gpu_contract.cpp
  using Span = std::function<Points(const std::vector<Id>& axes)>;  // what of the axes a block takes
  // Axes of which the rectangle has one side, slowest first: several are counted as one (the pixels of an image, the weights of a window).
  using Side = std::vector<Id>;
  struct Rectangle {
    Side row, column;
    int down = 0, across = 0;   // threads
    int rows = 0, columns = 0;  // of a thread
    Split split = {};           // of the terms
    double ns = 0;              // of all rectangles, by price
    int height() const { return down * rows; }
    int width() const { return across * columns; }
  };
  struct Flat {  // where a side's points are: a number that counts them all
    const Points* points = nullptr;
    Expr begin;  // of the rectangle
  };
  struct Contraction {  // under way
    Rectangle r;
    Flat rows, columns;
    Emitter::Axes begins, at;  // of the rectangle, but for its sides; of a result
    std::string row, column;   // of a thread's: loops
    Expr slot;                 // of its registers
  };
  std::optional<std::vector<Id>> sums_and_maps(const std::vector<std::vector<size_t>>& groups) const;
  std::pair<std::vector<std::vector<size_t>>, std::vector<size_t>> apart(const std::vector<std::vector<size_t>>& groups) const;
  std::vector<std::pair<Side, Side>> sides(const std::vector<std::vector<size_t>>& groups, const Points& points, int64_t least_rows) const;
  std::optional<Rectangle> rectangle(const std::vector<std::vector<size_t>>& groups, const Points& points, bool in_tile, int threads,
                                     const Span& span) const;
  static Points rectangles(const Rectangle& r, Points points);
  bool contract_launch(const std::vector<std::vector<size_t>>& groups);
  Stmt contract_stage(const std::vector<std::vector<size_t>>& sums, const Rectangle& r, const Points& points, const Expr& number,
                      const Span& span, const std::function<Stmt(const Emitter::Axes&, const std::vector<std::vector<Expr>>&)>& store);
  bool depends(Id value, const Side& side) const;
  Expr points_of(const Points& points, const Side& side) const;
  void place_along(const Points& points, const Side& side, Expr number, Emitter::Axes* at) const;
  std::vector<Id> staged_operands(const std::vector<size_t>& group, const Side& row, const Side& column, Id term) const;
  Id staged_axis(const std::vector<size_t>& group, const Side& row, const Side& column, const Points& terms) const;
  bool lies_along(Id value, Id term, Id side) const;
  struct Staged {  // an operand of a block, for some terms
    Id value = kNone;
    bool of_rows = false;
    std::string registers;
    Halide::Type type;
    int turns = 0;  // elements of a thread
    Stmt load, store;
    int offset = 0, term_step = 0;  // in shared memory, in elements
  };
  Staged stage(Id value, const Contraction& c, Id term, const Emitter::Axes& begins, const std::string& registers);
  static Expr own_row(const Contraction& c);
  static Expr own_column(const Contraction& c);
  static int pad_of(bool of_rows) { return of_rows ? kRowsAtOnce : kColumnsAtOnce; }
  Expr kept(const Staged& s, const Contraction& c, const Expr& term) const;
  struct Staging {  // of a chunk of terms: shared memory, and instructions of all threads
    int64_t bytes_of_row = 0, bytes_of_column = 0;
    double work_of_row = 0, work_of_column = 0;
  };
  Staging staging(const std::vector<size_t>& group, const Side& row, const Side& column, const Points& terms) const;
  static double cycles_of(const Rectangle& r, int64_t results, int64_t terms, int64_t blocks, double work);
  Stmt sum_over(const std::vector<size_t>& group, const Contraction& c, const Accumulation& sum, const std::vector<std::string>& names,
                const std::vector<Expr>& now, const Points& terms);
  static Stmt each(const Contraction& c, const Stmt& s);

  static Expr thread();
  static Expr block();
  static Stmt barrier();
  static Stmt with_lets(const std::vector<std::pair<std::string, Expr>>& lets, Stmt s);
};

}  // namespace xhat::runtime
