// compile(op) -> infer, forward, backward. The list of passes, and the calls on the caller's buffers.
//
//   xhat::CompiledOp op = xhat::compile(program);
//   op.infer({{"x", x}, {"y", y}});                                   // forward alone
//   xhat::Stash stash = op.forward({{"x", x}, {"y", y}});             // forward that keeps what backward needs
//   op.backward({{"dy", dy}, {"grad_x", gx}}, stash);                 // and reads x and y again, where the forward found them
//
// What the forward keeps is chosen, and kernels are compiled, when sizes are first seen. Both stay: sizes of outer loops may change without
// compiling again, and what is kept is a new program only where other sizes make another choice cheaper.
// A CompiledOp may be used from many threads at once; copies share everything.
#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cse/stash/stash_planner.h"
#include "expr/core/program.h"
#include "fusion/library/library_plan.h"
#include "fusion/plan/plan.h"
#include "runtime/host/target.h"
#include "runtime/host/tensor_view.h"

namespace xhat {

namespace runtime {
class KernelCache;
class MathLibrary;
}

struct CompileOptions {
  // On a GPU, tensors of the host are copied there and results back; those that lie there (device_view) are used in place. What one
  // kernel hands to the next, and the stash, stay there.
  Target target = Target::cpu;
  StashOptions stash = {};        // what the backward may keep, by which policy; a budget holds for the sizes of each call
  FusionOptions fusion = {};
  // What prices and tiles go by: the reference machine, with what depends on caches and threads filled in for this one
  // (runtime/call/machine.h), where nothing is given.
  MachineModel machine = {};
  KernelChoices choices = {};     // of tiles and vectors, that measuring found faster for a kernel (runtime/explain/tuning.h)
  std::vector<std::string> wrt = {};  // gradients wanted; empty: of every float input that is not const
  int threads = 0;                    // 0: one per core; see also CompiledOp::set_threads
  bool differentiate = true;          // false: infer only
  bool differentiated = false;        // true: the op has its backward already, which is compiled as it stands; wrt is empty then
  DimValues dims = {};                // of dims that no parameter's shape gives
  // After each call, results that are NaN or infinite make it throw NonFinite (expr/eval/nonfinite.h), which names the first definition,
  // the position and the operands that gave one. Slow: results are looked at, and the forward keeps a copy of its inputs.
  bool check_values = false;
  bool disk_cache = true;         // false: kernels are neither read from disk nor kept there (runtime/store/disk_cache.h)
  std::shared_ptr<runtime::KernelCache> cache = {};  // null: the process's own
  // On CUDA: products of matrices and convolutions by cuBLAS and cuDNN, where these are installed.
  LibraryUse libraries = LibraryUse::automatic;
  std::shared_ptr<runtime::MathLibrary> math = {};  // in their place (runtime/device/drivers/math_library.h); any GPU
  // Told after each kernel of every call how long it took, in nanoseconds; in the thread that made the call.
  std::function<void(const Kernel&, double ns)> on_kernel = {};
  // Told from any thread, while kernels of a direction are compiled or read from disk, how many are there, of how many. On the CPU.
  std::function<void(size_t ready, size_t all)> on_compile = {};
  // Told before the kernels of a call how long it took to look at its data: at indices, and at what an argmax runs over.
  std::function<void(double ns)> on_checks = {};
};

// One step of the way from the op to its two directions, for those who want to look.
struct PassStep {
  std::string name;
  Program program;
  double ms = 0;
};

// What the passes make of an op at given sizes: what is worth keeping depends on them.
struct Derivation {
  Program program;  // forward and backward, normal form, stash chosen
  StashPlan stash;
  std::map<std::string, std::string> opaque_nodes;  // policy relay: which tensors make up the ops that nothing is fused with
  std::vector<PassStep> steps;
  Program source;  // the op as it was given, which messages speak of
};
// sizes: by dim; those that are missing count as StashOptions::nominal, nominal_extent. Throws Error for a stash budget that cannot be
// met at these sizes, saying what the least possible is.
Derivation derive(const Program& op, const CompileOptions& options = {}, const DimValues& sizes = {});

// What a forward keeps for its backward: the stashed tensors, and the sizes and the plan they belong to. Movable; may be handed to
// forward() again to reuse its memory, whatever the sizes then. Bound to the CompiledOp that made it.
class Stash {
 public:
  Stash();
  ~Stash();
  Stash(Stash&&) noexcept;
  Stash& operator=(Stash&&) noexcept;
  int64_t bytes() const;

