// A straight program as plain loops: every definition in order, over true bounds (a condition `k < i` ends the loop over k), in vectors along
// the axis along which most of memory is contiguous. No tiles, nothing is kept for later: for what is small, inside of a loop around.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "Halide.h"
#include "runtime/kernel/kernel_spec.h"
#include "runtime/loops/region.h"

namespace xhat::runtime {

// Where a tensor of a nest lies: element (i, j) is at offset + i*strides[0] + j*strides[1] of the buffer.
struct NestPlace {
  std::string buffer;
  Halide::Expr offset = 0;       // in elements
  std::vector<int64_t> strides;  // in elements, by dimension
  Halide::Expr value = {};       // of a scalar that lies nowhere
  bool added = false;            // what is computed is added to what is there
};

// Can it be written as loops here? Not 16-bit floats.
bool has_nest(const KernelSpec& spec);

// place: of a tensor of the spec, by its number there.
Halide::Internal::Stmt nest(const KernelSpec& spec, const std::function<NestPlace(uint32_t)>& place, const Halide::Target& target,
                            NestNames& names);

// What Halide and we do to statements before code is made of them.
Halide::Internal::Stmt ready_for_code(const Halide::Internal::Stmt& s, const Halide::Target& target);

constexpr int64_t kLoopStart_ps = 500;  // what beginning a loop takes

// What a nest takes, in picoseconds of one thread: operations, and a load or store where vectors run along memory or not. added: of a tensor,
// is what is computed added to what is there? times: how much longer a definition takes than its operations say. over: does a tensor lie where
// another one does, so that choices leave elements of that as they are?
double price_ps(const KernelSpec& spec, const std::function<bool(uint32_t)>& added,
                const std::function<double(const SpecMember&)>& times = {}, const std::function<bool(uint32_t, uint32_t)>& over = {});

}  // namespace xhat::runtime
