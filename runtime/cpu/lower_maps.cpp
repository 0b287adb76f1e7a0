// Maps: one nest each, vectorized along the fastest axis; several results over the same axes from one nest, so that what they
// read is read once, what they share stays in registers, and all are written as they come (Adam's p, m and v, 8M elements, two
// threads: 13.3 ms one after the other, 7.8 together, both past the cache).
#include <algorithm>
#include <optional>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

bool at_own_place(const Access& x, const SpecMember& reader) { return !x.may_miss && x.indices == reader.left; }

}  // namespace

std::vector<Access> Lowering::reads(const SpecMember& m) const {
  std::vector<Access> found = accesses(spec_, m);
  found.erase(found.begin());  // what it writes
  return found;
}

std::vector<size_t> Lowering::side_by_side(size_t first, const std::vector<bool>& emitted) const {
  auto leaves = [&](const SpecMember& m) {
    const SpecTensor& t = spec_.tensors[m.tensor];
    return t.use == SpecTensor::Use::result && (t.type == DType::f32 || t.type == DType::f64);
  };
  const SpecMember& f = spec_.members[first];
  std::set<size_t> group = {first};
  for (size_t i = first + 1; leaves(f) && i < spec_.members.size(); ++i) {
    const SpecMember& m = spec_.members[i];
    bool map = m.op == Op::constant && !recurrence(m) && m.left == f.left && leaves(m);
    if (!emitted[i] && map) group.insert(i);
  }
  auto maker = [&](uint32_t t) {
    return static_cast<size_t>(std::ranges::find(spec_.members, t, &SpecMember::tensor) - spec_.members.begin());
  };
  // Each reader of one of them is one of them, at the same place; what else they read is there.
  auto spoils = [&](size_t reader) -> std::optional<size_t> {
    const SpecMember& m = spec_.members[reader];
    for (const Access& x : reads(m)) {
      size_t made = maker(x.tensor);
      if (made == spec_.members.size() || emitted[made]) continue;
      bool here = group.contains(made) && at_own_place(x, m);
      if (group.contains(reader) && !here) return reader;
      if (!group.contains(reader) && group.contains(made)) return made;
    }
    return {};
  };
  for (size_t i = first; group.size() > 1 && i < spec_.members.size();) {
    auto out = spoils(i);
    if (out == first) return {first};
    if (out) group.erase(*out);
    i = out ? first : i + 1;
  }
  return {group.begin(), group.end()};
}

// What one loop of maps alone reads, each element where it is, is made in that loop and stays in registers: swiglu's backward uses its
// sigmoid twice, and memory need not wait for a loop of exponentials (2048 x 1024, two threads: 0.74 ms instead of 1.01). It stands
// behind the loop's own members.
void Lowering::join_temporaries(Groups& groups) const {
  const Arena& a = *spec_.arena;
  auto plain_map = [&](const std::vector<size_t>& group) {
    const SpecMember& m = spec_.members[group[0]];
    return m.op == Op::constant && !recurrence(m);
  };
  auto may_join = [&](const SpecMember& m, const std::vector<size_t>& group) {
    const int64_t cost = evaluation_cost_ps(a, m.body) + body_ps(group);
    return plain_map(group) && spec_.members[group[0]].left == m.left && cost <= kWrittenOut_ps;
  };
  for (size_t g = groups.size(); g-- > 0;) {
    const SpecMember& m = spec_.members[groups[g][0]];
    const SpecTensor& t = spec_.tensors[m.tensor];
    if (t.use != SpecTensor::Use::temporary || !is_float(t.type) || !plain_map(groups[g]) || is_view(m)) continue;
    std::set<size_t> loops;  // that read it
    bool elsewhere = false;
    for (size_t i = g + 1; i < groups.size(); ++i)
      for (const SpecMember* reader : members_of(groups[i]))
        for (const Access& x : reads(*reader)) {
          if (x.tensor != m.tensor) continue;
          loops.insert(i);
          elsewhere |= !at_own_place(x, *reader);
        }
    if (elsewhere || loops.size() != 1 || !may_join(m, groups[*loops.begin()])) continue;
    auto& loop = groups[*loops.begin()];
    loop.insert(loop.end(), groups[g].begin(), groups[g].end());
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(g));
  }
}

Lowering::Turned Lowering::turned_map(const std::vector<size_t>& group) const {
  const SpecMember& m = spec_.members[group[0]];
  Id v = vector_axis({group[0]});
  if (v == kNone) return {};
  std::vector<Id> bodies;
  for (const SpecMember* x : members_of(group)) bodies.push_back(x->body);
  const Turned found = turned(bodies, v, widest(m));
  return one_in_row(found.v) || one_in_row(found.along) ? Turned() : found;
}

