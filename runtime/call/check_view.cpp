#include "runtime/call/check_view.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/core/array.h"
#include "expr/index/size_limits.h"
#include "runtime/cpu/output_over.h"

namespace xhat::runtime {
namespace {

// The widest that kernels load and store at once, in bytes: rows whose length such pieces divide are read in them.
constexpr int64_t kWidestAccess = 16;

class Check {
 public:
  Check(const Program& p, TensorId t, const TensorView& v, bool written, const DeviceQueue& queue)
      : p_(p), x_(p.tensors[t]), v_(v), written_(written), queue_(queue) {}

  void run() const {
    shape();
    if (v_.elements() == 0) return;
    if (!v_.data) fail(fmt::format("{} has no memory: its buffer is null, its shape {}", x_.name, shape_text(v_.extents())));
    if (written_ && !v_.writable) fail(fmt::format("{} is written, but its buffer is const", x_.name));
    if (v_.on_device()) memory_of_device();
    else memory_of_host();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(p_.name + ": " + what); }
  [[noreturn]] void misplaced(const std::string& what) const {
    throw DeviceError(DeviceFailure::bad_pointer, p_.name + ": " + x_.name + what);
  }

  void shape() const {
    if (v_.type != x_.type)
      fail(fmt::format("{} is {}, but the buffer given is {}", x_.name, name_of(x_.type), name_of(v_.type)));
    if (v_.rank != static_cast<int>(x_.shape.size()))
      fail(fmt::format("{} has rank {}, but the buffer given has rank {}, shape {}", x_.name, x_.shape.size(), v_.rank,
                       shape_text(v_.extents())));
    double elements = 1, reach = 1;
    for (size_t d = 0; d < x_.shape.size(); ++d) {
      if (v_.shape[d] < 0) fail(fmt::format("{} has a negative extent: {}", x_.name, shape_text(v_.extents())));
      if (v_.shape[d] > kMaxElements)
        fail(fmt::format("{} has extent {} in dimension {}; kernels take up to 2^31-1 = {}. split it into pieces", x_.name,
                         v_.shape[d], d, kMaxElements));
      if (v_.strides[d] < 0) fail(fmt::format("{} has a negative stride in dimension {}", x_.name, d));
      elements *= static_cast<double>(v_.shape[d]);
      reach += static_cast<double>(v_.shape[d]) * static_cast<double>(v_.strides[d]);
    }
    for (size_t d = 0; d < x_.shape.size(); ++d)
      if (written_ && v_.strides[d] == 0 && v_.shape[d] > 1 && elements > 0)
        fail(fmt::format("{} is written, but its buffer has stride 0 in dimension {}", x_.name, d));
    if (elements > 0 && std::max(elements, reach) > static_cast<double>(kMaxElements))
      fail(fmt::format("{} spans {:.0f} elements; kernels take up to 2^31-1. split it into pieces", x_.name,
                       std::max(elements, reach)));
  }

  void memory_of_host() const {
    if (reinterpret_cast<uintptr_t>(v_.data) % byte_size(v_.type) != 0)
      fail(fmt::format("{} is not aligned to its element size, {} bytes", x_.name, byte_size(v_.type)));
    if (!queue_.driver) return;
    if (queue_.driver->hidden_from_host(v_.data, v_.bytes()))
      misplaced(" is given as memory of the host, but that is memory of a device; describe it by device_view()");
    refuse_in_capture(queue_, fmt::format("copy {} {} the host's memory", x_.name, written_ ? "to" : "from"));
  }

  void memory_of_device() const {
    if (!queue_.driver || v_.place != queue_.driver->target())
      misplaced(fmt::format(" is memory of target {}, but the op is compiled for {}; copy it, or compile for CompileOptions::target = {}",
                            name_of(v_.place), queue_.driver ? name_of(queue_.driver->target()) : "cpu", name_of(v_.place)));
    if (!v_.dense())
      fail(fmt::format("{} has gaps or is transposed (strides {}); on a device, tensors must be row-major without gaps. copy it first",
                       x_.name, fmt::join(std::span(v_.strides).first(static_cast<size_t>(v_.rank)), ", ")));
    const int64_t alignment = std::min(kWidestAccess, v_.bytes() & -v_.bytes());
    const auto memory = reinterpret_cast<DeviceMemory>(v_.data);
    if (v_.place == Target::cuda && memory % static_cast<uint64_t>(alignment) != 0)
      misplaced(fmt::format(" is not aligned to {} bytes, which kernels load at once (its address is {:#x}); copy it to memory of its own",
                            alignment, memory));
    switch (queue_.driver->place_of(memory, v_.bytes())) {
      case MemoryPlace::here: return;
      case MemoryPlace::host:
        misplaced(fmt::format(" is given as memory of target {}, but its driver knows of none there; if it lies on the host, describe it "
                              "by a TensorView", name_of(v_.place)));
      case MemoryPlace::other_device:
        misplaced(" lies on another device than the one that the call runs on; copy it, or pass a stream of that device");
      case MemoryPlace::other_context:
        misplaced(" belongs to another context than the one that the call runs in; pass a stream of that context (CallOptions::stream)");
      case MemoryPlace::too_small:
        misplaced(fmt::format(" has shape {}, {} bytes, but its memory is smaller", shape_text(v_.extents()), v_.bytes()));
    }
  }

  const Program& p_;
  const Tensor& x_;
  const TensorView& v_;
  bool written_;
  const DeviceQueue& queue_;
};

}  // namespace

void check_view(const Program& p, TensorId t, const TensorView& v, bool written, const DeviceQueue& queue) {
  Check(p, t, v, written, queue).run();
}

void check_overlap(const std::string& op, const Program& direction, const std::vector<TensorId>& bound,
                   const std::vector<TensorView>& views, bool over_inputs) {
  const size_t inputs = direction.inputs.size();
  // From the first byte to the last, asked for once: few pairs have any in common.
  thread_local std::vector<std::pair<const char*, const char*>> reach;
  reach.clear();
  for (TensorId t : bound) reach.emplace_back(views[t].begin(), views[t].end());
  for (size_t o = inputs; o < bound.size(); ++o)
    for (size_t i = 0; i < bound.size(); i = i + 1 == inputs ? o + 1 : i + 1) {  // of two outputs once
      if (reach[o].first >= reach[i].second || reach[i].first >= reach[o].second) continue;
      const TensorId out = bound[o], t = bound[i];
      if (t == out || !overlap(views[out], views[t])) continue;
      if (over_inputs && i < inputs && lies_on(views[out], views[t])) continue;
      throw Error(fmt::format("{}: {} overlaps {} in memory; outputs need memory of their own", op, direction.tensors[out].name,
                              direction.tensors[t].name));
    }
}

ArgumentNames argument_names(const Program& p) {
  ArgumentNames names;
  for (auto* list : {&p.inputs, &p.outputs, &p.cotangents, &p.gradients})
    for (TensorId t : *list) names[p.tensors[t].name] = t;
  return names;
}

TensorId argument_of(const Program& p, const ArgumentNames& names, std::string_view name) {
  if (auto it = names.find(name); it != names.end()) return it->second;
  std::vector<std::string_view> known;
  for (const auto& [n, t] : names) known.push_back(n);
  std::ranges::sort(known);
  throw Error(fmt::format("{}: there is no tensor '{}'; known are {}", p.name, name, fmt::join(known, ", ")));
}

}  // namespace xhat::runtime