 private:
  friend class CompiledOp;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How a call runs on a GPU. docs/gpu.md says what to know of streams and graphs.
struct CallOptions {
  // The CUstream or cl_command_queue that everything goes to, in order, and whose context it runs in. Null: CUDA's default stream,
  // in the context that is current, or else of device 0; for OpenCL, a queue of ours, in a context of ours.
  // A call whose tensors all lie on the device returns when all is enqueued; what they hold then is for those who wait
  // (synchronize), or use the same stream. One with tensors of the host waits for its copies.
  void* stream = nullptr;
  // The caller knows that all indices in the data are in range, and no argmax runs over nothing: nothing looks at them, which would
  // mean to wait for data that lie on the device. Where it is not so, kernels read and write anywhere.
  bool trust_data = false;
};

// Waits for everything on that stream; errors that happened there come to light. Nothing to wait for on the CPU.
void synchronize(Target target, void* stream = nullptr);

// What one call did.
struct CallCounts {
  int64_t kernels = 0;
  int64_t tiles = 0;
  int64_t finishes = 0;
  int64_t allocations = 0;
  int64_t launches = 0;                // of a GPU
  int64_t uploads = 0, downloads = 0;  // tensors copied there and back
  int64_t replayed = 0;                // iterations of loops that a backward ran again, to stay within its stash budget
  int64_t library_calls = 0;           // kernels that a library computed; not among the launches

  CallCounts& operator+=(const CallCounts& other);
};

class CompiledOp {
 public:
  using Arguments = std::span<const Argument>;
  using List = std::initializer_list<Argument>;

  // Inputs and outputs by name. Throws Error naming the op, the tensor, what is wrong and what was expected, before
  // anything is written: a missing, unknown or doubled name, wrong rank, dtype or extents, dims that disagree, a null
  // buffer, an output that overlaps another argument (but it may be given all of an input's memory where each element is read only
  // for the element in its place: docs/design.md, Calls), an index in the data that is out of range. On a GPU also runtime::DeviceError:
  // no driver, no device, out of memory, memory of another device, context or of the host.
  CallCounts infer(Arguments arguments, const CallOptions& call = {}) const;
  CallCounts infer(List arguments, const CallOptions& call = {}) const {
    return infer(Arguments(arguments.begin(), arguments.size()), call);
  }

  CallCounts forward(Arguments arguments, Stash& stash, const CallOptions& call = {}) const;
  Stash forward(Arguments arguments, const CallOptions& call = {}) const;
  Stash forward(List arguments, const CallOptions& call = {}) const {
    return forward(Arguments(arguments.begin(), arguments.size()), call);
  }
  CallCounts forward(List arguments, Stash& stash, const CallOptions& call = {}) const {
    return forward(Arguments(arguments.begin(), arguments.size()), stash, call);
  }

  // Cotangents, and any of the gradients (those left out are computed into memory of ours and dropped; ask for fewer with
  // CompileOptions::wrt instead). The cotangent of an op's only float output is 1 if it is a scalar and nothing else is given. Inputs and
  // outputs that the backward reads (kept()) are read where the forward found them, so that memory must still be there and hold the same
  // values; they may be given again, at another place too. Scalar inputs are kept with the stash. Names not needed are ignored.
  CallCounts backward(Arguments arguments, const Stash& stash, const CallOptions& call = {}) const;
  CallCounts backward(List arguments, const Stash& stash, const CallOptions& call = {}) const {
    return backward(Arguments(arguments.begin(), arguments.size()), stash, call);
  }

  // From now on calls run on so many threads (0: one per core), those of copies too. Nothing is compiled again.
  void set_threads(int threads);

  // Compiles ahead of the first call; milliseconds spent (0 if it was there). dims: all of them.
  enum class Phase : uint8_t { infer, forward, backward };
  double prepare(Phase phase, const DimValues& dims) const;
  Target target() const;  // that it runs on
  // The kernels for given sizes.
  KernelPlan plan(Phase phase, const DimValues& dims) const;
  // Of those that are compiled, whose code is a slower one than was planned, and why: "y: its code is scalar: …". On the CPU.
  std::vector<std::string> refused(Phase phase, const DimValues& dims) const;

  // What the passes made of the op. What is kept depends on sizes, so programs do; without sizes: as if each dim were nominal
  // (StashOptions). Inputs, outputs, cotangents and gradients are the same tensors in all of them.
  const Derivation& derivation() const;
  const Program& program() const { return derivation().program; }
  const Program& program(const DimValues& dims) const;
  // Tensors that backward reads of the caller's, inputs and outputs, by name: at these sizes, or with this stash. backward may be
  // given more.
  std::vector<std::string> kept(const DimValues& dims) const;
  std::vector<std::string> kept(const Stash& stash) const;
  std::vector<std::string> kept() const;  // at nominal sizes

 private:
  friend CompiledOp compile(const Program& op, const CompileOptions& options);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Throws Error if the op cannot be compiled: no gradient, an unknown name in the options. Takes milliseconds: no kernel is built yet.
CompiledOp compile(const Program& op, const CompileOptions& options = {});

}  // namespace xhat
