#include "fusion/plan/invariants.h"

#include <algorithm>
#include <unordered_map>

#include "cse/normalize/auto_inliner.h"
#include "fusion/relations/scatter.h"

namespace xhat {
namespace {

constexpr double kOften = 8;  // times that a value is used: with fewer the table is not small beside what is computed

class Invariants {
 public:
  Invariants(const Program& p, const DimValues& sizes, const MachineModel& machine)
      : p_(p), a_(*p.arena), sizes_(sizes), pass_(static_cast<double>(machine.pass_ps)) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions)) all.push_back(d.is_call() ? d : without(d, &all));
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }

  double points(std::span<const Id> axes) const {
    double n = 1;
    for (Id x : axes) n *= static_cast<double>(extents_.at(x));
    return n;
  }

  // Can it be computed at all points of its axes? So it reads nothing, or elements of which each is there.
  bool is_everywhere(Id root) const {
    const std::vector<Id> parts = reachable(a_, root);
    return std::ranges::all_of(parts, [&](Id id) {
      const Node& n = a_[id];
      if (is_reduction(n.op) || n.op == Op::random || n.op == Op::stop_gradient) return false;
      if (n.op == Op::axis) return extents_.contains(id);
      if (!is_read(n.op)) return true;
      const auto indices = read_indices(n);
      for (size_t i = 0; i < indices.size(); ++i)
        if (!extents_.contains(indices[i]) || extents_.at(indices[i]) > number(p_.tensor(n.symbol).shape[i])) return false;
      return true;
    });
  }

  bool worth_a_table(Id id) const {
    const Node& n = a_[id];
    if ((n.type != DType::f32 && n.type != DType::f64) || n.free_axes().empty() || !std::ranges::binary_search(n.free_axes(), along_))
      return false;
    if (!std::ranges::all_of(n.free_axes(), [&](Id x) { return extents_.contains(x); })) return false;
    const double table = points(n.free_axes());
    if (table * kOften > all_) return false;
    const int64_t cost = evaluation_cost_ps(a_, id);
    return cost > kCheap_ps && static_cast<double>(cost - kReadAgain_ps) * all_ > static_cast<double>(cost + kKept_ps) * table + pass_ &&
           is_everywhere(id);
  }

  // The axis that vectors run along: the last index of what is read at the most places.
  Id fastest(Id body, Id last) const {
    double most = 0;
    for (Id id : reachable(a_, body)) {
      const Node& n = a_[id];
      if (!is_read(n.op) || read_indices(n).empty()) continue;
      const Id index = read_indices(n).back();
      double places = 1;
      for (Id x : n.free_axes())
        if (auto at = extents_.find(x); at != extents_.end()) places *= static_cast<double>(at->second);
      if (places > most && extents_.contains(index)) most = places, last = index;
    }
    return last;
  }

  Definition without(const Definition& d, std::vector<Definition>* all) {
    if (as_scatter(a_, d)) return d;  // each update is computed once, for the place that it falls on
    const Node root = a_[d.body];
    std::vector<AxisRange> axes = d.axes;
    if (is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    extents_.clear();
    all_ = 1;
    for (const AxisRange& r : axes) {
      if (!range_is_plain(a_, r)) continue;  // what depends on another is no table
      extents_[r.axis] = std::max<int64_t>(0, number(r.end));
      all_ *= static_cast<double>(extents_[r.axis]);
    }
    if (axes.empty() || all_ == 0) return d;
    along_ = fastest(d.body, axes.back().axis);
    // The largest such parts, from the root down.
    std::vector<Id> stack = {d.body}, found;
    std::vector<bool> seen(a_.size(), false);
    while (!stack.empty()) {
      const Id id = stack.back();
      stack.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      if (worth_a_table(id)) {
        found.push_back(id);
        continue;
      }
      if (a_[id].op == Op::stop_gradient) continue;  // what decides has the same bits everywhere (settled_bits.h)
      for (Id x : a_[id].args()) stack.push_back(x);
    }
    if (found.empty()) return d;
    Replacements tables;
    for (Id id : found) {
      Definition table = d;
      table.axes.clear();
      std::vector<Id> shape, indices;
      for (const AxisRange& r : axes)
        if (std::ranges::binary_search(a_[id].free_axes(), r.axis)) {
          table.axes.push_back(r);
          shape.push_back(r.end);
          indices.push_back(r.axis);
        }
      table.targets = {p_.add_tensor(p_.tensor(d.target()).name + "_each", a_[id].type, shape)};
      table.body = id;
      all->push_back(table);
      tables[id] = a_.read(table.target(), a_[id].type, indices);
    }
    Definition rest = d;
    if (is_reduction(root.op))  // its axes stay what the tables are read at
      rest.body =
          a_.reduce(root.op, reduce_axes(root), substitute(a_, reduce_condition(root), tables), substitute(a_, reduce_body(root), tables));
    else
      rest.body = substitute(a_, d.body, tables);
    return rest;
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  std::unordered_map<Id, int64_t> extents_;  // of the definition's axes with plain ranges
  double all_ = 1;                           // points of all these
  double pass_ = 0;                          // what the sweep that a table may need costs, in picoseconds
  Id along_ = kNone;                         // the fastest of its axes
};

}  // namespace

Program invariants_apart(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Invariants(p, sizes, request.machine).run() : p;
}

}  // namespace xhat
