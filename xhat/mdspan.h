#pragma once
#include "runtime/interop/mdspan.h"
