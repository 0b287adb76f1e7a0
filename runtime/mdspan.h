// For users: std::mdspan as an argument, and a back-port of it.
#pragma once
#include "runtime/interop/mdspan.h"
