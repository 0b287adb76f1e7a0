// Solving one group of index equations. The points of the system (bound axes that meet equations, ranges,
// conditions) are a Presburger set S over parameters: targets, dims, outer axes. Axis by axis, in an order
// that puts those that an equation determines last, S is projected onto the axis and those before it, and the
// axis is read off the constraints: an equality solves it; a bound that all points meet solves it too; a
// stride makes it s*t + offset with a new axis t; else its bounds become its range. Whatever was read off may
// be too wide, never wrong: at the end isl compares it with S, and the tests (ranges, equations, conditions)
// that are not implied become the guard.
#include <algorithm>

#include "expr/index/affine_scope.h"
#include "expr/index/affine_system.h"

namespace xhat::affine {
namespace {

using BasicSet = Handle<isl_basic_set, isl_basic_set_copy, isl_basic_set_free>;
using Constraint = Handle<isl_constraint, isl_constraint_copy, isl_constraint_free>;
using Stride = Handle<isl_stride_info, isl_stride_info_copy, isl_stride_info_free>;

// Ranges written piecewise: a clamp has three pieces; more would be code nobody reads, so a hull with a
// guard.
constexpr int kMaxPieces = 4;

// What the constraints say of an axis: lower[k] <= divisor*axis as ceil, and so on, already divided.
struct Bounds {
  std::vector<Poly> lower, upper;  // begin and last
  std::optional<Poly> exact;
  Id divisible = kNone;  // with exact: must hold
  bool hidden = false;   // some constraint has the axis inside an integer division
};

class Solver {
 public:
  Solver(Arena& a, const System& s, std::span<const AxisRange> targets)
      : a_(a), s_(s), targets_(targets), scope_(a), points_(scope_.universe()), placed_points_(scope_.universe()) {
    for (const AxisRange& r : targets) scope_.bind(r);
    for (const AxisRange& r : targets) placed_points_ = placed_points_ & scope_.inside(r);
    points_ = placed_points_;
    avoid_ = s.taken;
    for (const AxisRange& r : s.axes) avoid_.push_back(r.axis);
    for (const AxisRange& r : targets) avoid_.push_back(r.axis);
    collect_tests();
  }

  Solution run() {
    points_ = coalesced(points_ & scope_.facts());
    placed_points_ = placed_points_ & scope_.facts();
    if (is_empty(points_)) return nothing();
    for (const AxisRange& r : in_order()) {
      unplaced_.erase(std::find(unplaced_.begin(), unplaced_.end(), r.axis));
      place(r);
    }
    return finish();
  }

 private:
  // The definition of S: the conjunction of these. In the order in which a guard would best say them.
  void collect_tests() {
    for (const AxisRange& r : s_.axes) {
      unplaced_.push_back(r.axis);
      tests_.push_back(a_.binary(Op::le, r.begin, r.axis));
      tests_.push_back(a_.binary(Op::lt, r.axis, r.end));
    }
    for (const auto* tests : {&s_.inequalities, &s_.conditions})
      tests_.insert(tests_.end(), tests->begin(), tests->end());
    for (const Equation& e : s_.equations)
      tests_.push_back(a_.eq(a_.to(DType::i64, e.left), a_.to(DType::i64, e.right)));
    for (Id t : tests_) points_ = points_ & scope_.condition(t).may;
    for (Id x : all_axes(a_, tests_))
      if (std::find(avoid_.begin(), avoid_.end(), x) == avoid_.end()) avoid_.push_back(x);
  }

  // Axes that an equation determines with coefficient 1 or -1 stand last: one per equation, the last such
  // axis.
  std::vector<AxisRange> in_order() {
    std::vector<Id> last;
    for (const Equation& e : s_.equations) {
      const Poly p = scope_.poly(e.left);
      for (size_t i = s_.axes.size(); i-- > 0;) {
        const Id x = s_.axes[i].axis;
        const int64_t c = p.coefficient(x);
        if ((c != 1 && c != -1) || mentions(p.without(x), {x})) continue;
        if (std::find(last.begin(), last.end(), x) != last.end()) continue;
        last.push_back(x);
        break;
      }
    }
    auto is_last = [&](const AxisRange& r) {
      return std::find(last.begin(), last.end(), r.axis) != last.end();
    };
    std::vector<AxisRange> order = s_.axes;
    std::stable_partition(order.begin(), order.end(), [&](const AxisRange& r) { return !is_last(r); });
    return order;
  }

