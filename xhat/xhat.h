// Write a tensor op once; get its gradient, what is worth keeping for it, and fused kernels: ../xhat.h says more.
#pragma once
#include "../xhat.h"
