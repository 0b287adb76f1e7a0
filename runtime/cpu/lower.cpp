// Shapes of code, one per kind of member:
//   recurrence along its axis in order, some rows at a time or vectors across it
//   map        one nest, vectorized along its fastest axis
//   row sum    reduced along the contiguous axis: kLanes independent accumulators (64 hide the latency of fma), a tail,
//              then a tree; all sums over the same axes in one pass
//   column sum reduced along another axis: accumulators lie along the vector axis, rows are walked in memory order
//   few terms  a stencil, a window: written out as a map, or, if that would be much code, summed up a vector at a time; what
//              terms compute at shifted places once
//   rare terms   nearly all are 0: asked for in vectors, where they are not each adds to its results
//   contraction  a matrix product in the widest sense, in blocks that stay in registers
//   scatter    adds at computed places, serially, those terms that fall into the tile
// Members are whole in the tile, one nest after another, while the tile stays in cache. If the kernel has a single
// result that contains the others' axes, they are computed inside its row loop instead, so that rows stay in L1.
#include "runtime/cpu/lower.h"

#include <algorithm>
#include <array>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/reduction_order.h"
#include "runtime/cpu/assumptions.h"
#include "runtime/cpu/ir/asked_first.h"
#include "runtime/cpu/ir/prefetch_next.h"
#include "runtime/cpu/ir/ramps.h"
#include "runtime/cpu/ir/stream_stores.h"
#include "runtime/cpu/ir/sums_beside.h"
#include "runtime/cpu/ir/without_fma.h"
#include "runtime/cpu/ir/write_over.h"
#include "runtime/cpu/lowering.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
LoweredKernel Lowering::run() {
  declare();
  if (const auto rows = rows_of_few()) {
    by_rows(*rows);
    return std::move(out_);
  }
  const Groups all = groups();
  find_row_loop(all);
  for (const auto& group : all) member(group);
  finish();
  return std::move(out_);
}

bool Lowering::element_by_element() {
  declare();
  const auto all = groups();
  auto leaves = [&](const SpecMember& m) {
    return m.op == Op::constant && m.scatter.empty() && spec_.tensors[m.tensor].use == SpecTensor::Use::result;
  };
  return all.size() == 1 && std::ranges::all_of(spec_.members, leaves) && !turned_map(all[0]) && quotients_of(all[0]).empty();
}

// Members that one loop computes, in order.
Lowering::Groups Lowering::groups() const {
  Groups found;
  std::vector<bool> emitted(spec_.members.size(), false);
  for (size_t i = 0; i < spec_.members.size(); ++i) {
    if (emitted[i]) continue;
    bool is_map = spec_.members[i].op == Op::constant;
    if (recurrence(spec_.members[i]))
      found.push_back({i});
    else
      found.push_back(is_map ? side_by_side(i, emitted) : same_domain(i, emitted));
    for (size_t g : found.back()) emitted[g] = true;
  }
  join_temporaries(found);
  return found;
}

void Lowering::declare() {
  for (auto& [id, axis] : spec_.axes) vars_.emplace(id, Var("v_" + spec_.arena->name(id)));
  for (Id id : spec_.shared) {
    if (axis(id).kind() == AxisKind::untiled) continue;
    Halide::Param<int> origin("o_" + spec_.arena->name(id));
    emit_.origin.emplace(id, origin);
    out_.scalars.push_back({id, false});
    out_.arguments.push_back(origin);
  }
  std::vector<Id> unknown;
  for (auto& [id, axis] : spec_.axes)
    if (axis.kind() == AxisKind::tiled || (axis.kind() == AxisKind::untiled && !axis.static_extent)) unknown.push_back(id);
  std::ranges::sort(unknown);
  for (Id id : unknown) {
    Halide::Param<int> count("n_" + spec_.arena->name(id));
    counts_.emplace(id, count);
    emit_.counts.emplace(id, count);
    out_.scalars.push_back({id, true});
    out_.arguments.push_back(count);
  }
  emit_.inputs.resize(spec_.tensors.size());
  for (uint32_t t = 0; t < spec_.tensors.size(); ++t) {
    const SpecTensor& x = spec_.tensors[t];
    if (x.use != SpecTensor::Use::input) continue;
    Halide::ImageParam image(storage_type(x.type), static_cast<int>(x.shape.size()), name("in", t));
    for (int d = 0; d < static_cast<int>(x.shape.size()); ++d) image.dim(d).set_min(0);
    if (!x.shape.empty() && !x.dense && !x.rows) image.dim(0).set_stride(Expr());
    emit_.inputs[t] = image;
    out_.inputs.push_back(t);
    out_.arguments.push_back(image);
  }
  emit_.moved = moved_reads(spec_);
  declare_carried();
}

