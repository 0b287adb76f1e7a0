#include "fusion/plan/prefix_sums.h"

#include <algorithm>
#include <optional>

#include "expr/core/scalar.h"
#include "expr/index/linear.h"
#include "fusion/plan/chunked_variance.h"

namespace xhat {
namespace {

constexpr int64_t kReads = 4;     // of a step
constexpr int64_t kWorthIt = 96;  // elements: below, all pairs in vectors take less than the steps' copies

class Prefixes {
 public:
  Prefixes(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions)) {
      if (auto prefix = matched(d))
        split(d, *prefix, &all);
      else
        all.push_back(d);
    }
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  // Over the elements from `first` to the axis + last (or from the axis + first to the end, if it is a suffix).
  struct Prefix {
    size_t axis;  // of d.axes
    AxisRange terms;
    int64_t first = 0;   // of the terms
    int64_t count = 0;   // terms in all
    int64_t offset = 0;  // y[i] is the step's value at i + offset
    bool suffix = false;
  };

  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }

  // i + a number, for i among the axes.
  std::optional<std::pair<size_t, int64_t>> axis_and_number(const Definition& d, Id bound) const {
    Linear l = linear(a_, bound);
    std::optional<size_t> found;
    int64_t rest = l.constant;
    for (auto [node, k] : l.terms) {
      auto at = std::ranges::find(d.axes, node, &AxisRange::axis);
      if (at != d.axes.end()) {
        if (found || k != 1) return {};
        found = static_cast<size_t>(at - d.axes.begin());
      } else if (a_[node].free_axes().empty()) {
        rest += k * number(node);
      } else {
        return {};
      }
    }
    if (!found) return {};
    return std::pair(*found, rest);
  }

  std::optional<Prefix> matched(const Definition& d) const {
    if (d.is_call()) return {};
    const Node& root = a_[d.body];
    if (root.op != Op::sum && root.op != Op::max && root.op != Op::min) return {};
    const DType type = a_[reduce_body(root)].type;
    if ((type != DType::f32 && type != DType::f64) || p_.tensor(d.target()).type != type || !is_true(a_, reduce_condition(root))) return {};
    const std::vector<AxisRange> axes = reduce_axes(root);
    if (axes.size() != 1) return {};
    Prefix f{0, axes[0]};
    f.suffix = a_[f.terms.end].free_axes().empty();
    if (f.suffix == a_[f.terms.begin].free_axes().empty()) return {};
    auto moving = axis_and_number(d, f.suffix ? f.terms.begin : f.terms.end);
    if (!moving) return {};
    f.axis = moving->first;
    const int64_t results = number(d.axes[f.axis].end), other = number(f.suffix ? f.terms.end : f.terms.begin);
    f.first = f.suffix ? moving->second : other;
    f.count = f.suffix ? other - f.first : results - 1 + moving->second - f.first;
    f.offset = f.suffix ? 0 : moving->second - f.first - 1;
    auto has = [&](Id axis) { return std::ranges::binary_search(a_[reduce_body(root)].free_axes(), axis); };
    if (has(d.axes[f.axis].axis) || !has(f.terms.axis) || std::min(f.count, results) < kWorthIt) return {};
    return f;
  }

  Definition define(const Definition& like, const std::string& name, const std::vector<AxisRange>& axes, Id body) {
    std::vector<Id> shape;
    for (const AxisRange& r : axes) shape.push_back(r.end);
    Definition d = like;
    d.targets = {p_.add_tensor(name, a_[body].type, shape)};
    d.axes = axes;
    d.body = body;
    return d;
  }

  void split(const Definition& d, const Prefix& f, std::vector<Definition>* all) {
    const Node root = a_[d.body];
    const DType type = a_[reduce_body(root)].type;
    const std::string name = p_.tensor(d.target()).name;
    const Id nothing = a_.constant(type, identity_of(root.op));
    const Id u = d.axes[f.axis].axis;  // over the terms, in the place of the axis
    std::vector<AxisRange> axes;
    size_t place = 0;
    for (size_t i = 0; i < d.axes.size(); ++i) {
      if (i == f.axis) {
        place = axes.size();
        axes.push_back({u, a_.integer(0), a_.integer(f.count)});
      } else if (std::ranges::binary_search(a_[reduce_body(root)].free_axes(), d.axes[i].axis)) {
        axes.push_back(d.axes[i]);
      }
    }
    auto at = [&](TensorId t, Id where) {
      std::vector<Id> indices;
      for (const AxisRange& r : axes) indices.push_back(r.axis);
      indices[place] = where;
      return a_.read_or(t, type, indices, nothing);
    };
    const Id element = f.first == 0 ? u : a_.add(u, a_.integer(f.first));
    all->push_back(define(d, name + "_terms", axes, substitute(a_, reduce_body(root), {{f.terms.axis, element}})));
    for (int64_t step = 1; step < f.count; step *= kReads) {
      const Id t = f.terms.axis, shift = step == 1 ? t : a_.mul(a_.integer(step), t);
      const Id term = at(all->back().target(), f.suffix ? a_.add(u, shift) : a_.sub(u, shift));
      const std::vector<AxisRange> reads = {{t, a_.integer(0), a_.integer(std::min(kReads, (f.count + step - 1) / step))}};
      all->push_back(define(d, name + "_step", axes, a_.reduce(root.op, reads, kNone, term)));
    }
    Definition result = d;
    const TensorId last = all->back().target();
    if (f.offset == 0 && number(d.axes[f.axis].end) <= f.count) {
      std::vector<Id> indices;
      for (const AxisRange& r : axes) indices.push_back(r.axis);
      result.body = a_.read(last, type, indices);
    } else {
      result.body = at(last, f.offset == 0 ? u : a_.add(u, a_.integer(f.offset)));
    }
    all->push_back(result);
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program prefix_sums_by_steps(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Prefixes(p, sizes).run() : p;
}

Program rewritten_for_sizes(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return variance_by_chunks(prefix_sums_by_steps(p, sizes, request), sizes, request);
}

}  // namespace xhat
