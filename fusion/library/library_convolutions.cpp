// Convolutions among sums of products of two reads.
//
// Axes that share an index, a range or a condition form groups. An axis alone in its group is an image, channel, filter or convolution
// group, by the tensors that it indexes. Other groups are a dimension in space: there the sum says which places of the three tensors
// meet,
//     { (h, r, i) : 2*i + r - 1 == h }                     of x[h] * w[r] -> y[i]
// a finite set, since sizes are numbers. It is compared with those of strides, dilations and paddings.
#include <algorithm>
#include <numeric>
#include <set>

#include "fusion/library/library_calls.h"

namespace xhat::fusion {
namespace {

constexpr int64_t kMaxPoints = 1 << 16;  // points of one dimension in space; listing so many takes a few milliseconds
constexpr int64_t kMaxStride = 8;        // largest stride and dilation that are tried
constexpr size_t kMaxSpace = 3;

using Place = std::array<int64_t, 3>;  // a place in each of a, b and c
using RoleOrder = std::array<size_t, 3>;    // which of a, b, c is the input, the filter, the output

// The three tensors and their indices, the result's included.
struct Three {
  std::array<TensorId, 3> tensors;
  std::array<DType, 3> types;
  std::array<std::vector<Id>, 3> indices;
  std::array<bool, 3> may_miss;
  std::array<std::vector<int64_t>, 3> shapes, steps;
};

struct Group {
  std::vector<AxisRange> axes;  // the left axes first, in order of nesting
  std::vector<Id> conditions;
  std::array<int, 3> dimension = {-1, -1, -1};  // per tensor: its dimension, or -1
};

class Reader {
 public:
  Reader(const Program& p, TensorId target, const TwoReads& s, const DimValues& sizes) : p_(p), a_(*p.arena), s_(s), sizes_(sizes) {
    for (size_t i = 0; i < 2; ++i) {
      t_.tensors[i] = s.reads[i].tensor;
      t_.types[i] = s.reads[i].type;
      t_.indices[i] = s.reads[i].indices;
      t_.may_miss[i] = s.reads[i].may_miss;
    }
    t_.tensors[2] = target;
    t_.types[2] = p.tensors[target].type;
    for (const AxisRange& r : s.left) t_.indices[2].push_back(r.axis);
    t_.may_miss[2] = false;
    for (size_t i = 0; i < 3; ++i) {
      t_.shapes[i] = shape_of(p, t_.tensors[i], sizes);
      t_.steps[i] = steps_of(t_.shapes[i]);
    }
  }

  std::optional<Convolution> run() {
    if (!find_groups()) return std::nullopt;
    std::vector<const Group*> space, plain;
    for (const Group& g : groups_) (is_plain(g) ? plain : space).push_back(&g);
    if (space.empty() || space.size() > kMaxSpace) return std::nullopt;
    std::vector<std::vector<Place>> places;
    for (const Group* g : space) {
      auto found = places_of(*g);
      if (!found || found->empty()) return std::nullopt;
      places.push_back(std::move(*found));
    }
    // The smallest of the three is the filter: roles can be swapped at stride 1.
    std::vector<RoleOrder> roles = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}};
    auto filter = [&](const RoleOrder& r) {
      int64_t n = 1;
      for (const Group* g : space) n *= extent(*g, r[1]);
      return n;
    };
    std::ranges::stable_sort(roles, {}, filter);
    std::optional<Convolution> flipped;  // used only if nothing else matches: some libraries lack fast code for flipped filters
    for (const RoleOrder& r : roles) {
      auto c = as(r, space, places, plain);
      if (c && !c->space[0].flipped) return c;
      if (!flipped) flipped = c;
    }
    return flipped;
  }

 private:
  const Program& p_;
  const Arena& a_;
  const TwoReads& s_;
  const DimValues& sizes_;
  Three t_;
  std::vector<Group> groups_;

  int64_t extent(const Group& g, size_t side) const {
    return g.dimension[side] < 0 ? 1 : t_.shapes[side][static_cast<size_t>(g.dimension[side])];
  }
  int64_t step(const Group& g, size_t side) const {
    return g.dimension[side] < 0 ? 0 : t_.steps[side][static_cast<size_t>(g.dimension[side])];
  }

