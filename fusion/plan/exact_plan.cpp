// The cheapest kernels of a short program: fewest bytes as priced, then fewest kernels; of a small one, whose bytes
// stay in cache, fewest kernels. Of a longer one, the cheapest that are runs of its definitions, as they stand or chain by chain.
//
// Kernels run one after the other, so a plan is a path from nothing computed to everything computed: a step computes some
// definitions that read nothing else than what is there and each other, in one kernel, if the template can. What a kernel
// costs depends on its members alone, so the cheapest way to what is computed is found once for each such set. Sets are
// bits; n definitions have at most 3^n steps and 2^n kernels.
#include <bit>
#include <numeric>
#include <ranges>

#include "fusion/plan/alike_runs.h"
#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {
namespace {

constexpr size_t kLongestRun = 12;  // definitions: attention's backward has 8, and what planning takes grows with it

std::vector<size_t> members_of(uint32_t set) {
  std::vector<size_t> members;
  for (size_t i = 0; set >> i; ++i)
    if (set >> i & 1) members.push_back(i);
  return members;
}

}  // namespace

// The axes of products' sums that tiles would take parts of are walked whole inside the tile. The kernel that the draft is then, if it was
// asked for.
std::optional<Kernel> Planner::make_products_whole(Draft& d) const {
  std::optional<Kernel> known;
  auto sums_over_tiles = [&](const Member& m) {
    return shape(m).product && std::ranges::any_of(m.reduced, [&](int c) { return d.walked(c); });
  };
  while (!small_ && std::ranges::any_of(d.members, sums_over_tiles)) {
    known = finished(d);
    if (!cuts_a_product(*known)) return known;
    for (const Member& m : d.members)
      for (int c : m.reduced)
        if (shape(m).product && known->leaves_partials(c)) d.shared[static_cast<size_t>(c)] = false;
    known.reset();
  }
  return known;
}

// Of a small program bytes cost nothing.
std::optional<PricedDraft> Planner::together(const std::vector<size_t>& definitions) const {
  std::vector<Draft> parts;  // that nothing has tied together yet
  std::string why;
  int64_t tiles = shared_tiles(start(definitions.front()));
  for (size_t i : definitions) {
    Draft own = start(i);
    tiles = std::min(tiles, shared_tiles(own));
    bool placed = false;
    std::vector<Draft> others;
    for (size_t k = parts.size(); k-- > 0;) {
      if (!worth(parts[k], shapes_[i])) {
        others.insert(others.begin(), std::move(parts[k]));
      } else {
        std::optional<Draft> both = placed ? merged(parts[k], own, &why) : join(parts[k], i, &why);
        if (!both) return std::nullopt;
        own = std::move(*both);
        placed = true;
      }
    }
    others.push_back(std::move(own));
    parts = std::move(others);
  }
  if (parts.size() > 1) return std::nullopt;
  std::optional<Kernel> known;
  if (definitions.size() > 1) {
    known = make_products_whole(parts[0]);
    if (!misfit(parts[0], tiles, why).empty()) return std::nullopt;
  }
  const Kernel kernel = known ? std::move(*known) : finished(parts[0]);
  if (definitions.size() > 1 && cuts_a_product(kernel)) return std::nullopt;
  if (small_) return PricedDraft{std::move(parts[0]), 0};
  if (definitions.size() > 1 && leaves_threads_idle(kernel, tiles)) return std::nullopt;
  return PricedDraft{std::move(parts[0]), kernel.bytes_priced()};
}

std::vector<std::vector<size_t>> Planner::cheapest_groups() const {
  const size_t n = shapes_.size();
  std::vector<uint32_t> needs(n, 0);
  for (size_t i = 0; i < n; ++i)
    for (const Definition* reader : uses_.readers(p_.forward.definitions[i].target()))
      needs[static_cast<size_t>(reader - p_.forward.definitions.data())] |= 1u << i;

  std::vector<std::optional<int64_t>> known(size_t{1} << n);  // what a kernel costs, in bytes
  auto price = [&](uint32_t set) {
    if (!known[set]) {
      auto kernel = together(members_of(set));
      known[set] = kernel ? kernel->bytes : INT64_MAX;
    }
    return *known[set];
  };

  struct Way {
    PlanCost cost = {INT64_MAX, INT64_MAX};
    uint32_t last = 0;  // kernel of the last step
  };
  const uint32_t all = (1u << n) - 1;
  std::vector<Way> ways(all + 1);
  ways[0].cost = {0, 0};
  for (uint32_t done = 0; done < all; ++done) {
    if (ways[done].cost.bytes == INT64_MAX) continue;
    const uint32_t rest = all & ~done;
    for (uint32_t next = rest; next > 0; next = (next - 1) & rest) {
      uint32_t missing = 0;
      for (size_t i = 0; i < n; ++i)
        if (next >> i & 1) missing |= needs[i] & ~(done | next);
      if (missing || price(next) == INT64_MAX) continue;
      PlanCost cost = {ways[done].cost.bytes + price(next), ways[done].cost.kernels + 1};
      if (cost < ways[done | next].cost) ways[done | next] = {cost, next};
    }
  }
  std::vector<std::vector<size_t>> groups;
  for (uint32_t set = all; set; set &= ~ways[set].last) groups.insert(groups.begin(), members_of(ways[set].last));
  return groups;
}

// What runs of definitions cost as one kernel, in bytes as priced; none if the template does not have it. Asked of one of those that are alike.
class Planner::Prices {
 public:
  Prices(const Planner& planner, AlikeRuns alike) : planner_(planner), alike_(std::move(alike)) {}

