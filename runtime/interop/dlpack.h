// Tensors of other libraries (PyTorch, JAX, NumPy, CuPy, ...) by DLPack, where they lie: no copies, and nothing linked.
//
//   DLManagedTensor* m = ...;                            // of x.__dlpack__(), say
//   xhat::DlpackTensor x(m);                             // gives it back in the end
//   op.infer({{"x", x.view()}, {"y", y}}, {.stream = s});
//
// Asynchronous calls read it after they return: keep it until the stream has come past them.
// This header is not among those that xhat.h includes. Another copy of DLPack's header must come before it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/host/tensor_view.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#elif !defined(DLPACK_DLPACK_H_)
#define DLPACK_DLPACK_H_
// DLPack's ABI as of version 0.6, as far as we need it; https://dmlc.github.io/dlpack
extern "C" {
typedef enum : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLCUDAManaged = 13,
} DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major without gaps
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
}
#endif

namespace xhat {

// Memory of the CPU (pinned memory too), of CUDA (managed memory too), or an OpenCL cl_mem. Throws Error for other devices and types
// of elements, vectors as elements, more than 12 dimensions, negative extents and strides, and a place inside of a cl_mem.
TensorView view_of(const DLTensor& tensor, bool writable = true);

// A tensor that somebody handed over. Movable.
class DlpackTensor {
 public:
  // Takes it; throws as view_of(), and has then given it back.
  explicit DlpackTensor(DLManagedTensor* tensor);
  const TensorView& view() const { return view_; }

 private:
  struct GiveBack {
    void operator()(DLManagedTensor* t) const {
      if (t->deleter) t->deleter(t);
    }
  };
  std::unique_ptr<DLManagedTensor, GiveBack> tensor_;
  TensorView view_;
};

// The other way round: for a consumer, who calls its deleter, which calls `release`. device: CUDA's number of where it lies.
DLManagedTensor* to_dlpack(const TensorView& view, std::function<void()> release = {}, int device = 0);

}  // namespace xhat