  bool find_groups() {
    std::vector<AxisRange> axes = s_.left;
    axes.insert(axes.end(), s_.reduced.begin(), s_.reduced.end());
    std::map<Id, size_t> number;
    for (size_t i = 0; i < axes.size(); ++i) number[axes[i].axis] = i;
    std::vector<size_t> root(axes.size());
    std::iota(root.begin(), root.end(), size_t{0});
    auto find = [&](size_t i) {
      while (root[i] != i) i = root[i];
      return i;
    };
    auto join = [&](Id e, std::optional<size_t> with) {
      for (Id x : a_[e].free_axes()) {
        auto it = number.find(x);
        if (it == number.end()) return false;
        if (with) root[std::max(find(*with), find(it->second))] = std::min(find(*with), find(it->second));
        with = it->second;
      }
      return true;
    };
    for (size_t i = 0; i < axes.size(); ++i)
      if (!join(axes[i].begin, i) || !join(axes[i].end, i)) return false;
    std::vector<Id> conditions;
    if (!is_true(a_, s_.condition)) conditions = operands_of(a_, s_.condition, Op::land);
    for (Id c : conditions) {
      for (Id x : reachable(a_, c))
        if (is_read(a_[x].op)) return false;
      if (!join(c, std::nullopt)) return false;
    }
    for (const auto& indices : t_.indices)
      for (Id i : indices)
        if (!join(i, std::nullopt)) return false;
    std::map<size_t, size_t> group_of;  // root of the union -> number of the group
    for (size_t i = 0; i < axes.size(); ++i) {
      auto [it, fresh] = group_of.emplace(find(i), groups_.size());
      if (fresh) groups_.emplace_back();
      groups_[it->second].axes.push_back(axes[i]);
    }
    auto group = [&](Id e) -> Group* {
      return a_[e].axes_count == 0 ? nullptr : &groups_[group_of.at(find(number.at(a_[e].free_axes()[0])))];
    };
    for (Id c : conditions) {
      Group* g = group(c);
      if (!g) return false;
      g->conditions.push_back(c);
    }
    for (size_t side = 0; side < 3; ++side)
      for (size_t i = 0; i < t_.indices[side].size(); ++i) {
        Group* g = group(t_.indices[side][i]);
        // A constant place must be the dimension's only one.
        if (!g && (t_.shapes[side][i] != 1 || !is_constant(a_, t_.indices[side][i], 0))) return false;
        if (!g) continue;
        if (g->dimension[side] >= 0) return false;
        g->dimension[side] = static_cast<int>(i);
      }
    return true;
  }

  // One axis that indexes whole dimensions.
  bool is_plain(const Group& g) const {
    if (g.axes.size() != 1 || !g.conditions.empty() || !is_constant(a_, g.axes[0].begin, 0)) return false;
    for (size_t side = 0; side < 3; ++side) {
      if (g.dimension[side] < 0) continue;
      if (t_.indices[side][static_cast<size_t>(g.dimension[side])] != g.axes[0].axis) return false;
      if (extent(g, side) != evaluate_extent(a_, g.axes[0].end, sizes_)) return false;
    }
    return true;
  }

  std::optional<std::vector<Place>> places_of(const Group& g) const {
    for (int d : g.dimension)
      if (d < 0) return std::nullopt;
    std::vector<Place> places;
    AxisValues at;
    int64_t points = 0;
    bool fits = true;
    auto walk = [&](auto&& self, size_t i) -> void {
      if (!fits) return;
      if (i == g.axes.size()) {
        for (Id c : g.conditions)
          if (evaluate_extent(a_, c, sizes_, at) == 0) return;
        Place place;
        for (size_t side = 0; side < 3; ++side) {
          place[side] = evaluate_extent(a_, t_.indices[side][static_cast<size_t>(g.dimension[side])], sizes_, at);
          const bool inside = place[side] >= 0 && place[side] < extent(g, side);
          if (!inside && t_.may_miss[side]) return;  // the product is 0
          fits = fits && inside;
        }
        places.push_back(place);
        return;
      }
      int64_t begin = evaluate_extent(a_, g.axes[i].begin, sizes_, at), end = evaluate_extent(a_, g.axes[i].end, sizes_, at);
      for (int64_t v = begin; v < end && fits; ++v) {
        fits = fits && ++points <= kMaxPoints;
        at[g.axes[i].axis] = v;
        self(self, i + 1);
      }
      at.erase(g.axes[i].axis);
    };
    walk(walk, 0);
    if (!fits) return std::nullopt;
    std::ranges::sort(places);
    if (std::ranges::adjacent_find(places) != places.end()) return std::nullopt;  // a triple occurs twice
    return places;
  }

  // The stride, dilation and padding with which exactly these triples meet.
  std::optional<Convolution::Space> space_of(const Group& g, const RoleOrder& role, const std::vector<Place>& places) const {
    Convolution::Space s{extent(g, role[0]), extent(g, role[1]), extent(g, role[2])};
    const int64_t most_stride = s.output > 1 ? kMaxStride : 1, most_dilation = s.filter > 1 ? kMaxStride : 1;
    for (s.stride = 1; s.stride <= most_stride; ++s.stride)
      for (s.dilation = 1; s.dilation <= most_dilation; ++s.dilation)
        for (int flip = 0; flip < (s.filter > 1 ? 2 : 1); ++flip) {
          s.flipped = flip == 1;
          auto tap = [&](int64_t r) { return s.flipped ? s.filter - 1 - r : r; };
          const Place& first = places[0];
          s.pad = s.stride * first[role[2]] + s.dilation * tap(first[role[1]]) - first[role[0]];
          // Libraries pad both ends equally.
          const int64_t reach = s.input + 2 * s.pad - ((s.filter - 1) * s.dilation + 1);
          if (s.pad < 0 || reach < 0 || s.output != 1 + reach / s.stride) continue;
          size_t inside = 0;
          for (int64_t o = 0; o < s.output; ++o)
            for (int64_t r = 0; r < s.filter; ++r) {
              const int64_t h = s.stride * o + s.dilation * r - s.pad;
              inside += h >= 0 && h < s.input;
            }
          // The counts are equal, all triples differ, and each belongs to the convolution: so the sets are equal.
          if (inside == places.size() && std::ranges::all_of(places, [&](const Place& x) {
                return x[role[0]] == s.stride * x[role[2]] + s.dilation * tap(x[role[1]]) - s.pad;
              }))
            return s;
        }
    return std::nullopt;
  }

