// For LD_PRELOAD: a system that grants XHAT_TEST_THREADS threads to a process, and then no more.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  static std::atomic<int> granted = 0;
  const char* most = std::getenv("XHAT_TEST_THREADS");
  if (most && granted++ >= std::atoi(most)) return EAGAIN;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, run, argument);
}
