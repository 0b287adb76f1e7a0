#include "fusion/plan/few_pairs.h"

#include <algorithm>
#include <optional>

#include "expr/core/uses.h"
#include "expr/index/data_ends.h"

namespace xhat {
namespace {

constexpr double kWorthIt = 4;  // pairs of all, for each that is looked at: what several readers need is computed by each

class FewPairs {
 public:
  FewPairs(const Program& p, const DimValues& sizes) : p_(p), a_(*p_.arena), sizes_(sizes) {}

  Program run() {
    std::vector<TensorId> gone;
    for (size_t i = 0; i < p_.forward.definitions.size(); ++i)
      if (const Definition d = p_.forward.definitions[i]; summed_where_read(d)) gone.push_back(d.target());
    std::erase_if(p_.forward.definitions,
                  [&](const Definition& d) { return !d.is_call() && std::ranges::find(gone, d.target()) != gone.end(); });
    return std::move(p_);
  }

 private:
  bool contains(Id root, Id part) const { return std::ranges::binary_search(reachable(a_, root), part); }

  // Is it a multiple of the part, or 0?
  bool is_multiple(Id id, Id part) const {
    if (id == part) return true;
    const Node& n = a_[id];
    auto alone = [&](size_t i) {
      for (size_t j = 0; j < n.arg_count; ++j)
        if (j != i && contains(n.arg(j), part)) return false;
      return is_multiple(n.arg(i), part);
    };
    switch (n.op) {
      case Op::neg: return alone(0);
      case Op::mul: return contains(n.arg(0), part) ? alone(0) : alone(1);
      case Op::div: return alone(0);
      case Op::select: return is_constant(a_, n.arg(2), 0) ? alone(1) : is_constant(a_, n.arg(1), 0) && alone(2);
      default: return false;
    }
  }

  // Its reader, with the sum in it; none if that needs more than few of the pairs, or is no sum of its multiples.
  std::optional<Definition> with_sum(const Definition& d, const Definition& reader, double readers) {
    const Node root = a_[reader.body];
    if (root.op != Op::sum || root.type != a_[d.body].type) return {};
    const Id condition = reduce_condition(root), body = reduce_body(root);
    std::optional<Id> read;
    for (Id id : reachable(a_, reader.body))
      if (is_read(a_[id].op) && a_[id].symbol == d.target()) {
        if (read || a_[id].op != Op::read) return {};
        read = id;
      }
    if (!read || contains(condition, *read) || !is_multiple(body, *read)) return {};
    const std::vector<Id> at(read_indices(a_[*read]).begin(), read_indices(a_[*read]).end());
    std::vector<AxisRange> axes = reader.axes;
    for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    double pairs = 1, few = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      if (a_[at[i]].op != Op::axis || std::ranges::count(at, at[i]) > 1) return {};
      const double points = static_cast<double>(evaluate_extent(a_, d.axes[i].end, sizes_));
      pairs *= points, few += points;
    }
    const bool in_few = std::ranges::any_of(at, [&](Id x) { return in_segments(a_, condition, x, at); });
    if (!in_few || pairs < kWorthIt * readers * few) return {};
    std::vector<Id> taken;
    for (const AxisRange& r : axes) taken.push_back(r.axis);
    Replacements here;
    std::vector<AxisRange> summed = reduce_axes(root);
    for (size_t i = 0; i < at.size(); ++i) here[d.axes[i].axis] = at[i];
    for (const AxisRange& r : reduce_axes(a_[d.body])) {
      if (!range_is_plain(a_, r)) return {};
      summed.push_back({a_.fresh_axis(r.axis, taken), r.begin, r.end});
      taken.push_back(summed.back().axis);
      here[r.axis] = summed.back().axis;
    }
    Definition made = reader;
    const Id term = substitute(a_, reduce_body(a_[d.body]), here);
    made.body = a_.reduce(Op::sum, summed, condition, substitute(a_, body, {{*read, term}}));
    return made;
  }

  bool summed_where_read(const Definition& d) {
    if (d.is_call() || d.axes.size() < 2 || a_[d.body].op != Op::sum || !is_true(a_, reduce_condition(a_[d.body]))) return false;
    if (!is_float(a_[d.body].type) || std::ranges::find(p_.outputs, d.target()) != p_.outputs.end()) return false;
    if (!std::ranges::all_of(d.axes, [&](const AxisRange& r) { return range_is_plain(a_, r); })) return false;
    std::vector<size_t> readers;
    for (size_t i = 0; i < p_.forward.definitions.size(); ++i) {
      const std::vector<TensorId> read = tensors_read(a_, p_.forward.definitions[i]);
      if (std::ranges::find(read, d.target()) != read.end()) readers.push_back(i);
    }
    std::vector<Definition> made;
    for (size_t i : readers) {
      auto reader = with_sum(d, p_.forward.definitions[i], static_cast<double>(readers.size()));
      if (!reader) return false;
      made.push_back(*reader);
    }
    for (size_t i = 0; i < readers.size(); ++i) p_.forward.definitions[readers[i]] = made[i];
    return !readers.empty();
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program few_pairs_where_read(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? FewPairs(p, sizes).run() : p;
}

}  // namespace xhat
