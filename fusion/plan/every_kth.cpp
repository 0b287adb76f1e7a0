#include "fusion/plan/every_kth.h"

#include <algorithm>
#include <map>
#include <optional>

#include "cse/normalize/checked_index.h"
#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "expr/index/simplify_index.h"

namespace xhat {
namespace {

class EveryKth {
 public:
  EveryKth(const Program& p, const DimValues& sizes, const std::vector<TensorId>& alone)
      : p_(p), a_(*p.arena), sizes_(sizes), alone_(alone) {}

  Program run() {
    std::map<TensorId, size_t> readers;
    for (const Definition& d : p_.forward.definitions) {
      for (TensorId t : d.arguments) readers[t] += 2;
      if (d.is_call()) continue;
      for (Id id : reachable(a_, d.body))
        if (is_read(a_[id].op)) readers[a_[id].symbol] += a_[id].op == Op::read ? 1 : 2;
    }
    for (const std::vector<TensorId>* list : {&p_.outputs, &p_.gradients})
      for (TensorId t : *list) readers[t] += 2;
    for (Definition& made : p_.forward.definitions) {
      if (made.is_call() || !is_reduction(a_[made.body].op) || has_tensor(alone_, made.target()) || readers[made.target()] != 1) continue;
      for (Definition& reader : p_.forward.definitions)
        if (!reader.is_call() && cut(made, reader)) break;
    }
    return std::move(p_);
  }

 private:
  struct Places {
    int64_t step, first;
  };

  // The places x at which it holds, if it is (x + c) % k == r.
  std::optional<Places> places(Id condition, Id x) const {
    const Node n = a_[condition];
    if (n.op != Op::eq) return {};
    for (size_t side : {0u, 1u}) {
      const Node mod = a_[n.arg(side)], left = a_[n.arg(1 - side)];
      if (mod.op != Op::mod || left.op != Op::constant || a_[mod.arg(1)].op != Op::constant) continue;
      const Linear at = linear(a_, mod.arg(0));
      const int64_t step = a_[mod.arg(1)].integer;
      if (step < 2 || at.terms.size() != 1 || at.terms.begin()->first != x || at.terms.begin()->second != 1) continue;
      return Places{step, ((left.integer - at.constant) % step + step) % step};
    }
    return {};
  }

  bool cut(Definition& made, Definition& reader) {
    const std::vector<Id> ids = reachable(a_, reader.body);
    auto read = std::ranges::find_if(ids, [&](Id id) { return a_[id].op == Op::read && a_[id].symbol == made.target(); });
    if (read == ids.end()) return false;
    const auto when = conditions_on_paths(a_, reader.body);
    std::vector<Id> indices(read_indices(a_[*read]).begin(), read_indices(a_[*read]).end());
    Replacements to;
    for (size_t i = 0; i < indices.size(); ++i) {
      AxisRange& r = made.axes[i];
      if (a_[indices[i]].op != Op::axis || !range_is_plain(a_, r)) continue;
      for (Id condition : conjuncts(a_, when.at(*read))) {
        const auto at = places(condition, indices[i]);
        const int64_t extent = evaluate_extent(a_, r.end, sizes_);
        if (!at || extent <= at->first) continue;
        const Id whole = a_.mul(a_.integer(at->step), r.axis);
        to[r.axis] = at->first == 0 ? whole : a_.add(whole, a_.integer(at->first));
        r.end = p_.tensors[made.target()].shape[i] = a_.integer((extent - at->first + at->step - 1) / at->step);
        indices[i] = a_.div(indices[i], a_.integer(at->step));
        break;
      }
    }
    if (to.empty()) return true;
    const Id moved = a_.read(made.target(), a_[*read].type, indices);
    reader.body = rewrite(a_, reader.body, [&](Id id) { return id == *read ? moved : id; });
    std::vector<AxisRange> axes = made.axes;
    made.body = substitute(a_, made.body, to);
    for (const AxisRange& r : reduce_axes(a_[made.body])) axes.push_back(r);
    made.body = rewrite(a_, made.body, [&](Id id) {
      const bool divides = (a_[id].op == Op::div || a_[id].op == Op::mod) && a_[id].type == DType::i64;
      return divides ? fusion::simplified_index(a_, id, axes) : id;
    });
    return true;
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  const std::vector<TensorId>& alone_;
};

}  // namespace

Program every_kth_alone(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? EveryKth(p, sizes, request.alone).run() : p;
}

}  // namespace xhat