// Two to four vectors let memory accesses overlap (tanh: 1.43 -> 1.38 ms). Where a value takes long, or a gather loads a line for each lane, they
// only take longer to compile: the code is written once for each vector, once for those left over, and once under a mask.
int Lowering::vectors_per_step(const std::vector<size_t>& group, Id v, int64_t cost_ps, int most) const {
  const Arena& a = *spec_.arena;
  auto gathers = [&](Id id) {
    return is_read(a[id].op) && a[id].depends_on(v) &&
           std::ranges::any_of(read_indices(a[id]), [&](Id index) { return a[index].depends_on(v) && !tensors_read(a, index).empty(); });
  };
  const bool gather =
      v != kNone && std::ranges::any_of(group, [&](size_t g) { return std::ranges::any_of(reachable(a, spec_.members[g].body), gathers); });
  return vectors_or(std::min(most, gather || cost_ps > 800 ? 1 : cost_ps > 350 ? 2 : 4));
}

int64_t Lowering::body_ps(const std::vector<size_t>& group) const {
  int64_t ps = 0;
  for (const SpecMember* x : members_of(group)) ps += evaluation_cost_ps(*spec_.arena, x->body);
  return ps;
}

// What another has made, by quotients and remainders that lie side by side there (kernel_phases.cpp): read where it is.
bool Lowering::is_view(const SpecMember& m) const {
  const Arena& a = *spec_.arena;
  const Node& n = a[m.body];
  if (m.op != Op::constant || spec_.tensors[m.tensor].use != SpecTensor::Use::temporary || n.op != Op::read) return false;
  if (spec_.tensors[n.symbol].use == SpecTensor::Use::input) return false;
  const auto indices = read_indices(n);
  bool any = false;
  size_t at = 0;
  for (size_t i = 0; i < indices.size(); ++i, ++at) {
    if (at == m.left.size()) return false;
    if (indices[i] == m.left[at]) continue;
    const Node &quotient = a[indices[i]], &remainder = a[indices[std::min(i + 1, indices.size() - 1)]];
    if (quotient.op != Op::div || remainder.op != Op::mod || quotient.arg(0) != m.left[at] || remainder.arg(0) != m.left[at]) return false;
    if (quotient.arg(1) != remainder.arg(1) || a[quotient.arg(1)].op != Op::constant) return false;
    any = true;
    ++i;
  }
  return any && at == m.left.size();
}

void Lowering::map(const std::vector<size_t>& group) {
  const SpecMember& m = spec_.members[group[0]];
  Func f(name("map", m.tensor));
  auto vars = func_vars(m);
  if (is_view(m)) {
    define(f, exprs(vars), {emit_.value(m.body, left_locals(m))});
    emit_.made[m.tensor] = f;
    emit_.left_axes[m.tensor] = m.left;
    return;
  }
  std::vector<Expr> values;
  Turned turns = turned_map(group);
  choose_transposes(turns, vars, left_locals(m));
  std::vector<size_t> sequential = group;
  std::ranges::sort(sequential);
  emit_.cut_along = vectors_ ? vector_axis({group[0]}) : kNone;
  for (const SpecMember* x : members_of(sequential)) {
    Expr value = to_storage(*x, emit_.value(x->body, left_locals(*x)));
    if (!joined(group, *x)) values.push_back(reading_always(value, turns.reads));
    if (group.size() > 1) emit_.given[spec_.arena->read(x->tensor, spec_.tensors[x->tensor].type, x->left)] = value;
  }
  emit_.given.clear();
  emit_.cut_along = kNone;
  define(f, exprs(vars), values);
  Id v = vector_axis({group[0]});
  if (one_in_row(v)) v = kNone;
  know_strides(group, v);
  std::vector<Func> functions;
  bool blocks = false;
  for (const SpecMember* x : members_of(group))
    if (auto its = in_blocks_.find(x->tensor); its != in_blocks_.end()) {
      blocks = true;
      functions.insert(functions.end(), its->second.begin(), its->second.end());
    }
  const ShortRows rows = blocks || turns ? ShortRows() : in_short_rows(group, v);
  if (!blocks && !rows) order_rows(f, m, v);
  const Quotients by = quotients_of(group);
  if (blocks)
    by_blocks(f, m, v, functions);
  else if (turns)
    turn(turns, f, natural(widest(m)));
  else if (rows)
    map_across(f, group, rows, TailStrategy::GuardWithIf);
  else if (vectors_ && by.contains(v) && !by.contains(row_result_ == SIZE_MAX ? kNone : row_axis_))
    in_phases(f, m, v, by);
  else if (v != kNone && !vars.empty())
    vectorize(f, vars_.at(v), v, widest(m), vectors_per_step(group, v, body_ps(group)), tail_of(group, v));
  if (group == beside_.map) {
    beside_.map_loop = f.name() + ".s0." + vars_.at(row_axis_).name();
    f.never_partition(vars_.at(row_axis_));
  }
  for (const SpecMember* x : members_of(group))
    if (!joined(group, *x)) publish(*x, f);
}

