// What a thread adds up: a step of each member of a group for each of its terms, some terms at once.
#include <algorithm>
#include <bit>
#include <numeric>

#include "cse/normalize/auto_inliner.h"
#include "runtime/emit/vector_math.h"
#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using namespace Halide::Internal;

Accumulation GpuLowering::accumulation(const std::vector<size_t>& group) {
  Accumulation a;
  std::vector<const SpecMember*> members;
  for (size_t g : group) members.push_back(&spec_.members[g]);
  const SpecMember& m = *members[0];
  DType type = (*spec_.arena)[m.body].type;
  a.members = group;
  if (m.op != Op::argmax && m.op != Op::argmin) {
    for (const SpecMember* x : members) a.identities.push_back(Emitter::identity(x->op, (*spec_.arena)[x->body].type));
    a.step = [this, members](const std::vector<Expr>& now, const Emitter::Axes& axes) { return emit_.steps(members, now, axes); };
    a.combine = [members](const std::vector<Expr>& x, const std::vector<Expr>& y) {
      std::vector<Expr> both;
      for (size_t i = 0; i < x.size(); ++i) both.push_back(Emitter::combine(members[i]->op, x[i], y[i]));
      return both;
    };
    return a;
  }
  // The value and where it is, -1: nowhere yet. Ties go to the first, and so do NaNs, which win.
  const bool largest = m.op == Op::argmax, real = is_float(type);
  auto wins = [largest, real](const Expr& x, const Expr& y) {
    Expr better = largest ? x > y : x < y;
    return real ? (better || vmath::is_nan(x)) && !vmath::is_nan(y) : better;
  };
  a.identities = {make_zero(storage_type(type)), Expr(-1)};
  a.step = [this, &m, wins](const std::vector<Expr>& now, const Emitter::Axes& axes) {
    Expr v = emit_.value(m.body, axes);
    if (v.type().is_bool()) v = Halide::cast<uint8_t>(v);
    Expr better = now[1] < 0 || wins(v, now[0]);
    if (!is_true(*spec_.arena, m.condition)) better = better && emit_.condition(m.condition, axes);
    return std::vector<Expr>{Halide::select(better, v, now[0]), Halide::select(better, axes.at(m.reduced[0]), now[1])};
  };
  a.combine = [wins](const std::vector<Expr>& x, const std::vector<Expr>& y) {
    Expr second = y[1] >= 0 && (x[1] < 0 || wins(y[0], x[0]) || (!wins(x[0], y[0]) && y[1] < x[1]));
    return std::vector<Expr>{Halide::select(second, y[0], x[0]), Halide::select(second, y[1], x[1])};
  };
  return a;
}

// Terms that a lane takes at once, each into a register of its own.
int GpuLowering::terms_at_once(const Accumulation& a, const Points& terms, const Sharing& s) const {
  if (kind_ == DeviceKind::vulkan || !s.lanes_first || s.lanes == 1 || terms.axes.empty() || a.members.empty()) return 1;
  const SpecMember& m = spec_.members[a.members[0]];
  Id last = terms.axes.back();
  if (m.op == Op::argmax || m.op == Op::argmin || !terms.counts.back().divisible_by(kVector)) return 1;
  if (terms.limits.back().defined() && !extent(last).divisible_by(kVector)) return 1;
  if (terms.total().like() / kVector < s.lanes || std::ranges::any_of(a.identities, [](const Expr& e) { return e.type().bits() != 32; }))
    return 1;
  return side_by_side(a.members, last) ? kVector : 1;
}

Stmt GpuLowering::accumulate(const Accumulation& a, const std::vector<std::string>& names, const Points& terms, const Emitter::Axes& axes,
                             const Sharing& s) {
  const int vector = terms_at_once(a, terms, s);
  const std::string part = fresh("part");
  Expr slot = vector == 1 ? Expr(0) : Variable::make(Halide::Int(32), part);
  std::vector<Expr> now;
  for (size_t i = 0; i < names.size(); ++i) now.push_back(Load::make(a.identities[i].type(), names[i], slot, {}, {}, const_true(), {}));
  auto update = [&](const Emitter::Axes& at) { return into_registers(names, a.step(now, at), slot); };
  const int at_once = under_way(a.members, vector, s.lanes == 1 ? 1 : terms.axes.size());
  auto bounded = [&](size_t i) {  // of an axis, how many points there are
    const Expr count = terms.counts[i].expr();
    if (!terms.limits[i].defined()) return count;
    return simplify(Halide::clamp(terms.limits[i] - (terms.origins[i].defined() ? terms.origins[i] : Expr(0)), 0, count));
  };
  Emitter::Axes at = axes;
  if (s.lanes == 1) {
    constexpr int64_t kUnrolled = 32;
    const std::vector<size_t> order = loops_of(a, terms);
    std::vector<int> together(order.size(), 1);
    int64_t room = !terms.open() && terms.total().like() <= kUnrolled ? kUnrolled : at_once;
    for (size_t d = order.size(); d-- > 0;) {  // whole loops from the innermost on, and a part of the one around them
      const Count& n = terms.counts[order[d]];
      const bool whole = !n.open() && n.like() <= room;
      together[d] = static_cast<int>(whole ? std::max<int64_t>(1, n.like()) : room);
      room = whole ? room / together[d] : 1;
    }
    std::function<Stmt(size_t)> nest = [&](size_t d) {
      if (d == order.size()) return update(at);
      const size_t i = order[d];
      return repeat(bounded(i), together[d], [&](const Expr& x) {
        at[terms.axes[i]] = terms.origins[i].defined() ? terms.origins[i] + x : x;
        return nest(d + 1);
      });
    };
    return nest(0);
  }
  // All terms have one number; those of a part of the slowest axis are the first ones.
  Points all = terms;
  Expr n = terms.total().over(vector).expr();
  if (terms.limits[0].defined()) {
    n = bounded(0);
    for (size_t i = 1; i < terms.axes.size(); ++i) n = n * terms.counts[i].expr();
    n = simplify(n / vector);
    all.limits[0] = Expr();
  }
  const Expr lane = s.lanes_first ? thread() % s.lanes : thread() / s.results();
  auto term = [&](const Expr& number) {
    Point p = point(all, number, vector);
    for (auto& [id, x] : p.axes) at[id] = x;
    if (vector > 1) at[terms.axes.back()] = at.at(terms.axes.back()) + slot;
    Stmt body = update(at);
    if (vector > 1) body = loop(part, vector, ForType::Vectorized, body);
    if (p.inside.defined()) body = IfThenElse::make(p.inside, body);
    return with_lets(p.lets, body);
  };
  const Expr whole = simplify(n / s.lanes);
  std::vector<Stmt> turns = {repeat(whole, at_once, [&](const Expr& turn) { return term(turn * s.lanes + lane); })};
  const Expr last = simplify(whole * s.lanes + lane);
  if (!is_const_zero(simplify(n % s.lanes))) turns.push_back(IfThenElse::make(last < n, term(last)));
  return Block::make(turns);
}

