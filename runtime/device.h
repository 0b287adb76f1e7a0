// A GPU, as Halide's runtime finds it: memory on it, copies to it and back, and the code that runs there.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/gpu_lower.h"
#include "runtime/target.h"

namespace xhat::runtime {

// Registers that a thread may have (CUDA): of 65536 of a multiprocessor, so that two blocks of 256 threads fit.
constexpr int kMostRegisters = 128;

Halide::Target halide_target(Target target);  // the host with that device
DeviceKind kind_of(Target target);

// What the runtime says while it is called; thrown as an Error by ok().
class DeviceCall {
 public:
  DeviceCall();
  Halide::JITUserContext* context() { return &context_; }
  void ok(int status, Target target, const std::string& what) const;

 private:
  struct Context : Halide::JITUserContext {
    std::string said;
  } context_;
};

// Memory on a device; without gaps.
class DeviceBuffer {
 public:
  DeviceBuffer(Target target, int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  int64_t bytes() const { return bytes_; }
  void upload(const void* from, int64_t bytes);
  void download(void* to, int64_t bytes) const;
  const halide_buffer_t* raw() const { return &raw_; }

 private:
  Target target_;
  int64_t bytes_;
  halide_dimension_t dim_ = {};
  halide_buffer_t raw_ = {};
};

// Throws Error, with what to do, where there is no such device.
void require_device(Target target);
void wait_for(Target target);

struct CompiledGpuKernel {
  Halide::Callable code;
  std::vector<uint32_t> values;
  std::vector<GpuBuffer> buffers;
  std::vector<GpuLaunch> launches;
};

// Each kernel is compiled once per process and target.
std::shared_ptr<const CompiledGpuKernel> compiled_for(Target target, const KernelSpec& spec, const std::vector<DType>& stored);

// The device's code as text or bytes, and what launches it: for tests and people; no device is needed.
struct DeviceCode {
  std::string text;
  std::vector<GpuLaunch> launches;
};
DeviceCode device_code(Target target, const KernelSpec& spec, const std::vector<DType>& stored);

}  // namespace xhat::runtime
