#pragma once
#include "runtime/interop/eigen.h"
