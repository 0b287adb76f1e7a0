// Bounds of index expressions. The points that fall outside are a Presburger set: empty means proved; else
// the sizes that are safe are what is left after projecting the axes away, and a precondition is a box of
// them.
#include "expr/index/affine.h"

#include <algorithm>

#include "expr/index/affine_scope.h"
#include "expr/index/affine_split.h"
#include "expr/index/affine_system.h"

namespace xhat {
namespace {

using namespace affine;

bool is_named(const Arena& a, const Monomial& m, Op op) { return m.size() == 1 && a[m[0]].op == op; }

// The set without the parameters that keep does not want.
template <class Keep>
Set projected(const Scope& scope, Set s, Keep keep) {
  const auto names = scope.parameters(s);
  for (size_t i = names.size(); i-- > 0;)
    if (!keep(names[i])) s = Set(isl_set_project_out(s.give(), isl_dim_param, static_cast<unsigned>(i), 1));
  return s;
}

// The set with the atoms moved from parameters to set dimensions, in this order (they must be parameters of
// it).
Set with_dimensions(const Scope& scope, Set s, std::span<const Id> atoms) {
  for (size_t i = 0; i < atoms.size(); ++i) {
    const int at = scope.position(s, atoms[i]);
    s = Set(isl_set_move_dims(s.give(), isl_dim_set, static_cast<unsigned>(i), isl_dim_param,
                              static_cast<unsigned>(at), 1));
  }
  return s;
}

int64_t coordinate(const Point& p, int i) {
  return to_int64(Val(isl_point_get_coordinate_val(p.get(), isl_dim_set, i)));
}

// The smallest dims, then the smallest axis values, where the index falls outside.
std::string example_of(Scope& scope, const BoundsQuestion& q, const Set& bad) {
  Arena& a = scope.arena();
  std::vector<Id> order;
  for (const Monomial& m : scope.parameters(bad))
    if (is_named(a, m, Op::dim)) order.push_back(m[0]);
  std::sort(order.begin(), order.end());
  const size_t dims = order.size();
  const auto names = scope.parameters(bad);
  for (const AxisRange& r : q.axes)
    if (std::find(names.begin(), names.end(), Monomial{r.axis}) != names.end()) order.push_back(r.axis);
  Set s = projected(scope, bad, [&](const Monomial& m) {
    return m.size() == 1 && std::find(order.begin(), order.end(), m[0]) != order.end();
  });
  s = with_dimensions(scope, s, order);
  isl_set* least = isl_set_lexmin(s.give());  // null where an axis has no least value
  const Point at(isl_set_sample_point(least ? least : s.give()));
  std::string axes, sizes;
  for (size_t i = 0; i < order.size(); ++i) {
    std::string& text = i < dims ? sizes : axes;
    text += (text.empty() ? "" : ", ") + a.name(order[i]) + " = " +
            std::to_string(coordinate(at, static_cast<int>(i)));
  }
  // The index there: the one value that meets these coordinates.
  Set here = scope.eq(scope.poly(q.index), scope.poly(a.axis("index value"))) & scope.facts();
  for (size_t i = 0; i < order.size(); ++i)
    here = here & scope.eq(scope.poly(order[i]), Poly::constant(coordinate(at, static_cast<int>(i))));
  const Id index = a.axis("index value");
  here = projected(scope, here, [&](const Monomial& m) { return m == Monomial{index}; });
  here = with_dimensions(scope, here, {{index}});
  const int64_t value = coordinate(Point(isl_set_sample_point(here.give())), 0);
  std::string text = axes;
  if (!sizes.empty()) text += (text.empty() ? "with " : " with ") + sizes;
  return text + (text.empty() ? "index " : ": index ") + std::to_string(value);
}

// The box { dims at least these } whose part inside `context` is exactly `safe`; none where there is no such
// box. Bounds that the context implies anyway are left out.
std::optional<std::vector<std::pair<Id, int64_t>>> box_of(Scope& scope, const Set& safe, const Set& context) {
  std::vector<Id> dims;
  for (const Monomial& m : scope.parameters(safe)) dims.push_back(m[0]);
  std::sort(dims.begin(), dims.end());
  const Set points = with_dimensions(scope, safe, dims);
  std::vector<std::pair<Id, int64_t>> box;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Aff size(isl_aff_var_on_domain(isl_local_space_from_space(isl_set_get_space(points.get())),
                                         isl_dim_set, static_cast<unsigned>(i)));
    box.emplace_back(dims[i], to_int64(Val(isl_set_min_val(points.get(), size.get()))));
  }
  auto matches = [&](const std::vector<std::pair<Id, int64_t>>& b) {
    Set inside = context;
    for (const auto& [dim, least] : b)
      inside = inside & scope.le(Poly::constant(least), scope.poly(dim));
    return is_subset(inside, safe);  // safe lies in every such box: the bounds are its own minima
  };
  if (!matches(box)) return std::nullopt;
  for (size_t i = box.size(); i-- > 0;) {
    auto fewer = box;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (matches(fewer)) box = fewer;
  }
  return box;
}

// Without isl: the least value that the intervals leave, of the number itself or of what it exceeds one of the known
// numbers by, which are not negative.
bool evidently_nonnegative(Scope& scope, const Poly& p, const std::vector<Poly>& known) {
  auto by_interval = [&](const Poly& x) {
    const auto least = scope.interval(x).lo;
    return least && scope.surely_nonnegative(*least);
  };
  return by_interval(p) || std::ranges::any_of(known, [&](const Poly& k) { return by_interval(p - k); });
}

// What ranges and comparisons of integers say is not negative.
std::vector<Poly> known_nonnegative(Scope& scope, const BoundsQuestion& q) {
  const Arena& a = scope.arena();
  const Poly one = Poly::constant(1);
  std::vector<Poly> known;
  for (const AxisRange& r : q.axes) {
    known.push_back(scope.poly(r.axis) - scope.poly(r.begin));
    known.push_back(scope.poly(r.end) - one - scope.poly(r.axis));
  }
  for (Id c : q.conditions) {
    const Node& n = a[c];
    if ((n.op != Op::lt && n.op != Op::le) || !is_integer(a[n.arg(0)].type)) continue;
    const Poly difference = scope.poly(n.arg(1)) - scope.poly(n.arg(0));
    known.push_back(n.op == Op::lt ? difference - one : difference);
  }
  return known;
}

BoundsAnswer prove(Arena& a, const BoundsQuestion& q) {
  using Verdict = BoundsAnswer::Verdict;
  Scope scope(a, tensors_read(a, q.index).empty() ? kIslOperations : kIslOperationsForData);
  for (const AxisRange& r : q.axes) scope.bind(r);
  const Poly index = scope.poly(q.index), extent = scope.poly(q.extent);
  const std::vector<Poly> known = known_nonnegative(scope, q);
  if (evidently_nonnegative(scope, index, known) &&
      evidently_nonnegative(scope, extent - index - Poly::constant(1), known))
    return {Verdict::proved, {}, {}};
  Set domain = scope.universe();
  for (const AxisRange& r : q.axes) domain = domain & scope.inside(r);
  for (Id c : q.conditions) domain = domain & scope.condition(c).may;
  const Set outside = scope.lt(index, Poly{}) | scope.le(extent, index);
  domain = domain & scope.facts();
  Set bad = domain & outside;
  if (is_empty(bad)) return {Verdict::proved, {}, {}};
  bool opaque = scope.has_opaque(q.index) || scope.has_opaque(q.extent);
  for (const AxisRange& r : q.axes) opaque = opaque || scope.has_opaque(r.begin) || scope.has_opaque(r.end);
  if (opaque) return {Verdict::unknown, {}, {}};
  bad = coalesced(bad);
  // Sizes for which nothing is iterated are safe, whatever the box says of them: they are left out of the
  // comparison.
  auto dims_only = [&](const Monomial& m) { return is_named(a, m, Op::dim); };
  const Set context = coalesced(projected(scope, domain, dims_only));
  const Set safe = coalesced(context - projected(scope, bad, dims_only));
  if (!is_empty(safe))
    if (auto box = box_of(scope, safe, context)) return {Verdict::precondition, *box, {}};
  return {Verdict::violated, {}, example_of(scope, q, bad)};
}

}  // namespace