  // Axes of the same role merged into one: its extent, and its steps in the three tensors.
  struct Many {
    int64_t extent = 1;
    std::array<int64_t, 3> steps = {};
  };
  std::optional<Many> together(std::vector<const Group*> groups) const {
    auto first = [&](const Group* g) {
      std::array<int64_t, 3> steps;
      for (size_t i = 0; i < 3; ++i) steps[i] = step(*g, i);
      return steps;
    };
    std::erase_if(groups, [&](const Group* g) { return evaluate_extent(a_, g->axes[0].end, sizes_) == 1; });
    std::ranges::sort(groups, {}, first);
    Many all;
    for (const Group* g : groups) {
      for (size_t i = 0; i < 3; ++i) {
        if (all.extent > 1 && step(*g, i) != all.extent * all.steps[i]) return std::nullopt;
        if (all.extent == 1) all.steps[i] = step(*g, i);
      }
      all.extent *= evaluate_extent(a_, g->axes[0].end, sizes_);
    }
    return all;
  }

  std::optional<Convolution> as(const RoleOrder& role, const std::vector<const Group*>& space, const std::vector<std::vector<Place>>& places,
                                const std::vector<const Group*>& plain) const {
    const auto [input, filter, output] = role;
    Convolution c;
    c.kind = output == 2 ? Convolution::Kind::forward : input == 2 ? Convolution::Kind::data : Convolution::Kind::filter;
    c.alpha = s_.alpha;
    std::vector<const Group*> images, groups, channels, filters;
    for (const Group* g : plain) {
      const bool i = g->dimension[input] >= 0, f = g->dimension[filter] >= 0, o = g->dimension[output] >= 0;
      if (evaluate_extent(a_, g->axes[0].end, sizes_) > 1 && i + f + o < 2) return std::nullopt;
      (i && f && o ? groups : i && o ? images : i && f ? channels : filters).push_back(g);
    }
    auto n = together(images), g = together(groups), ch = together(channels), k = together(filters);
    if (!n || !g || !ch || !k) return std::nullopt;
    c.images = n->extent;
    c.groups = g->extent;
    c.channels = ch->extent;
    c.filters = k->extent;
    // Groups must be contiguous.
    auto step_of = [&](const Many& inner, size_t side) -> std::optional<int64_t> {
      if (g->extent == 1) return inner.steps[side];
      if (inner.extent == 1) return g->steps[side];
      return g->steps[side] == inner.extent * inner.steps[side] ? std::optional(inner.steps[side]) : std::nullopt;
    };
    auto channel = step_of(*ch, input), of_output = step_of(*k, output), of_filter = step_of(*k, filter);
    if (!channel || !of_output || !of_filter) return std::nullopt;
    auto side = [&](size_t i, int64_t first, int64_t second) { return LibrarySide{t_.tensors[i], t_.types[i], 0, {first, second}}; };
    c.input = side(input, n->steps[input], *channel);
    c.output = side(output, n->steps[output], *of_output);
    c.filter = side(filter, *of_filter, ch->steps[filter]);
    std::vector<size_t> order(space.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, std::greater<>(), [&](size_t i) { return step(*space[i], input); });
    for (size_t i : order) {
      auto s = space_of(*space[i], role, places[i]);
      if (!s || s->flipped != (c.space.empty() ? s->flipped : c.space[0].flipped)) return std::nullopt;
      c.space.push_back(*s);
      c.input.steps.push_back(step(*space[i], input));
      c.filter.steps.push_back(step(*space[i], filter));
      c.output.steps.push_back(step(*space[i], output));
    }
    return filter_is_dense(c) ? std::optional(c) : std::nullopt;
  }

  // Libraries take only filters without gaps, in the order filters, channels, space.
  static bool filter_is_dense(const Convolution& c) {
    int64_t step = 1;
    for (size_t i = c.space.size(); i-- > 0; step *= c.space[i].filter)
      if (c.space[i].filter > 1 && c.filter.steps[2 + i] != step) return false;
    if (c.channels > 1 && c.filter.steps[1] != step) return false;
    step *= c.channels;
    return c.filters * c.groups == 1 || c.filter.steps[0] == step;
  }
};

}  // namespace

std::optional<Convolution> convolution_of(const Program& p, TensorId target, const TwoReads& s, const DimValues& sizes) {
  if (s.reads[0].type != p.tensors[target].type) return std::nullopt;  // libraries do not mix types
  return Reader(p, target, s, sizes).run();
}

}  // namespace xhat::fusion
