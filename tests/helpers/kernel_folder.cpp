// Which folder tests read kernels from and keep them in: XHAT_TEST_CACHE, or none where that is not set. It is never the folder of
// whoever runs the tests. A file there is loaded only by a program of the same sources (runtime/store/fingerprint.h), so a kernel that no
// longer compiles cannot hide in it; tests of compiling itself pass a cache of their own (CompileOptions::cache).
#include <cstdlib>

namespace {
const char* folder() {
  const char* given = std::getenv("XHAT_TEST_CACHE");
  return given ? given : "";
}
const bool set = setenv("XHAT_CACHE_DIR", folder(), 1) == 0;
}  // namespace
