// What cublas.cpp and cudnn.cpp share. For runtime/device/drivers/ only.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "runtime/device/drivers/library.h"
#include "runtime/device/drivers/math_library.h"

namespace xhat::runtime {

using Handle = void*;  // cublasHandle_t, cudnnHandle_t

// A library's state in one context.
struct LibraryHandle {
  std::mutex mutex;  // held while it is told a stream and called
  Handle handle = nullptr;
};

// One per context, made when it is first asked for and kept: the driver stays, too.
class LibraryHandles {
 public:
  LibraryHandle& of(DeviceDriver& driver, const std::function<Handle()>& create);

 private:
  std::mutex mutex_;
  std::map<DeviceDriver*, LibraryHandle> handles_;
};

std::unique_ptr<MathCall> cublas_call(DeviceDriver& driver, const MatrixProduct& m);
std::unique_ptr<MathCall> cudnn_call(DeviceDriver& driver, const Convolution& c);

// The first that the process has loaded already, as PyTorch's own; else the first that is installed; else the first.
const char* first_installed(std::span<const char* const> files);
DeviceError library_failure(const std::string& library, int status, const std::string& text, const std::string& what);

}  // namespace xhat::runtime
