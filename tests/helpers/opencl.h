// A program that uses OpenCL itself, as far as tests need one: a context, queues, memory. Header only; the driver is found at run time.
#pragma once
#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace xhat::testing {

class OpenCl {
 public:
  using Handle = void*;
  static constexpr uint64_t kOutOfOrder = 1;

  OpenCl() {
    Handle platform = nullptr;
    int r = call<int>("clGetPlatformIDs", 1u, &platform, static_cast<unsigned*>(nullptr));
    if (r == 0) r = call<int>("clGetDeviceIDs", platform, uint64_t{0xFFFFFFFF}, 1u, &device_, static_cast<unsigned*>(nullptr));
    if (r != 0) throw std::runtime_error("no OpenCL device: error " + std::to_string(r));
    context_ = made("clCreateContext", static_cast<intptr_t*>(nullptr), 1u, static_cast<const Handle*>(&device_), nullptr, nullptr);
  }

  Handle queue(uint64_t properties = 0) { return made("clCreateCommandQueue", context_, device_, properties); }
  Handle memory(size_t bytes) { return made("clCreateBuffer", context_, uint64_t{1}, bytes, nullptr); }
  template <class T>
  Handle memory(Handle queue, const std::vector<T>& data) {
    Handle m = memory(data.size() * sizeof(T));
    const size_t bytes = data.size() * sizeof(T);
    ok("clEnqueueWriteBuffer", queue, m, 1u, size_t{0}, bytes, static_cast<const void*>(data.data()), 0u, nullptr, nullptr);
    return m;
  }
  template <class T>
  std::vector<T> read(Handle queue, Handle memory, size_t count) {
    std::vector<T> data(count);
    ok("clEnqueueReadBuffer", queue, memory, 1u, size_t{0}, count * sizeof(T), static_cast<void*>(data.data()), 0u, nullptr, nullptr);
    return data;
  }
  // What is enqueued after this waits until the event is let go.
  Handle hold(Handle queue) {
    Handle event = made("clCreateUserEvent", context_);
    ok("clEnqueueBarrierWithWaitList", queue, 1u, static_cast<const Handle*>(&event), nullptr);
    return event;
  }
  void let_go(Handle event) { ok("clSetUserEventStatus", event, 0); }

 private:
  template <class R, class... A>
  static R call(const char* name, A... arguments) {
    static void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    auto f = library ? reinterpret_cast<R (*)(A...)>(dlsym(library, name)) : nullptr;
    if (!f) throw std::runtime_error(std::string("no ") + name);
    return f(arguments...);
  }
  template <class... A>
  static void ok(const char* name, A... arguments) {
    if (int r = call<int>(name, arguments...)) throw std::runtime_error(std::string(name) + ": error " + std::to_string(r));
  }
  template <class... A>
  static Handle made(const char* name, A... arguments) {
    int r = 0;
    Handle h = call<Handle>(name, arguments..., &r);
    if (!h || r) throw std::runtime_error(std::string(name) + ": error " + std::to_string(r));
    return h;
  }

  Handle device_ = nullptr, context_ = nullptr;
};

}  // namespace xhat::testing
