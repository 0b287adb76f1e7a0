// Code for a device in a library that was compiled ahead of time: kernels as text, and for each side and sizes what is launched,
// in which order, on which memory. Sizes are built into the code, so there is a plan for each choice of them.
#pragma once
#include <string>
#include <vector>

#include "runtime/devices/driver.h"

namespace xhat::runtime {

// Of a kernel: a scalar that is given with the call, or a number that is always the same.
struct AheadDeviceValue {
  int64_t tensor = -1;  // -1: bits
  int64_t bits = 0;     // of a SizeValue
};

struct AheadDeviceStep {
  int64_t kernel = 0;
  std::vector<int64_t> buffers;  // tensors of the op; ~n: temporary n
  std::vector<AheadDeviceValue> values;
};

struct AheadDevicePlan {
  std::vector<int64_t> dims;         // those that are arguments
  std::vector<int64_t> temporaries;  // bytes
  std::vector<AheadDeviceStep> steps;
};

struct AheadDevice {
  Target target = Target::cuda;
  std::string known_sizes;  // for messages
  std::vector<DeviceKernel> kernels;
  std::vector<std::vector<AheadDevicePlan>> sides;
  // Of the data, before a side runs; none: there is nothing to check. Its results are AheadSide::checks.
  std::vector<std::vector<AheadDevicePlan>> checks;
};

// A: ByteWriter or ByteReader of table.h.
template <class A>
void transfer_device(A& a, AheadDevice& device) {
  auto each = [&](auto& list, auto&& f) {
    a.resize(list);
    for (auto& x : list) f(x);
  };
  auto number = [&](auto& x) { a.number(x); };
  a.number(device.target);
  a.text(device.known_sizes);
  each(device.kernels, [&](DeviceKernel& k) {
    a.text(k.text);
    each(k.launches, [&](DeviceLaunch& l) {
      a.text(l.entry);
      for (auto& n : l.blocks) a.number(n);
      for (auto& n : l.threads) a.number(n);
      a.number(l.shared_bytes);
      each(l.args, [&](LaunchArg& x) {
        a.number(x.is_buffer);
        a.number(x.number);
        a.number(x.bytes);
      });
    });
  });
  auto plan = [&](AheadDevicePlan& p) {
    each(p.dims, number);
    each(p.temporaries, number);
    each(p.steps, [&](AheadDeviceStep& s) {
      a.number(s.kernel);
      each(s.buffers, number);
      each(s.values, [&](AheadDeviceValue& v) {
        a.number(v.tensor);
        a.number(v.bits);
      });
    });
  };
  for (auto* sides : {&device.sides, &device.checks}) each(*sides, [&](auto& plans) { each(plans, plan); });
}

}  // namespace xhat::runtime