// The same loops over the same axes. One of which a tile has a single place may be reduced here, and left there: sums over the batch
// beside sums of each of its images.
bool Lowering::same_walk(const SpecMember& m, const SpecMember& f) const {
  auto walked = [&](std::vector<Id> axes) {
    std::erase_if(axes, [&](Id x) { return axis(x).kind() == AxisKind::point; });
    return axes;
  };
  auto all = [](const SpecMember& x) {
    std::set<Id> axes(x.left.begin(), x.left.end());
    axes.insert(x.reduced.begin(), x.reduced.end());
    return axes;
  };
  return walked(m.left) == walked(f.left) && walked(m.reduced) == walked(f.reduced) && all(m) == all(f);
}

std::vector<size_t> Lowering::same_domain(size_t first, const std::vector<bool>& emitted) const {
  const SpecMember& f = spec_.members[first];
  std::vector<size_t> group = {first};
  if (!f.scatter.empty() || f.op == Op::argmax || f.op == Op::argmin) return group;
  std::set<uint32_t> pending;  // made, but not before this pass
  for (size_t i = first; i < spec_.members.size(); ++i)
    if (!emitted[i]) pending.insert(spec_.members[i].tensor);
  for (size_t i = first + 1; i < spec_.members.size(); ++i) {
    const SpecMember& m = spec_.members[i];
    if (emitted[i] || m.op == Op::constant || m.op == Op::argmax || m.op == Op::argmin || !m.scatter.empty()) continue;
    if (!same_walk(m, f) || combines_in_parts(m.op, accumulated(m)) != combines_in_parts(f.op, accumulated(f))) continue;
    if (m.condition != f.condition && spec_.terms(f) > kFewTerms) continue;
    auto waits = [&](Id e) { return std::ranges::any_of(tensors_read(*spec_.arena, e), [&](TensorId t) { return pending.contains(t); }); };
    if (waits(m.body) || waits(m.condition)) continue;
    group.push_back(i);
  }
  return group;
}

Expr Lowering::extent(Id x) const {
  if (auto it = counts_.find(x); it != counts_.end()) return it->second;
  return axis(x).kind() == AxisKind::point ? 1 : static_cast<int>(axis(x).extent);
}

// Is each the sum of the map's columns over its rows, of what the map itself reads or makes there?
bool Lowering::sums_columns_of(const std::vector<size_t>& sums, const std::vector<size_t>& map, Id row) const {
  const SpecMember& first = spec_.members[map[0]];
  auto without = [&](std::vector<Id> axes, Id x) {
    std::erase_if(axes, [&](Id y) { return y == x || axis(y).kind() == AxisKind::point; });
    return axes;
  };
  auto input = [&](const Access& x) { return spec_.tensors[x.tensor].use == SpecTensor::Use::input; };
  auto of_map = [&](const Access& x, const std::vector<Id>& at) {
    return x.indices == at && std::ranges::any_of(members_of(map), [&](const SpecMember* y) { return y->tensor == x.tensor; });
  };
  // Their terms are computed a second time then, for the compiler to find that they are the same.
  bool reads_map = false;
  for (const SpecMember* m : members_of(sums)) {
    const DType t = spec_.tensors[m->tensor].type;
    const bool reduces = m->op != Op::argmax && m->op != Op::argmin && m->scatter.empty() && is_true(*spec_.arena, m->condition);
    if (!reduces || (t != DType::f32 && t != DType::f64) || widest(*m) != widest(first)) return false;
    if (without(m->reduced, kNone) != std::vector<Id>{row} || without(m->left, kNone) != without(first.left, row)) return false;
    for (const Access& x : reads(*m)) {
      if (x.may_miss || !(input(x) || of_map(x, first.left))) return false;
      reads_map |= !input(x);
    }
  }
  for (const SpecMember* y : members_of(map))
    for (const Access& x : reads(*y))
      if (reads_map && !(input(x) || of_map(x, first.left))) return false;
  return tile_dimensions(spec_, *members_of(sums)[0]).size() == 1 && (!reads_map || body_ps(map) <= kWrittenOut_ps);
}

