#include "runtime/ahead/build/open_plans.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "runtime/ahead/build/open_reads.h"
#include "runtime/ahead/build/size_polynomials.h"
#include "runtime/call/cpu_direction.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

constexpr size_t kMostOpen = 6;     // dims: each takes three times as many plans to interpolate
constexpr int64_t kNominal = 64;    // as the stash planner takes a dim that nobody says anything of
constexpr int64_t kMostLeast = 64;  // the smallest size served is searched up to here
constexpr int64_t kLargest = KernelSpec::kLargestSize;

// The kernel at other sizes, with the tiles of its own. Throws SizesInCode where its loops run together at some sizes only.
Kernel resized(const Program& p, const Kernel& k, const std::vector<bool>& cut, const DimValues& sizes) {
  Kernel made = k;
  const Arena& a = *p.arena;
  std::vector<bool> known(k.axes.size(), false);
  auto set = [&](int axis, int64_t extent) {
    const auto c = static_cast<size_t>(axis);
    if (known[c] && made.axes[c].extent != extent) throw SizesInCode{"loops run together at some sizes only"};
    known[c] = true;
    made.axes[c].extent = extent;
    if (!cut[c]) made.axes[c].tile = std::max<int64_t>(2, extent);  // a tile of one element has other code
  };
  for (const Member& m : k.members) {
    const Definition& d = p.forward.definitions[m.definition];
    const std::vector<int64_t> shape = shape_of(p, d.target(), sizes);
    for (size_t i = 0; i < m.left.size(); ++i) set(m.left[i], shape[i]);
    if (m.reduced.empty()) continue;
    const auto ranges = reduce_axes(a[d.body]);
    for (size_t i = 0; i < m.reduced.size(); ++i) {
      auto by_sizes = [&](Id bound) { return a[bound].axes_count == 0 && tensors_read(a, bound).empty(); };
      if (by_sizes(ranges[i].begin) && by_sizes(ranges[i].end))
        set(m.reduced[i], std::max<int64_t>(0, evaluate_extent(a, ranges[i].end, sizes) - evaluate_extent(a, ranges[i].begin, sizes)));
    }
  }
  return made;
}

// The plans of the parts at nominal sizes, and from there at others.
class Plan {
 public:
  using Specs = std::vector<std::vector<KernelSpec>>;  // per part, of the kernels that write something

  Plan(const std::vector<OpenPart>& parts, const std::vector<std::string>& open, const DimValues& nominal, bool in_rows)
      : parts_(parts), open_(open), in_rows_(in_rows) {
    for (const OpenPart& part : parts_) {
      KernelPlan& plan = plans_.emplace_back(plan_kernels(part.program, nominal, part.request));
      auto& cuts = cuts_.emplace_back();
      for (const Kernel& k : plan.kernels) {
        std::vector<bool>& cut = cuts.emplace_back(k.axes.size(), false);
        for (int c : k.shared) cut[static_cast<size_t>(c)] = k.axes[static_cast<size_t>(c)].tile < k.axes[static_cast<size_t>(c)].extent;
      }
    }
  }

  Specs specs(const DimValues& sizes) const {
    Specs all;
    for (size_t i = 0; i < parts_.size(); ++i) {
      auto& made = all.emplace_back();
      for (size_t k = 0; k < plans_[i].kernels.size(); ++k) {
        KernelSpec spec = spec_of(i, k, sizes);
        if (!writes_nothing(spec)) made.push_back(std::move(spec));
      }
    }
    return all;
  }

  // small: specs at small sizes, for code that is new; may be empty.
  Slots slots(const DimValues& sizes, AheadKernels& kernels, const Specs& small = {}) const {
    SlotWriter writer;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Program& p = parts_[i].program;
      WalkPlan walk{{}, temporaries_of(p, plans_[i], sizes), static_cast<int64_t>(p.tensors.size())};
      for (size_t k = 0; k < plans_[i].kernels.size(); ++k) {
        KernelSpec spec = spec_of(i, k, sizes);
        if (writes_nothing(spec)) continue;
        if (!small.empty()) spec.small = std::make_shared<KernelSpec>(small[i][walk.kernels.size()]);
        const size_t code = kernels.add(spec);
        WalkKernel w = walk_of(p, resized(p, plans_[i].kernels[k], cuts_[i][k], sizes), spec, kernels.arguments(code));
        w.code = code;
        w.epilogue = false;  // it may have many tiles at other sizes
        walk.kernels.push_back(std::move(w));
      }
      transfer_plan(writer, walk);
    }
    return std::move(writer.slots);
  }

 private:
  KernelSpec spec_of(size_t part, size_t kernel, const DimValues& sizes) const {
    const Program& p = parts_[part].program;
    const Kernel k = resized(p, plans_[part].kernels[kernel], cuts_[part][kernel], sizes);
    const std::vector<bool>& dense = parts_[part].dense;
    return open_.empty() ? make_spec(p, k, sizes, dense, in_rows_)
                         : make_open_spec(p, k, sizes, dense, open_, cuts_[part][kernel], in_rows_);
  }

  const std::vector<OpenPart>& parts_;
  const std::vector<std::string>& open_;
  bool in_rows_;
  std::vector<KernelPlan> plans_;
  std::vector<std::vector<std::vector<bool>>> cuts_;  // per part and kernel
};

