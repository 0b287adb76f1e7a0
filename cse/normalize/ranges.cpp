#include "cse/normalize/ranges.h"

#include <algorithm>

#include "cse/match/unify.h"
#include "cse/normalize/ways.h"

namespace xhat {
namespace {

// Arithmetic that kernels know the size of when they know the sizes of tensors.
bool is_plain(const Arena& a, Id id) {
  const Node& n = a[id];
  switch (n.op) {
    case Op::constant:
    case Op::axis:
    case Op::dim:
    case Op::neg:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::minimum:
    case Op::maximum:
    case Op::clamp:
    case Op::select: return n.type == DType::boolean || n.type == DType::i64 || n.type == DType::i32;
    case Op::cast: return n.type == DType::i64 || n.type == DType::i32;
    case Op::div:
    case Op::mod: return a[n.arg(1)].op == Op::dim || (a[n.arg(1)].op == Op::constant && a[n.arg(1)].integer > 0);
    default: return n.type == DType::boolean && !is_reduction(n.op);
  }
}
bool is_plain(const Arena& a, const AxisRange& r) {
  bool of_dims = is_box(a, r);
  return std::ranges::all_of(reachable(a, std::vector<Id>{r.begin, r.end}), [&](Id id) {
    return of_dims ? !is_reduction(a[id].op) : !is_float(a[id].type) && is_plain(a, id);
  });
}

// Does a reduction inside depend on the axis as well as on what its range depends on?
bool couples(const Arena& a, Id reduction, const AxisRange& r) {
  auto begin = a[r.begin].free_axes();
  return std::ranges::any_of(reachable(a, a[reduction].args().first(2)), [&](Id id) {
    return is_reduction(a[id].op) && has_axis(a, id, r.axis) &&
           std::ranges::any_of(begin, [&](Id x) { return has_axis(a, id, x); });
  });
}

}  // namespace

Ranges ranges_in(const Arena& a, const Definition& d, Id body) {
  Ranges ranges;
  for (const AxisRange& r : d.axes) ranges[r.axis] = r;
  for (Id id : reachable(a, body))
    if (is_reduction(a[id].op))
      for (const AxisRange& r : reduce_axes(a[id])) ranges[r.axis] = r;
  return ranges;
}

bool has_axis(const Arena& a, Id e, Id axis) {
  auto free = a[e].free_axes();
  return std::ranges::find(free, axis) != free.end();
}

bool is_box(const Arena& a, const AxisRange& r) { return a[r.begin].axes_count + a[r.end].axes_count == 0; }

Id with_plain_ranges(Arena& a, const Definition& d, Id body) {
  Ranges ranges = ranges_in(a, d, body);
  Hull hull(a, ranges);
  return rewrite(a, body, [&](Id id) {
    if (!is_reduction(a[id].op)) return id;
    std::vector<AxisRange> axes = reduce_axes(a[id]);
    Id inside = a.boolean(true);
    for (AxisRange& r : axes) {
      std::optional<AxisRange> box = is_plain(a, r) ? std::nullopt : hull.box(ranges.at(r.axis));
      if (!box) continue;
      inside = guarded_by(a, inside, within(a, r));
      r = *box;
    }
    if (is_true(a, inside)) return id;
    return a.reduce(a[id].op, axes, guarded_by(a, inside, a[id].arg(1)), a[id].arg(0));
  });
}

Id boxed(Arena& a, Id body, bool for_what_is_inside) {
  return rewrite(a, body, [&](Id id) {
    if (!is_reduction(a[id].op)) return id;
    std::vector<AxisRange> axes = reduce_axes(a[id]);
    Replacements shift;
    for (AxisRange& r : axes) {
      if (a[r.begin].free_axes().empty()) continue;
      Id width = tidy_index(a, a.sub(r.end, r.begin));
      if (!a[width].free_axes().empty() || (for_what_is_inside && !couples(a, id, r))) continue;
      shift[r.axis] = tidy_index(a, a.add(r.begin, r.axis));
      r = {r.axis, a.integer(0), width};
    }
    if (shift.empty()) return id;
    // Ranges of later axes may use a shifted one, so they are rewritten as well as the body.
    for (AxisRange& r : axes) r = {r.axis, shifted(a, r.begin, shift), shifted(a, r.end, shift)};
    return a.reduce(a[id].op, axes, shifted(a, a[id].arg(1), shift), shifted(a, a[id].arg(0), shift));
  });
}

Id arguments_from_zero(Arena& a, Id body) {
  return rewrite(a, body, [&](Id id) {
    const Node n = a[id];
    if (n.op != Op::argmax && n.op != Op::argmin) return id;
    const AxisRange r = reduce_axes(n)[0];
    if (is_constant(a, r.begin, 0)) return id;
    const Replacements shift = {{r.axis, tidy_index(a, a.add(r.begin, r.axis))}};
    const std::vector<AxisRange> walked = {{r.axis, a.integer(0), tidy_index(a, a.sub(r.end, r.begin))}};
    return a.add(r.begin, a.reduce(n.op, walked, shifted(a, n.arg(1), shift), shifted(a, n.arg(0), shift)));
  });
}

Id shifted(Arena& a, Id e, const Replacements& shift) {
  std::unordered_map<Id, Id> done;
  std::vector<Id> args;
  for (Id id : reachable(a, e)) {
    auto it = shift.find(id);
    args.clear();
    for (Id x : a[id].args()) args.push_back(done.at(x));
    // Not where it is bound.
    if (is_reduction(a[id].op))
      for (size_t i = 2; i < args.size(); i += 3) args[i] = a[id].arg(i);
    done[id] = it == shift.end() ? tidy_index(a, a.with_args(id, args)) : it->second;
  }
  return done.at(e);
}

std::optional<int64_t> literal(const Arena& a, Id e) {
  return a[e].op == Op::constant && is_integer(a[e].type) ? std::optional(a[e].integer) : std::nullopt;
}

std::optional<int64_t> only_point(const Arena& a, const AxisRange& r) {
  const auto begin = literal(a, r.begin), end = literal(a, r.end);
  return begin && end && *end - *begin == 1 ? begin : std::nullopt;
}

Id within(Arena& a, const AxisRange& r) {
  Id below = a.binary(Op::lt, r.axis, r.end);
  return is_constant(a, r.begin, 0) ? below : guarded_by(a, a.binary(Op::le, r.begin, r.axis), below);
}

}  // namespace xhat
