// Functions of libraries on a device's memory, in the order of a stream: products of matrices and convolutions.
//
//   MathLibrary* math = cuda_math();                     // cuBLAS and cuDNN; null: neither is there
//   auto product = math->prepare(driver, call);          // once; null: it does not do that one
//   product->run(stream, a, b, c, scratch);              // enqueued; returns at once
#pragma once
#include <memory>
#include <string>

#include "fusion/library/library_call.h"
#include "runtime/device/drivers/driver.h"

namespace xhat::runtime {

// Immutable, and may be run from many threads, each with scratch memory of its own while what was enqueued runs.
class MathCall {
 public:
  virtual ~MathCall() = default;
  virtual int64_t scratch_bytes() const = 0;
  // a, b: what is read, in the order of operands_of(call); c: what is written. Throws DeviceError.
  virtual void run(DeviceStream stream, DeviceMemory a, DeviceMemory b, DeviceMemory c, DeviceMemory scratch) const = 0;
};

class MathLibrary {
 public:
  virtual ~MathLibrary() = default;
  // Not while a stream is being captured. Throws DeviceError where the library is there and cannot be used.
  virtual std::unique_ptr<MathCall> prepare(DeviceDriver& driver, const LibraryCall& call) = 0;
};

// f32 is computed in f32, not in TF32; f16 and bf16 are added up in f32. Only algorithms that give the same bits every time.
MathLibrary& cuda_math();
// Why there are none; empty: they are there.
std::string cublas_problem();
std::string cudnn_problem();

// Where another one is to be taken, the environment names it: XHAT_CUBLAS_LIBRARY, XHAT_CUDNN_LIBRARY.
// Else what the process has loaded already, else the newest that is installed.
constexpr const char* kCublasLibraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
constexpr const char* kCudnnLibraries[] = {"libcudnn.so.9", "libcudnn.so.8"};

}  // namespace xhat::runtime
