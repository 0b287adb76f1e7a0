// Calls of vendors' libraries on device memory, in the order of a stream: matrix products and convolutions.
//
//   MathLibrary* math = cuda_math();                     // cuBLAS and cuDNN; null: neither is there
//   auto product = math->prepare(driver, call);          // once; null: the library cannot do this call
//   product->run(stream, a, b, c, scratch);              // enqueued; returns at once
#pragma once
#include <memory>
#include <string>

#include "fusion/library/library_call.h"
#include "runtime/device/drivers/driver.h"

namespace xhat::runtime {

// Immutable. May be run from many threads, each with its own scratch memory, which must stay untouched until the enqueued work has ended.
class MathCall {
 public:
  virtual ~MathCall() = default;
  virtual int64_t scratch_bytes() const = 0;
  // a, b: the operands read, in the order of operands_of(call). c: the operand written. Throws DeviceError.
  virtual void run(DeviceStream stream, DeviceMemory a, DeviceMemory b, DeviceMemory c, DeviceMemory scratch) const = 0;
};

class MathLibrary {
 public:
  virtual ~MathLibrary() = default;
  // Must not be called while a stream is being captured. Throws DeviceError if the library is installed but cannot be used.
  virtual std::unique_ptr<MathCall> prepare(DeviceDriver& driver, const LibraryCall& call) = 0;
};

// f32 is computed in f32, not in TF32; f16 and bf16 are accumulated in f32. Only deterministic algorithms are used.
MathLibrary& cuda_math();
// Why the library cannot be used; empty: it can.
std::string cublas_problem();
std::string cudnn_problem();

// XHAT_CUBLAS_LIBRARY and XHAT_CUDNN_LIBRARY name other files. Without them: the library that the process has loaded already, else the newest
// installed one.
constexpr const char* kCublasLibraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
constexpr const char* kCudnnLibraries[] = {"libcudnn.so.9", "libcudnn.so.8"};

}  // namespace xhat::runtime
