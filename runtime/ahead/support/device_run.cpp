// Calls of a library on a device: checks a call, chooses the plan for its sizes, enqueues its kernels.
//
// The first call of a side at some sizes on a stream loads the code and allocates temporaries and unwanted gradients. They are kept; a call at larger
// sizes allocates larger memory. Work on a stream runs in order, so one set of memory per side and stream suffices. During a capture
// nothing is allocated, and memory that a graph uses is never released.
//
// Kernels that check indices in the data run before all others, and the call waits for their results, unless the caller says that the
// indices are in range.
//
// A stash is one block of the caller's memory: the stashed tensors, each at a multiple of 512 bytes. It does not record which call wrote it,
// because reading that would mean waiting for the device.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "runtime/ahead/support/known_plans.h"
#include "runtime/ahead/support/library.h"
#include "runtime/device/device_buffer.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kStashAlignment = 512;  // bytes: the largest alignment that OpenCL devices require of a sub-buffer
constexpr int64_t kWidestAccess = 16;     // bytes that a thread loads or stores at once

// Memory of a side, or of its checks, on one stream.
struct Temporaries {
  std::vector<std::unique_ptr<DeviceBuffer>> of_kernels;     // per temporary
  std::map<int64_t, std::unique_ptr<DeviceBuffer>> results;  // by tensor: unwanted gradients, results of checks
  bool in_graph = false;                                     // a graph uses these addresses
  std::vector<std::unique_ptr<DeviceBuffer>> of_graphs;      // memory that became too small, but that graphs use
};

struct StreamMemory {
  std::mutex mutex;  // held while a call is enqueued, so that its kernels are not interleaved with another call's
  std::map<std::pair<int, bool>, Temporaries> of_sides;  // key: the side's number, and whether it is for the checks
};

struct DeviceContext {
  std::mutex mutex;
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
  std::map<DeviceStream, std::shared_ptr<StreamMemory>> streams;
};

}  // namespace

struct DeviceCalls {
  std::atomic<bool> trust_data = false;
  KnownPlans<AheadDevicePlan> plans;
  std::mutex mutex;  // guards contexts
  std::map<DeviceDriver*, std::unique_ptr<DeviceContext>> contexts;
};

namespace {

DeviceCalls& calls_of(Opened& o, size_t device) {
  std::lock_guard lock(o.mutex);
  o.devices.resize(o.table.devices.size());
  if (!o.devices[device]) o.devices[device] = std::make_shared<DeviceCalls>();
  return *o.devices[device];
}

DeviceContext& context_of(Opened& o, size_t device, DeviceDriver& driver) {
  DeviceCalls& calls = calls_of(o, device);
  std::lock_guard lock(calls.mutex);
  std::unique_ptr<DeviceContext>& context = calls.contexts[&driver];
  if (!context) {
    context = std::make_unique<DeviceContext>();
    context->kernels.resize(o.table.devices[device].kernels.size());
  }
  return *context;
}

int64_t aligned(int64_t bytes) { return (bytes + kStashAlignment - 1) / kStashAlignment * kStashAlignment; }

int64_t device_stash_bytes(const AheadTable& t, const std::vector<int64_t>& dims) {
  int64_t bytes = 0;
  for (int64_t s : t.stash) bytes += aligned(bytes_of(t, s, dims));
  return std::max(bytes, kStashAlignment);  // 0 would mean an error
}

class CallOnDevice {
 public:
  CallOnDevice(xhat_ahead_library* library, size_t device, int number, const int64_t* dims, DeviceStream stream)
      : o_(open(library)),
        t_(o_.table),
        device_(t_.devices[device]),
        number_(number),
        side_(side_of(t_, number)),
        dims_(dims_of(o_, dims)),
        calls_(calls_of(o_, device)),
        plan_(plan_for(device_.sides)),
        stream_(stream),
        driver_(driver_of(stream)),
        context_(context_of(o_, device, driver_)) {
    const bool look = !device_.checks[static_cast<size_t>(number)].empty() && !calls_.trust_data;
    if (look) checks_ = plan_for(device_.checks);
  }
  ~CallOnDevice() {
    for (DeviceMemory part : parts_) driver_.release_part(part);
  }
  CallOnDevice(const CallOnDevice&) = delete;
  CallOnDevice& operator=(const CallOnDevice&) = delete;