  bool mentions(const Poly& p, const std::vector<Id>& axes) const {
    for (const auto& [m, c] : p.terms)
      for (Id atom : m)
        for (Id x : a_[atom].free_axes())
          if (std::find(axes.begin(), axes.end(), x) != axes.end()) return true;
    return false;
  }
  bool mentions(Id e, const std::vector<Id>& axes) const { return mentions(Poly::atom(e), axes); }

  bool always(const Set& s) { return is_subset(placed_points_ & scope_.facts(), s); }

  // ---- one axis
  // -----------------------------------------------------------------------------------------------------

  void place(const AxisRange& r) {
    const Set here = Set(isl_set_compute_divs(projected(points_).give()));
    const Set new_here =
        coalesced(Set(isl_set_gist(isl_set_detect_equalities(here.give()), placed_points_.give())));
    Bounds b;
    std::vector<BasicSet> parts = basic_sets(new_here);
    if (parts.size() > 1) {
      if (place_pieces(r, here, false)) return;
      parts.clear();  // what holds in all pieces
      parts.emplace_back(isl_set_simple_hull(isl_set_remove_unknown_divs(new_here.give())));
      if (!mentions(r.begin, unplaced_)) b.lower.push_back(scope_.poly(r.begin));
      if (!mentions(r.end, unplaced_)) b.upper.push_back(scope_.poly(r.end) - Poly::constant(1));
    }
    for (const BasicSet& part : parts) read(part, r.axis, b);
    // Bounded through i%3 or i/5: what that means for i itself.
    if (!b.exact && b.hidden && stride_of(here, r.axis) < 2 && place_pieces(r, here, true)) return;
    if (!b.exact && b.hidden)
      read(BasicSet(isl_set_simple_hull(isl_set_remove_divs(new_here.give()))), r.axis, b);
    if (b.exact) {
      if (b.divisible != kNone) tests_.insert(tests_.begin(), b.divisible);
      return solved(r.axis, expression(a_, *b.exact));
    }
    add_own_range(r, b);
    for (const auto* side : {&b.upper, &b.lower})
      for (const Poly& p : *side)
        if (is_subset(here, scope_.eq(scope_.poly(r.axis), p))) return solved(r.axis, expression(a_, p));
    if (b.lower.empty() || b.upper.empty()) throw GaveUp{};
    if (!place_stride(r, here, b)) remains({r.axis, begin_of(b.lower), end_of(b.upper)}, r);
  }

  // Without the axes that are not placed yet.
  Set projected(Set s) const {
    for (Id x : unplaced_) {
      const int at = scope_.position(s, x);
      if (at >= 0) s = Set(isl_set_project_out(s.give(), isl_dim_param, static_cast<unsigned>(at), 1));
    }
    return s;
  }

  static std::vector<BasicSet> basic_sets(const Set& s) {
    auto collect = [](isl_basic_set* b, void* out) {
      static_cast<std::vector<BasicSet>*>(out)->emplace_back(b);
      return isl_stat_ok;
    };
    std::vector<BasicSet> parts;
    if (isl_set_foreach_basic_set(s.get(), collect, &parts) < 0) throw GaveUp{};
    return parts;
  }

