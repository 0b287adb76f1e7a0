// A kernel made concrete: sizes filled in, axes of all members identified, contiguous axes collapsed. Ready to lower.
//
// Works on an arena of its own, so that equal kernels of different programs are equal texts: key() is what compiled
// code is cached by. Extents of shared axes are part of the key only where the code depends on them.
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
  int64_t tile = 0;     // elements per tile (extent unless shared)
  int shared = -1;      // position in the outer loop, or -1
  bool fixed = true;    // the extent is a number in the program: no dim decides it
  bool baked = true;    // the extent is known to the compiled code
  bool open = false;    // a part even where a tile has all of it
  bool written_out = false;  // of few elements, each with code of its own
  bool in_order = false;  // its tiles are one thread's, in order (Kernel::in_order)
  // Of a GPU's kernel, not baked: the tensor that holds the extent, and what that is a multiple of.
  uint32_t count = kNoCount;
  int64_t multiple = 1;
  // Where the tile of a shared axis comes from: of these of the plan's shared axes (Kernel::shared) the product, divided.
  std::vector<size_t> planned = {};
  int64_t divisor = 1;
  AxisKind kind() const {
    if (shared < 0 || (tile >= extent && !open)) return AxisKind::whole;
    return tile == 1 ? AxisKind::single : AxisKind::part;
  }
  int64_t in_tile() const { return kind() == AxisKind::whole ? extent : tile; }  // elements, but for the last tile
};

constexpr int64_t kFewTerms = 32;  // of a window, at most: a few vectors of its sums stay in registers

constexpr TensorId kInternal = UINT32_MAX;  // SpecTensor::original of what the program does not name

struct SpecTensor {
  TensorId original = 0;
  DType type = DType::f32;
  enum class Use : uint8_t { input, result, temporary, partial } use = Use::input;
  std::vector<int64_t> shape;
  std::vector<std::pair<int, int>> groups;  // per dimension: first and last dimension of the program's tensor
  std::vector<int64_t> steps;               // per dimension: elements of the last of these that one step takes
  bool dense = true;                        // row-major without gaps; else only the strides given at the call are known
  double value = 0;                         // of an input that the program does not name: a size (is_size)
  bool by_value = false;                    // of a GPU's kernel: a scalar that the caller has as a number
  uint32_t count = kNoCount;                // of a GPU's kernel: the tensor that holds the extent of its slowest dimension
  bool is_size() const { return original == kInternal && use == Use::input; }
  bool is_number() const { return is_size() || by_value; }  // passed with a launch, and not in memory
};

struct SpecMember {
  uint32_t tensor = 0;         // index into KernelSpec::tensors
  std::vector<Id> left;        // axis nodes
  std::vector<Id> reduced;     // axis nodes; empty for a map
  Op op = Op::constant;        // of the reduction, if any
  Id body = kNone;
  Id condition = kNone;        // constant true if none
  std::vector<std::pair<size_t, Id>> scatter;  // left axis number -> index expression: added there
};

struct KernelSpec {
  std::string name;
  std::shared_ptr<Arena> arena;
  std::vector<SpecTensor> tensors;
  std::vector<SpecMember> members;
  std::unordered_map<Id, SpecAxis> axes;
  std::vector<Id> shared;  // outer loop, slowest first
  bool streams = false;    // results are written past the cache
  std::vector<std::pair<uint32_t, uint32_t>> over = {};  // results and the inputs that share their memory
  int vectors = 0;         // KernelChoice::vectors
  // Smallest and largest value an integer expression can take.
  std::pair<int64_t, int64_t> interval(Id e) const;  // ends of -kFar, kFar: unbounded
  static constexpr int64_t kFar = int64_t{1} << 40;    // far from overflow when a few are added
  bool across_tiles(const SpecMember& m) const;  // leaves partial results
  Id carried_over(const SpecMember& m) const;    // axis over whose tiles its sum is carried in the result; kNone: none
  int64_t terms(const SpecMember& m) const;      // of its sum in one tile; 1 of a map
  int64_t tiles() const;
  bool inside(const Node& read) const;  // wherever it reads
  std::string key() const;
};

// dense: per tensor of the program, whether the caller's buffer is row-major without gaps.
KernelSpec make_spec(const Program& p, const Kernel& k, const DimValues& sizes, const std::vector<bool>& dense);

// For a GPU: axes as they are. atomics: what has 32 bits is scattered; else these, too, are sums that look for their terms.
KernelSpec make_gpu_spec(const Program& p, const Kernel& k, const DimValues& sizes, bool atomics);

// Indices and what is compared with their sums collected: what has lost an axis says so (w[h+1-i] is w[2-t] for i = h-1+t).
Id with_collected_indices(Arena& a, Id root);

// Steps of make_spec.
// split_phases: an axis as quotient and remainder by `phases`. tie_axis: the same, where another axis is the quotient. split_blocks: the
// same where conditions change.
// join_windows: sums over the same few neighbours walk the same axes. settle_products: conditions of a sum of products become
// zeros of the factor that is packed (kernel_products.cpp). share_expensive: what several members compute at the
// same point (softmax's exp, in the sum and in the result) is computed once per tile. collapse: neighbouring axes that every
// tensor walks together, whole and without gaps, become one (h, w of an image), so that inner loops are long. open_slowest,
// settle_baked: find the axes whose extent the code need not know, so that one compiled kernel serves every batch size
// (kernel_sizes.cpp).
void split_phases(KernelSpec& spec, Id axis, int64_t phases);
void tie_axis(KernelSpec& spec, Id axis, Id quotient, int64_t each);
void split_blocks(KernelSpec& spec);
void join_windows(KernelSpec& spec);
void settle_products(KernelSpec& spec);
void share_expensive(KernelSpec& spec);
void collapse(KernelSpec& spec);
void open_slowest(KernelSpec& spec);
void settle_baked(KernelSpec& spec);

// With sizes that stand for all that the compiled code serves: what lowering sees. Equal for kernels of one key.
KernelSpec as_compiled(const KernelSpec& spec);

// The same for a GPU (gpu_sizes.cpp). open_for_gpu: which axes the code need not know the extents of. give_counts: their extents
// become numbers that come with a launch.
void open_for_gpu(KernelSpec& spec);
void give_counts(KernelSpec& spec);
KernelSpec as_compiled_for_gpu(const KernelSpec& spec);

}  // namespace xhat::runtime
