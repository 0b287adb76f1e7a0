// DLPack's functions in C for arrays of one Python type (version 1.3: `__dlpack_c_exchange_api__`), as far as we call them. PyTorch has them;
// looking at a tensor takes some ten nanoseconds that way, and a microsecond by __dlpack__().
#pragma once
#include "runtime/dlpack.h"

namespace xhat::python {

struct DlpackVersion {
  uint32_t major, minor;
};

struct ManagedTensor {  // DLManagedTensorVersioned
  DlpackVersion version;
  void* manager;
  void (*deleter)(ManagedTensor* self);
  uint64_t flags;
  DLTensor tensor;
};

struct ExchangeApi {
  DlpackVersion version;
  ExchangeApi* older;
  int (*allocate)(DLTensor* prototype, ManagedTensor** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_of)(void* object, ManagedTensor** out);
  int (*object_of)(ManagedTensor* tensor, void** object);
  int (*view_of)(void* object, DLTensor* out);  // owns nothing; may be null
  int (*current_stream)(DLDeviceType type, int32_t device, void** stream);
};

}  // namespace xhat::python
