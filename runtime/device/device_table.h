// The device code of a library compiled ahead of time: kernels as text, and for each side (infer, forward, backward) its launches in order, with
// their buffers. A size is a constant of the code, or comes with the launches.
#pragma once
#include <string>
#include <vector>

#include "runtime/device/drivers/driver.h"
#include "runtime/host/variant.h"
#include "runtime/host/walk_archive.h"

namespace xhat::runtime {

// A number that a kernel takes: a scalar argument of the call, or a value that follows from the sizes.
struct AheadDeviceValue {
  int64_t tensor = -1;  // -1: `value`
  DType type = DType::f32;
  double value = 0;
};

struct AheadDeviceStep {
  int64_t kernel = 0;
  std::vector<int64_t> buffers;  // tensors of the op; ~n: temporary n
  std::vector<AheadDeviceValue> values;
};

struct AheadDeviceBytes {
  int64_t step = 0;  // the step whose values `bytes` refers to
  Amount bytes;
};

// The plan of a side at some sizes. A temporary must hold the largest of its entries; they are not needed at the same time.
struct AheadDevicePlan {
  std::vector<std::vector<AheadDeviceBytes>> temporaries;
  std::vector<AheadDeviceStep> steps;
};

struct AheadDevice {
  Target target = Target::cuda;
  std::string known_sizes;  // for messages
  std::vector<DeviceKernel> kernels;
  std::vector<std::vector<AheadVariant>> sides;
  // Per side: the plans of the checks of its data, whose results are AheadSide::checks. Empty if there is nothing to check.
  std::vector<std::vector<AheadVariant>> checks;
};

// Serializes a plan as the numbers of a variant. A: SlotWriter or SlotReader.
template <class A>
void transfer_device_plan(A& a, AheadDevicePlan& plan) {
  constexpr auto kStructure = SlotKind::structure, kSize = SlotKind::size, kCode = SlotKind::code;
  a.resize(plan.temporaries);
  for (auto& place : plan.temporaries) {
    a.resize(place);
    for (AheadDeviceBytes& b : place) {
      a.number(b.step, kStructure);
      a.number(b.bytes.value, kStructure);
      a.number(b.bytes.times, b.bytes.value < 0 ? kSize : kCode);
      a.number(b.bytes.factor, kCode);
      a.number(b.bytes.per, kCode);
      a.number(b.bytes.of, kCode);
    }
  }
  a.resize(plan.steps);
  for (AheadDeviceStep& s : plan.steps) {
    a.number(s.kernel, kCode);
    a.resize(s.buffers);
    for (auto& b : s.buffers) a.number(b, kStructure);
    a.resize(s.values);
    for (AheadDeviceValue& v : s.values) {
      a.number(v.tensor, kStructure);
      a.number(v.type, kStructure);
      if (v.tensor < 0) a.real(v.value, v.type == DType::f32);
    }
  }
}

// A: ByteWriter or ByteReader of bytes.h.
template <class A>
void transfer_amount(A& a, Amount& amount) {
  for (auto* n : {&amount.times, &amount.factor, &amount.per, &amount.of, &amount.value}) a.number(*n);
}

template <class A>
void transfer_device_kernel(A& a, DeviceKernel& k) {
  a.text(k.text);
  a.resize(k.zeros);
  for (DeviceZeros& z : k.zeros) {
    a.number(z.buffer);
    transfer_amount(a, z.bytes);
  }
  a.resize(k.launches);
  for (DeviceLaunch& l : k.launches) {
    a.text(l.what);
    transfer_amount(a, l.blocks);
    a.number(l.threads);
    a.number(l.shared_bytes);
    a.text(l.entry);
    a.resize(l.args);
    for (LaunchArg& x : l.args) {
      a.number(x.is_buffer);
      a.number(x.number);
      a.number(x.bytes);
    }
  }
}

template <class A>
void transfer_device(A& a, AheadDevice& device) {
  auto each = [&](auto& list, auto&& f) {
    a.resize(list);
    for (auto& x : list) f(x);
  };
  a.number(device.target);
  a.text(device.known_sizes);
  each(device.kernels, [&](DeviceKernel& k) { transfer_device_kernel(a, k); });
  for (auto* sides : {&device.sides, &device.checks}) each(*sides, [&](auto& variants) { transfer_variants(a, variants); });
}

}  // namespace xhat::runtime
