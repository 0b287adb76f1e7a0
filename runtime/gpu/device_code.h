// The emitter's expressions as code for a device: the last steps before Halide's device compilers, which see neither Funcs nor
// the CPU's intrinsics.
#pragma once
#include <functional>
#include <string>

#include "Halide.h"

namespace xhat::runtime {

enum class DeviceKind : uint8_t { cuda, opencl, vulkan };
Halide::DeviceAPI api_of(DeviceKind kind);

// Where an element lies: the name of a buffer or of shared memory, and the index into it.
struct ElementPlace {
  std::string buffer;
  Halide::Expr index;
};

// Makes of every expression what the device's compiler takes:
//   x(i, j)             a load; `place` says where from
//   a + b of floats     Halide's strict operations, so that nobody reassociates; x != x by bits, as PTX is compiled for
//                       numbers that are finite
//   llvm.fma.f32, …     the device's own functions
//   f16                 its bits, in integers, converted where they are loaded and stored
// and names what is used twice, so that passes that walk trees may follow.
class ForDevice {
 public:
  using Place = std::function<ElementPlace(const std::string& image, const std::vector<Halide::Expr>& indices)>;
  ForDevice(DeviceKind kind, Place place);
  ~ForDevice();
  Halide::Expr operator()(const Halide::Expr& e) const;

 private:
  struct Rewriter;
  std::unique_ptr<Rewriter> rewriter_;
};

// Of what has been vectorized: Halide's compiler for OpenCL takes no vectors of truth values but those of comparisons that are
// not strict. Nothing simplifies them any more.
Halide::Internal::Stmt with_vector_masks(const Halide::Internal::Stmt& s);

}  // namespace xhat::runtime