  void run(void* const* tensors, void* stash) {
    check_sizes(t_, side_, dims_);
    memory_.assign(std::max(t_.tensors.size(), static_cast<size_t>(side_.check_tensors)), 0);
    values_.assign(t_.tensors.size(), SizeValue{});
    for (int64_t i : side_.inputs) bind(i, *tensors++, false);
    for (int64_t i : side_.outputs) bind(i, *tensors++, true);
    if (number_ != kInfer) bind_stash(reinterpret_cast<DeviceMemory>(stash));
    check_overlap();

    std::shared_ptr<StreamMemory> mine;
    {
      std::lock_guard lock(context_.mutex);
      auto& known = context_.streams[stream_];
      if (!known) known = std::make_shared<StreamMemory>();
      mine = known;
      load(*plan_);
      if (checks_) load(*checks_);
    }
    std::lock_guard lock(mine->mutex);
    if (checks_) check_data(mine->of_sides[{number_, true}]);
    Temporaries& temporaries = mine->of_sides[{number_, false}];
    const StepValues values = allocate(*plan_, temporaries);
    for (int64_t tensor : unwanted_) result(temporaries, tensor, bytes_of(t_, tensor, dims_));
    enqueue(*plan_, values, temporaries);
  }

 private:
  std::shared_ptr<const AheadDevicePlan> plan_for(const std::vector<std::vector<AheadVariant>>& sides) const {
    const auto& variants = sides[static_cast<size_t>(number_)];
    return calls_.plans.find(variants, dims_, AheadLayout::dense, [&] {
      const AheadNumbers at = numbers_for(t_, variants, dims_, device_.known_sizes, name_of(device_.target));
      SlotReader reader(at.numbers, at.reals);
      auto made = std::make_shared<AheadDevicePlan>();
      transfer_device_plan(reader, *made);
      return made;
    });
  }

  DeviceDriver& driver_of(DeviceStream stream) const {
    if (device_.target == Target::opencl && !stream) fail(t_, AheadStatus::bad_argument, "the stream is null; it is a cl_command_queue");
    return device_driver(device_.target, stream);
  }

  const std::string& name(int64_t tensor) const { return t_.tensors[static_cast<size_t>(tensor)].name; }

  // Scalar inputs of the op are passed by value; computed scalars are device memory.
  bool by_value(int64_t tensor) const {
    const auto& inputs = t_.sides[kInfer].inputs;
    return t_.tensors[static_cast<size_t>(tensor)].shape.empty() && std::ranges::find(inputs, tensor) != inputs.end();
  }

  void bind(int64_t tensor, void* given, bool written) {
    auto i = static_cast<size_t>(tensor);
    if (!written && by_value(tensor)) {
      std::memcpy(&values_[i], given, byte_size(t_.tensors[i].type));
      return;
    }
    memory_[i] = reinterpret_cast<DeviceMemory>(given);
    int64_t bytes = bytes_of(t_, tensor, dims_);
    if (bytes == 0) return;
    if (!given && written && number_ == kBackward) return unwanted_.push_back(tensor);
    check_memory(name(tensor), memory_[i], bytes);
    bound_.push_back({tensor, memory_[i], bytes, written});
  }

  void check_memory(const std::string& what, DeviceMemory memory, int64_t bytes) const {
    if (!memory) fail(t_, AheadStatus::bad_argument, what + " is null; it takes " + std::to_string(bytes) + " bytes");
    int64_t alignment = std::min(kWidestAccess, bytes & -bytes);
    if (device_.target == Target::cuda && memory % static_cast<uint64_t>(alignment) != 0)
      fail(t_, AheadStatus::bad_argument, what + " is not aligned to " + std::to_string(alignment) + " bytes");
    const std::string on = "memory of the device that the stream is of";
    auto bad = [&](const std::string& why) { fail(t_, AheadStatus::bad_pointer, what + why); };
    switch (driver_.place_of(memory, bytes)) {
      case MemoryPlace::here: return;
      case MemoryPlace::host: return bad(" is no " + on + "; copy it there, or call the function for the CPU");
      case MemoryPlace::other_device: return bad(" lies on another device; it must be " + on);
      case MemoryPlace::other_context: return bad(" belongs to another context; it must be " + on);
      case MemoryPlace::too_small: return bad(" is too small; it takes " + std::to_string(bytes) + " bytes with " + sizes_text(t_, dims_));
    }
  }

