// Shared by cublas.cpp and cudnn.cpp. For runtime/device/drivers/ only.
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
  std::mutex mutex;  // held while the stream is set and a function is called
  Handle handle = nullptr;
};

// One handle per context, made at first use and never destroyed, like the driver.
class LibraryHandles {
 public:
  LibraryHandle& of(DeviceDriver& driver, const std::function<Handle()>& create);

 private:
  std::mutex mutex_;
  std::map<DeviceDriver*, LibraryHandle> handles_;
};

std::unique_ptr<MathCall> cublas_call(DeviceDriver& driver, const MatrixProduct& m);
std::unique_ptr<MathCall> cudnn_call(DeviceDriver& driver, const Convolution& c);

// The first file that the process has loaded already, for example PyTorch's; else the first that is installed; else files[0].
const char* first_installed(std::span<const char* const> files);
DeviceError library_failure(const std::string& library, int status, const std::string& text, const std::string& what);

}  // namespace xhat::runtime
