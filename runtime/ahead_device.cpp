#include "runtime/ahead_device.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "expr/dims.h"
#include "fusion/relay_kernels.h"
#include "runtime/gpu_direction.h"
#include "runtime/gpu_kernel.h"
#include "runtime/run_time_checks.h"

namespace xhat::runtime {
namespace {

// Memory that nobody gives: what kernels keep for themselves, and what they hand to the next one. Kernels run one after the other,
// so two that are not needed at the same time may share.
class Temporaries {
 public:
  // Returns its number, for which a place is found by settle().
  size_t add(int64_t bytes, size_t step) {
    wanted_.push_back({std::max<int64_t>(1, bytes), step, step});
    return wanted_.size() - 1;
  }
  void used(size_t number, size_t step) { wanted_[number].last = step; }

  // Places by number; bytes by place.
  std::vector<int64_t> settle(std::vector<int64_t>& places) const {
    std::vector<int64_t> bytes;
    std::vector<size_t> free_after;  // by place
    for (const Wanted& w : wanted_) {  // in order of their first steps
      size_t p = 0;
      while (p < bytes.size() && free_after[p] >= w.first) ++p;
      if (p == bytes.size()) bytes.push_back(0), free_after.push_back(0);
      bytes[p] = std::max(bytes[p], w.bytes);
      free_after[p] = w.last;
      places.push_back(static_cast<int64_t>(p));
    }
    return bytes;
  }

 private:
  struct Wanted {
    int64_t bytes;
    size_t first, last;  // steps
  };
  std::vector<Wanted> wanted_;
};

class Maker {
 public:
  Maker(const Derivation& derivation, const AheadOptions& options, Target target)
      : p_(derivation.program), options_(options), target_(target) {
    made_.target = target;
    directions_.push_back(infer_program(p_));
    if (options.compile.differentiate) {
      directions_.push_back(forward_program(p_));
      directions_.push_back(backward_program(p_));
    }
    for (const Dim& d : p_.dims)
      if (d.definition == kNone) arguments_.push_back(std::string(p_.arena->name(d.dim)));
  }

  AheadDevice run() {
    std::vector<std::string> missing, known;
    for (const auto& [name, values] : options_.device_sizes)
      if (std::ranges::find(arguments_, name) == arguments_.end())
        throw Error(fmt::format("op {}: there is no dim {}; it has {}", p_.name, name, fmt::join(arguments_, ", ")));
    for (const std::string& name : arguments_) {
      const std::vector<int64_t>& values = values_of(name);
      if (values.empty()) missing.push_back(name);
      known.push_back(fmt::format("{} = {}", name, fmt::join(values, " or ")));
    }
    if (!missing.empty())
      throw Error(fmt::format("op {}: target {} needs values of {}: each of its kernels is made for some sizes. give them as --gpu-dims "
                              "{}=32, or of several, --gpu-dims {}=32,{}=64",
                              p_.name, name_of(target_), fmt::join(missing, ", "), missing[0], missing[0], missing[0]));
    made_.known_sizes = fmt::format("{}", fmt::join(known, ", "));
    made_.sides.resize(directions_.size());
    made_.checks.resize(directions_.size());
    DimValues given;
    every_size(0, given);
    return std::move(made_);
  }

 private:
  const std::vector<int64_t>& values_of(const std::string& dim) const {
    static const std::vector<int64_t> none;
    for (const auto* sizes : {&options_.device_sizes, &options_.sizes})
      if (auto it = sizes->find(dim); it != sizes->end()) return it->second;
    return none;
  }

  void every_size(size_t dim, DimValues& given) {
    if (dim < arguments_.size()) {
      for (int64_t value : values_of(arguments_[dim])) {
        given[arguments_[dim]] = value;
        every_size(dim + 1, given);
      }
      return;
    }
    DimValues sizes = solve_dims(p_, {}, given);
    for (size_t s = 0; s < directions_.size(); ++s) {
      if (options_.progress) options_.progress(fmt::format("compiling for {}, {}", name_of(target_), dims_text(given)), true);
      made_.sides[s].push_back(plan_at(directions_[s], sizes));
      if (auto checks = run_time_checks(directions_[s]).of_data) made_.checks[s].push_back(plan_at(*checks, sizes));
    }
  }

