// Ranges are found by halving: if the plans at both ends and in the middle are alike, all plans between count as alike. Neighbouring ranges with
// like plans are merged.
#include "runtime/ahead/build/plan_ranges.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace xhat::runtime {
namespace {

constexpr size_t kMaxPlans = 12;  // ranges between a size and its double; if there are more, plans that differ only in choices count as alike
constexpr int64_t kMinServed = 4096;  // a library that could serve fewer sizes of the open dim is refused

bool same_number(double x, double y, bool narrow) {
  if (narrow) return static_cast<float>(x) == static_cast<float>(y) || (std::isnan(x) && std::isnan(y));
  return x == y || (std::isnan(x) && std::isnan(y));
}

// lenient: plans that differ only in choices agree; the choices of the first one are used.
bool agrees(const PlanFit& f, const Slots& s, int64_t n, bool lenient) {
  if (s.numbers.size() != f.base.size() || s.reals.size() != f.reals.size()) return false;
  for (size_t i = 0; i < f.base.size(); ++i)
    if (s.numbers[i] != f.number(i, n) && !(lenient && s.kinds[i] == SlotKind::choice)) return false;
  for (size_t i = 0; i < f.reals.size(); ++i)
    if (!same_number(s.reals[i], f.real(i, n), s.narrow[i])) return false;
  return true;
}

AheadReal line_through(double a, double b, int64_t first, int64_t last, bool inverse, bool narrow) {
  auto exact = [&](double v) { return narrow ? std::round(v * 256) / 256 : v; };  // an f32 has no digits below 1/256 here
  AheadReal r;
  r.inverse = inverse;
  if (inverse) a = 1 / a, b = 1 / b;
  r.slope = exact((b - a) / static_cast<double>(last - first));
  r.base = exact(a - r.slope * static_cast<double>(first));
  return r;
}

std::optional<PlanFit> fit(const Slots& a, const Slots& b, int64_t first, int64_t last, bool lenient) {
  if (a.numbers.size() != b.numbers.size() || a.kinds != b.kinds || a.reals.size() != b.reals.size()) return {};
  PlanFit f;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    int64_t rise = b.numbers[i] - a.numbers[i], slope = 0;
    if (rise != 0 && a.kinds[i] == SlotKind::size) {
      if (rise % (last - first) != 0) return {};
      slope = rise / (last - first);
    } else if (rise != 0 && !(lenient && a.kinds[i] == SlotKind::choice)) {
      return {};
    }
    f.slope.push_back(slope);
    f.base.push_back(a.numbers[i] - slope * first);
  }
  for (size_t i = 0; i < a.reals.size(); ++i) {
    f.reals.push_back({false, a.reals[i], 0});
    for (bool inverse : {false, true}) {
      if (first == last || same_number(a.reals[i], b.reals[i], a.narrow[i])) break;
      f.reals.back() = line_through(a.reals[i], b.reals[i], first, last, inverse, a.narrow[i]);
      if (same_number(f.real(i, first), a.reals[i], a.narrow[i]) && same_number(f.real(i, last), b.reals[i], a.narrow[i])) break;
    }
  }
  if (!agrees(f, a, first, lenient) || !agrees(f, b, last, lenient)) return {};
  return f;
}

// Finds the ranges of one direction for one open dim.
class Ranges {
 public:
  Ranges(const PlansAt& at, int ways, int64_t first, int64_t last) : at_(at), ways_(ways), first_(first), last_(last) {}

  std::vector<PlanRange> find() {
    int64_t served = first_ - 1;
    // The spans double, so that small batches are sampled densely.
    while (served < last_) {
      int64_t last = std::min(last_, std::max(served + 1, 2 * served + 1));
      if (!find_within(served + 1, last)) break;
      served = last;
    }
    if (served < std::min(last_, kMinServed)) throw TooManyPlans();
    return found_;
  }

 private:
  bool find_within(int64_t first, int64_t last) {
    const std::vector<PlanRange> before = found_;
    for (way_ = 0; way_ < ways_; ++way_)
      for (bool lenient : {false, true}) try {
          lenient_ = lenient;
          if (all_differ(first + (last - first) / 2, last)) break;
          most_found_ = before.size() + kMaxPlans;
          halve(first, last);
          return true;
        } catch (const TooManyPlans&) {
          found_ = before;
        }
    return false;
  }

  const Slots& slots(int64_t n) {
    auto it = known_.find({n, way_});
    if (it == known_.end()) it = known_.emplace(std::pair(n, way_), at_(n, way_)).first;
    return it->second;
  }

  // Do all sampled sizes have different code? Then the size is a constant of the code.
  bool all_differ(int64_t first, int64_t last) {
    if (last - first < 3) return false;
    for (int64_t n = first; n < first + 3; ++n)
      if (codes_of(slots(n)) == codes_of(slots(n + 1))) return false;
    return true;
  }
  static std::vector<int64_t> codes_of(const Slots& s) {
    std::vector<int64_t> codes;
    for (size_t i = 0; i < s.numbers.size(); ++i)
      if (s.kinds[i] == SlotKind::code) codes.push_back(s.numbers[i]);
    return codes;
  }

  std::optional<PlanFit> alike(int64_t first, int64_t last) {
    auto f = fit(slots(first), slots(last), first, last, lenient_);
    for (int64_t n : {first + (last - first) / 2, first + 1, last - 1})
      if (f && first < n && n < last && !agrees(*f, slots(n), n, lenient_)) return {};
    return f;
  }

  void halve(int64_t first, int64_t last) {
    if (auto f = alike(first, last)) {
      found_.push_back({first, last, way_, lenient_, std::move(*f)});
      join_last();
      if (found_.size() > most_found_) throw TooManyPlans();
      return;
    }
    int64_t middle = first + (last - first) / 2;
    halve(first, middle);
    halve(middle + 1, last);
  }

  void join_last() {
    if (found_.size() < 2 || found_[found_.size() - 2].way != way_) return;
    PlanRange &before = found_[found_.size() - 2], &r = found_.back();
    bool lenient = before.lenient || r.lenient;
    auto f = fit(slots(before.first), slots(r.last), before.first, r.last, lenient);
    if (!f || !agrees(*f, slots(before.last), before.last, lenient) || !agrees(*f, slots(r.first), r.first, lenient)) return;
    before.last = r.last;
    before.lenient = lenient;
    before.fit = std::move(*f);
    found_.pop_back();
  }

  const PlansAt& at_;
  int ways_;
  int64_t first_, last_;
  int way_ = 0;
  bool lenient_ = false;
  size_t most_found_ = 0;
  std::map<std::pair<int64_t, int>, Slots> known_;  // key: size and way
  std::vector<PlanRange> found_;
};

}  // namespace

std::vector<PlanRange> find_ranges(const PlansAt& at, int ways, int64_t first, int64_t last) {
  return Ranges(at, ways, first, last).find();
}

PlanRange range_of_one(const Slots& slots) { return {0, 0, 0, false, *fit(slots, slots, 0, 0, false)}; }

}  // namespace xhat::runtime
