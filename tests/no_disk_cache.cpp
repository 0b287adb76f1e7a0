// No test reads kernels from disk, nor leaves any in the folder of who runs it, unless it says so: a kernel that was kept would
// hide that it no longer compiles. (ctest sets this as well, for what is no test program.)
#include <cstdlib>

namespace {
const bool off = setenv("XHAT_CACHE_DIR", "", 1) == 0;
}