// What the map beside the sums makes, where they read it.
void Lowering::give_map(const Emitter::Axes& axes) {
  const bool inputs_alone = std::ranges::all_of(members_of(beside_.sums), [&](const SpecMember* m) {
    return std::ranges::all_of(reads(*m), [&](const Access& x) { return spec_.tensors[x.tensor].use == SpecTensor::Use::input; });
  });
  if (inputs_alone) return;
  std::vector<size_t> sequential = beside_.map;
  std::ranges::sort(sequential);
  for (const SpecMember* x : members_of(sequential))
    emit_.given[spec_.arena->read(x->tensor, spec_.tensors[x->tensor].type, x->left)] = to_storage(*x, emit_.value(x->body, axes));
}

// Max pooling's gradient reads y[k/2,l/2]: by vectors along l those are gathers, and the number of ties a tensor of its own, read
// four times. In phases, a loop over l/2 with all of k%2 and l%2 inside, each is loaded once and dy / ties divided once (16 x 64
// images of 56x56, two threads: 0.41 ms instead of 0.71).
Lowering::Quotients Lowering::quotients_of(const std::vector<size_t>& group) const {
  constexpr int64_t kMax = 4;
  const Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  Quotients by;
  std::vector<Id> bodies;
  for (const SpecMember* x : members_of(group)) bodies.push_back(x->body);
  for (Id id : reachable(a, bodies)) {
    if (!is_read(a[id].op)) continue;
    for (Id index : read_indices(a[id])) {
      const Node& n = a[index];
      if (n.op != Op::div || std::ranges::find(m.left, n.arg(0)) == m.left.end() || a[n.arg(1)].op != Op::constant) continue;
      const int64_t divisor = a[n.arg(1)].integer;
      auto [at, fresh] = by.emplace(n.arg(0), static_cast<int>(std::clamp<int64_t>(divisor, 0, kMax + 1)));
      if (!fresh && at->second != divisor) at->second = 0;
    }
  }
  std::erase_if(by, [&](const auto& q) {
    return q.second < 2 || q.second > kMax || !constant(q.first) || axis(q.first).unrolled || axis(q.first).extent % q.second != 0;
  });
  return by;
}

void Lowering::in_phases(Func f, const SpecMember& m, Id v, const Quotients& by) const {
  int width = natural(widest(m));
  while (width > 1 && axis(v).extent / by.at(v) < width) width /= 2;
  Var vq("vq"), vp("vp"), vo("vo"), vi("vi");
  f.split(vars_.at(v), vq, vp, by.at(v)).split(vq, vo, vi, width, TailStrategy::ShiftInwards).vectorize(vi);
  std::vector<VarOrRVar> order = {vi, vp};
  std::vector<Var> phases = {vp};
  std::vector<VarOrRVar> quotients = {vo};
  for (Id x : rows_of(m, v)) {
    if (!by.contains(x)) {
      quotients.push_back(vars_.at(x));
      continue;
    }
    Var q("q_" + spec_.arena->name(x)), p("p_" + spec_.arena->name(x));
    f.split(vars_.at(x), q, p, by.at(x));
    order.push_back(p);
    phases.push_back(p);
    quotients.push_back(q);
  }
  order.insert(order.end(), quotients.begin(), quotients.end());
  f.reorder(order);
  for (const Var& p : phases) f.unroll(p);
}

std::vector<Id> Lowering::rows_of(const SpecMember& m, Id v) const {
  std::vector<Id> rows;
  auto dims = tile_dimensions(spec_, m);
  for (int pass = 0; pass < 2; ++pass)
    for (size_t i = dims.size(); i-- > 0;) {
      Id x = m.left[dims[i]];
      if (x != v && (axis(x).shared >= 0) == (pass == 1)) rows.push_back(x);
    }
  return rows;
}

void Lowering::order_rows(Func f, const SpecMember& m, Id v) const {
  std::vector<VarOrRVar> order;
  if (v != kNone && std::ranges::find(m.left, v) != m.left.end()) order.push_back(vars_.at(v));
  for (Id x : rows_of(m, v)) order.push_back(vars_.at(x));
  if (order.size() > 1) f.reorder(order);
  for (Id x : m.left)
    if (axis(x).unrolled) f.bound(vars_.at(x), 0, static_cast<int>(axis(x).extent));
  write_out(f, m);
}

void Lowering::by_panels(Func result, Func acc, const SpecMember& m, Id v, int panel, const RDom& steps) const {
  const int width = std::min(natural(widest(m)), panel);
  const Var along = vars_.at(v), outer("vo"), inner("vi");
  order_rows(result, m, v);
  result.split(along, outer, inner, panel, TailStrategy::ShiftInwards).vectorize(inner, width).unroll(inner);
  acc.compute_at(result, outer).bound_extent(along, panel).vectorize(along, width).unroll(along);
  std::vector<VarOrRVar> order = {along};
  for (int i = 0; i < steps.dimensions(); ++i) order.emplace_back(RVar(steps[i]));
  for (const Var& x : func_vars(m))
    if (x.name() != along.name()) order.emplace_back(x);
  acc.update(0).reorder(order).vectorize(along, width).unroll(along);
}

}  // namespace xhat::runtime
