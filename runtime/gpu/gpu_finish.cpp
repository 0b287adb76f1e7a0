// The launch that adds up partial results: rows that tiles leave, or the blocks that share the terms of a sum.
#include <algorithm>
#include <bit>

#include "runtime/emit/emit_ops.h"
#include "runtime/gpu/gpu_lowering.h"

namespace xhat::runtime {

using namespace Halide::Internal;

// Members that have as many rows of results over the same axes share a launch.
void GpuLowering::finish_launches(const std::vector<size_t>& members, const std::function<Count(const SpecMember&)>& rows) {
  std::vector<std::vector<size_t>> together;
  for (size_t i : members) {
    const SpecMember& m = spec_.members[i];
    auto joins = [&](const std::vector<size_t>& others) {
      const SpecMember& o = spec_.members[others[0]];
      return o.left == m.left && rows(o).amount() == rows(m).amount();
    };
    auto group = std::ranges::find_if(together, joins);
    if (group == together.end())
      together.push_back({i});
    else
      group->push_back(i);
  }
  for (const auto& group : together) finish_launch(group, rows(spec_.members[group[0]]));
}

// maps: what is made of all that the members come to, at the same points.
void GpuLowering::finish_launch(const std::vector<size_t>& members, const Count& rows, const std::vector<size_t>& maps) {
  std::vector<Lies> lay = lies_;
  reset();
  const SpecMember& m = spec_.members[members[0]];
  for (size_t i : members) rows_.insert_or_assign(spec_.members[i].tensor, rows);
  Points points = all_of(m.left), terms;
  Count n = points.total();
  Id row = spec_.arena->axis("row of " + std::to_string(m.tensor));
  terms = {{row}, {rows}, {Expr()}, {Expr()}};
  Accumulation a;
  for (size_t i : members) a.identities.push_back(Emitter::identity(spec_.members[i].op, spec_.tensors[spec_.members[i].tensor].type));
  a.step = [&](const std::vector<Expr>& now, const Emitter::Axes& axes) {
    std::vector<Expr> at, next;
    for (Id x : m.left) at.push_back(axes.at(x));
    for (size_t i = 0; i < members.size(); ++i) {
      const SpecMember& x = spec_.members[members[i]];
      Expr index = simplify(axes.at(row) * n.expr() + index_of(x.tensor, at));
      Halide::Type type = storage_type(spec_.tensors[x.tensor].type);
      next.push_back(Emitter::combine(x.op, now[i], Load::make(type, buffer_of(x.tensor, true), index, {}, {}, const_true(), {})));
    }
    return next;
  };
  a.combine = [&](const std::vector<Expr>& x, const std::vector<Expr>& y) {
    std::vector<Expr> both;
    for (size_t i = 0; i < members.size(); ++i) both.push_back(Emitter::combine(spec_.members[members[i]].op, x[i], y[i]));
    return both;
  };
  Sharing s;
  int64_t lanes = std::clamp<int64_t>(kThreads * kEnoughBlocks / std::max<int64_t>(1, n.like()), 1,
                                      std::min<int64_t>(kThreads, std::max<int64_t>(1, rows.like() / 2)));
  s.lanes = static_cast<int>(std::bit_floor(static_cast<uint64_t>(lanes)));
  s.lanes_first = n.like() < kWarp;
  if (!s.lanes_first) s.lanes = std::min(s.lanes, kThreads / kSector);
  s.threads = threads_for(n, s.lanes);
  auto stores = [&](const Point& p, const std::vector<Expr>& values) { return with_maps({members}, {values}, maps, p.axes); };
  Stmt stage = reduce_stage(a, points, terms, s, block() * s.results(), stores);
  launch("finish", n.over(s.results()), s.threads, {stage});
  lies_ = lay;
}

}  // namespace xhat::runtime