bool same_code(const Plan::Specs& a, const Plan::Specs& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t k = 0; k < a[i].size(); ++k)
      if (a[i][k].key() != b[i][k].key()) return false;
  }
  return true;
}

bool has_points(const Plan::Specs& specs) {
  for (const auto& part : specs)
    for (const KernelSpec& spec : part)
      for (const auto& [id, axis] : spec.axes)
        if (axis.sized && axis.extent < 1) return false;
  return true;
}

// The plans where these dims are open and all others are given.
class Finder {
 public:
  Finder(const std::vector<OpenPart>& parts, AheadSizes& sizes, DimValues given, std::vector<std::string> open, AheadKernels& kernels,
         AheadLayout layout)
      : parts_(parts), sizes_(sizes), given_(std::move(given)), open_(std::move(open)), kernels_(kernels), layout_(layout) {}

  void find(const DimValues& wanted, const FoundOpen& found) {
    const auto nominal = nominal_sizes(wanted);
    if (!nominal) {
      if (std::ranges::any_of(sizes_.open(), [&](const std::string& d) { return given_.contains(d); }))
        return;  // 0, which the op cannot have
      throw SizesInCode{"there are no sizes like " + dims_text(wanted) + " that the op can have"};
    }
    const Plan plan(parts_, open_, *nominal, layout_ == AheadLayout::rows);
    AheadVariant v;
    if (open_.empty()) {
      const Slots slots = plan.slots(*nominal, kernels_);
      v.base = slots.numbers;
      for (double real : slots.reals) v.reals.push_back({false, real, 0});
      return found(served(std::move(v), {}), slots);
    }
    const Plan::Specs code = plan.specs(*nominal);
    const std::vector<int64_t> least = least_sizes(plan, code);
    const SizeGrid grid = sizes_to_try();
    const Slots first = plan.slots(*nominal, kernels_, small_of(plan, least, code));
    std::vector<Slots> plans;
    for (size_t at = 0; at < grid.points(); ++at) {
      const auto sizes = with(grid.sizes(at));
      if (!sizes) throw SizesInCode{"the op cannot have sizes in equal steps"};
      plans.push_back(plan.slots(*sizes, kernels_));
    }
    if (std::string why = fit_polynomials(grid, plans, v); !why.empty()) throw SizesInCode{why};
    for (const std::vector<int64_t>& sizes : others(least))
      if (const auto all = with(sizes); all && !gives(v, sizes, plan.slots(*all, kernels_)))
        throw SizesInCode{"other kernels at some sizes"};
    found(served(std::move(v), least), first);
  }

 private:
  std::optional<DimValues> with(const std::vector<int64_t>& sizes) const {
    DimValues all = given_;
    for (size_t i = 0; i < open_.size(); ++i) all[open_[i]] = sizes[i];
    return sizes_.sizes_of(all);
  }

  // Different ones, so that no two loops have the same extent by chance.
  std::optional<DimValues> nominal_sizes(const DimValues& wanted) {
    std::vector<int64_t> used;
    for (const auto& [name, size] : given_) used.push_back(size);
    for (const std::string& name : open_) {
      auto it = wanted.find(name);
      int64_t size = it == wanted.end() ? kNominal : std::max<int64_t>(2, it->second);
      while (std::ranges::find(used, size) != used.end()) ++size;
      used.push_back(size);
      nominal_.push_back(size);
    }
    constexpr int kTries = 64;
    for (int t = 0; t < kTries; ++t) {
      std::vector<int64_t> sizes = nominal_;
      for (size_t i = 0; i < sizes.size(); ++i) sizes[i] += t * static_cast<int64_t>(i + 1);
      if (auto all = with(sizes)) {
        nominal_ = sizes;
        return all;
      }
    }
    return {};
  }

  // Per dim, the smallest size at which the code is the same and every loop has steps.
  std::vector<int64_t> least_sizes(const Plan& plan, const Plan::Specs& code) const {
    auto same = [&](const std::vector<int64_t>& sizes) {
      const auto all = with(sizes);
      return !all || same_code(code, plan.specs(*all));
    };
    std::vector<int64_t> least(open_.size(), 1);
    for (size_t i = 0; i < open_.size(); ++i) {
      std::vector<int64_t> sizes = nominal_;
      for (sizes[i] = 1; !same(sizes); ++sizes[i])
        if (sizes[i] > kMostLeast) throw SizesInCode{"kernels of size " + open_[i] + " = 64 have other code than those of a larger one"};
      least[i] = sizes[i];
    }
    for (int t = 0; t < kMostLeast; ++t) {
      const auto all = with(least);
      if (!all || has_points(plan.specs(*all))) return least;
      for (int64_t& size : least) ++size;
    }
    throw SizesInCode{"small sizes have other code"};
  }

