#include "fusion/relations/needs.h"

#include <algorithm>

#include "expr/index/simplify_index.h"

namespace xhat::fusion {
namespace {

constexpr int64_t kTileSides[] = {8, 32, 128};  // elements per side of the reported tiles, beside single elements and whole rows

class Text {
 public:
  Text(const Program& p, const Relation& r) : p_(p), a_(*p.arena), r_(r) {
    for (const auto* list : {&r.axes, &r.ranges, &r.runtime}) all_.insert(all_.end(), list->begin(), list->end());
    const Definition* d = p.definition_of(r.output);
    for (size_t i = 0; i < r.axes.size(); ++i) names_[r.axes[i].axis] = d->axes[i].axis;
  }

  std::string run() {
    const Tensor& input = p_.tensors[r_.input];
    std::string indices;
    for (size_t i = 0; i < r_.indices.size(); ++i) indices += (i ? "," : "") + index(r_.indices[i], input.shape[i]);
    std::string text = input.name + (r_.indices.empty() ? "" : "[" + indices + "]");
    std::string where;
    bool some = false;
    for (Id c : r_.conditions) {
      if (says_inside(c)) continue;
      const bool plain = tensors_read(a_, c).empty() && !uses(c, r_.ranges) && !uses(c, r_.runtime);
      some = some || !plain;
      if (plain) where += (where.empty() ? " if " : " && ") + named(c);
    }
    return (some ? "some of " : "") + text + where;
  }

 private:
  bool uses(Id e, const std::vector<AxisRange>& axes) const {
    auto free = a_[e].free_axes();
    return std::ranges::any_of(axes, [&](const AxisRange& r) { return std::ranges::find(free, r.axis) != free.end(); });
  }

  // Does the condition only say that the index is inside the tensor? A read with `else` adds such conditions.
  bool says_inside(Id condition) const {
    const Node& n = a_[condition];
    for (size_t i = 0; i < r_.indices.size(); ++i) {
      if (n.op == Op::le && is_constant(a_, n.arg(0), 0) && same(n.arg(1), r_.indices[i])) return true;
      if (n.op == Op::lt && same(n.arg(0), r_.indices[i]) && n.arg(1) == p_.tensors[r_.input].shape[i]) return true;
    }
    return false;
  }
  bool same(Id x, Id index) const { return simplified_index(a_, x, all_) == index; }

  std::string named(Id e) { return print(p_, substitute(a_, e, names_)); }

  // "first:end:step" of the places visited while the variables run over their ranges, inner variables first. The whole dimension if the index
  // is not linear in a variable.
  std::string index(Id at, Id extent) {
    const std::string whole = "0:" + print(p_, extent);
    if (uses(at, r_.runtime)) return "?";
    Id low = at, high = at;
    int64_t step = 1;
    int variables = 0;
    for (size_t i = r_.ranges.size(); i-- > 0;) {
      const AxisRange& s = r_.ranges[i];
      auto up = slope(low, s.axis), down = slope(high, s.axis);
      if (!up || !down) return whole;
      const Id last = a_.sub(s.end, a_.integer(1));
      if (*up != 0) low = simple(substitute(a_, low, {{s.axis, *up > 0 ? s.begin : last}}));
      if (*down != 0) high = simple(substitute(a_, high, {{s.axis, *down > 0 ? last : s.begin}}));
      if (*up == 0) continue;
      ++variables;
      step = std::abs(*up);
    }
    if (variables == 0) return named(at);
    std::string text = named(low) + ":" + named(simple(a_.add(high, a_.integer(1))));
    return variables == 1 && step > 1 ? text + ":" + std::to_string(step) : text;
  }

  // The increase of e per step of the axis, if it is constant.
  std::optional<int64_t> slope(Id e, Id axis) {
    auto free = a_[e].free_axes();
    if (std::ranges::find(free, axis) == free.end()) return 0;
    const Id step = simple(a_.sub(substitute(a_, e, {{axis, a_.add(axis, a_.integer(1))}}), e));
    return a_[step].op == Op::constant ? std::optional(a_[step].integer) : std::nullopt;
  }

  Id simple(Id e) { return simplified_index(a_, e, all_); }

  const Program& p_;
  Arena& a_;
  const Relation& r_;
  std::vector<AxisRange> all_;
  Replacements names_;
};

std::string element_text(const Program& p, const Definition& d) {
  std::string axes;
  for (const AxisRange& r : d.axes) axes += (axes.empty() ? "" : ",") + p.arena->name(r.axis);
  return p.tensors[d.target()].name + (axes.empty() ? "" : "[" + axes + "]");
}

// Tiles to report, without duplicates: single elements, rows, planes, ..., the whole tensor; squares.
std::vector<std::vector<int64_t>> tiles_of(const std::vector<int64_t>& extents) {
  std::vector<std::vector<int64_t>> tiles;
  auto add = [&](const std::vector<int64_t>& tile) {
    if (std::ranges::find(tiles, tile) == tiles.end()) tiles.push_back(tile);
  };
  std::vector<int64_t> one(extents.size(), 1);
  add(one);
  for (int64_t side : kTileSides) {
    std::vector<int64_t> square;
    for (int64_t n : extents) square.push_back(std::min(n, side));
    add(square);
  }
  for (size_t i = extents.size(); i-- > 0;) {
    one[i] = extents[i];
    add(one);
  }
  return tiles;
}

}  // namespace

std::string needed_text(const Program& p, const Relation& r) { return Text(p, r).run(); }

std::vector<Needs> needs(const Program& p) {
  std::vector<Needs> found;
  for (TensorId t : p.outputs) {
    const Definition* d = p.definition_of(t);
    if (!d) continue;
    Needs n{t, element_text(p, *d), {}};
    auto by_input = relations_from(p, t);
    for (TensorId input : p.inputs)
      if (auto it = by_input.find(input); it != by_input.end()) n.relations.insert(n.relations.end(), it->second.begin(), it->second.end());
    found.push_back(std::move(n));
  }
  return found;
}

std::vector<ProducerTiles> producer_tiles(const Program& p, const DimValues& sizes) {
  std::vector<ProducerTiles> found;
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    const std::vector<int64_t> extents = shape_of(p, d.target(), sizes);
    if (std::ranges::find(extents, 0) != extents.end()) continue;
    for (TensorId producer : tensors_read(*p.arena, d.body)) {
      if (p.tensors[producer].role != Role::defined) continue;
      const TensorId both[] = {producer, d.target()};
      ProducerTiles tiles{d.target(), producer, relations(p, d.target(), producer), fusion_obstacle(p, both), {}};
      for (const std::vector<int64_t>& tile : tiles_of(extents)) {
        Box middle;
        for (size_t i = 0; i < tile.size(); ++i) {
          const int64_t begin = std::max<int64_t>(1, extents[i] / tile[i]) / 2 * tile[i];
          middle.emplace_back(begin, std::min(extents[i], begin + tile[i]) - 1);
        }
        Granularity g{tile, {}, recompute_factor(p, d.target(), producer, tile, sizes)};
        if (auto f = footprint(p, tiles.relations, middle, sizes)) g.elements = f->elements;
        tiles.rows.push_back(std::move(g));
      }
      found.push_back(std::move(tiles));
    }
  }
  return found;
}

}  // namespace xhat::fusion