  void bind_stash(DeviceMemory stash) {
    if (t_.stash.empty()) return;
    int64_t all = device_stash_bytes(t_, dims_), at = 0;
    check_memory("the stash", stash, all);
    bound_.push_back({-1, stash, all, number_ == kForward});
    for (int64_t s : t_.stash) {
      int64_t bytes = bytes_of(t_, s, dims_);
      if (bytes > 0) {
        parts_.push_back(driver_.part(stash, at, bytes));
        memory_[static_cast<size_t>(s)] = parts_.back();
      }
      at += aligned(bytes);
    }
  }

  void check_overlap() const {
    const bool addresses = device_.target == Target::cuda;  // OpenCL's handles cannot be compared as address ranges
    auto called = [&](const Bound& b) { return b.tensor < 0 ? std::string("the stash") : name(b.tensor); };
    for (size_t i = 0; i < bound_.size(); ++i)
      for (size_t j = 0; j < bound_.size(); ++j) {
        const Bound &a = bound_[i], &b = bound_[j];
        if (i == j || !a.written) continue;
        bool clash = a.memory == b.memory;
        if (addresses) clash = a.memory < b.memory + static_cast<uint64_t>(b.bytes) && b.memory < a.memory + static_cast<uint64_t>(a.bytes);
        if (clash) fail(t_, AheadStatus::bad_argument, called(a) + " overlaps " + called(b) + " in memory; outputs need their own");
      }
  }

  bool capturing() {
    if (!capturing_) capturing_ = driver_.capturing(stream_);
    return *capturing_;
  }

  void not_while_capturing(const char* what) {
    if (!capturing()) return;
    const std::string why = std::string("the stream is being captured, and ") + what + " first";
    fail(t_, AheadStatus::device_failed,
         why + "; make this call once before, with " + sizes_text(t_, dims_) + " on this stream, and then capture it");
  }

  void load(const AheadDevicePlan& plan) {
    for (const AheadDeviceStep& s : plan.steps) {
      auto k = static_cast<size_t>(s.kernel);
      if (context_.kernels[k]) continue;
      not_while_capturing("code must be loaded");
      context_.kernels[k] = driver_.load(device_.kernels[k]);
    }
  }

  void make_room(Temporaries& t, std::unique_ptr<DeviceBuffer>& memory, int64_t bytes, const char* what) {
    if (memory && memory->bytes() >= bytes) return;
    not_while_capturing(what);
    if (memory && t.in_graph) t.of_graphs.push_back(std::move(memory));
    memory = std::make_unique<DeviceBuffer>(driver_, std::max<int64_t>(1, bytes));
  }

  // The values of all steps of a plan.
  struct StepValues {
    std::vector<SizeValue> all;  // concatenated, in the order of the steps
    std::vector<size_t> first;   // per step: index of its first value; then the end
    std::span<const SizeValue> of(size_t step) const { return std::span(all).subspan(first[step], first[step + 1] - first[step]); }
  };

  StepValues allocate(const AheadDevicePlan& plan, Temporaries& t) {
    StepValues values;
    values.first.reserve(plan.steps.size() + 1);
    for (const AheadDeviceStep& s : plan.steps) {
      values.first.push_back(values.all.size());
      for (const AheadDeviceValue& v : s.values)
        values.all.push_back(v.tensor < 0 ? size_value(v.type, v.value) : values_[static_cast<size_t>(v.tensor)]);
    }
    values.first.push_back(values.all.size());
    t.of_kernels.resize(std::max(t.of_kernels.size(), plan.temporaries.size()));
    for (size_t i = 0; i < plan.temporaries.size(); ++i) {
      int64_t bytes = 1;
      for (const AheadDeviceBytes& b : plan.temporaries[i]) bytes = std::max(bytes, b.bytes.at(values.of(static_cast<size_t>(b.step))));
      make_room(t, t.of_kernels[i], bytes, "memory for temporaries must be allocated");
    }
    t.in_graph |= capturing();
    return values;
  }

