#include "cse/normalize/places_read.h"

#include <algorithm>
#include <map>
#include <set>

#include "expr/index/affine.h"
#include "expr/index/simplify_index.h"

namespace xhat {
namespace {

constexpr int kMostMaps = 8;  // one behind the other, that are looked through

using Places = std::set<std::vector<Id>>;

class PlacesFinder {
 public:
  PlacesFinder(Arena& a, const Uses& uses) : a_(a), uses_(uses) {}

  PlacesRead find(TensorId map, int depth) {
    // For one element of a definition, where map is read: of those that are read through.
    std::map<const Definition*, Places> found;
    std::vector<const Definition*> ends, open = {uses_.definition(map)};
    std::set<const Definition*> through = {open[0]};
    PlacesRead read;
    while (!open.empty()) {
      const Definition* d = open.back();
      open.pop_back();
      for (const Definition* user : uses_.readers(d->target())) {
        if (user->is_call()) return {};
        if (std::ranges::count(ends, user) || through.contains(user)) continue;
        const bool ends_here = depth == 0 || through.size() >= kMostMaps || is_kept(*user) || find(user->target(), depth - 1).several;
        if (ends_here) {
          ends.push_back(user);
        } else {
          through.insert(user);
          open.push_back(user);
        }
      }
    }
    for (const Definition* user : ends) {
      const auto count = static_cast<int64_t>(places(*user, map, through).size());
      read.all += count;
      read.several |= count > 1;
    }
    return read;
  }

 private:
  // Not looked through: what is more than an element of another tensor, or a choice of some.
  bool is_kept(const Definition& d) const { return uses_.is_result(d.target()) || !is_view(d.body); }
  bool is_view(Id body) const {
    const Node& n = a_[body];
    return is_read(n.op) || n.op == Op::constant || (n.op == Op::select && is_view(n.arg(1)) && is_view(n.arg(2)));
  }

  // 2*(i/2) + i%2 is i.
  bool is_same(const std::vector<Id>& x, const std::vector<Id>& y) const {
    for (size_t k = 0; k < x.size(); ++k)
      if (!provably_equal(a_, x[k], y[k])) return false;
    return true;
  }

  Places places(const Definition& d, TensorId map, const std::set<const Definition*>& through) {
    Places found;
    for (Id id : reachable(a_, d.body)) {
      if (!is_read(a_[id].op)) continue;
      const auto indices = read_indices(a_[id]);
      if (a_[id].symbol == map) {
        found.insert({indices.begin(), indices.end()});
        continue;
      }
      const Definition* of = uses_.definition(a_[id].symbol);
      if (!of || !through.contains(of)) continue;
      Replacements at;
      for (size_t k = 0; k < indices.size(); ++k) at[of->axes[k].axis] = a_.to(DType::i64, indices[k]);
      for (const std::vector<Id>& inner : places(*of, map, through)) {
        std::vector<Id> place;
        for (Id index : inner) place.push_back(tidy_index(a_, substitute(a_, index, at)));
        if (std::ranges::none_of(found, [&](const std::vector<Id>& other) { return is_same(place, other); })) found.insert(place);
      }
      if (std::ssize(found) >= kMostPlacesRead) break;
    }
    return found;
  }

  Arena& a_;
  const Uses& uses_;
};

}  // namespace

PlacesRead places_read(Arena& a, const Uses& uses, TensorId map) { return PlacesFinder(a, uses).find(map, 1); }

}  // namespace xhat
