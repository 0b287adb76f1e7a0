// Tensors of other libraries (PyTorch, JAX, NumPy, CuPy, ...) as arguments, in place, by DLPack: no copies, and nothing to link.
//
//   DLManagedTensor* m = ...;                            // for example of x.__dlpack__()
//   xhat::DlpackTensor x(m);                             // its destructor calls m's deleter
//   op.infer({{"x", x.view()}, {"y", y}}, {.stream = s});
//
// Asynchronous calls use the memory after they return: keep the DlpackTensor until the stream has finished them.
// xhat.h does not include this header. If a program also includes DLPack's own header, that must come first.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/host/tensor_view.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#elif !defined(DLPACK_DLPACK_H_)
#define DLPACK_DLPACK_H_
// The part of DLPack's ABI (version 0.6) that we need; https://dmlc.github.io/dlpack
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

// A view of memory of the CPU (also pinned), of CUDA (also managed), or of an OpenCL cl_mem. Throws Error for other devices and element
// types, vectors as elements, more than 12 dimensions, negative extents or strides, and an offset inside a cl_mem.
TensorView view_of(const DLTensor& tensor, bool writable = true);

// Owns a tensor that another library handed over. Movable.
class DlpackTensor {
 public:
  // Takes ownership. Throws like view_of(), after calling the deleter.
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

// Exports a view. The consumer calls the deleter of the result, which calls `release`. device: the CUDA device that the memory belongs to.
DLManagedTensor* to_dlpack(const TensorView& view, std::function<void()> release = {}, int device = 0);

}  // namespace xhat