  void read(const BasicSet& part, Id x, Bounds& b) {
    const BasicSet lean(isl_basic_set_remove_redundancies(part.give()));
    auto collect = [](isl_constraint* c, void* out) {
      static_cast<std::vector<Constraint>*>(out)->emplace_back(c);
      return isl_stat_ok;
    };
    std::vector<Constraint> constraints;
    if (isl_basic_set_foreach_constraint(lean.get(), collect, &constraints) < 0) throw GaveUp{};
    for (const Constraint& constraint : constraints) {
      if (yes(isl_constraint_is_div_constraint(constraint.get()))) continue;
      Poly f;
      try {
        f = scope_.poly_of(Aff(isl_constraint_get_aff(constraint.get())));
      } catch (const GaveUp&) {
        continue;  // an integer division without a formula; the guard will see to it
      }
      const int64_t c = f.coefficient(x);
      const Poly rest = f.without(x);
      b.hidden = b.hidden || mentions(rest, {x});
      if (c == 0 || mentions(rest, {x}) || mentions(rest, unplaced_)) continue;
      const int64_t size = c < 0 ? -c : c;
      const Poly to = c < 0 ? rest : -rest;  // size*x is, or is bounded by, this
      if (yes(isl_constraint_is_equality(constraint.get()))) {
        if (b.exact && b.divisible == kNone) continue;
        b.exact = floor_div(a_, to, size);
        b.divisible = size == 1 ? kNone : divisible(a_, to, size);
      } else if (c > 0) {
        b.lower.push_back(floor_div(a_, to + Poly::constant(size - 1), size));
      } else {
        b.upper.push_back(floor_div(a_, to, size));
      }
    }
  }

  // Where the constraints leave a side open (they are implied, or were dropped), the axis's own range closes
  // it.
  void add_own_range(const AxisRange& r, Bounds& b) {
    if (b.lower.empty() && !mentions(r.begin, unplaced_)) b.lower.push_back(scope_.poly(r.begin));
    if (b.upper.empty() && !mentions(r.end, unplaced_))
      b.upper.push_back(scope_.poly(r.end) - Poly::constant(1));
  }

  // Where the fibre is a union that is one interval: its least and greatest value, written piecewise. `exact`: all of the interval belongs to
  // it, and no end is a choice.
  bool place_pieces(const AxisRange& r, const Set& here, bool exact) {
    const Set moved = as_dimension(here, r.axis);
    const Poly x = scope_.poly(r.axis);
    std::vector<Id> ends;
    Id behind = kNone;  // the place behind the last one, where that is a minimum
    for (auto* extreme : {isl_set_dim_min, isl_set_dim_max}) {
      const bool lower = ends.empty();
      PwAff v(isl_pw_aff_coalesce(extreme(moved.give(), 0)));
      v = PwAff(isl_pw_aff_gist_params(v.give(), isl_set_params(placed_points_.give())));
      v = PwAff(isl_pw_aff_coalesce(v.give()));
      if (count(isl_pw_aff_n_piece(v.get())) > kMaxPieces) return false;
      try {
        // All pieces bound the axis everywhere: their maximum, or minimum.
        const std::vector<Poly> pieces = pieces_of(v);
        const bool all = std::ranges::all_of(
            pieces, [&](const Poly& p) { return is_subset(here, lower ? scope_.le(p, x) : scope_.le(x, p)); });
        ends.push_back(!all ? scope_.expression_of(v) : lower ? begin_of(pieces) : last_of(pieces));
        if (all && !lower) behind = end_of(pieces);
      } catch (const GaveUp&) {
        return false;
      }
      if (mentions(ends.back(), {r.axis}) || mentions(ends.back(), unplaced_)) return false;
    }
    if (exact && has_select(ends)) return false;
    const Poly first = scope_.poly(ends[0]), last = scope_.poly(ends[1]);
    const Set interval = scope_.le(first, x) & scope_.le(x, last) & placed_points_;
    if (!is_subset(here, interval)) return false;
    if (ends[0] == ends[1] || is_subset(interval, scope_.eq(first, last))) {
      solved(r.axis, ends[0]);
      return true;
    }
    // An inexact interval is still a good range when it is simple: the guard says the rest.
    if (!is_subset(interval & scope_.facts(), here) && (exact || has_select(ends))) return false;
    remains({r.axis, ends[0], behind != kNone ? behind : expression(a_, last + Poly::constant(1))}, r);
    return true;
  }

  // What the value is on each of its pieces.
  std::vector<Poly> pieces_of(const PwAff& v) {
    std::vector<Aff> found;
    auto collect = [](isl_set* where, isl_aff* a, void* out) {
      isl_set_free(where);
      static_cast<std::vector<Aff>*>(out)->emplace_back(a);
      return isl_stat_ok;
    };
    if (isl_pw_aff_foreach_piece(v.get(), collect, &found) < 0) throw GaveUp{};
    std::vector<Poly> pieces;
    for (const Aff& a : found) pieces.push_back(scope_.poly_of(a));
    return pieces;
  }

