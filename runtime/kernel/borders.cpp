#include "runtime/kernel/borders.h"

#include <algorithm>
#include <optional>

#include "expr/index/dims.h"
#include "expr/index/linear.h"
#include "expr/index/simplify_index.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kShortestRow = 8;       // of less, as x[n,(a+1)%3], vectors take the columns, and places are written out
constexpr int64_t kLongestRow = 1 << 14;  // each place of which is tried
constexpr double kNoNumber = 0x1p1000;    // the first of those that stand for a border

struct Bent {
  Id place;  // what the index is inside
  Bend bend;
};

class Finder {
 public:
  explicit Finder(KernelSpec& spec) : spec_(spec), a_(*spec.arena) {}

  // Itself, if it has no border.
  Id with_border(Id id) {
    const Node n = a_[id];
    if (n.op != Op::read || n.arg_count == 0 || !is_float(n.type)) return id;
    const std::vector<int64_t>& shape = spec_.tensors[n.symbol].shape;
    std::vector<Id> places(n.args().begin(), n.args().end());
    std::vector<Bend> bends(places.size());
    for (size_t d = 0; d < places.size(); ++d) {
      if (!tensors_read(a_, places[d]).empty()) return id;
      const auto found = bent(places[d], shape[d]);
      if (!found) continue;
      places[d] = found->place;
      bends[d] = found->bend;
    }
    if (bends.back().at == kNone) return id;
    const size_t number = numbers_.emplace(bends, numbers_.size()).first->second;
    const Id border = a_.constant(n.type, kNoNumber * static_cast<double>(number + 1));
    borders.emplace(border, bends);
    return a_.read_or(n.symbol, n.type, places, border);
  }

  Borders borders;

 private:
  std::optional<Bent> bent(Id index, int64_t extent) {
    if (extent < kShortestRow || extent > kLongestRow) return {};
    const std::vector<Id> all = reachable(a_, index);
    if (std::ranges::any_of(all, [&](Id id) { return is_float(a_[id].type) || is_reduction(a_[id].op) || a_[id].op == Op::dim; }))
      return {};
    for (Id part : all) {
      const Node& n = a_[part];
      const bool bends =
          n.op == Op::minimum || n.op == Op::maximum || n.op == Op::clamp || n.op == Op::abs || n.op == Op::relu || n.op == Op::mod;
      if (!bends || n.type != DType::i64) continue;
      for (Id argument : n.args())
        if (a_[argument].axes_count > 0)
          if (auto found = bent_by(index, argument, n.op == Op::mod, extent)) return found;
    }
    return {};
  }

  // Is all of the index a function of this part, and what the part is where the tensor is?
  std::optional<Bent> bent_by(Id index, Id part, bool goes_round, int64_t extent) {
    auto [low, high] = spec_.interval(part);
    if (low <= -KernelSpec::kFar || high >= KernelSpec::kFar) return {};
    // Of all that go round to the same place, the nearest.
    const int64_t middle = low + (high - low) / 2;
    const int64_t turns = goes_round ? (middle - (middle % extent + extent) % extent) : 0;
    low -= turns, high -= turns;
    const int64_t first = -extent;
    if (low < first || high >= 2 * extent || (low >= 0 && high < extent)) return {};
    const Id at = a_.axis("xh_border_of_" + std::to_string(extent));
    const Id place = a_.add(at, a_.integer(first));
    Id now = substitute(a_, index, {{part, a_.add(at, a_.integer(first + turns))}});
    if (a_[now].free_axes().size() != 1 || a_[now].free_axes()[0] != at) return {};
    bool stops = true;
    for (int64_t p = std::min<int64_t>(low, 0); p <= std::max(high, extent - 1); ++p) {
      const int64_t read = evaluate_extent(a_, now, {}, {{at, p - first}});
      if (read < 0 || read >= extent || (p >= 0 && p < extent && read != p)) return {};
      stops = stops && read == std::clamp<int64_t>(p, 0, extent - 1);
    }
    // max(i - 1, 0) and min(i + 1, N - 1) stop at both ends, of which they reach one: one copy serves both.
    if (stops) now = a_.apply(Op::clamp, std::vector<Id>{place, a_.integer(0), a_.integer(extent - 1)});
    spec_.axes.emplace(at, SpecAxis{.extent = 3 * extent, .tile = 3 * extent});
    return Bent{tidy_index(a_, a_.sub(part, a_.integer(turns))), {at, now, first}};
  }

