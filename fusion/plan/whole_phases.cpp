#include "fusion/plan/whole_phases.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "expr/index/hull.h"
#include "expr/index/linear.h"

namespace xhat {
namespace {

constexpr int64_t kManyTerms = 2;    // beside which the copy of a result is little
constexpr int64_t kMostPhases = 8;   // as many as the kernel planner takes apart
constexpr int64_t kLeastPhases = 2;  // of places beyond the end, in whole results: they are a small part of the work

class WholePhases {
 public:
  WholePhases(const Program& p, const DimValues& sizes, const std::vector<TensorId>& alone)
      : p_(p), a_(*p.arena), sizes_(sizes), alone_(alone) {}

  Program run() {
    std::vector<Definition> all;
    for (Definition d : std::vector<Definition>(p_.forward.definitions)) {
      if (d.is_call()) {
        for (TensorId t : d.arguments) kept_.insert(t);
      } else {
        d.body = moved(d.body);
        if (std::optional<Definition> made = whole(d)) {
          all.push_back(*made);
          d.body = a_.read(made->target(), p_.tensor(d.target()).type, axes_of(d));
          wholes_[d.target()] = made->target();
        }
      }
      all.push_back(d);
    }
    // Copies that nobody reads.
    for (const std::vector<TensorId>* list : {&p_.outputs, &p_.gradients}) kept_.insert(list->begin(), list->end());
    std::erase_if(all, [&](const Definition& d) { return !d.is_call() && wholes_.contains(d.target()) && !kept_.contains(d.target()); });
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  static std::vector<Id> axes_of(const Definition& d) {
    std::vector<Id> axes;
    for (const AxisRange& r : d.axes) axes.push_back(r.axis);
    return axes;
  }

  // Reads of results that were made larger. Where the end of the tensor decides, it is read as it was.
  Id moved(Id body) {
    return rewrite(a_, body, [&](Id id) {
      const Node n = a_[id];
      auto it = is_read(n.op) ? wholes_.find(n.symbol) : wholes_.end();
      if (it == wholes_.end()) return id;
      if (n.op == Op::read) return a_.read(it->second, n.type, std::vector<Id>(n.args().begin(), n.args().end()));
      kept_.insert(n.symbol);
      return id;
    });
  }

  // A largest number of terms.
  int64_t terms(const Node& root, const Ranges& ranges) const {
    int64_t n = 1;
    for (const AxisRange& r : reduce_axes(root)) {
      const auto box = Hull(a_, ranges).box(r);
      if (!box) return 0;
      n *= std::max<int64_t>(0, evaluate_extent(a_, box->end, sizes_) - evaluate_extent(a_, box->begin, sizes_));
    }
    return n;
  }

  std::optional<Definition> whole(const Definition& d) {
    const Node root = a_[d.body];
    if (!is_reduction(root.op) || root.op == Op::argmax || root.op == Op::argmin || has_tensor(alone_, d.target())) return {};
    Definition made = d;
    std::vector<Id> shape = p_.tensor(d.target()).shape;
    std::map<Id, int64_t> longer;  // and their phases
    for (size_t i = 0; i < d.axes.size(); ++i) {
      AxisRange& r = made.axes[i];
      if (!range_is_plain(a_, r)) return {};
      const int64_t by = phases_along(a_, d.body, r.axis), extent = evaluate_extent(a_, r.end, sizes_),
                    more = by - 1 - (extent + by - 1) % by;
      if (more == 0 || extent < kLeastPhases * by || reorders_rows(root, r.axis)) continue;
      r.end = shape[i] = a_.integer(extent + more);
      longer[r.axis] = by;
    }
    if (longer.empty()) return {};
    Ranges ranges;
    for (const AxisRange& r : made.axes) ranges[r.axis] = r;
    for (Id id : reachable(a_, d.body))
      if (is_reduction(a_[id].op))
        for (const AxisRange& r : reduce_axes(a_[id])) ranges[r.axis] = r;
    if (terms(root, ranges) < kManyTerms) return {};
    bool of_data = false;  // places from data: checked for the points that there are
    made.body = rewrite(a_, d.body, [&](Id id) {
      const Node n = a_[id];
      if (!is_read(n.op) || std::ranges::none_of(longer, [&](const auto& x) { return a_[id].depends_on(x.first); })) return id;
      const std::vector<Id> at(read_indices(n).begin(), read_indices(n).end());
      of_data |= std::ranges::any_of(at, [&](Id index) { return !tensors_read(a_, index).empty(); });
      if (n.op == Op::read_or || inside(n.symbol, at, longer, ranges)) return id;
      return a_.read_or(n.symbol, n.type, at, a_.constant(n.type, 0));
    });
    if (of_data) return {};
    const Tensor result = p_.tensor(d.target());
    made.targets = {p_.add_tensor(result.name + "_whole", result.type, shape)};
    return made;
  }

  // Does the axis only choose the rows of one operand, the same for all terms, in an order of their own? A product copies them from where they
  // lie; phases would be no shorter.
  bool reorders_rows(const Node& root, Id axis) const {
    std::vector<Id> at;
    int reads = 0;
    for (Id id : reachable(a_, reduce_body(root)))
      if (is_read(a_[id].op) && a_[id].depends_on(axis)) {
        ++reads;
        for (Id index : read_indices(a_[id]))
          for (Id part : reachable(a_, index)) at.push_back(part);
      }
    const Id condition = reduce_condition(root);
    if (reads != 1 || (condition != kNone && a_[condition].depends_on(axis))) return false;
    const auto ranges = reduce_axes(root);
    if (std::ranges::any_of(ranges, [&](const AxisRange& r) { return a_[r.begin].depends_on(axis) || a_[r.end].depends_on(axis); }))
      return false;
    return std::ranges::none_of(reachable(a_, reduce_body(root)), [&](Id id) {
      if ((a_[id].op != Op::div && a_[id].op != Op::mod) || a_[id].type != DType::i64 || !a_[id].depends_on(axis)) return false;
      return std::ranges::find(at, id) == at.end() || std::ranges::any_of(ranges, [&](const AxisRange& r) { return a_[id].depends_on(r.axis); });
    });
  }

  // Is it the same one phase after the other, wherever it uses the axis, also in ranges of other axes?
  bool repeats(Id id, Id axis, int64_t phases, const Ranges& ranges) const {
    if (id == axis) return false;
    const Node n = a_[id];
    if (n.op == Op::mod && a_[n.arg(1)].op == Op::constant && phases % a_[n.arg(1)].integer == 0 && is_linear(n.arg(0), axis)) return true;
    if (auto it = n.op == Op::axis ? ranges.find(id) : ranges.end(); it != ranges.end())
      return repeats(it->second.begin, axis, phases, ranges) && repeats(it->second.end, axis, phases, ranges);
    return std::ranges::all_of(n.args(), [&](Id x) { return repeats(x, axis, phases, ranges); });
  }

  bool is_linear(Id id, Id axis) const {
    return std::ranges::all_of(linear(a_, id).terms, [&](const auto& term) { return term.first == axis || !a_[term.first].depends_on(axis); });
  }

  // No read leaves its tensor at the places behind the end, if it leaves it at none before.
  bool inside(TensorId t, const std::vector<Id>& at, const std::map<Id, int64_t>& longer, const Ranges& ranges) const {
    for (size_t i = 0; i < at.size(); ++i) {
      if (std::ranges::all_of(longer, [&](const auto& x) { return repeats(at[i], x.first, x.second, ranges); })) continue;
      const auto box = Hull(a_, ranges).box({at[i], at[i], a_.add(a_.to(DType::i64, at[i]), a_.integer(1))});
      if (!box || evaluate_extent(a_, box->begin, sizes_) < 0 ||
          evaluate_extent(a_, box->end, sizes_) > evaluate_extent(a_, p_.tensor(t).shape[i], sizes_))
        return false;
    }
    return true;
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  const std::vector<TensorId>& alone_;   // a library computes them
  std::map<TensorId, TensorId> wholes_;  // of results that were made larger
  std::set<TensorId> kept_;              // copies that are read
};

}  // namespace

int64_t phases_along(const Arena& a, Id body, Id axis) {
  int64_t all = 1;
  for (Id id : reachable(a, body)) {
    const Node& n = a[id];
    if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64 || a[n.arg(1)].op != Op::constant) continue;
    const int64_t by = a[n.arg(1)].integer;
    if (by <= 1 || by > kMostPhases || !n.depends_on(axis)) continue;
    // (2*t - 2*r)/2 is the same in all phases of t.
    const auto decides = [&](const auto& term) {
      return term.second % by != 0 && a[term.first].depends_on(axis);
    };
    if (std::ranges::any_of(linear(a, n.arg(0)).terms, decides)) all = std::lcm(all, by);
  }
  return all <= kMostPhases ? all : 1;
}

Program phases_made_whole(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? WholePhases(p, sizes, request.alone).run() : p;
}

}  // namespace xhat