  bool has_select(const std::vector<Id>& roots) const {
    const auto ids = reachable(a_, roots);
    return std::any_of(ids.begin(), ids.end(), [&](Id id) { return a_[id].op == Op::select; });
  }

  Set as_dimension(const Set& s, Id x) const {
    return Set(isl_set_move_dims(s.give(), isl_dim_set, 0, isl_dim_param,
                                 static_cast<unsigned>(scope_.position(s, x)), 1));
  }

  int64_t stride_of(const Set& s, Id x) const {
    const Stride info(isl_set_get_stride_info(as_dimension(s, x).get(), 0));
    return to_int64(Val(isl_stride_info_get_stride(info.get())));
  }

  // x == s*t + offset: solved if there is only one t, else t remains.
  bool place_stride(const AxisRange& r, const Set& here, const Bounds& b) {
    const Set moved = as_dimension(here, r.axis);
    const Stride info(isl_set_get_stride_info(moved.get(), 0));
    const int64_t stride = to_int64(Val(isl_stride_info_get_stride(info.get())));
    if (stride < 2) return false;
    Poly offset;
    try {
      offset = scope_.poly_of(Aff(isl_stride_info_get_offset(info.get())));
    } catch (const GaveUp&) {
      return false;
    }
    if (mentions(offset, {r.axis}) || mentions(offset, unplaced_)) return false;
    // 2*t + j%2, so that t starts near 0; but 2*t + j - 1 where j is the shorter one, a step of a window: what is read there stays linear.
    offset = is_step_beside(offset, r) ? near_zero(offset, stride) : floor_mod(a_, offset, stride);
    Bounds steps;
    for (const Poly& p : b.lower)
      steps.lower.push_back(floor_div(a_, p - offset + Poly::constant(stride - 1), stride));
    for (const Poly& p : b.upper) steps.upper.push_back(floor_div(a_, p - offset, stride));
    const Poly x = scope_.poly(r.axis);
    for (const auto* side : {&steps.upper, &steps.lower})
      for (const Poly& p : *side) {
        const Poly at = Poly::constant(stride) * p + offset;
        if (!is_subset(here, scope_.eq(x, at))) continue;
        solved(r.axis, expression(a_, at));
        return true;
      }
    const Id t = a_.fresh_axis(r.axis, avoid_);
    avoid_.push_back(t);
    fresh_.push_back(t);
    remains({t, begin_of(steps.lower), end_of(steps.upper)}, r);
    solved(r.axis, expression(a_, Poly::constant(stride) * Poly::atom(t) + offset));
    return true;
  }

  // Does the offset depend on one target of a known length alone, and is the axis at least as long?
  bool is_step_beside(const Poly& offset, const AxisRange& axis) {
    const auto length = [&](const AxisRange& r) { return (scope_.poly(r.end) - scope_.poly(r.begin)).as_constant(); };
    const Id whole = expression(a_, offset);
    if (a_[whole].free_axes().size() != 1) return false;
    auto step = std::ranges::find(targets_, a_[whole].free_axes()[0], &AxisRange::axis);
    if (step == targets_.end() || !length(*step)) return false;
    const std::optional<int64_t> own = length(axis);
    return !own || *own >= *length(*step);
  }
  // Without whole multiples of the stride, as small as they go.
  static Poly near_zero(const Poly& p, int64_t stride) {
    Poly small;
    for (const auto& [m, c] : p.terms) {
      const int64_t left = ((c % stride) + stride) % stride;
      small.add(m, 2 * left > stride || (m.empty() && 2 * left == stride) ? left - stride : left);
    }
    return small;
  }

  // ---- what was found
  // -----------------------------------------------------------------------------------------------

