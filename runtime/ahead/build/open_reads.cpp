#include "runtime/ahead/build/open_reads.h"

#include <algorithm>

#include "expr/index/affine.h"

namespace xhat::runtime {

Program with_open_reads(const Program& p) {
  Program out = p;
  Arena& a = *out.arena;
  for (Definition& d : out.definitions()) {
    if (d.is_call()) continue;
    std::vector<AxisRange> axes = d.axes;
    if (const Node& root = a[d.body]; is_reduction(root.op))
      for (const AxisRange& r : reduce_axes(root)) axes.push_back(r);
    auto inside = [&](Id index, Id extent) {
      if (!tensors_read(a, index).empty()) return false;
      const BoundsAnswer answer = prove_bounds(a, {axes, {}, index, extent});
      if (answer.verdict == BoundsAnswer::Verdict::precondition)
        return std::ranges::all_of(answer.safe, [](const auto& least) { return least.second <= 1; });
      return answer.verdict == BoundsAnswer::Verdict::proved;
    };
    d.body = rewrite(a, d.body, [&](Id id) {
      const Node n = a[id];
      if (n.op != Op::read || n.arg_count == 0) return id;
      const std::vector<Id> indices(n.args().begin(), n.args().end());
      bool all = true;
      for (size_t i = 0; i < indices.size(); ++i) all = all && inside(indices[i], out.tensors[n.symbol].shape[i]);
      return all ? id : a.read_or(n.symbol, n.type, indices, a.constant(n.type, 0));
    });
  }
  return out;
}

}  // namespace xhat::runtime