// The values, of which all are computed before the first register is written: they may read what stands there.
Stmt GpuLowering::into_registers(const std::vector<std::string>& registers, const std::vector<Expr>& values, const Expr& slot) {
  std::vector<std::pair<std::string, Expr>> lets;
  std::vector<Stmt> stores;
  for (size_t i = 0; i < values.size(); ++i) {
    lets.emplace_back(fresh("next"), device(values[i]));
    stores.push_back(Store::make(registers[i], Variable::make(values[i].type(), lets.back().first), slot, {}, const_true(), {}));
  }
  return with_lets(lets, Block::make(stores));
}

// n times; so many of them follow each other without a branch, so that what they load is under way at once.
Stmt GpuLowering::repeat(const Expr& n, int at_once, const std::function<Stmt(const Expr&)>& body) {
  const std::string turn = fresh("r"), part = fresh("r");
  const auto fixed = as_const_int(n);
  if (fixed && *fixed <= 0) return Evaluate::make(0);
  if (fixed && *fixed <= at_once) return *fixed == 1 ? body(0) : loop(part, n, ForType::Unrolled, body(counter(part)));
  if (at_once == 1) return loop(turn, n, ForType::Serial, body(counter(turn)));
  const Expr whole = simplify(n / at_once), rest = simplify(n % at_once);
  const Stmt together = loop(part, at_once, ForType::Unrolled, body(counter(turn) * at_once + counter(part)));
  const Stmt all = loop(turn, whole, ForType::Serial, together);
  if (is_const_zero(rest)) return all;
  if (is_const_one(rest)) return Block::make(all, body(whole * at_once));
  const std::string left = fresh("r");
  return Block::make(all, loop(left, rest, fixed ? ForType::Unrolled : ForType::Serial, body(whole * at_once + counter(left))));
}

// How many terms or elements of the group a thread has under way: its registers hold what they load, and where each is along so many axes.
int GpuLowering::under_way(const std::vector<size_t>& group, int vector, size_t axes) const {
  constexpr uint64_t kLoads = 16, kOperations = 256, kOfAxis = 16, kMost = 8;
  uint64_t loads = 0, operations = kOfAxis * (axes > 1 ? axes - 1 : 0);
  for (size_t g : group)
    for (Id id : reachable(*spec_.arena, roots(spec_.members[g]))) {
      const Node& n = (*spec_.arena)[id];
      if (!n.free_axes().empty()) ++(is_read(n.op) ? loads : operations);
    }
  const uint64_t fit = std::min(kLoads / std::max<uint64_t>(1, loads), kOperations / std::max<uint64_t>(1, operations)) / (vector > 1 ? 2 : 1);
  return static_cast<int>(std::bit_floor(std::clamp<uint64_t>(fit, 1, kMost)));
}

// The axes of the terms, the loop around all others first: innermost one that no condition asks about, the longest of these, if any does.
std::vector<size_t> GpuLowering::loops_of(const Accumulation& a, const Points& terms) const {
  std::vector<size_t> order(terms.axes.size());
  std::iota(order.begin(), order.end(), 0);
  auto asked = [&](size_t i) {
    return std::ranges::any_of(a.members, [&](size_t g) { return depends(spec_.members[g].condition, {terms.axes[i]}); });
  };
  if (order.empty() || !asked(order.back())) return order;
  auto best = order.end();
  for (auto i = order.begin(); i != order.end(); ++i)
    if (!asked(*i) && (best == order.end() || terms.counts[*i].like() >= terms.counts[*best].like())) best = i;
  if (best != order.end()) std::rotate(best, best + 1, order.end());
  return order;
}

}  // namespace xhat::runtime