  // At sizes that are small and different; none if the op has no such sizes.
  Plan::Specs small_of(const Plan& plan, const std::vector<int64_t>& least, const Plan::Specs& code) const {
    constexpr int kTries = 16;
    for (int t = 0; t < kTries; ++t) {
      std::vector<int64_t> sizes = least;
      for (size_t i = 0; i < sizes.size(); ++i) sizes[i] += static_cast<int64_t>(i) * (t + 1);
      if (const auto all = with(sizes))
        if (Plan::Specs small = plan.specs(*all); same_code(code, small)) return small;
    }
    return {};
  }

  SizeGrid sizes_to_try() const {
    constexpr int64_t kFirst = 20, kApart = 60;  // of one dim and the next, so that no two are equal
    SizeGrid grid;
    for (size_t i = 0; i < open_.size(); ++i) {
      auto fits = [&](int64_t first, int64_t step) {
        for (int64_t n = 0; n < kGridSizes; ++n) {
          std::vector<int64_t> sizes = nominal_;
          sizes[i] = first + n * step;
          const bool given = std::ranges::any_of(given_, [&](const auto& g) { return g.second == sizes[i]; });
          if (given || !with(sizes)) return false;
        }
        return true;
      };
      const int64_t from = kFirst + kApart * static_cast<int64_t>(i);
      bool found = false;
      for (int64_t step = 1; step <= 16 && !found; ++step)
        for (int64_t first = from; first < from + 16 && !found; ++first)
          if (fits(first, step)) {
            found = true;
            grid.first.push_back(first);
            grid.step.push_back(step);
          }
      if (!found) throw SizesInCode{"the op cannot have sizes " + open_[i] + " in equal steps"};
    }
    return grid;
  }

  // Small, large and mixed ones; no two of them equal.
  std::vector<std::vector<int64_t>> others(const std::vector<int64_t>& least) const {
    constexpr int64_t kSmall = 3, kLarge = 517;
    std::vector<std::vector<int64_t>> all = {nominal_};
    for (size_t large = 0; large <= open_.size(); ++large) {
      std::vector<int64_t> sizes;
      for (size_t i = 0; i < open_.size(); ++i) {
        const auto n = static_cast<int64_t>(i);
        sizes.push_back(i == large ? kLarge + n : least[i] + kSmall + 7 * n);
      }
      all.push_back(sizes);
    }
    return all;
  }

  AheadVariant served(AheadVariant v, const std::vector<int64_t>& least) {
    v.layout = layout_;
    std::vector<int64_t> place(open_.size());
    for (size_t i = 0; i < sizes_.arguments(); ++i) {
      const std::string& name = sizes_.dims()[i];
      const auto at = std::ranges::find(open_, name);
      if (at == open_.end()) {
        v.first.push_back(given_.at(name));
        v.last.push_back(given_.at(name));
        continue;
      }
      const auto n = static_cast<size_t>(at - open_.begin());
      place[n] = static_cast<int64_t>(i);
      v.first.push_back(least[n]);
      v.last.push_back(kLargest);
      if (least[n] > 1) sizes_.serves_from(name, least[n]);
    }
    for (auto& product : v.products)
      for (int64_t& dim : product) dim = place[static_cast<size_t>(dim)];
    return v;
  }

  const std::vector<OpenPart>& parts_;
  AheadSizes& sizes_;
  DimValues given_;
  std::vector<std::string> open_;
  AheadKernels& kernels_;
  AheadLayout layout_;
  std::vector<int64_t> nominal_;
};

}  // namespace

void find_open_plans(const std::vector<OpenPart>& written, AheadSizes& sizes, const DimValues& nominal, AheadKernels& kernels,
                     AheadLayout layout, const FoundOpen& found) {
  const std::vector<std::string>& open = sizes.open();
  if (open.size() > kMostOpen) throw SizesInCode{fmt::format("at most {} dims stay open", kMostOpen)};
  std::vector<OpenPart> parts;
  for (const OpenPart& part : written) parts.push_back({with_open_reads(part.program), part.request, part.dense});
  for (const DimValues& choice : sizes.choices())
    for (size_t zeros = 0; zeros < size_t{1} << open.size(); ++zeros) {
      DimValues given = choice;
      std::vector<std::string> still_open;
      for (size_t i = 0; i < open.size(); ++i) {
        if (zeros >> i & 1)
          given[open[i]] = 0;
        else
          still_open.push_back(open[i]);
      }
      Finder(parts, sizes, given, still_open, kernels, layout).find(nominal, found);
    }
}

}  // namespace xhat::runtime