  std::optional<int64_t> of(const std::vector<size_t>& run) {
    auto [known, fresh] = bytes_.try_emplace(alike_.key(run), std::nullopt);
    if (!fresh) return known->second;
    if (const auto kernel = planner_.together(run)) known->second = kernel->bytes;
    return known->second;
  }

 private:
  const Planner& planner_;
  AlikeRuns alike_;
  std::map<std::vector<uint32_t>, std::optional<int64_t>> bytes_;
};

// The definitions, each result right behind what it needs and is not there yet: of two chains first one, then the other.
std::vector<size_t> Planner::chain_by_chain() const {
  const auto& definitions = p_.forward.definitions;
  std::map<TensorId, size_t> maker;
  for (size_t i = 0; i < definitions.size(); ++i) maker[definitions[i].target()] = i;
  std::vector<size_t> order;
  std::vector<bool> met(definitions.size());
  for (size_t result = 0; result < definitions.size(); ++result) {
    if (!has_tensor(p_.outputs, definitions[result].target())) continue;
    std::vector<std::pair<size_t, bool>> open = {{result, false}};
    while (!open.empty()) {
      const auto [i, complete] = open.back();
      open.pop_back();
      if (complete) order.push_back(i);
      if (complete || met[i]) continue;
      met[i] = true;
      open.emplace_back(i, true);
      for (Id read : std::ranges::reverse_view(shapes_[i].reads))
        if (auto at = maker.find((*p_.arena)[read].symbol); at != maker.end() && !met[at->second]) open.emplace_back(at->second, false);
    }
  }
  for (size_t i = 0; i < definitions.size(); ++i)
    if (!met[i]) order.push_back(i);
  return order;
}

// The cheapest kernels of a longer program that are runs of its definitions in an order in which they can be computed:
// of each prefix the cheapest way, by what its last kernel begins with.
std::vector<std::vector<size_t>> Planner::cheapest_runs(const std::vector<size_t>& order, Prices& prices) const {
  const size_t n = shapes_.size();
  std::vector<PlanCost> ways(n + 1, {INT64_MAX, INT64_MAX});
  std::vector<size_t> begins(n + 1, 0);
  ways[0] = {0, 0};
  auto run_of = [&](size_t begin, size_t end) {
    std::vector<size_t> run(order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end));
    std::ranges::sort(run);
    return run;
  };
  for (size_t end = 1; end <= n; ++end)
    for (size_t begin = end; begin-- > 0 && end - begin <= kLongestRun;) {
      const auto run_bytes = prices.of(run_of(begin, end));
      if (!run_bytes) continue;
      PlanCost cost = {ways[begin].bytes + *run_bytes, ways[begin].kernels + 1};
      if (cost < ways[end]) ways[end] = cost, begins[end] = begin;
    }
  std::vector<std::vector<size_t>> groups;
  for (size_t end = n; end > 0; end = begins[end]) groups.insert(groups.begin(), run_of(begins[end], end));
  return groups;
}

PlanCost Planner::cost(const std::vector<Draft>& drafts) const {
  PlanCost cost;
  for (const Draft& d : drafts)
    if (!d.members.empty()) cost = {cost.bytes + (small_ ? 0 : handled(d)), cost.kernels + 1};
  return cost;
}

// The plan that was found stays unless another one is clearly cheaper: figures within a few percent do not say which is
// faster (lstm_cell's backward was 1.3% fewer bytes in one kernel less, and took 1.6 ms instead of 0.9). Of a longer program the
// arithmetic counts, which is the same in all plans: where it takes most of the time, a plan is not looked for for the sake of bytes
// (sums over all pairs of 1,000 points took twice as long in the plan of 6% fewer bytes).
void Planner::improve(std::vector<Draft>& drafts, std::vector<std::string>& reasons, size_t exact_definitions) const {
  if (shapes_.size() < 2) return;
  const bool exact = shapes_.size() <= exact_definitions;
  const PlanCost found = cost(drafts);
  double work_ps = 0;
  if (!exact)
    for (const Shape& s : shapes_) work_ps += s.work_ps;
  auto clearly_cheaper = [&](int64_t bytes) {
    auto time_ps = [&](int64_t b) { return static_cast<double>(b * machine_.read_ps_per_byte) + work_ps; };
    return time_ps(bytes) <= kClearlyCheaper * time_ps(found.bytes);
  };
  if (!exact && (small_ || !clearly_cheaper(outside()))) return;  // nothing to gain
  auto drafts_of = [&](const std::vector<std::vector<size_t>>& groups) {
    std::vector<Draft> made;
    for (const auto& group : groups) made.push_back(together(group)->draft);
    return made;
  };
  std::vector<Draft> best;
  if (exact) {
    best = drafts_of(cheapest_groups());
  } else {
    Prices prices{*this, {p_, uses_, [this](Id e) { return extent(e); }, request_.alone}};
    std::vector<size_t> as_given(shapes_.size());
    std::iota(as_given.begin(), as_given.end(), 0);
    best = drafts_of(cheapest_runs(as_given, prices));
    if (const std::vector<size_t> order = chain_by_chain(); order != as_given)
      if (std::vector<Draft> other = drafts_of(cheapest_runs(order, prices)); cost(other) < cost(best)) best = std::move(other);
  }
  const PlanCost least = cost(best);
  if (small_ ? least.kernels >= found.kernels : !clearly_cheaper(least.bytes)) return;
  drafts = std::move(best);
  // One kernel is apart from nothing.
  reasons.assign(drafts.size(), drafts.size() > 1 ? "no other choice costs less" : "");
}

}  // namespace xhat::fusion
