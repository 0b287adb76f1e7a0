#include "fusion/plan/invariants.h"

#include <algorithm>
#include <unordered_map>

#include "cse/normalize/auto_inliner.h"
#include "cse/normalize/checked_index.h"
#include "expr/index/affine.h"
#include "expr/index/hull.h"
#include "expr/index/simplify_index.h"
#include "fusion/relations/scatter.h"

namespace xhat {
namespace {

constexpr double kOften = 8;  // times that a value is used: with fewer the table is not small beside what is computed
// Of an element whose place moves by steps along vectors, p[j/2]: lanes are loaded one by one.
constexpr int64_t kGather_ps = 100;

// What of a part's axes its value depends on: an axis, or an integer made of axes or of data (h-i, ids[n,k]), from low on.
struct Place {
  Id value;
  int64_t low, count;
};

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

  bool has_extents(Id value) const {
    return std::ranges::all_of(a_[value].free_axes(), [&](Id x) { return extents_.contains(x); });
  }

  static double points(const std::vector<Place>& places) {
    double n = 1;
    for (const Place& p : places) n *= static_cast<double>(p.count);
    return n;
  }

  // Can it be computed at all points of these ranges? So it reads nothing, or elements of which each is there.
  bool is_everywhere(Id root, const Ranges& ranges) const {
    const std::vector<Id> parts = reachable(a_, root);
    return std::ranges::all_of(parts, [&](Id id) {
      const Node& n = a_[id];
      if (is_reduction(n.op) || n.op == Op::random || n.op == Op::stop_gradient) return false;
      if (n.op == Op::axis) return ranges.contains(id);
      if (!is_read(n.op)) return true;
      const auto indices = read_indices(n);
      for (size_t i = 0; i < indices.size(); ++i) {
        const Id index = indices[i];
        if (!std::ranges::all_of(a_[index].free_axes(), [&](Id x) { return ranges.contains(x); })) return false;
        const auto box = Hull(a_, ranges).box({index, index, a_.add(a_.to(DType::i64, index), a_.integer(1))});
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

  // The values that an integer in a part takes: by the ranges of its axes, and by the tensors of which it is an index at every point.
  std::optional<Place> place_of(Id part, Id value) {
    if (a_[value].op == Op::axis) return Place{value, 0, extents_.at(value)};
    int64_t low = 0, end = -1;
    const Id wide = a_.to(DType::i64, value);
    if (const auto box = Hull(a_, ranges_).box({value, wide, a_.add(wide, a_.integer(1))}))
      low = number(box->begin), end = number(box->end);
    const auto when = conditions_on_paths(a_, part);
    for (Id id : reachable(a_, part)) {
      const Node& n = a_[id];
      if (n.op != Op::read || !is_true(a_, when.at(id))) continue;
      for (size_t i = 0; i < n.arg_count; ++i) {
        if (n.arg(i) != value) continue;
        const int64_t extent = number(p_.tensor(n.symbol).shape[i]);
        if (end < 0 || low < 0) low = 0;
        end = end < 0 ? extent : std::min(end, extent);
      }
    }
    if (end < 0) return std::nullopt;
    return Place{value, low, std::max<int64_t>(0, end - low)};
  }

  // The fewest places that a part's value depends on, as integers or as the axes that they are made of. None: not bounded.
  std::optional<std::vector<Place>> places_of(Id part) {
    std::vector<Id> integers, axes;
    std::vector<Id> stack = {part};
    std::vector<bool> seen(a_.size(), false);
    while (!stack.empty()) {
      const Id id = stack.back();
      stack.pop_back();
      if (seen[id] || a_[id].free_axes().empty()) continue;
      seen[id] = true;
      if (a_[id].op == Op::axis)
        axes.push_back(id);
      else if (is_integer(a_[id].type) && !out_of_reach(a_, id))  // of squares and the like Halide's bounds know nothing
        integers.push_back(id);
      else
        for (Id x : a_[id].args())
          if (x != kNone) stack.push_back(x);
    }
    std::vector<Place> places;
    for (Id value : integers) {
      const bool of_data = !tensors_read(a_, value).empty();
      const std::optional<Place> place = place_of(part, value);
      if (!place && of_data) return std::nullopt;
      double apart = 1;
      for (Id x : a_[value].free_axes())
        if (std::ranges::find(axes, x) == axes.end()) apart *= static_cast<double>(extents_.at(x));
      if (place && (of_data || static_cast<double>(place->count) < apart))
        places.push_back(*place);
      else
        for (Id x : a_[value].free_axes())
          if (std::ranges::find(axes, x) == axes.end()) axes.push_back(x);
    }
    std::erase_if(places, [&](const Place& p) {
      return tensors_read(a_, p.value).empty() &&
             std::ranges::all_of(a_[p.value].free_axes(), [&](Id x) { return std::ranges::find(axes, x) != axes.end(); });
    });
    for (Id x : axes) places.push_back(*place_of(part, x));
    return places;
  }

  // A part as a table: its definition's axes and body, and where it is read.
  struct Table {
    Definition made;
    std::vector<Id> shape, indices;
  };

  std::optional<Table> worth_a_table(Id id, const std::vector<AxisRange>& axes) {
    const Node& n = a_[id];
    if ((n.type != DType::f32 && n.type != DType::f64) || n.free_axes().empty() || !n.depends_on(along_) || !has_extents(id)) return {};
    int64_t cost = cost_of(id);
    if (cost <= kCheap_ps) return {};
    const auto places = places_of(id);
    if (!places) return {};
    for (const Place& p : *places) cost -= evaluation_cost_ps(a_, p.value);  // which stays
    if (cost <= kCheap_ps) return {};
    const double table = points(*places);
    if (table == 0 || table * kOften > all_ ||
        static_cast<double>(cost - kReadAgain_ps) * all_ <= static_cast<double>(cost + kKept_ps) * table + pass_)
      return {};
    Table t = table_of(id, *places, axes);
    Ranges ranges;
    for (const AxisRange& r : t.made.axes) ranges[r.axis] = {r.axis, a_.integer(0), a_.integer(number(r.end))};
    if (!is_everywhere(t.made.body, ranges)) return {};
    return t;
  }

  // A product with those factors beside each other that one table holds: (g * exp(p)) * cos(p*c) as g * (exp(p) * cos(p*c)).
  Id with_factors_together(Id product, const std::vector<AxisRange>& axes) {
    const std::vector<Id> factors = operands_of(a_, product, Op::mul);
    if (factors.size() < 3) return product;
    std::optional<std::vector<Place>> most;
    for (Id x : factors)
      if (worth_a_table(x, axes))
        if (auto places = places_of(x); places && (!most || points(*places) > points(*most))) most = std::move(places);
    if (!most) return product;
    Id held = kNone, rest = kNone;
    for (Id x : factors) {
      const auto places = has_extents(x) ? places_of(x) : std::nullopt;
      const bool inside = places && !places->empty() && std::ranges::all_of(*places, [&](const Place& p) {
                            return std::ranges::find(*most, p.value, &Place::value) != most->end();
                          });
      Id& part = inside ? held : rest;
      part = part == kNone ? x : a_.mul(part, x);
    }
    return rest == kNone ? product : a_.mul(rest, held);
  }

  Table table_of(Id id, const std::vector<Place>& places, const std::vector<AxisRange>& axes) {
    Table t;
    Replacements by_place;
    std::vector<Id> taken;
    for (const AxisRange& r : axes) taken.push_back(r.axis);
    for (Id value : as_they_lie(id, places, axes)) {
      const Place& place = *std::ranges::find(places, value, &Place::value);
      if (a_[value].op == Op::axis) {
        const AxisRange r = *std::ranges::find(axes, value, &AxisRange::axis);
        t.made.axes.push_back(range_is_plain(a_, r) ? r : table_ranges_.at(r.axis));
        t.indices.push_back(value);
      } else {
        const Id fresh = a_.fresh_axis(a_[value].free_axes().front(), taken);
        taken.push_back(fresh);
        t.made.axes.push_back({fresh, a_.integer(0), a_.integer(place.count)});
        by_place[value] = a_.to(a_[value].type, moved(fresh, place.low));
        t.indices.push_back(moved(a_.to(DType::i64, value), -place.low));
      }
      t.shape.push_back(t.made.axes.back().end);
    }
    // A place counted by an axis is an index as it is.
    t.made.body = rewrite(a_, substitute(a_, id, by_place), [&](Id part) {
      const Node n = a_[part];
      if (!is_read(n.op)) return part;
      std::vector<Id> args(n.args().begin(), n.args().end());
      for (size_t i = 0; i < read_indices(n).size(); ++i)
        if (a_[args[i]].op == Op::cast && a_[a_[args[i]].arg(0)].type == DType::i64) args[i] = a_[args[i]].arg(0);
      return a_.with_args(part, args);
    });
    return t;
  }

  Id moved(Id place, int64_t by) const { return by == 0 ? place : by > 0 ? a_.add(place, a_.integer(by)) : a_.sub(place, a_.integer(-by)); }

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

  // The places of a part, in the order in which the tensor has them that is read along the most; those that vectors run along last.
  std::vector<Id> as_they_lie(Id part, const std::vector<Place>& places, const std::vector<AxisRange>& axes) const {
    const auto has = [&](Id index) { return std::ranges::find(places, index, &Place::value) != places.end(); };
    std::vector<Id> lie, order;
    for (Id id : reachable(a_, part)) {
      const Node& n = a_[id];
      if (!is_read(n.op)) continue;
      std::vector<Id> own;
      for (Id index : read_indices(n))
        if (has(index) && std::ranges::find(own, index) == own.end()) own.push_back(index);
      if (own.size() > lie.size()) lie = own;
    }
    const auto add = [&](Id value) {
      if (has(value) && std::ranges::find(lie, value) == lie.end() && std::ranges::find(order, value) == order.end())
        order.push_back(value);
    };
    for (bool along : {false, true})
      for (const AxisRange& r : axes)
        for (const Place& p : places)
          if (a_[p.value].depends_on(r.axis) && (p.value == r.axis || a_[p.value].depends_on(along_) == along)) add(p.value);
    order.insert(order.end(), lie.begin(), lie.end());
    return order;
  }

  Definition without(const Definition& d, std::vector<Definition>* all) {
    const Node root = a_[d.body];
    std::vector<AxisRange> axes = d.axes;
    if (is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    extents_.clear();
    table_ranges_.clear();
    ranges_.clear();
    all_ = 1;
    // An update of a scatter is computed once, for the place that it falls on.
    const std::optional<Scatter> scatter = as_scatter(a_, d);
    AxisValues middle;
    for (const AxisRange& r : axes) ranges_[r.axis] = r;
    for (AxisRange r : axes) {
      // Of a window, i in max(0,h-2)..min(h+1,H), all places that it has anywhere.
      const int64_t begin = evaluate_extent(a_, r.begin, sizes_, middle);
      const int64_t points = std::max<int64_t>(0, evaluate_extent(a_, r.end, sizes_, middle) - begin);
      middle[r.axis] = begin + points / 2;
      const auto is_it = [&](const auto& target) { return d.axes[target.first].axis == r.axis; };
      if (!scatter || std::ranges::none_of(scatter->targets, is_it)) all_ *= static_cast<double>(points);
      const std::optional<AxisRange> box = range_is_plain(a_, r) ? r : Hull(a_, ranges_).box(r);
      if (!box || number(box->begin) < 0) continue;
      extents_[r.axis] = std::max<int64_t>(0, number(box->end));
      table_ranges_[r.axis] = {r.axis, a_.integer(0), a_.integer(extents_[r.axis])};
    }
    if (axes.empty() || all_ == 0) return d;
    along_ = fastest(d.body, axes.back().axis);
    // Not where anything decides: that has the same bits everywhere (settled_bits.h), and so the same order of factors.
    const std::vector<Id> nodes = reachable(a_, d.body);
    const bool decides = std::ranges::any_of(nodes, [&](Id id) { return a_[id].op == Op::stop_gradient; });
    const auto together = [&](Id id) { return a_[id].op == Op::mul && is_float(a_[id].type) ? with_factors_together(id, axes) : id; };
    const Id body = decides ? d.body : rewrite(a_, d.body, together);
    // The largest such parts, from the root down.
    std::vector<Id> stack = {body};
    std::vector<bool> seen(a_.size(), false);
    Replacements tables;
    while (!stack.empty()) {
      const Id id = stack.back();
      stack.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      if (auto table = worth_a_table(id, axes)) {
        tables[id] = read_of(*table, d, all);
        continue;
      }
      if (a_[id].op == Op::stop_gradient) continue;  // what decides has the same bits everywhere (settled_bits.h)
      for (Id x : a_[id].args()) stack.push_back(x);
    }
    if (tables.empty()) return d;
    Definition rest = d;
    if (is_reduction(root.op))  // its axes stay what the tables are read at
      rest.body = a_.reduce(root.op, reduce_axes(root), substitute(a_, reduce_condition(a_[body]), tables),
                            substitute(a_, reduce_body(a_[body]), tables));
    else
      rest.body = substitute(a_, body, tables);
    return rest;
  }

  // Where d reads a table, which is made unless another definition has the same.
  Id read_of(Table& t, const Definition& d, std::vector<Definition>* all) {
    const DType type = a_[t.made.body].type;
    auto made = std::ranges::find_if(made_, [&](const Definition& m) { return m.body == t.made.body && m.axes == t.made.axes; });
    if (made == made_.end()) {
      t.made.derived = d.derived;
      t.made.pos = d.pos;
      t.made.targets = {p_.add_tensor(p_.tensor(d.target()).name + "_each", type, t.shape)};
      all->push_back(t.made);
      made = made_.insert(made_.end(), t.made);
    }
    return a_.read(made->target(), type, t.indices);
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  std::unordered_map<Id, int64_t> extents_;  // of the definition's axes, as far as a table would have them
  Ranges table_ranges_;                      // the same, as ranges
  Ranges ranges_;                            // of all its axes, as they are
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
