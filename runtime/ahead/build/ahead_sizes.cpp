#include "runtime/ahead/build/ahead_sizes.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/index/size_limits.h"

namespace xhat::runtime {

AheadSizes::AheadSizes(const Program& op, std::map<std::string, std::vector<int64_t>> given, std::string option)
    : p_(op), given_(std::move(given)), option_(std::move(option)) {
  for (bool defined : {false, true})
    for (const Dim& d : p_.dims)
      if ((d.definition != kNone) == defined) {
        dims_.push_back(std::string(p_.arena->name(d.dim)));
        arguments_ += !defined;
      }
  for (const auto& [name, values] : given_) {
    auto at = std::ranges::find(dims_, name);
    if (at == dims_.end()) fail(fmt::format("there is no dim {}; it has {}", name, fmt::join(dims_, ", ")));
    if (at - dims_.begin() >= static_cast<std::ptrdiff_t>(arguments_))
      fail("dim " + name + " follows from the others by its definition; it cannot be given");
    if (values.empty()) fail("dim " + name + " has no value");
  }
  for (size_t i = 0; i < arguments_; ++i)
    if (!given_.contains(dims_[i])) open_.push_back(dims_[i]);
}

void AheadSizes::fail_must_be_given(const std::string& why) const {
  const bool one = open_.size() == 1;
  fail(fmt::format("the {3} {0} must be given, as {1} {2}=VALUE or, for several, {1} {2}=64,{2}=128: {4}", fmt::join(open_, ", "), option_,
                   open_.back(), one ? "size" : "sizes", why.empty() ? "code is made for them" : why));
}

void AheadSizes::serves_from(const std::string& dim, int64_t first) {
  int64_t& least = least_served_[dim];
  least = std::max(least, first);
}

std::string AheadSizes::known() const {
  std::vector<std::string> known;
  for (size_t i = 0; i < arguments_; ++i) {
    auto it = given_.find(dims_[i]);
    if (it == given_.end() && most_served_ < INT64_MAX)
      known.push_back(fmt::format("any {} up to {}", dims_[i], most_served_));
    else if (it == given_.end() && least_served_.contains(dims_[i]))
      known.push_back(fmt::format("any {} from {}", dims_[i], least_served_.at(dims_[i])));
    else if (it == given_.end())
      known.push_back("any " + dims_[i]);
    else
      known.push_back(fmt::format("{} = {}", dims_[i], fmt::join(it->second, " or ")));
  }
  return fmt::format("{}", fmt::join(known, ", "));
}

std::vector<DimValues> all_choices(const std::map<std::string, std::vector<int64_t>>& given) {
  std::vector<DimValues> all = {{}};
  for (const auto& [name, values] : given) {
    std::vector<DimValues> more;
    for (const DimValues& chosen : all)
      for (int64_t value : values) {
        more.push_back(chosen);
        more.back()[name] = value;
      }
    all = std::move(more);
  }
  return all;
}

std::optional<DimValues> AheadSizes::sizes_of(const DimValues& given) const {
  DimValues all;
  try {
    all = solve_dims(p_, {}, given);
  } catch (const Error&) {
    return {};
  }
  for (const Tensor& t : p_.tensors) {
    double elements = 1;
    for (Id e : t.shape) elements *= static_cast<double>(std::max<int64_t>(0, evaluate_extent(*p_.arena, e, all)));
    if (elements > static_cast<double>(kMaxElements)) return {};
  }
  return all;
}

AheadVariant AheadSizes::variant(const DimValues& given, const PlanRange& r) const {
  AheadVariant v;
  for (size_t i = 0; i < arguments_; ++i) {
    auto it = given.find(dims_[i]);
    v.first.push_back(it == given.end() ? r.first : it->second);
    v.last.push_back(it == given.end() ? r.last : it->second);
    if (it == given.end()) v.products.push_back({static_cast<int64_t>(i)});
  }
  v.base = r.fit.base;
  for (size_t i = 0; i < r.fit.slope.size(); ++i)
    if (r.fit.slope[i] != 0) v.slopes.push_back({static_cast<int64_t>(i), 0, r.fit.slope[i]});
  v.reals = r.fit.reals;
  return v;
}

void AheadSizes::find(const SlotsAt& at, int ways, const Found& found) {
  for (const DimValues& given : all_choices(given_)) find_at(given, at, ways, found);
}

void AheadSizes::find_at(const DimValues& given, const SlotsAt& at, int ways, const Found& found) {
  if (open_.empty()) {
    auto sizes = sizes_of(given);
    if (!sizes)
      solve_dims(p_, {}, given), fail("a tensor has more than 2^31-1 elements with " + dims_text(given) + "; split it into pieces");
    Slots slots = at(*sizes, 0);
    return found(variant(given, range_of_one(slots)), slots);
  }
  auto with_open = [&](int64_t n) {
    DimValues all = given;
    all[open_[0]] = n;
    return sizes_of(all);
  };
  if (open_.size() > 1) throw TooManyPlans();
  int64_t first = 0, last = 1;
  while (first < 4096 && !with_open(first)) ++first;
  if (!with_open(first)) fail("no value of " + open_[0] + " up to 4096 meets the preconditions with " + dims_text(given));
  for (last = std::max<int64_t>(1, first); last < kMaxElements && with_open(2 * last);) last *= 2;
  for (int64_t step = last; step > 0; step /= 2)
    if (last + step <= kMaxElements && with_open(last + step)) last += step;
  auto slots_at = [&](int64_t n, int way) {
    auto sizes = with_open(n);
    if (!sizes) throw TooManyPlans();  // the op's preconditions exclude this size
    return at(*sizes, way);
  };
  int64_t served = 0;
  for (const PlanRange& r : find_ranges(slots_at, ways, first, last)) {
    found(variant(given, r), slots_at(r.first, r.way));
    served = r.last;
  }
  if (served < last) most_served_ = std::min(most_served_, served);
}

}  // namespace xhat::runtime
