#include "fusion/library/library_plan.h"

#include <algorithm>

#include "fusion/library/library_operands.h"

namespace xhat {
namespace {

using fusion::LibraryCandidates;

// Rates of a large GPU, per second. Estimated, not measured: an H100 has 67 Tflop/s of f32 on ordinary units. Libraries reach about three
// quarters of that, our register blocks a third (before they loaded ahead). For f16 and bf16 libraries use tensor cores, our kernels do not.
// Convolutions reach a third less than products of their size.
struct Rate {
  DType type;
  double ours, products, convolutions;
};
constexpr Rate kRates[] = {
    {DType::f32, 20e12, 50e12, 33e12},
    {DType::f16, 20e12, 500e12, 330e12},
    {DType::bf16, 20e12, 500e12, 330e12},
    {DType::f64, 10e12, 30e12, 20e12},
};
constexpr double kBytesPerSecond = 2.5e12;
constexpr double kLaunchSeconds = 3e-6;
constexpr int64_t kLibraryTile = 64;  // rows and columns of a library's smallest tile
constexpr double kClearly = 0.9;      // the library's estimate must be below this share of ours: closer estimates say nothing
constexpr size_t kMaxSingly = 12;     // more candidates than this are tried only all at once

DType type_of(const LibraryCall& call) {
  const auto* m = std::get_if<MatrixProduct>(&call);
  return m ? m->a.type : std::get<Convolution>(call).input.type;
}

double library_seconds(const LibraryCall& call) {
  const auto* rate = std::ranges::find(kRates, type_of(call), &Rate::type);
  auto flops = static_cast<double>(flops_of(call));
  const auto* m = std::get_if<MatrixProduct>(&call);
  if (!m) return flops / rate->convolutions;
  auto in_tiles = [](int64_t n) {
    return static_cast<double>((n + kLibraryTile - 1) / kLibraryTile * kLibraryTile) / static_cast<double>(n);
  };
  return flops * in_tiles(m->rows) * in_tiles(m->columns) / rate->products;
}

double our_seconds(const Program& p, const Kernel& k) {
  const Rate* slowest = &kRates[0];
  for (const Member& m : k.members)
    for (const Rate& r : kRates)
      if (r.type == p.tensors[p.forward.definitions[m.definition].target()].type && r.ours < slowest->ours) slowest = &r;
  return static_cast<double>(k.flops) / slowest->ours;
}

class Chooser {
 public:
  Chooser(const LibraryCandidates& candidates, const DimValues& sizes, const PlanRequest& request)
      : candidates_(candidates), sizes_(sizes), request_(request) {}

  LibraryPlan plan(const std::vector<bool>& chosen) const {
    LibraryPlan made;
    made.program = with_operands(candidates_, chosen);
    PlanRequest request = request_;
    for (size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i]) request.alone.push_back(result_of(candidates_.all[i].call).tensor);
    made.plan = plan_kernels(made.program, sizes_, request);
    for (const Kernel& k : made.plan.kernels) {
      auto& call = made.calls.emplace_back();
      if (k.members.size() != 1) continue;
      const TensorId target = made.program.forward.definitions[k.members[0].definition].target();
      for (size_t i = 0; i < chosen.size(); ++i)
        if (chosen[i] && result_of(candidates_.all[i].call).tensor == target) call = candidates_.all[i].call;
    }
    return made;
  }

  static double seconds(const LibraryPlan& made) {
    double sum = 0;
    for (size_t i = 0; i < made.plan.kernels.size(); ++i) {
      const Kernel& k = made.plan.kernels[i];
      const double memory = static_cast<double>(k.bytes_unavoidable) / kBytesPerSecond;
      sum += kLaunchSeconds + std::max(memory, made.calls[i] ? library_seconds(*made.calls[i]) : our_seconds(made.program, k));
    }
    return sum;
  }

  // Adds one sum after the other while that is clearly faster; and tries all at once.
  LibraryPlan cheapest() const {
    const size_t n = candidates_.all.size();
    std::vector<bool> chosen(n, false);
    LibraryPlan best = plan(chosen);
    double least = seconds(best);
    auto consider = [&](const std::vector<bool>& wanted) {
      LibraryPlan other = plan(wanted);
      if (seconds(other) >= kClearly * least) return false;
      least = seconds(other);
      best = std::move(other);
      return true;
    };
    for (size_t i = 0; i < n && n <= kMaxSingly; ++i) {
      chosen[i] = true;
      chosen[i] = consider(chosen);
    }
    if (std::ranges::find(chosen, false) != chosen.end()) consider(std::vector<bool>(n, true));
    return best;
  }

 private:
  const LibraryCandidates& candidates_;
  const DimValues& sizes_;
  const PlanRequest& request_;
};

}  // namespace

LibraryPlan plan_with_libraries(const Program& p, const DimValues& sizes, const PlanRequest& request, const LibraryOptions& libraries) {
  auto as_it_is = [&] {
    LibraryPlan made{p, plan_kernels(p, sizes, request), {}};
    made.calls.resize(made.plan.kernels.size());
    return made;
  };
  // The classic policy's groups are of the program as it is.
  if (libraries.use == LibraryUse::off || request.options.policy == FusePolicy::relay) return as_it_is();
  LibraryCandidates candidates = fusion::library_candidates(p, sizes);
  if (libraries.takes) std::erase_if(candidates.all, [&](const auto& c) { return !libraries.takes(c.call); });
  if (candidates.all.empty()) return as_it_is();
  Chooser chooser(candidates, sizes, request);
  if (libraries.use == LibraryUse::on) return chooser.plan(std::vector<bool>(candidates.all.size(), true));
  return chooser.cheapest();
}

}  // namespace xhat
