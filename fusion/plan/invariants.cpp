#include "fusion/plan/invariants.h"

#include <algorithm>
#include <unordered_map>

#include "cse/normalize/auto_inliner.h"
#include "expr/index/hull.h"
#include "expr/index/simplify_index.h"
#include "fusion/relations/scatter.h"

namespace xhat {
namespace {

constexpr double kOften = 8;  // times that a value is used: with fewer the table is not small beside what is computed
// Of an element whose place moves by steps along vectors, p[j/2]: lanes are loaded one by one.
constexpr int64_t kGather_ps = 100;

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
      for (size_t i = 0; i < indices.size(); ++i) {
        const Id index = indices[i];
        if (!std::ranges::all_of(a_[index].free_axes(), [&](Id x) { return extents_.contains(x); })) return false;
        const auto box = Hull(a_, table_ranges_).box({index, index, a_.add(a_.to(DType::i64, index), a_.integer(1))});
        if (!box || number(box->begin) < 0 || number(box->end) > number(p_.tensor(n.symbol).shape[i])) return false;
      }
      return true;
    });
  }

  // Of evaluating it once, with what is not loaded side by side.
  int64_t cost_of(Id root) const {
    int64_t cost = evaluation_cost_ps(a_, root);
    for (Id id : reachable(a_, root)) {
      const Node& n = a_[id];
      if (!is_read(n.op) || read_indices(n).empty()) continue;
      const Id last = read_indices(n).back();
      if (a_[last].depends_on(along_) && fusion::divides(a_, last)) cost += kGather_ps;
    }
    return cost;
  }

  bool worth_a_table(Id id) const {
    const Node& n = a_[id];
    if ((n.type != DType::f32 && n.type != DType::f64) || n.free_axes().empty() || !n.depends_on(along_))
      return false;
    if (!std::ranges::all_of(n.free_axes(), [&](Id x) { return extents_.contains(x); })) return false;
    const double table = points(n.free_axes());
    if (table * kOften > all_) return false;
    const int64_t cost = cost_of(id);
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

  // The axes of a part, in the order in which the tensor has them that is read along the most.
  std::vector<Id> as_they_lie(Id part, const std::vector<AxisRange>& axes) const {
    std::vector<Id> lie, order;
    for (Id id : reachable(a_, part)) {
      const Node& n = a_[id];
      if (!is_read(n.op)) continue;
      std::vector<Id> own;
      for (Id index : read_indices(n))
        if (a_[index].op == Op::axis && std::ranges::find(own, index) == own.end()) own.push_back(index);
      if (own.size() > lie.size()) lie = own;
    }
    for (const AxisRange& r : axes)
      if (a_[part].depends_on(r.axis) && std::ranges::find(lie, r.axis) == lie.end()) order.push_back(r.axis);
    order.insert(order.end(), lie.begin(), lie.end());
    return order;
  }

  Definition without(const Definition& d, std::vector<Definition>* all) {
    if (as_scatter(a_, d)) return d;  // each update is computed once, for the place that it falls on
    const Node root = a_[d.body];
    std::vector<AxisRange> axes = d.axes;
    if (is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    extents_.clear();
    table_ranges_.clear();
    all_ = 1;
    Ranges ranges;
    AxisValues middle;
    for (const AxisRange& r : axes) ranges[r.axis] = r;
    for (AxisRange r : axes) {
      // Of a window, i in max(0,h-2)..min(h+1,H), all places that it has anywhere.
      const int64_t begin = evaluate_extent(a_, r.begin, sizes_, middle);
      const int64_t points = std::max<int64_t>(0, evaluate_extent(a_, r.end, sizes_, middle) - begin);
      middle[r.axis] = begin + points / 2;
      all_ *= static_cast<double>(points);
      const std::optional<AxisRange> box = range_is_plain(a_, r) ? r : Hull(a_, ranges).box(r);
      if (!box || number(box->begin) < 0) continue;
      extents_[r.axis] = std::max<int64_t>(0, number(box->end));
      table_ranges_[r.axis] = {r.axis, a_.integer(0), a_.integer(extents_[r.axis])};
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
      for (Id axis : as_they_lie(id, axes)) {
        const AxisRange r = *std::ranges::find(axes, axis, &AxisRange::axis);
        table.axes.push_back(range_is_plain(a_, r) ? r : table_ranges_.at(r.axis));
        shape.push_back(table.axes.back().end);
        indices.push_back(r.axis);
      }
      // Another definition may have the same.
      auto made = std::ranges::find_if(made_, [&](const Definition& m) { return m.body == id && m.axes == table.axes; });
      if (made == made_.end()) {
        table.targets = {p_.add_tensor(p_.tensor(d.target()).name + "_each", a_[id].type, shape)};
        table.body = id;
        all->push_back(table);
        made = made_.insert(made_.end(), table);
      }
      tables[id] = a_.read(made->target(), a_[id].type, indices);
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
  std::unordered_map<Id, int64_t> extents_;  // of the definition's axes, as far as a table would have them
  Ranges table_ranges_;                      // the same, as ranges
  double all_ = 1;                           // points of the definition
  double pass_ = 0;                          // what the sweep that a table may need costs, in picoseconds
  std::vector<Definition> made_;             // the tables
  Id along_ = kNone;                         // the fastest of its axes
};

}  // namespace

Program invariants_apart(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Invariants(p, sizes, request.machine).run() : p;
}

}  // namespace xhat
