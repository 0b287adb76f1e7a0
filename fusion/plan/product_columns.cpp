#include "fusion/plan/product_columns.h"

#include "expr/core/permuted.h"
#include "fusion/plan/kernel_draft.h"

namespace xhat {
namespace {

constexpr double kClearly = 0.95;  // as in exact_plan.cpp
constexpr size_t kMostProducts = 4;

struct Price {
  double bytes = 0;
  int sweeps = 0;
  bool clearly_below(const Price& other) const { return bytes < kClearly * other.bytes && sweeps <= other.sweeps; }
};

Price price_of(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  const KernelPlan plan = plan_kernels(p, sizes, request);
  Price price{0, plan.sweeps()};
  for (const Kernel& k : plan.kernels) price.bytes += static_cast<double>(k.bytes_priced());
  return price;
}

// A sum that reads it beside what lies as it does now would stride along one of the two; maps turn what they read in registers.
bool beside_what_stays(const Program& p, TensorId t, const fusion::Shape::Product& product) {
  const Arena& a = *p.arena;
  auto sums_beside = [&](const Definition& d) {
    if (!is_reduction(a[d.body].op)) return false;
    const std::vector<Id> all = reachable(a, d.body);
    auto walks_both = [&](Id other, Id rows, Id columns) {
      const Node& n = a[other];
      const auto& axes = n.free_axes();
      return is_read(n.op) && n.symbol != t && std::ranges::binary_search(axes, rows) && std::ranges::binary_search(axes, columns);
    };
    return std::ranges::any_of(all, [&](Id id) {
      const Node& n = a[id];
      if (!is_read(n.op) || n.symbol != t) return false;
      const Id rows = n.arg(product.rows), columns = n.arg(product.columns);
      return rows != columns && std::ranges::any_of(all, [&](Id other) { return walks_both(other, rows, columns); });
    });
  };
  return std::ranges::any_of(p.forward.definitions, sums_beside);
}

}  // namespace

Program columns_by_price(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  if (request.options.policy != FusePolicy::full || !request.machine.tiles_in_order) return p;
  std::map<TensorId, Permutation> turned;
  for (const auto& [t, product] : fusion::Planner(p, sizes, request).products()) {
    if (has_tensor(p.outputs, t) || has_tensor(request.alone, t) || beside_what_stays(p, t, product)) continue;
    Permutation order = unpermuted(p.tensor(t).shape.size());
    std::swap(order[product.rows], order[product.columns]);
    turned[t] = std::move(order);
  }
  if (turned.empty() || turned.size() > kMostProducts) return p;
  Program best = p;
  Price least = price_of(p, sizes, request);
  for (const auto& [t, order] : turned) {
    Program other = with_permuted_axes(best, {{t, order}});
    const Price price = price_of(other, sizes, request);
    if (!price.clearly_below(least)) continue;
    least = price;
    best = std::move(other);
  }
  return best;
}

}  // namespace xhat