  AheadDevicePlan plan_at(Program direction, const DimValues& sizes) {
    FusionOptions fusion = for_gpu(options_.compile.fusion);
    group_by_policy(direction, fusion);
    KernelPlan plan = plan_kernels(direction, sizes, fusion);
    std::vector<KernelSpec> specs = gpu_specs(direction, plan, sizes, target_);
    AheadDevicePlan made;
    for (const std::string& name : arguments_) made.dims.push_back(sizes.at(name));
    Temporaries temporaries;
    std::map<TensorId, size_t> handed_on;  // temporaries that are tensors of the program
    for (KernelSpec& spec : specs) {
      for (SpecTensor& t : spec.tensors)
        t.by_value = t.use == SpecTensor::Use::input && t.shape.empty() && std::ranges::find(p_.inputs, t.original) != p_.inputs.end();
      DeviceCode code = device_code(target_, spec, stored_types(direction));
      if (code.kernel.launches.empty()) continue;
      size_t now = made.steps.size();
      AheadDeviceStep& step = made.steps.emplace_back();
      step.kernel = number_of(code.kernel);
      for (uint32_t v : code.values) step.values.push_back(value_of(spec.tensors[v]));
      for (const GpuBuffer& b : code.buffers) {
        const SpecTensor& t = spec.tensors[b.tensor];
        if (b.partial || t.use == SpecTensor::Use::temporary) {
          step.buffers.push_back(~static_cast<int64_t>(temporaries.add(b.bytes, now)));
        } else if (is_bound(direction, t.original)) {
          step.buffers.push_back(t.original);
        } else {
          auto [it, fresh] = handed_on.try_emplace(t.original, 0);
          if (fresh) it->second = temporaries.add(bytes_of(direction, t.original, sizes), now);
          temporaries.used(it->second, now);
          step.buffers.push_back(~static_cast<int64_t>(it->second));
        }
      }
    }
    std::vector<int64_t> places;
    made.temporaries = temporaries.settle(places);
    for (AheadDeviceStep& s : made.steps)
      for (int64_t& b : s.buffers)
        if (b < 0) b = ~places[static_cast<size_t>(~b)];
    return made;
  }

  static bool is_bound(const Program& direction, TensorId t) {
    auto among = [&](const std::vector<TensorId>& list) { return std::ranges::find(list, t) != list.end(); };
    return among(direction.inputs) || among(direction.outputs);
  }

  static int64_t bytes_of(const Program& direction, TensorId t, const DimValues& sizes) {
    auto bytes = static_cast<int64_t>(byte_size(direction.tensors[t].type));
    for (int64_t n : shape_of(direction, t, sizes)) bytes *= n;
    return bytes;
  }

  static AheadDeviceValue value_of(const SpecTensor& t) {
    if (!t.is_size()) return {t.original, 0};
    SizeValue v = size_value(t.type, t.value);
    AheadDeviceValue made;
    std::memcpy(&made.bits, &v, sizeof v);
    return made;
  }

  int64_t number_of(const DeviceKernel& kernel) {
    std::string key = kernel.text;
    for (const DeviceLaunch& l : kernel.launches) {
      key += fmt::format("\n{} {} {} {}:", l.entry, fmt::join(l.blocks, ","), fmt::join(l.threads, ","), l.shared_bytes);
      for (const LaunchArg& a : l.args) key += fmt::format(" {}{}/{}", a.is_buffer ? 'b' : 'v', a.number, a.bytes);
    }
    auto [it, fresh] = numbers_.try_emplace(key, static_cast<int64_t>(made_.kernels.size()));
    if (fresh) made_.kernels.push_back(kernel);
    return it->second;
  }

  const Program& p_;
  const AheadOptions& options_;
  Target target_;
  std::vector<Program> directions_;
  std::vector<std::string> arguments_;
  std::map<std::string, int64_t> numbers_;  // of kernels, by all that they are
  AheadDevice made_;
};

}  // namespace

AheadDevice device_code_of(const Derivation& derivation, const AheadOptions& options, Target target) {
  return Maker(derivation, options, target).run();
}

}  // namespace xhat::runtime
