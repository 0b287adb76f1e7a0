// For users: tensors of other libraries by DLPack.
#pragma once
#include "runtime/interop/dlpack.h"
