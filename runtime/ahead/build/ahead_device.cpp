#include "runtime/ahead/build/ahead_device.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "expr/index/dims.h"
#include "fusion/relay/relay_kernels.h"
#include "runtime/ahead/build/ahead_plans.h"
#include "runtime/ahead/build/ahead_sizes.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/passes.h"
#include "runtime/call/run_time_checks.h"
#include "runtime/gpu/gpu_kernel.h"

namespace xhat::runtime {
namespace {

// Assigns memory to the temporaries of kernels and between kernels. Kernels run in order, so temporaries that are not needed at the same time share a
// place.
class Temporaries {
 public:
  // Adds a temporary that is first needed at `step`; returns its number. settle() finds its place.
  size_t add(const Amount& bytes, size_t step) {
    wanted_.push_back({{static_cast<int64_t>(step), bytes}, step, step});
    return wanted_.size() - 1;
  }
  void used(size_t number, size_t step) { wanted_[number].last = step; }

  // places: per number, its place. Returns, per place, the temporaries that it must hold.
  std::vector<std::vector<AheadDeviceBytes>> settle(std::vector<int64_t>& places) const {
    std::vector<std::vector<AheadDeviceBytes>> held;
    std::vector<size_t> free_after;    // per place: the last step that uses it
    for (const Wanted& w : wanted_) {  // sorted by their first steps
      size_t p = 0;
      while (p < held.size() && free_after[p] >= w.first) ++p;
      if (p == held.size()) held.emplace_back(), free_after.push_back(0);
      held[p].push_back(w.bytes);
      free_after[p] = w.last;
      places.push_back(static_cast<int64_t>(p));
    }
    return held;
  }

 private:
  struct Wanted {
    AheadDeviceBytes bytes;
    size_t first, last;  // the steps that use it
  };
  std::vector<Wanted> wanted_;
};

// The kernels of all tried plans, without duplicates. Only those of the final plans are compiled.
class DeviceKernels {
 public:
  explicit DeviceKernels(Target target) : target_(target) {}

  size_t add(const KernelSpec& spec, const std::vector<DType>& stored) {
    GpuClass c = class_of(target_, spec, stored);
    auto [it, fresh] = numbers_.try_emplace(c.key, known_.size());
    if (fresh) {
      DeviceCode described = launches_of(c);
      known_.push_back({std::move(c), std::move(described)});
    }
    return it->second;
  }
  const DeviceCode& described(size_t kernel) const { return known_[kernel].described; }  // the launches, without text
  DeviceKernel compiled(size_t kernel) const { return device_code(known_[kernel].of).kernel; }
  size_t size() const { return known_.size(); }

 private:
  struct Known {
    GpuClass of;
    DeviceCode described;
  };
  Target target_;
  std::map<std::string, size_t> numbers_;  // kernel number by key
  std::vector<Known> known_;
};

class Maker {
 public:
  Maker(const Derivation& derivation, const AheadOptions& options, Target target)
      : p_(derivation.program),
        nodes_(derivation.opaque_nodes),
        options_(options),
        target_(target),
        sizes_(p_, sizes_given(options), "--gpu-dims"),
        kernels_(target) {
    made_.target = target;
    directions_.push_back(infer_program(p_));
    if (options.compile.differentiate) {
      directions_.push_back(forward_program(p_));
      directions_.push_back(backward_program(p_));
    }
  }

  AheadDevice run() {
    made_.sides.resize(directions_.size());
    made_.checks.resize(directions_.size());
    for (size_t s = 0; s < directions_.size(); ++s) {
      find_plans(directions_[s], made_.sides[s]);
      if (auto checks = run_time_checks(directions_[s]).of_data) find_plans(*checks, made_.checks[s]);
    }
    made_.known_sizes = sizes_.known();
    compile_wanted();
    return std::move(made_);
  }

 private:
  static constexpr size_t kMaxKernels = 200;  // kernels of a direction: a dim that needs more cannot stay open

  static std::map<std::string, std::vector<int64_t>> sizes_given(const AheadOptions& options) {
    std::map<std::string, std::vector<int64_t>> given = options.device_sizes;
    given.insert(options.sizes.begin(), options.sizes.end());
    return given;
  }

