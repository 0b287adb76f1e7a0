// Along which axis the vectors of a member run.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/reduction_order.h"
#include "fusion/plan/vector_price.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {

Id Lowering::vector_axis(const std::vector<size_t>& group) const {
  const SpecMember& m = spec_.members[group[0]];
  Id written = m.left.empty() || axis(m.left.back()).kind() == AxisKind::point ? kNone : m.left.back();
  if (m.op == Op::constant) return written;
  const Arena& a = *spec_.arena;
  auto by_lanes = [&](size_t g) {
    const SpecMember& its = spec_.members[g];
    return its.op == Op::argmax || its.op == Op::argmin || combines_in_parts(its.op, accumulated(its));
  };
  const bool in_parts = std::ranges::all_of(group, by_lanes);
  std::vector<Id> candidates = in_parts ? m.reduced : std::vector<Id>{};
  // Of a sliding window, whose neighbours lie along both, vectors of results need no sum across a vector.
  const bool fills = written != kNone && (!constant(written) || axis(written).extent >= natural(widest(m)));
  if (written != kNone) candidates.insert(fills ? candidates.begin() : candidates.end(), written);
  std::erase_if(candidates, [&](Id x) {
    bool too_short = x != written && constant(x) && axis(x).extent < shortest_row(m);
    return axis(x).kind() == AxisKind::point || too_short;
  });
  // Of segments o[r] <= t < o[r+1], vectors along r would look at every place t; along t, blocks outside of a segment are passed over.
  if (vectors_ && candidates.size() > 1) std::erase_if(candidates, [&](Id x) { return bounds_by_data(group, x); });
  // A vector of a read that strides is one load per element, whatever it saves elsewhere; then what is read along memory counts. One that takes
  // every k-th element along memory is k vectors, and their shuffles.
  std::unordered_map<Id, double> score, strided;
  // Sums of the last axes, of a few results, that vectors along the terms have in registers: what all of them read is loaded once.
  constexpr int64_t kBesideEachOther = 64;
  std::vector<Id> beside;
  int64_t sums = 1;
  for (size_t d = m.left.size(); d-- > 0 && constant(m.left[d]) && sums * axis(m.left[d]).extent <= kBesideEachOther;) {
    beside.push_back(m.left[d]);
    sums *= axis(m.left[d]).extent;
  }
  auto shared_by = [&](const Node& read, Id along) {
    double all = 1;
    for (Id x : beside)
      if (x != along && !read.depends_on(x)) all *= static_cast<double>(axis(x).extent);
    return all;
  };
  std::vector<Id> roots;
  for (size_t g : group) roots.push_back(spec_.members[g].body);
  // A count reads what it counts in its condition.
  if (std::ranges::none_of(reachable(a, roots), [&](Id id) { return is_read(a[id].op) && !read_indices(a[id]).empty(); }))
    for (size_t g : group) roots.push_back(spec_.members[g].condition);
  for (Id id : reachable(a, roots)) {
    const Node& n = a[id];
    if (!is_read(n.op) || read_indices(n).empty()) continue;
    double points = 1;
    for (Id x : n.free_axes()) points *= static_cast<double>(axis(x).in_tile());
    const auto slower = read_indices(n).first(read_indices(n).size() - 1);
    for (Id x : candidates) {
      const bool row = std::ranges::none_of(slower, [&](Id index) { return a[index].depends_on(x); });
      int64_t step = std::abs(step_along(*spec_.arena, read_indices(n).back(), x).value_or(0));  // or turned over
      const int64_t in_memory = row || !vectors_ ? step : std::abs(step_in_memory(id, x).value_or(0));
      const bool across_short_rows = !row && in_memory > 1 && in_memory <= kDenseStep;
      if (across_short_rows) step = in_memory;
      if (step > 0 && step <= kDenseStep) score[x] += points / static_cast<double>(step);
      if (!n.depends_on(x) || (row && step == 1)) continue;
      const bool dense = (row && step > 1 && step <= kDenseStep) || across_short_rows;
      strided[x] += (dense ? std::min(1.0, static_cast<double>(step) / natural(n.type)) : 1) / (x == written ? 1 : shared_by(n, x));
    }
  }
  // Beside what is folded up at the end of each row, a few vectors of terms are little (16 taps of a filter, their weights in one vector:
  // 12 times as long as with results along the vectors).
  constexpr int64_t kWorthFolding = 4;
  auto folds_few = [&](Id x) { return x != written && constant(x) && axis(x).extent < kWorthFolding * natural(widest(m)); };
  // Along a short axis most lanes idle, as along d of sum(j: c[i,j]*x[j,d]) in space: what a term costs then decides.
  double term = 0;
  for (Id root : roots) term += static_cast<double>(evaluation_cost_ps(a, root)) / static_cast<double>(info(Op::add).cost_ps);
  auto lanes = [&](Id x) {
    const int64_t all = natural(widest(m));
    return lanes_filled(constant(x) ? axis(x).extent : all, all);
  };
  // Of results that fill no vector, each term waits for the sum of those before it, if there are more than a processor looks ahead. Of few
  // terms, what it takes to fold a vector of sums counts.
  constexpr double kLatency = 4, kFold = 0.75;  // of an addition, and of each half of a vector, in additions
  const bool many = !std::ranges::all_of(m.reduced, [&](Id x) { return constant(x); }) || spec_.terms(m) > kFewTerms;
  auto price = [&](Id x) {
    const double of_term = vector_price(term, strided[x], lanes(x));
    if (x == written) return many && !fills ? std::max(of_term, kLatency / lanes(x)) : of_term;
    return many ? of_term : of_term + kFold * std::log2(lanes(x)) / static_cast<double>(std::max<int64_t>(1, spec_.terms(m)));
  };
  Id best = kNone;
  auto better = [&](Id x, Id than) {
    if (lanes(x) != lanes(than)) return price(x) < price(than);
    if (strided[x] != strided[than]) return strided[x] < strided[than];
    if (fills && x == written && folds_few(than)) return true;
    if (fills && than == written && folds_few(x)) return false;
    return score[x] > score[than];
  };
  for (Id x : candidates)
    if (score.contains(x) && (best == kNone || better(x, best))) best = x;
  const bool may_be_written = candidates.empty() || std::ranges::find(candidates, written) != candidates.end();
  if (best == kNone) best = written != kNone && may_be_written ? written : candidates.empty() ? kNone : candidates.back();
  return best;
}

}  // namespace xhat::runtime
