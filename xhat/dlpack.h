#pragma once
#include "runtime/interop/dlpack.h"