  void find_plans(const Program& direction, std::vector<AheadVariant>& variants) {
    size_t new_kernels[std::size(kWaysToPlan)] = {};
    auto at = [&](const DimValues& sizes, int way) {
      if (options_.progress) options_.progress(fmt::format("planning for {}, {}", name_of(target_), dims_text(sizes)), true);
      const size_t before = kernels_.size();
      AheadDevicePlan plan = plan_at(direction, sizes, kWaysToPlan[way]);
      new_kernels[way] += kernels_.size() - before;
      if (new_kernels[way] > kMaxKernels && !sizes_.open().empty()) throw TooManyPlans();
      SlotWriter writer;
      transfer_device_plan(writer, plan);
      return std::move(writer.slots);
    };
    try {
      sizes_.find(at, std::size(kWaysToPlan), [&](AheadVariant v, const Slots&) { variants.push_back(std::move(v)); });
    } catch (const TooManyPlans&) {
      sizes_.fail_must_be_given(
          "code for a GPU is made for them. one that is a batch, the slowest dimension of all tensors that have it, may stay open");
    }
  }

  AheadDevicePlan plan_at(Program written, const DimValues& sizes, PlanWay way) {
    PlanRequest request = requested_so(request_of(options_.compile, target_), way);
    group_by_policy(written, request, nodes_);
    const auto [direction, plan] = planned_so(written, sizes, request, way);
    std::vector<KernelSpec> specs = gpu_specs(direction, plan, sizes, target_);
    AheadDevicePlan made;
    Temporaries temporaries;
    std::map<TensorId, size_t> handed_on;  // the number of each temporary that is a tensor of the program
    for (KernelSpec& spec : specs) {
      for (SpecTensor& t : spec.tensors)
        t.by_value = t.use == SpecTensor::Use::input && t.shape.empty() && std::ranges::find(p_.inputs, t.original) != p_.inputs.end();
      size_t number = kernels_.add(spec, stored_types(direction));
      const DeviceCode& code = kernels_.described(number);
      if (code.idle()) continue;
      size_t now = made.steps.size();
      AheadDeviceStep& step = made.steps.emplace_back();
      step.kernel = static_cast<int64_t>(number);
      for (uint32_t v : code.values) {
        const SpecTensor& t = spec.tensors[v];
        step.values.push_back(t.is_size() ? AheadDeviceValue{-1, t.type, t.value} : AheadDeviceValue{t.original, t.type, 0});
      }
      for (const GpuBuffer& b : code.buffers) {
        const SpecTensor& t = spec.tensors[b.tensor];
        if (b.partial || t.use == SpecTensor::Use::temporary) {
          step.buffers.push_back(~static_cast<int64_t>(temporaries.add(b.bytes, now)));
        } else if (is_bound(direction, t.original)) {
          step.buffers.push_back(t.original);
        } else {
          auto [it, fresh] = handed_on.try_emplace(t.original, 0);
          if (fresh) it->second = temporaries.add({.times = bytes_of(direction, t.original, sizes)}, now);
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

  // Kernels of two classes of sizes may have the same code; it is stored once.
  int64_t number_of(const DeviceKernel& kernel) {
    auto known = std::ranges::find(made_.kernels, kernel);
    auto number = known - made_.kernels.begin();
    if (known == made_.kernels.end()) made_.kernels.push_back(kernel);
    return number;
  }

  void compile_wanted() {
    std::map<int64_t, int64_t> number;
    for (size_t s = 0; s < made_.sides.size(); ++s)
      for (auto* list : {&made_.sides[s], &made_.checks[s]})
        for (AheadVariant& v : *list) {
          AheadDevicePlan plan;
          const AheadNumbers at{v.base, std::vector<double>(v.reals.size())};
          SlotReader reader(at.numbers, at.reals);
          transfer_device_plan(reader, plan);
          for (AheadDeviceStep& step : plan.steps) {
            auto [it, fresh] = number.try_emplace(step.kernel, 0);
            if (fresh) {
              if (options_.progress) options_.progress(fmt::format("compiling for {}, kernel {}", name_of(target_), number.size()), true);
              it->second = number_of(kernels_.compiled(static_cast<size_t>(step.kernel)));
            }
            step.kernel = it->second;
          }
          SlotWriter writer;
          transfer_device_plan(writer, plan);
          v.base = std::move(writer.slots.numbers);
        }
  }

  const Program& p_;
  const std::map<std::string, std::string>& nodes_;
  const AheadOptions& options_;
  Target target_;
  AheadSizes sizes_;
  DeviceKernels kernels_;
  std::vector<Program> directions_;
  AheadDevice made_;
};

}  // namespace

AheadDevice device_code_of(const Derivation& derivation, const AheadOptions& options, Target target) {
  return Maker(derivation, options, target).run();
}

}  // namespace xhat::runtime