  // The bounds that matter: without those that another one implies.
  std::vector<Poly> without_implied(std::vector<Poly> bounds, bool lower) {
    for (size_t i = bounds.size(); i-- > 0;)
      for (size_t j = 0; j < bounds.size(); ++j) {
        if (i == j) continue;
        const Poly &mine = bounds[i], &other = bounds[j];
        if (!always(lower ? scope_.le(mine, other) : scope_.le(other, mine))) continue;
        bounds.erase(bounds.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    return bounds;
  }
  Id begin_of(const std::vector<Poly>& lower) {
    return extreme(without_implied(lower, true), Op::maximum, 0);
  }
  Id last_of(const std::vector<Poly>& upper) { return extreme(without_implied(upper, false), Op::minimum, 0); }
  Id end_of(const std::vector<Poly>& upper) { return extreme(without_implied(upper, false), Op::minimum, 1); }
  Id extreme(std::vector<Poly> bounds, Op op, int64_t plus) {
    // Constants first, then what is shorter: max(0, j - 1).
    std::stable_sort(bounds.begin(), bounds.end(),
                     [](const Poly& x, const Poly& y) { return x.terms.size() < y.terms.size(); });
    Id r = kNone;
    for (const Poly& p : bounds) {
      const Id e = expression(a_, p + Poly::constant(plus));
      r = r == kNone ? e : a_.binary(op, r, e);
    }
    return r;
  }

  void solved(Id x, Id e) {
    out_.solved.emplace_back(x, e);
    placed_points_ = placed_points_ & scope_.eq(scope_.poly(x), scope_.poly(e));
    out_.progress = true;
  }

  void remains(const AxisRange& now, const AxisRange& was) {
    const bool same =
        scope_.poly(now.begin) == scope_.poly(was.begin) && scope_.poly(now.end) == scope_.poly(was.end);
    out_.remaining.push_back(same ? AxisRange{now.axis, was.begin, was.end} : now);
    if (same) scope_.bind(was);  // holds for S too, so products of the axis may be bounded by it
    out_.progress = out_.progress || !same;
    placed_points_ = placed_points_ & scope_.inside(now);
  }

  Solution finish() {
    Set covered = placed_points_ & scope_.facts();
    for (Id t : fresh_) {
      const int at = scope_.position(covered, t);
      covered = Set(isl_set_project_out(covered.give(), isl_dim_param, static_cast<unsigned>(at), 1));
    }
    if (!is_subset(points_ & scope_.facts(), covered)) throw GaveUp{};
    find_guards();
    return std::move(out_);
  }

  // The tests that what was found does not imply, as few as go.
  void find_guards() {
    const Set found = placed_points_ & scope_.facts();
    Set rest = found;
    std::vector<Id> guards;
    for (Id t : tests_) {
      const Set must = scope_.condition(t).must;
      if (is_subset(rest, must)) continue;
      rest = rest & must;
      guards.push_back(t);
    }
    for (size_t i = guards.size(); i-- > 0 && guards.size() > 1;) {
      Set others = found;
      for (size_t j = 0; j < guards.size(); ++j)
        if (j != i) others = others & scope_.condition(guards[j]).must;
      if (is_subset(others, scope_.condition(guards[i]).must))
        guards.erase(guards.begin() + static_cast<std::ptrdiff_t>(i));
    }
    out_.guards = std::move(guards);
  }

  Solution nothing() {
    Solution s;
    for (const AxisRange& r : s_.axes) s.solved.emplace_back(r.axis, a_.integer(0));
    s.guards = {a_.boolean(false)};
    s.progress = true;
    return s;
  }

  Arena& a_;
  const System& s_;
  std::span<const AxisRange> targets_;
  Scope scope_;
  std::vector<Id> tests_, unplaced_, avoid_, fresh_;
  Set points_;         // S
  Set placed_points_;  // what is said of targets and placed axes so far
  Solution out_;
};

Solution unsolved(Arena& a, const System& s) {
  Solution r{s.axes, {}, s.conditions, false};
  r.guards.insert(r.guards.end(), s.inequalities.begin(), s.inequalities.end());
  for (const Equation& e : s.equations)
    r.guards.push_back(a.eq(a.to(DType::i64, e.left), a.to(DType::i64, e.right)));
  return r;
}

}  // namespace

Solution solve(Arena& a, const System& group, std::span<const AxisRange> targets) {
  try {
    return Solver(a, group, targets).run();
  } catch (const GaveUp&) {
    return unsolved(a, group);
  }
}

}  // namespace xhat::affine
