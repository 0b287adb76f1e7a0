#include "fusion/plan/product_columns.h"

#include "expr/core/permuted.h"
#include "fusion/plan/kernel_draft.h"

namespace xhat {
namespace {

constexpr size_t kMostProducts = 4;

using Orders = std::map<TensorId, Permutation>;  // of products: how they lie when they are turned

struct Price {
  double bytes = 0;
  int sweeps = 0;
  bool clearly_below(const Price& other) const { return bytes < fusion::kClearlyCheaper * other.bytes && sweeps <= other.sweeps; }
};

// A reduction reads `products` in vectors along its result's last axis, or along its terms. Where they lie along neither, it reads them element by
// element, a load and an insertion for each: as much as to move them twice. (Maps turn what they read in registers.)
double bytes_across(const Program& p, const Orders& products, const DimValues& sizes) {
  const Arena& a = *p.arena;
  double bytes = 0;
  for (const Definition& d : p.forward.definitions) {
    if (d.axes.empty() || !is_reduction(a[d.body].op)) continue;
    const std::vector<AxisRange> terms = reduce_axes(a[d.body]);
    auto moves = [&](Id index, const AxisRange& r) { return a[index].depends_on(r.axis); };
    double points = 1;
    for (const std::vector<AxisRange>& axes : {d.axes, terms})
      for (const AxisRange& r : axes) points *= range_is_plain(a, r) ? static_cast<double>(evaluate_extent(a, r.end, sizes)) : 1;
    for (Id id : reachable(a, d.body)) {
      const Node& n = a[id];
      if (!is_read(n.op) || !products.contains(n.symbol) || !moves(id, d.axes.back())) continue;
      const Id last = n.args().back();
      const bool in_vectors = moves(last, d.axes.back()) || std::ranges::any_of(terms, [&](const AxisRange& r) { return moves(last, r); });
      if (!in_vectors) bytes += 2 * points * byte_size(n.type);
    }
  }
  return bytes;
}

// Without what products pack: turned, they pack the other operand instead, of which only a measurement could say whether that is less work (a
// convolution whose columns are pixels packs next to nothing, and results that are maps would be turned back).
Price price_of(const Program& p, const Orders& products, const DimValues& sizes, const PlanRequest& request) {
  const KernelPlan plan = plan_kernels(p, sizes, request);
  Price price{bytes_across(p, products, sizes), plan.sweeps()};
  for (const Kernel& k : plan.kernels) price.bytes += static_cast<double>(k.bytes_priced() - k.bytes_packed);
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
      return is_read(n.op) && n.symbol != t && a[other].depends_on(rows) && a[other].depends_on(columns);
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
  Orders turned;
  for (const auto& [t, product] : fusion::Planner(p, sizes, request).products()) {
    if (has_tensor(p.outputs, t) || has_tensor(request.alone, t) || beside_what_stays(p, t, product)) continue;
    Permutation order = unpermuted(p.tensor(t).shape.size());
    std::swap(order[product.rows], order[product.columns]);
    turned[t] = std::move(order);
  }
  if (turned.empty() || turned.size() > kMostProducts) return p;
  Program best = p;
  Price least = price_of(p, turned, sizes, request);
  for (const auto& [t, order] : turned) {
    Program other = with_permuted_axes(best, {{t, order}});
    const Price price = price_of(other, turned, sizes, request);
    if (!price.clearly_below(least)) continue;
    least = price;
    best = std::move(other);
  }
  return best;
}

}  // namespace xhat
