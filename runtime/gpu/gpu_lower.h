// One kernel -> its launches on a GPU: one for all of its members, and a small one that adds up what blocks leave.
//
// What the executor does for a CPU, the grid does here: a tile is a block, its number the block's. Halide's scheduling is not
// asked. The loops, barriers and shared memory are written down as what they are in a device's code, and handed to Halide's
// device compilers (PTX, OpenCL C, SPIR-V) where a pipeline would arrive after its lowering: nothing is launched, kept in
// memory or filled with zeros but what stands here.
#pragma once
#include <string>
#include <vector>

#include "runtime/device/drivers/driver.h"
#include "runtime/gpu/device_code.h"
#include "runtime/host/size_value.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

// A buffer that a launch takes: a tensor of the spec, or what its tiles leave of it.
struct GpuBuffer {
  uint32_t tensor;
  bool partial = false;
  Amount bytes = {.times = 0};  // of those that the caller does not know: temporaries that blocks don't hold, and partial results
};

struct GpuKernel {
  Halide::Pipeline pipeline;
  // Arguments in order: sizes as numbers (values), buffers, and a result of the pipeline's that nothing writes.
  std::vector<Halide::Argument> arguments;
  std::vector<uint32_t> values;  // tensors that are sizes
  std::vector<GpuBuffer> buffers;
  std::vector<DeviceZeros> zeros;      // before the launches
  std::vector<DeviceLaunch> launches;  // entries and arguments have names when Halide has made the text
};

GpuKernel gpu_lower(const KernelSpec& spec, DeviceKind kind, const std::vector<DType>& stored);

}  // namespace xhat::runtime