// Is there a sum of what is made of a sum?
bool Lowering::sums_wait() const {
  std::set<uint32_t> of_sums;
  for (const SpecMember& m : spec_.members) {
    const bool waits = std::ranges::any_of(reads(m), [&](const Access& x) { return of_sums.contains(x.tensor); });
    if (waits && m.op != Op::constant) return true;
    if (waits || m.op != Op::constant) of_sums.insert(m.tensor);
  }
  return false;
}

void Lowering::find_row_loop(const Groups& all) {
  // A scatter in a loop over rows would look at all its terms for each of them, and what segments spread over places at all segments.
  // Of a recurrence some rows go along together.
  if (std::ranges::any_of(spec_.members, [&](const SpecMember& m) { return recurrence(m).has_value(); })) return;
  auto whole = [&](const SpecMember& m) {
    return rare_terms(m).has_value() || contraction(m).has_value() || spec_.carried_over(m) != kNone || !m.scatter.empty() ||
           in_segments(m, m.left);
  };
  if (std::ranges::any_of(spec_.members, whole)) return;
  const std::vector<size_t>* side = nullptr;  // the result, and those that are made beside it
  const std::vector<size_t>* sums = nullptr;
  for (const auto& group : all) {
    auto leaves = [&](const SpecMember* m) { return spec_.tensors[m->tensor].use != SpecTensor::Use::temporary; };
    if (std::ranges::none_of(members_of(group), leaves)) continue;
    auto& one = spec_.members[group[0]].op == Op::constant ? side : sums;
    if (one) return;
    one = &group;
  }
  if (!side || all.size() == 1) return;
  const size_t result = side->front();
  const Id v = vector_axis({result});
  Id row = kNone;
  for (Id x : spec_.shared)
    if (axis(x).kind() != AxisKind::point && x != v) row = x;
  if (row == kNone) return;
  // Each row would be folded up by itself, instead of a vector of rows at a time (LayerNorm and tanh of rows of 7: 75 us instead of 57). Where sums wait
  // for sums, as softmax's does for its maximum, so does the processor, unless a row has many vectors (softmax of 100,000 rows of 10: 2.9 ms
  // instead of 2.0).
  const int64_t shortest = natural(widest(spec_.members[result])) * (sums_wait() ? 2 : 1);
  const bool short_rows = v != kNone && constant(v) && axis(v).extent < shortest;
  if (!sums && short_rows && std::ranges::any_of(spec_.members, [](const SpecMember& m) { return m.op != Op::constant; })) return;
  if (sums && (!vectors_ || !sums_columns_of(*sums, *side, row) || !quotients_of(*side).empty())) return;
  for (size_t i = 0; i < spec_.members.size(); ++i)
    for (Id x : spec_.shared) {
      const bool summed = sums && std::ranges::find(*sums, i) != sums->end();
      if (!summed && axis(x).kind() != AxisKind::point && std::ranges::find(spec_.members[i].left, x) == spec_.members[i].left.end())
        return;
    }
  if (turned_map(*side) || in_short_rows(*side, v)) return;
  for (const auto& group : all)  // those go by blocks of rows
    if (shifted_values(group)) return;
  row_result_ = result;
  row_axis_ = row;
  if (sums) beside_ = {*side, *sums, {}, {}};
}

void Lowering::member(const std::vector<size_t>& group) {
  emit_member(group);
  pads_at(Halide::LoopLevel::root());
}

void Lowering::pads_in_loop(const SpecMember& m, const Halide::LoopLevel& where) {
  const Arena& a = *spec_.arena;
  // Of a place by a remainder, Halide finds all that it can be at any step of the loop: it would copy these at each.
  const bool by_remainder = std::ranges::any_of(reachable(a, m.body), [&](Id id) {
    return is_read(a[id].op) && std::ranges::any_of(read_indices(a[id]), [&](Id index) {
             return std::ranges::any_of(reachable(a, index), [&](Id x) { return a[x].op == Op::mod && a[x].axes_count > 0; });
           });
  });
  if (!by_remainder) pads_at(where);
}

