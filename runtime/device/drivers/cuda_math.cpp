#include "runtime/device/drivers/cuda_math.h"

#include <dlfcn.h>

namespace xhat::runtime {

const char* first_installed(std::span<const char* const> files) {
  for (int also_load : {0, 1})
    for (const char* file : files)
      if (dlopen(file, also_load ? RTLD_LAZY | RTLD_LOCAL : RTLD_LAZY | RTLD_NOLOAD)) return file;
  return files[0];
}

DeviceError library_failure(const std::string& library, int status, const std::string& text, const std::string& what) {
  std::string said = text.empty() ? "" : text + ", ";
  return {DeviceFailure::failed, "target cuda: " + library + ": " + what + " failed (" + said + "status " + std::to_string(status) +
                                     "); --libraries off does without it"};
}

LibraryHandle& LibraryHandles::of(DeviceDriver& driver, const std::function<Handle()>& create) {
  LibraryHandle* found = nullptr;
  {
    std::lock_guard lock(mutex_);
    found = &handles_[&driver];
  }
  std::lock_guard lock(found->mutex);
  if (!found->handle) driver.in_context([&] { found->handle = create(); });
  return *found;
}

namespace {

class CudaMath : public MathLibrary {
 public:
  std::unique_ptr<MathCall> prepare(DeviceDriver& driver, const LibraryCall& call) override {
    if (const auto* m = std::get_if<MatrixProduct>(&call)) return cublas_call(driver, *m);
    return cudnn_call(driver, std::get<Convolution>(call));
  }
};

}  // namespace

MathLibrary& cuda_math() {
  static CudaMath math;
  return math;
}

}  // namespace xhat::runtime
