// For users: Eigen's matrices and tensors as arguments.
#pragma once
#include "runtime/interop/eigen.h"