// What the sum has read of padded copies is made there; where another reads it too, for the whole tile.
void Lowering::pads_at(const Halide::LoopLevel& where) {
  for (const std::string& name : padding_.used)
    if (auto [at, fresh] = padding_.at.emplace(name, where); !fresh) at->second = Halide::LoopLevel::root();
  padding_.used.clear();
}

void Lowering::emit_member(const std::vector<size_t>& group) {
  const SpecMember& m = spec_.members[group[0]];
  bool sum = m.op != Op::constant && m.op != Op::argmax && m.op != Op::argmin && m.scatter.empty();
  emit_.padding = sum && vectors_ && !spec_.any_size() ? &padding_ : nullptr;  // others look at each place once or so
  padding_.of_made = row_result_ == SIZE_MAX;                                  // what is made in a loop over rows is there for one of them
  if (auto own = recurrence(m)) return walk(m, *own);
  if (m.op == Op::constant) return map(group);
  if (!m.scatter.empty()) return scatter(m);
  if (m.op == Op::argmax || m.op == Op::argmin) return extreme_index(m);
  // Each by itself: what the others of its domain read may forbid it to them.
  std::vector<size_t> rest;
  for (size_t g : group) {
    if (auto rare = rare_terms(spec_.members[g])) {
      rare_sum(spec_.members[g], *rare);
    } else if (auto c = contraction(spec_.members[g])) {
      padding_.along = c->v;
      contract(spec_.members[g], *c);
      padding_.along = kNone;
    } else {
      rest.push_back(g);
    }
  }
  if (rest.empty()) return;
  if (rest.size() < group.size()) return member(rest);
  Id v = vector_axis(group);
  if (one_in_row(v)) v = kNone;
  know_strides(group, v);
  bool along = v != kNone && std::ranges::find(m.reduced, v) != m.reduced.end();
  bool long_enough = v != kNone && (!constant(v) || axis(v).extent >= shortest_row(m));
  bool whole = std::ranges::all_of(m.reduced, [&](Id x) { return constant(x); });
  bool few = vectors_ && v != kNone && !along && whole && spec_.terms(m) > 0 && spec_.terms(m) <= kFewTerms;
  if (group == beside_.sums)
    return column_sum(group, vector_axis({row_result_}));  // whatever else would do: a map inside steps along its rows
  const bool columns = few && constant(v) && axis(v).extent >= natural(widest(m));
  if (auto s = columns ? shifted_values(group) : std::nullopt)
    shifted(group, *s, v);
  else if (along && long_enough && vectors_)
    row_sum(group, v);
  else if (const ShortRows rows = in_short_rows(group, v); rows && whole && written_out_ps(group) > kWrittenOut_ps / 8)
    sum_across(group, rows);
  else if (few && written_out_ps(group) <= kWrittenOut_ps)
    unrolled(group, v);
  else if (few && group.size() > 1 && !moves_window(m, v) &&
           std::ranges::all_of(group, [&](size_t g) { return written_out_ps({g}) <= kWrittenOut_ps; }))
    for (size_t g : group) member({g});  // too much code together: each by itself
  else if (may_be_in_registers(group, v) && !along && (few || waits_for_stores(m, v) || reads_again(group, v)))
    in_registers(group, v);
  else
    column_sum(group, along || !vectors_ ? kNone : v);
}

DType Lowering::widest(const SpecMember& m) const {
  DType best = spec_.tensors[m.tensor].type;
  for (Id id : reachable(*spec_.arena, m.body)) {
    const Node& n = (*spec_.arena)[id];
    if ((is_float(n.type) || is_read(n.op)) && byte_size(n.type) > byte_size(best)) best = n.type;
  }
  if (byte_size(best) < 4) best = DType::f32;  // masks are computed beside floats
  return best;
}

Lowering::Loops Lowering::loops_of(const SpecMember& m) const {
  std::vector<Halide::Range> ranges;
  for (size_t i = m.reduced.size(); i-- > 0;) ranges.emplace_back(0, extent(m.reduced[i]));
  Loops l{RDom(Halide::Region(ranges)), left_locals(m)};
  for (size_t i = 0; i < m.reduced.size(); ++i) l.axes[m.reduced[m.reduced.size() - 1 - i]] = l.r[static_cast<int>(i)];
  return l;
}