  KernelSpec& spec_;
  Arena& a_;
  std::map<std::vector<Bend>, size_t> numbers_;
};

bool is_choice_of_places(Op op) { return op == Op::mod || op == Op::abs || op == Op::select; }

// f(p) == p + f(first) - first for all places of the run? Of remainders the rules of indices say so, else each place is tried.
bool is_straight(Arena& a, Id f, Id at, int64_t first, int64_t last) {
  const int64_t shift = evaluate_extent(a, f, {}, {{at, first}}) - first;
  const AxisRange run{at, a.integer(first), a.integer(last + 1)};
  if (fusion::simplified_index(a, f, {&run, 1}) == fusion::simplified_index(a, a.add(at, a.integer(shift)), {&run, 1})) return true;
  if (last - first > kLongestRow) return false;
  for (int64_t p = first; p <= last; ++p)
    if (evaluate_extent(a, f, {}, {{at, p}}) != p + shift) return false;
  return true;
}

// The longest run of a function of places low..high, whose runs lie side by side.
std::optional<StraightRun> longest_run(Arena& a, Id f, Id at, int64_t low, int64_t high) {
  constexpr int kMostRuns = 8;
  auto shift_at = [&](int64_t p) { return evaluate_extent(a, f, {}, {{at, p}}) - p; };
  StraightRun best{kNone, 0, 0, -1};
  int runs = 0;
  for (int64_t first = low; first <= high; ++runs) {
    if (runs == kMostRuns) return {};
    const int64_t shift = shift_at(first);
    int64_t last = first, step = 1;
    for (; step <= high - last && shift_at(last + step) == shift; step *= 2) last += step;
    for (; step > 0; step /= 2)
      if (step <= high - last && shift_at(last + step) == shift) last += step;
    if (last - first > best.last - best.first) best = {kNone, shift, first, last};
    first = last + 1;
  }
  const bool most = best.last - best.first >= (high - low) / 2;
  return most && is_straight(a, f, at, best.first, best.last) ? std::optional(best) : std::nullopt;
}

}  // namespace

std::optional<StraightRun> straight_run(const KernelSpec& spec, Id index) {
  Arena& a = *spec.arena;
  const std::vector<Id> all = reachable(a, index);
  auto is_none = [&](Id id) { return is_read(a[id].op) || is_reduction(a[id].op) || is_float(a[id].type) || a[id].op == Op::dim; };
  if (std::ranges::any_of(all, is_none)) return {};
  // What the index may be a function of: its only axis, or what one of its choices is made of.
  std::vector<Id> parts;
  bool bends = false;
  for (Id id : all) {
    if (is_choice_of_places(a[id].op)) bends = true;
    if (a[id].op == Op::mod || a[id].op == Op::abs) parts.push_back(a[id].arg(0));
  }
  if (!bends) return {};
  if (a[index].free_axes().size() == 1) parts.insert(parts.begin(), a[index].free_axes()[0]);
  for (Id part : parts) {
    if (a[part].free_axes().empty()) continue;
    const auto [low, high] = spec.interval(part);
    if (low <= -KernelSpec::kFar || high >= KernelSpec::kFar) continue;
    const Id at = a.axis("xh_run");
    const Id f = substitute(a, index, {{part, at}});
    if (a[f].free_axes().size() != 1 || a[f].free_axes()[0] != at) continue;
    try {
      if (auto run = longest_run(a, f, at, low, high)) {
        run->part = part;
        return run;
      }
    } catch (const Error&) {
      return {};  // beyond 64 bits
    }
  }
  return {};
}

Borders take_borders(KernelSpec& spec) {
  Finder finder(spec);
  if (spec.any_size()) return {};
  for (SpecMember& m : spec.members) {
    if (m.op == Op::constant || m.op == Op::argmax || m.op == Op::argmin || !m.scatter.empty()) continue;
    for (Id* root : {&m.body, &m.condition}) *root = rewrite(*spec.arena, *root, [&](Id id) { return finder.with_border(id); });
  }
  return std::move(finder.borders);
}

}  // namespace xhat::runtime
