// A kernel ready to be lowered: sizes are filled in, axes that the plan found to be one loop are one node, contiguous axes are collapsed.
//
// It has an arena of its own, so that equal kernels of different programs have equal texts: compiled code is cached by key(). The extent of
// a grid axis is part of the key only where the code depends on it.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "fusion/plan/plan.h"
#include "runtime/host/axis_kind.h"

namespace xhat::runtime {

constexpr uint32_t kNoCount = UINT32_MAX;

struct SpecAxis {
  int64_t extent = 0;
  int64_t tile = 0;           // elements per tile (extent unless it is a grid axis)
  int shared = -1;            // position among the grid axes, or -1
  bool fixed = true;          // the program says the extent as a number
  bool static_extent = true;  // the compiled code knows the extent
  bool open = false;          // the extent stays an argument of the code even if one tile covers the axis
  bool unrolled = false;      // few elements, each with code of its own
  bool sequential = false;    // one thread runs its tiles in order (Kernel::sequential)
  bool sized = false;         // make_open_spec: the extent depends on dims that are known when the code is called
  // Kernels of GPUs, where the extent is not static: the tensor that holds it, and a number that divides it.
  uint32_t count = kNoCount;
  int64_t multiple = 1;
  // The tile of a grid axis: the product of the tiles of these axes of the plan (positions in Kernel::shared), divided by `divisor`.
  std::vector<size_t> planned = {};
  int64_t divisor = 1;
  AxisKind kind() const {
    if (shared < 0 || (tile >= extent && !open)) return AxisKind::untiled;
    return tile == 1 ? AxisKind::point : AxisKind::tiled;
  }
  int64_t in_tile() const { return kind() == AxisKind::untiled ? extent : tile; }  // elements in all tiles but the last
};

constexpr int64_t kFewTerms = 32;  // of a window, at most: a few vectors of its sums stay in registers

constexpr TensorId kInternal = UINT32_MAX;  // SpecTensor::original of tensors that the program does not have

struct SpecTensor {
  TensorId original = 0;
  DType type = DType::f32;
  enum class Use : uint8_t { input, result, temporary, partial } use = Use::input;
  std::vector<int64_t> shape;
  std::vector<std::pair<int, int>> groups;  // per dimension: first and last dimension of the program's tensor
  std::vector<int64_t> steps;               // per dimension: elements of the last of these that one step takes
  std::vector<bool> sized = {};             // make_open_spec: per dimension, as SpecAxis::sized
  bool dense = true;                        // row-major without gaps; else only the strides given at the call are known
  bool rows = false;                        // not dense, but elements of the last dimension are neighbours
  bool mostly_zero = false;                 // as Tensor::mostly_zero
  double value = 0;                         // of a size (is_size)
  bool by_value = false;                    // kernels of GPUs: a scalar that is passed as a number
  uint32_t count = kNoCount;                // kernels of GPUs: the tensor that holds the extent of its slowest dimension
  bool is_size() const { return original == kInternal && use == Use::input; }
  bool is_number() const { return is_size() || by_value; }  // passed with a launch, and not in memory
};

struct SpecMember {
  uint32_t tensor = 0;      // index into KernelSpec::tensors
  std::vector<Id> left;     // axis nodes of its output
  std::vector<Id> reduced;  // axis nodes; empty for a map
  Op op = Op::constant;     // of the reduction, if any
  Id body = kNone;
  Id condition = kNone;                    // constant true if none
  std::vector<std::pair<Id, Id>> scatter;  // an output axis -> the index at which terms are added
};

struct KernelSpec {
  std::string name;
  std::shared_ptr<Arena> arena;
  std::vector<SpecTensor> tensors;
  std::vector<SpecMember> members;
  std::unordered_map<Id, SpecAxis> axes;
  std::vector<Id> shared;                                // grid axes, slowest first
  bool streams = false;                                  // uses non-temporal stores
  std::vector<std::pair<uint32_t, uint32_t>> over = {};  // results and the inputs that share their memory
  int vectors = 0;                                       // KernelChoice::vectors
  // make_open_spec: by dim that is known when the code is called, an axis that nothing runs over, whose extent is the dim's value.
  std::unordered_map<Id, Id> sizes = {};
  bool sealed = false;                           // make_open_spec is done: intervals are those of all sizes
  std::shared_ptr<const KernelSpec> small = {};  // the same kernel at small sizes, at which the promises of its code are tried, too
  bool any_size() const { return !sizes.empty(); }
  // Smallest and largest value that an integer expression can have.
  std::pair<int64_t, int64_t> interval(Id e) const;          // ends of -kFar, kFar: unbounded
  double places_in_tile(Id index) const;                     // from the first to the last one: of t - 1024*k 1025 for a t and two k
  static constexpr int64_t kFar = int64_t{1} << 40;          // far from overflow when a few are added
  static constexpr int64_t kLargestSize = int64_t{1} << 28;  // of dims in `sizes`: sums of a few positions still fit 32 bits
  bool across_tiles(const SpecMember& m) const;              // does it leave partial results?
  Id remainder_of(const SpecMember& m, Id quotient) const;   // of one axis of the program that is walked as both; kNone: there is none
  Id carried_over(const SpecMember& m) const;                // the sequential grid axis that it reduces over; kNone: none
  int64_t terms(const SpecMember& m) const;                  // terms of its sum in one tile; 1 for a map
  int64_t tiles() const;
  bool inside(const Node& read) const;  // are all its indices inside the tensor?
  std::string key() const;
};

// dense: per tensor of the program, whether the caller's buffer is row-major without gaps. in_rows: the others have gaps between rows only.
KernelSpec make_spec(const Program& p, const Kernel& k, const DimValues& sizes, const std::vector<bool>& dense, bool in_rows = false);

// Code that serves all sizes of these dims, from 1 (or where extents become positive) to kLargestSize: extents, and the dims where the kernel
// computes with them, are arguments. Of the program, every read must be inside at all sizes, or say what it gives outside (open_reads.h).
// Kernels of the same plan at other sizes have the same key, or the code depends on the sizes. cut: per axis of the kernel, whether tiles have
// some of it only.
KernelSpec make_open_spec(const Program& p, const Kernel& k, const DimValues& sizes, const std::vector<bool>& dense,
                          const std::vector<std::string>& open, const std::vector<bool>& cut, bool in_rows = false);

// For a GPU: axes are not collapsed. atomics: scatters of 32-bit elements become atomic additions; all others, and all without atomics, are
// reductions that test every term.
KernelSpec make_gpu_spec(const Program& p, const Kernel& k, const DimValues& sizes, bool atomics);

// All definitions of a program of one direction, in order, each with axes of its own, and all sizes known: for plain loops (runtime/loops).
KernelSpec make_nest_spec(const Program& p, const DimValues& sizes);

// With the sums in indices and comparisons collected, so that axes which cancel disappear: w[h+1-i] is w[2-t] for i = h-1+t.
Id with_collected_indices(Arena& a, Id root);

// Steps of make_spec, in order:
//   split_phases                  an axis becomes quotient and remainder by `phases`
//   tie_axis                      the same, where another axis is the quotient
//   split_blocks                  the same, at the points where conditions change
//   join_windows                  sums over the same few neighbours use the same axes
//   fold_conditions_into_packed   the condition of a sum of products becomes zeros of the factor that is packed (kernel_products.cpp)
//   share_expensive               a subexpression that several members compute at the same point (softmax's exp, in the sum and in the
//                                 result) is stored in the tile
//   collapse                      neighbouring axes that all tensors have whole and without gaps become one (h, w of an image): long
//                                 inner loops
//   open_slowest, choose_static_extents   which extents the code need not know, so that one compiled kernel serves every batch size
//                                 (kernel_sizes.cpp)
void split_phases(KernelSpec& spec, Id axis, int64_t phases);
// The same, but no member walks the axis whole: tiles of a GPU are made smaller afterwards, and a block would read what others make. And only
// where quotients or remainders stand: columns that a CPU packs together are one axis here.
void split_phases_for_gpu(KernelSpec& spec, Id axis, int64_t phases);
void tie_axis(KernelSpec& spec, Id axis, Id quotient, int64_t each);
void split_blocks(KernelSpec& spec);
void join_windows(KernelSpec& spec);
void fold_conditions_into_packed(KernelSpec& spec);
void share_expensive(KernelSpec& spec);
void collapse(KernelSpec& spec);
void open_slowest(KernelSpec& spec);
void choose_static_extents(KernelSpec& spec);

// The spec that is lowered: with sizes that represent all those that the compiled code serves. Equal for all kernels of one key.
KernelSpec with_class_representatives(const KernelSpec& spec);

// Of a large GPU (an H100), for which tiles and launches are made. Two blocks for each multiprocessor are enough.
constexpr int64_t kMultiprocessors = 132, kEnoughBlocks = 2 * kMultiprocessors;

// Steps of make_gpu_spec alone (gpu_tiles.cpp). make_enough_tiles shrinks tiles, which are blocks of threads, until there are enough;
// make_few_rows makes those larger that leave partial results; drop_unread drops members whose values nobody reads.
void make_enough_tiles(KernelSpec& spec);
void make_few_rows(KernelSpec& spec);
void drop_unread(KernelSpec& spec);

// The same for a GPU (gpu_sizes.cpp). open_for_gpu: which extents the code need not know. give_counts: these become arguments of a launch.
void open_for_gpu(KernelSpec& spec);
void give_counts(KernelSpec& spec);
KernelSpec with_class_representatives_for_gpu(const KernelSpec& spec);

}  // namespace xhat::runtime
