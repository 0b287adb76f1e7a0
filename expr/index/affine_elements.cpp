#include "expr/index/affine_elements.h"

#include <cstdlib>

#include "expr/index/affine_scope.h"

namespace xhat {
namespace {

using namespace affine;

// Counting walks over all but one dimension of a set: about a second for 10 million steps.
constexpr unsigned long kCountOperations = 50'000'000;

Id coordinate(Arena& a, size_t i) { return a.axis("element " + std::to_string(i)); }

// The elements as a set with a dimension per index and no parameters.
Set elements(Scope& scope, const ElementSet& e) {
  Arena& a = scope.arena();
  Set s = scope.universe();
  for (const AxisRange& r : e.axes) scope.bind(r);
  for (const AxisRange& r : e.axes) s = s & scope.inside(r);
  for (Id c : e.conditions) s = s & scope.condition(c).may;
  for (size_t i = 0; i < e.indices.size(); ++i) {
    const Poly at = scope.poly(coordinate(a, i));
    s = s & scope.eq(at, scope.poly(e.indices[i]));
    if (i < e.within.size())
      s = s & scope.le(Poly::constant(e.within[i].first), at) & scope.le(at, Poly::constant(e.within[i].second));
  }
  s = s & scope.facts();
  for (size_t i = 0; i < e.indices.size(); ++i) {
    const int at = scope.position(s, coordinate(a, i));
    s = Set(isl_set_move_dims(s.give(), isl_dim_set, static_cast<unsigned>(i), isl_dim_param, static_cast<unsigned>(at), 1));
  }
  const int parameters = count(isl_set_dim(s.get(), isl_dim_param));
  return Set(isl_set_project_out(s.give(), isl_dim_param, 0, static_cast<unsigned>(parameters)));
}

// f(sets): the answer of isl, or none. Every set has a scope of its own, as axes may have other ranges in it; all share
// one context through their text.
template <class F>
auto ask(Arena& a, std::span<const ElementSet> sets, F&& f) -> decltype(f(std::declval<std::vector<Set>&>())) {
  try {
    Context context(kCountOperations);
    std::vector<Set> found;
    for (const ElementSet& e : sets) {
      Scope scope(a);
      const Set s = elements(scope, e);
      char* text = isl_set_to_str(s.get());
      if (!text) throw GaveUp{};
      isl_set* read = isl_set_read_from_str(context.get(), text);
      free(text);
      found.emplace_back(read);
    }
    return f(found);
  } catch (const GaveUp&) {
    return std::nullopt;
  }
}

Set united(const std::vector<Set>& sets) {
  Set all = sets.at(0);
  for (size_t i = 1; i < sets.size(); ++i) all = all | sets[i];
  return coalesced(all);
}

}  // namespace

std::optional<Box> box_around(Arena& a, std::span<const ElementSet> sets) {
  if (sets.empty()) return std::nullopt;
  return ask(a, sets, [&](std::vector<Set>& found) -> std::optional<Box> {
    const Set all = united(found);
    if (is_empty(all)) return std::nullopt;
    Box box;
    for (int i = 0; i < count(isl_set_dim(all.get(), isl_dim_set)); ++i) {
      const Val least(isl_set_dim_min_val(all.give(), i)), most(isl_set_dim_max_val(all.give(), i));
      box.emplace_back(to_int64(least), to_int64(most));
    }
    return box;
  });
}

std::optional<int64_t> count_elements(Arena& a, std::span<const ElementSet> sets) {
  if (sets.empty()) return 0;
  return ask(a, sets, [&](std::vector<Set>& found) -> std::optional<int64_t> {
    return to_int64(Val(isl_set_count_val(united(found).get())));
  });
}

std::optional<bool> contained(Arena& a, const ElementSet& x, const ElementSet& y) {
  return ask(a, std::vector<ElementSet>{x, y},
             [](std::vector<Set>& s) -> std::optional<bool> { return is_subset(s[0], s[1]); });
}

std::optional<bool> disjoint(Arena& a, const ElementSet& x, const ElementSet& y) {
  return ask(a, std::vector<ElementSet>{x, y},
             [](std::vector<Set>& s) -> std::optional<bool> { return is_empty(s[0] & s[1]); });
}

}  // namespace xhat