std::vector<const SpecMember*> Lowering::members_of(const std::vector<size_t>& group) const {
  std::vector<const SpecMember*> members;
  for (size_t g : group) members.push_back(&spec_.members[g]);
  return members;
}

std::vector<Expr> Lowering::identities(const std::vector<size_t>& group) const {
  std::vector<Expr> init;
  for (const SpecMember* m : members_of(group)) init.push_back(Emitter::identity(m->op, accumulated(*m)));
  return init;
}

std::vector<Expr> Lowering::steps(const std::vector<size_t>& group, Func f, const std::vector<Expr>& args, const Emitter::Axes& axes,
                                  const RDom& r) const {
  std::vector<Expr> now;
  for (size_t i = 0; i < group.size(); ++i) now.push_back(element(f, args, i, group.size()));
  std::vector<Expr> next = emit_.steps(members_of(group), std::move(now), axes);
  mention(r, next[0]);
  return next;
}

// Halide finds the loops of an update by the variables in it: sum(k: x[i]), or a sum over an axis of which a tile has
// one element, would not loop at all. Halide's simplifier knows that the condition holds.
void Lowering::mention(const RDom& r, Expr& value) { value = Halide::select(r[0] >= 0, value, Halide::Internal::make_zero(value.type())); }

// Of the tile, in a tensor whose elements m computes one by one.
Expr Lowering::begin_of(const SpecMember& m, const std::string& buffer) const {
  auto variable = [](const std::string& n) { return Halide::Internal::Variable::make(Halide::Int(32), n); };
  Expr begin = 0;
  for (size_t d = 0; d < m.left.size(); ++d) {
    auto origin = emit_.origin.find(m.left[d]);
    if (origin == emit_.origin.end()) continue;
    const size_t after = m.left.size() - 1 - d;
    Expr stride = after == 0 ? Expr(1) : variable(buffer + ".stride." + std::to_string(after));
    begin = begin + variable(origin->second.name()) * stride;
  }
  return begin;
}