namespace {

BoundsAnswer prove_if_in_reach(Arena& a, const BoundsQuestion& q) {
  try {
    return prove(a, q);
  } catch (const GaveUp&) {
    return {BoundsAnswer::Verdict::unknown, {}, {}};
  }
}

}  // namespace

BoundsAnswer prove_bounds(Arena& a, const BoundsQuestion& q) {
  BoundsAnswer answer = prove_if_in_reach(a, q);
  if (answer.verdict != BoundsAnswer::Verdict::unknown) return answer;
  auto split = split_positions(a, q);
  if (!split) return answer;
  answer = prove_if_in_reach(a, split->view());
  // The example in the axes that were asked about.
  if (answer.verdict == BoundsAnswer::Verdict::violated)
    if (auto example = violation_at_some_sizes(a, q)) answer.example = *example;
  return answer;
}

BoundsAnswer prove_nonnegative(Arena& a, Id size) {
  return prove_bounds(a, {.axes = {}, .conditions = {}, .index = size, .extent = a.add(size, a.integer(1))});
}

namespace {

// The points where these axes are in their ranges; the scope knows of the ranges then.
Set bound_points(Scope& scope, std::span<const AxisRange> axes) {
  Set points = scope.universe();
  for (const AxisRange& r : axes) {
    scope.bind(r);
    points = points & scope.inside(r);
  }
  return points;
}

}  // namespace