  // Gives a tensor that the caller does not provide memory of ours.
  void result(Temporaries& t, int64_t tensor, int64_t bytes) {
    make_room(t, t.results[tensor], bytes, "memory for results must be allocated");
    memory_[static_cast<size_t>(tensor)] = t.results[tensor]->memory();
  }

  void check_data(Temporaries& t) {
    if (capturing())
      fail(t_, AheadStatus::device_failed,
           "the stream is being captured, and a look at the indices in the data would wait for it; say "
           "that they are in range, by _trust_data");
    const StepValues values = allocate(*checks_, t);
    for (const AheadCheck& c : side_.checks) result(t, c.tensor, 1);
    enqueue(*checks_, values, t);
    for (const AheadCheck& c : side_.checks) {
      uint8_t failed = 0;
      driver_.download(stream_, &failed, memory_[static_cast<size_t>(c.tensor)], 1);
      if (failed) fail(t_, AheadStatus::bad_data, c.text + "; sizes are " + sizes_text(t_, dims_));
    }
  }

  void enqueue(const AheadDevicePlan& plan, const StepValues& values, const Temporaries& t) {
    std::vector<DeviceMemory> buffers;
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const AheadDeviceStep& s = plan.steps[i];
      buffers.clear();
      for (int64_t b : s.buffers)
        buffers.push_back(b < 0 ? t.of_kernels[static_cast<size_t>(~b)]->memory() : memory_[static_cast<size_t>(b)]);
      context_.kernels[static_cast<size_t>(s.kernel)]->run(stream_, buffers, values.of(i));
    }
  }

  struct Bound {
    int64_t tensor;  // -1: the stash
    DeviceMemory memory;
    int64_t bytes;
    bool written;
  };
  Opened& o_;
  const AheadTable& t_;
  const AheadDevice& device_;
  int number_;
  const AheadSide& side_;
  std::vector<int64_t> dims_;
  DeviceCalls& calls_;
  std::shared_ptr<const AheadDevicePlan> plan_;
  std::shared_ptr<const AheadDevicePlan> checks_;  // null if the data are not checked
  DeviceStream stream_;
  DeviceDriver& driver_;
  DeviceContext& context_;
  std::vector<DeviceMemory> memory_;  // per tensor
  std::vector<SizeValue> values_;     // per tensor
  std::vector<Bound> bound_;
  std::vector<int64_t> unwanted_;
  std::vector<DeviceMemory> parts_;  // parts of the stash, to be released
  std::optional<bool> capturing_;    // whether the stream is being captured, once queried
};

}  // namespace

}  // namespace xhat::runtime

using namespace xhat::runtime;

extern "C" {

int xhat_ahead_device_call(xhat_ahead_library* library, int device, int side, const int64_t* dims, void* stream, void* const* tensors,
                           void* stash) {
  return guarded([&] { CallOnDevice(library, static_cast<size_t>(device), side, dims, stream).run(tensors, stash); });
}

int xhat_ahead_device_stash_bytes(xhat_ahead_library* library, const int64_t* dims, int64_t* bytes) {
  return guarded([&] {
    const Opened& o = open(library);
    *bytes = device_stash_bytes(o.table, dims_of(o, dims));
  });
}

int xhat_ahead_device_trust_data(xhat_ahead_library* library, int device, int on) {
  return guarded([&] { calls_of(open(library), static_cast<size_t>(device)).trust_data = on != 0; });
}

int xhat_ahead_device_release(xhat_ahead_library* library, int device, void* stream) {
  return guarded([&] {
    Opened& o = open(library);
    auto number = static_cast<size_t>(device);
    DeviceContext& context = context_of(o, number, device_driver(o.table.devices[number].target, stream));
    std::shared_ptr<StreamMemory> dropped;
    std::lock_guard lock(context.mutex);
    auto it = context.streams.find(stream);
    if (it == context.streams.end()) return;
    dropped = std::move(it->second);
    context.streams.erase(it);
  });
}

}  // extern "C"