void Lowering::finish() {
  constexpr int kFewSteps = 8;  // are written out
  auto copied = [&](Func f, DType type) {
    f.compute_at(padding_.at.at(f.name()));
    std::vector<Var> order = f.args();
    if (auto inner = padding_.innermost.find(f.name()); inner != padding_.innermost.end()) {
      std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(inner->second),
                  order.begin() + static_cast<std::ptrdiff_t>(inner->second) + 1);
      f.reorder_storage(order);
    }
    if (!order.empty()) f.vectorize(order[0], natural(type), TailStrategy::RoundUp);
    const int rows = f.num_update_definitions() - 1;  // after their ends
    for (int end = 0; end < rows; ++end) f.update(end).unroll(RVar(f.rvars(end)[0]));
    if (rows < 0) return;
    // In equal stores, if they fit: windows read across them at once, and what a masked one wrote is not handed on.
    const int64_t row = padding_.rows.at(f.name());
    const int whole = natural(type), half = whole / 2;
    const int lanes = half > 0 && row % whole != 0 && row % half == 0 ? half : whole;
    RVar x(f.rvars(rows)[0]), steps, step;
    f.update(rows).split(x, steps, step, lanes, TailStrategy::GuardWithIf).vectorize(step);
    if (row <= kFewSteps * lanes) f.update(rows).unroll(steps);
  };
  for (auto& [of, f] : padding_.funcs) copied(f, spec_.tensors[of.first].type);
  for (auto& [of, f] : padding_.values) copied(f, (*spec_.arena)[of].type);
  if (row_result_ != SIZE_MAX) {
    Func result = results_.at(spec_.members[row_result_].tensor);
    for (Func f : inside_) f.compute_at(result, vars_.at(row_axis_));
  }
  std::vector<Func> funcs;
  std::set<std::string> streamed;
  std::vector<WrittenOver> over, continued;
  for (const SpecMember& first : spec_.members) {
    auto it = results_.find(first.tensor);
    if (it == results_.end() || std::ranges::find(out_.results, first.tensor) != out_.results.end()) continue;
    Func f = it->second;
    auto buffers = f.output_buffers();
    size_t element = 0;  // of f's values: one of each member that it computes
    for (const SpecMember& m : spec_.members) {
      auto its = results_.find(m.tensor);
      if (its == results_.end() || its->second.name() != f.name()) continue;
      const SpecTensor& t = spec_.tensors[m.tensor];
      auto& buffer = buffers[element++];
      result_buffers_.emplace_back(&m, buffer.name());
      auto dims = tile_dimensions(spec_, m);
      for (size_t i = 0; i < dims.size(); ++i) {
        Id x = m.left[dims[dims.size() - 1 - i]];
        if (element == 1) buffer.dim(static_cast<int>(i)).set_min(0);  // the others are where the first is
        if (constant(x)) f.bound(vars_.at(x), 0, static_cast<int>(axis(x).extent));
      }
      bool unit = !dims.empty() && dims.back() + 1 == m.left.size() && (t.dense || t.rows || t.use == SpecTensor::Use::partial);
      if (!dims.empty() && !unit) buffer.dim(0).set_stride(Expr());
      if (unit && !t.rows && dims.size() > 1 && phase_of(m, m.left[dims[dims.size() - 2]]) != kNone)
        buffer.dim(1).set_stride(static_cast<int>(axis(m.left.back()).extent));  // so that phases are written together
      const std::vector<int> strides = known_strides(t);
      for (size_t d = 0; unit && t.use == SpecTensor::Use::result && d < strides.size() && dims.size() == m.left.size(); ++d)
        buffer.dim(static_cast<int>(d + 1)).set_stride(strides[d]);
      if (auto carried = carried_.find(m.tensor); carried != carried_.end())
        continued.push_back({carried->second.name(), buffer.name(), begin_of(m, carried->second.name())});
      else if (t.use == SpecTensor::Use::result)
        streamed.insert(buffer.name());
      for (auto [result, input] : spec_.over)
        if (result == m.tensor) over.push_back({emit_.inputs[input].name(), buffer.name(), begin_of(m, emit_.inputs[input].name())});
      out_.results.push_back(m.tensor);
    }
    funcs.push_back(f);
  }
  out_.pipeline = Halide::Pipeline(funcs);
  refuse_broken_assumptions(out_.pipeline, sample_calls(), vectors_);
  if (!spec_.over.empty()) write_over(out_.pipeline, over);
  if (!continued.empty()) read_results(out_.pipeline, continued);
  if (!beside_.sums.empty()) sums_beside(out_.pipeline, beside_.map_loop, beside_.sum_loop);
  ask_first(out_.pipeline);
  write_out_turns(out_.pipeline);
  if (spec_.streams) {
    const bool object = !target_.has_feature(Halide::Target::JIT) && target_.arch == Halide::Target::X86;
    stream_results(out_.pipeline, streamed, object ? target_.natural_vector_size(Halide::UInt(8)) : 0);
    std::set<std::string> inputs;
    for (const Halide::ImageParam& image : emit_.inputs)
      if (image.defined()) inputs.insert(image.name());
    prefetch_next(out_.pipeline, inputs, target_.processor_tune);
  }
  for (const ScatterList& s : scatter_lists_) list_scattered(out_.pipeline, s);
  if (spec_.streams || !scatter_lists_.empty())
    out_.pipeline.set_jit_externs(
        {{kStreamSymbol, Halide::JITExtern(tile_services().stream)}, {kListSymbol, Halide::JITExtern(tile_services().list)}});
}

std::vector<size_t> tile_dimensions(const KernelSpec& spec, const SpecMember& m) {
  std::vector<size_t> dims;
  for (size_t i = 0; i < m.left.size(); ++i)
    if (spec.axes.at(m.left[i]).kind() != AxisKind::point) dims.push_back(i);
  return dims;
}

bool element_by_element(const KernelSpec& spec) {
  return Lowering(with_class_representatives(spec), cpu_target(), Care::none).element_by_element();
}

LoweredKernel lower(const KernelSpec& spec, const Halide::Target& target, Care care) {
  KernelSpec compiled = with_class_representatives(spec);
  const Borders borders = care == Care::no_vectors ? Borders() : take_borders(compiled);
  LoweredKernel lowered = Lowering(compiled, target, care, borders).run();
  mend_ramps(lowered.pipeline, target);
  if (!target.has_feature(Halide::Target::FMA)) avoid_fma(lowered.pipeline);
  return lowered;
}

}  // namespace xhat::runtime