Id nonempty(Arena& a, std::span<const AxisRange> axes, std::span<const AxisRange> around) {
  try {
    Scope scope(a);
    const Set context = bound_points(scope, around);
    Set points = context & bound_points(scope, axes);
    points = projected(scope, points & scope.facts(), [&](const Monomial& m) {
      return std::ranges::none_of(m, [&](Id atom) {
        return std::ranges::any_of(axes, [&](const AxisRange& r) {
          auto free = a[atom].free_axes();
          return std::ranges::find(free, r.axis) != free.end();
        });
      });
    });
    const Set where(isl_set_gist(coalesced(points).give(), (context & scope.facts()).give()));
    const Id condition = scope.condition_of(Set(isl_set_compute_divs(where.give())));
    return is_true(a, condition) ? kNone : tidy(a, condition);
  } catch (const GaveUp&) {
    return kNone;
  }
}

std::optional<int64_t> largest_difference(Arena& a, Id x, Id y, std::span<const AxisRange> axes) {
  try {
    Scope scope(a);
    const Poly exact = scope.poly(x) - scope.poly(y);
    if (auto c = exact.as_constant()) return c;
    Set points = bound_points(scope, axes);
    const Id difference = a.axis("difference");
    points = points & scope.eq(scope.poly(difference), exact) & scope.facts();
    points = projected(scope, points, [&](const Monomial& m) { return m == Monomial{difference}; });
    points = with_dimensions(scope, points, {{difference}});
    const Aff at(isl_aff_var_on_domain(isl_local_space_from_space(isl_set_get_space(points.get())), isl_dim_set, 0));
    return to_int64(Val(isl_set_max_val(points.get(), at.get())));
  } catch (const GaveUp&) {
    return std::nullopt;
  }
}

Id collected(Arena& a, Id index) { return tidy(a, index); }

bool provably_equal(Arena& a, Id x, Id y) {
  if (x == y) return true;
  try {
    Scope scope(a);
    if (scope.poly(x) == scope.poly(y)) return true;
    const Set differ = scope.ne(scope.poly(x), scope.poly(y));
    return is_empty(differ & scope.facts());
  } catch (const GaveUp&) {
    return false;
  }
}

}  // namespace xhat
