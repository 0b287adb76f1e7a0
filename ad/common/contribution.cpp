#include "ad/common/contribution.h"

#include <algorithm>

namespace xhat {
namespace {

bool depends(const Arena& a, const AxisRange& r, Id axis) {
  return contains(a[r.begin].free_axes(), axis) || contains(a[r.end].free_axes(), axis);
}

void add_to(Arena& a, Contribution& sum, const Contribution& c) {
  sum.value = a.add(sum.value, c.value);
  std::erase_if(sum.implied, [&](Id id) { return !contains(c.implied, id); });
}

// Does a literal read what one that stands before it, and is not to come along, keeps in bounds?
bool leaves_its_guard(const Arena& a, const Literals& literals, Id id, const Literals& along) {
  auto end = std::ranges::find(literals, id);
  return std::any_of(literals.begin(), end, [&](Id before) {
    return !contains(along, before) && reads_what_is_guarded(a, before, id);
  });
}

// What all have in common and can stand before the rest.
Literals common_guards(const Arena& a, const std::vector<Contribution>& group) {
  Literals common = group[0].guards;
  auto stays = [&](Id id) {
    return std::ranges::any_of(group, [&](const Contribution& c) {
      return !contains(c.guards, id) || leaves_its_guard(a, c.guards, id, common);
    });
  };
  for (auto out = common.begin(); (out = std::ranges::find_if(common, stays)) != common.end();)
    common.erase(out);
  return common;
}

Contribution combined(Arena& a, const std::vector<Contribution>& group, Path& path) {
  Contribution all{group[0].axes, common_guards(a, group), {}, kNone};
  auto rest = [&](const Contribution& c) {
    Literals r;
    for (Id id : c.guards)
      if (!contains(all.guards, id)) r.push_back(id);
    return r;
  };
  // if c then x else y, where these are the two branches of one selection.
  Literals first = rest(group[0]), second = rest(group[1]);
  if (group.size() == 2 && first.size() == 1 && second.size() == 1 && negation(a, first[0]) == second[0]) {
    all.value = a.select(first[0], group[0].value, group[1].value);
    return all;
  }
  Id where = kNone, on_path = kNone;  // some value is not zero; some value's node is on the forward's path
  for (size_t i = 0; i < group.size(); ++i) {
    Literals r = rest(group[i]);
    Id term = guarded(a, r, group[i].value);
    all.value = i == 0 ? term : a.add(all.value, term);
    for (Id id : group[i].implied) add_literals(a, r, id);
    auto join = [&](Id sum, const Literals& here) {
      return i == 0 ? conjunction(a, here) : disjunction(a, sum, conjunction(a, here));
    };
    where = join(where, r);
    std::erase_if(r, [&](Id id) { return !path.has(id); });
    on_path = join(on_path, r);
  }
  Literals parts;
  add_literals(a, parts, on_path);
  path.add(parts);
  all.implied = parts;
  parts.clear();
  add_literals(a, parts, where);
  path.add_derived(parts);
  for (Id id : parts) add_literals(a, all.implied, id);
  return all;
}

}  // namespace

bool same_set(std::span<const Id> x, std::span<const Id> y) {
  return x.size() == y.size() && std::ranges::all_of(x, [&](Id id) { return contains(y, id); });
}

const AxisRange* Scope::find(Id axis) const {
  for (const AxisRange& r : ranges)
    if (r.axis == axis) return &r;
  return nullptr;
}

std::vector<Id> Scope::closure(const Arena& a, std::span<const Id> axes) const {
  std::vector<Id> all;
  for (size_t i = ranges.size(); i-- > 0;) {
    const AxisRange& r = ranges[i];
    bool needed = contains(axes, r.axis);
    for (Id x : all) needed = needed || depends(a, *find(x), r.axis);
    if (needed) all.push_back(r.axis);
  }
  std::ranges::reverse(all);
  return all;
}

std::vector<AxisRange> Scope::ranges_of(std::span<const Id> axes) const {
  std::vector<AxisRange> found;
  for (const AxisRange& r : ranges)
    if (contains(axes, r.axis)) found.push_back(r);
  return found;
}

std::vector<Contribution> merge(Arena& a, std::vector<Contribution> all, Path& path) {
  std::vector<std::vector<Contribution>> groups;
  for (Contribution& c : all) {
    auto group = std::ranges::find_if(groups, [&](auto& g) { return same_set(g[0].axes, c.axes); });
    if (group == groups.end())
      groups.push_back({std::move(c)});
    else if (auto same = std::ranges::find_if(*group, [&](auto& m) { return m.guards == c.guards; });
             same == group->end())
      group->push_back(std::move(c));
    else
      add_to(a, *same, c);
  }
  std::vector<Contribution> merged;
  for (auto& group : groups) merged.push_back(group.size() == 1 ? std::move(group[0]) : combined(a, group, path));
  return merged;
}

}  // namespace xhat
