// An op on a GPU, on memory that stays there: no call copies anything, none waits. With OpenCL, which every machine can have (for
// CPUs: the package pocl-opencl-icd), or, called as `gpu cuda`, on an NVIDIA GPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "xhat.h"

using namespace xhat::dsl;
using xhat::runtime::DeviceBuffer;
using xhat::runtime::DeviceDriver;

constexpr int64_t kRows = 1000, kWidth = 256;

int run(Target target) {
  CompileOptions options;
  options.target = target;
  CompiledOp op = compile(parse_op(R"(
    op rms_norm(x: f32[N,D], gain: f32[D]) -> (y) {
      y[n,d] = gain[d] * x[n,d] / sqrt(mean(k: x[n,k] * x[n,k]) + 1e-6)
    })"), options);

  // Memory of the device. It may come from anywhere: device_view(target, pointer or cl_mem, shape) describes what others allocated.
  DeviceDriver& gpu = xhat::runtime::driver_of(target);
  auto floats = [&](int64_t n) { return DeviceBuffer(gpu, n * static_cast<int64_t>(sizeof(float))); };
  DeviceBuffer x = floats(kRows * kWidth), y = floats(kRows * kWidth), dy = floats(kRows * kWidth), gain = floats(kWidth);
  DeviceBuffer grad_x = floats(kRows * kWidth), grad_gain = floats(kWidth);
  const std::vector<int64_t> matrix = {kRows, kWidth}, row = {kWidth};
  std::vector<float> ones(static_cast<size_t>(kRows * kWidth), 1);
  for (DeviceBuffer* b : {&x, &dy, &gain}) gpu.upload(nullptr, b->memory(), ones.data(), b->bytes());

  // The first round compiles and allocates; from then on there are only launches.
  Stash stash;
  CallCounts forward, backward;
  for (int round = 0; round < 2; ++round) {
    forward = op.forward({{"x", x.view(f32, matrix)}, {"gain", gain.view(f32, row)}, {"y", y.view(f32, matrix)}}, stash);
    backward = op.backward({{"x", x.view(f32, matrix)},
                            {"gain", gain.view(f32, row)},
                            {"dy", dy.view(f32, matrix)},
                            {"grad_x", grad_x.view(f32, matrix)},
                            {"grad_gain", grad_gain.view(f32, row)}},
                           stash);
  }
  synchronize(target);

  std::vector<float> grads(kWidth);
  gpu.download(nullptr, grads.data(), grad_gain.memory(), grad_gain.bytes());
  std::printf("%s: %d launches, %d allocations, %d copies; dL/dgain[0] = %.3f\n", gpu.device_name().c_str(),
              static_cast<int>(forward.launches + backward.launches), static_cast<int>(forward.allocations + backward.allocations),
              static_cast<int>(forward.uploads + forward.downloads + backward.uploads + backward.downloads), grads[0]);
  // All x are 1, so that y is 1 for every row.
  bool right = std::abs(grads[0] - kRows) < 0.01f && forward.allocations + backward.allocations == 0;
  return right ? 0 : 1;
}

int main(int count, char** words) try {
  return run(count > 1 && std::string(words[1]) == "cuda" ? Target::cuda : Target::opencl);
} catch (const xhat::runtime::DeviceError& e) {
  std::printf("%s\n", e.what());
  bool missing = e.why() == xhat::runtime::DeviceFailure::no_driver || e.why() == xhat::runtime::DeviceFailure::no_device;
  return missing && !std::getenv("XHAT_NEED_DEVICES") ? 0 : 1;
}
