// One kernel -> one Halide pipeline that computes one tile, scheduled for a vector CPU. The executor owns the outer
// loop: it calls the pipeline once per tile with the tile's origin, so inner extents are constants for any batch size.
#pragma once
#include <memory>
#include <string>

#include "Halide.h"
#include "runtime/host/cpu_level.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

struct TileScalar {
  Id axis;
  bool count;  // else the origin
};

struct LoweredKernel {
  Halide::Pipeline pipeline;
  // Arguments in order: the JIT's user context (implicit), the int32 scalars (of each shared axis that is not whole its
  // origin, and of axes whose extent the code does not know how many elements this tile has), the input buffers; then the
  // result buffers.
  std::vector<Halide::Argument> arguments;
  std::vector<TileScalar> scalars;
  std::vector<uint32_t> inputs;    // tensors, by argument
  std::vector<uint32_t> results;   // tensors, by result
};

// Dimensions of a result's buffer for one tile: axis numbers of its tensor, slowest first. Axes of which a tile has one
// element are dropped.
std::vector<size_t> tile_dimensions(const KernelSpec& spec, const SpecMember& m);

// Is the kernel one loop over the elements of its results, each of which is computed once?
bool element_by_element(const KernelSpec& spec);

// What is asked of Halide 21, which trips over some kernels: vectors; vectors, all stages being computed whatever conditions say; none.
enum class Care : uint8_t { none, all_stages, no_vectors };

LoweredKernel lower(const KernelSpec& spec, const Halide::Target& target, Care care = Care::none);

// strict_float, without checks and bounds queries: the executor checks what comes in.
Halide::Target target_of(CpuLevel level);
// To compile for this process: the host, or what XHAT_CPU_LEVEL asks for.
Halide::Target cpu_target();
// The same for an object file without a runtime.
Halide::Target object_target();

}  // namespace xhat::runtime
