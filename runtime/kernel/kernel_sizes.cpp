// Which sizes compiled code knows, and the key that says so: the same code serves every size that is not in it.
//
// The outer loop is the executor's: how many tiles there are is nobody's business, and how much the last one has is an
// argument (AxisKind::tiled). So that a small batch, all of it in one tile, runs the code of a large one, its axis is a part
// too (open_slowest). Axes inside a tile are constants, for vectors, registers and strides; but the slowest dimension of all
// tensors that have it, a batch that is summed up or walked inside of each channel, is no more than a loop: its extent is an
// argument as well.
//
// Where the code is chosen by such sizes (rows of a product's block, what is packed) it is chosen for a class of them:
// with_class_representatives() puts each class's representative in the place of the size, and lowering sees nothing else.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kMinColumns = 8;  // of a product: one vector of the shortest kind

// Of a product of matrices in the widest sense, where some reads depend on one axis of the result, some on another, none on
// both: the axes that may be the rows beside the columns that lowering takes (Lowering::contraction). Empty if it is none.
std::set<Id> rows_of_product(const KernelSpec& spec, const SpecMember& m) {
  std::set<Id> found;
  if (m.reduced.empty() || !m.scatter.empty()) return found;
  const Arena& a = *spec.arena;
  std::vector<Id> reads;
  for (Id id : reachable(a, roots(m)))
    if (is_read(a[id].op) && a[id].axes_count > 0) reads.push_back(id);
  auto on = [&](Id x) { return std::ranges::any_of(reads, [&](Id r) { return a[r].depends_on(x); }); };
  for (size_t i = m.left.size(); i-- > 0 && found.empty();) {
    Id v = m.left[i];
    const SpecAxis& columns = spec.axes.at(v);
    if (columns.kind() != AxisKind::untiled || columns.extent < kMinColumns || !on(v)) continue;
    for (Id y : m.left)
      if (v != y && on(y) && std::ranges::none_of(reads, [&](Id r) { return a[r].depends_on(v) && a[r].depends_on(y); })) found.insert(y);
  }
  return found;
}

// Axes by whose size the code of a product is chosen.
std::set<Id> decisive(const KernelSpec& spec) {
  std::set<Id> found;
  for (const SpecMember& m : spec.members)
    if (std::set<Id> rows = rows_of_product(spec, m); !rows.empty()) {
      found.merge(rows);
      found.insert(m.reduced.begin(), m.reduced.end());
    }
  return found;
}

// Classes of sizes that code is chosen for. Rows of a tile, by the most of a class, which is what a block is made for: what
// it computes in vain is less than half. Terms of a sum, by the least. Elsewhere a loop is a loop.
constexpr int64_t kRows[] = {2, 3, 5, 8, 12, 16, 32, 64};
constexpr int64_t kTerms[] = {2, 8, 32, 256, 2048, 1 << 14, 1 << 17, 1 << 20};
constexpr int64_t kAny = 2;
constexpr int64_t kManyTiles = 1 << 10;  // elements of an axis of which a tile has some

int64_t rows_like(int64_t n) {
  auto at = std::ranges::lower_bound(kRows, n);
  return at == std::end(kRows) ? std::end(kRows)[-1] : *at;
}
int64_t terms_like(int64_t n) { return *std::prev(std::ranges::upper_bound(kTerms, std::max(n, kAny))); }

// What stands for an axis whose extent the code need not know.
SpecAxis representative(const SpecAxis& axis, bool decides) {
  SpecAxis r = axis;
  if (axis.kind() == AxisKind::untiled) {
    r.extent = r.tile = decides ? terms_like(axis.extent) : kAny;
  } else {
    r.extent = kManyTiles;
    if (axis.kind() == AxisKind::tiled) r.tile = decides ? rows_like(axis.tile) : kAny;
  }
  return r;
}

// Axes that are the slowest dimension of every tensor that has them, and of one that has more.
std::set<Id> slowest_of_all(const KernelSpec& spec) {
  std::set<Id> first, alone, later;
  for (const auto& [place, ids] : indices_of(spec)) {
    const SpecTensor& t = spec.tensors[place.first];
    bool split = t.steps[place.second] != 1;  // a quotient and its remainder are one dimension
    for (Id x : ids) (place.second > 0 || split ? later : t.shape.size() == 1 ? alone : first).insert(x);
  }
  std::erase_if(first, [&](Id x) { return later.contains(x); });
  return first;
}

}  // namespace

void open_slowest(KernelSpec& spec) {
  if (spec.shared.empty()) return;
  Id x = spec.shared[0];
  SpecAxis& axis = spec.axes.at(x);
  if (axis.kind() != AxisKind::untiled || axis.extent < 1 || axis.fixed || used_as_values(spec).contains(x)) return;
  for (const SpecMember& m : spec.members) {
    bool reduced = std::ranges::find(m.reduced, x) != m.reduced.end();
    bool columns = m.left.size() > 1 && m.left.back() == x;  // of its vectors
    if ((reduced || columns) && !rows_of_product(spec, m).empty()) return;
  }
  axis.open = true;
}

void choose_static_extents(KernelSpec& spec) {
  const std::set<Id> values = used_as_values(spec), slowest = slowest_of_all(spec);
  for (auto& [id, axis] : spec.axes) {
    bool constant = axis.kind() == AxisKind::untiled && (axis.extent < 2 || axis.fixed || axis.unrolled || !slowest.contains(id));
    axis.static_extent = constant || values.contains(id);
  }
  for (const auto& [place, ids] : indices_of(spec))
    for (Id x : ids)
      if (auto it = spec.axes.find(x); it != spec.axes.end())
        if (ids.size() > 1 || spec.tensors[place.first].shape[place.second] != it->second.extent) it->second.static_extent = true;
}

namespace {

// Of make_open_spec: without the numbers that the code does not know.
KernelSpec without_sizes(const KernelSpec& spec) {
  KernelSpec c = spec;
  for (auto& [id, axis] : c.axes) {
    const AxisKind kind = axis.kind();
    if (axis.sized) axis.extent = 0;
    if (kind != AxisKind::untiled)
      axis.tile = kind == AxisKind::point ? 1 : kAny;
    else if (axis.sized)
      axis.tile = 0;
  }
  for (SpecTensor& t : c.tensors)
    for (size_t d = 0; d < t.shape.size(); ++d)
      if (t.sized[d]) t.shape[d] = 0;
  return c;
}

}  // namespace

KernelSpec with_class_representatives(const KernelSpec& spec) {
  if (spec.any_size()) return spec;
  KernelSpec c = spec;
  const std::set<Id> decides = decisive(spec);
  for (auto& [id, axis] : c.axes) {
    SpecAxis like = representative(axis, decides.contains(id));
    if (!axis.static_extent)
      axis = like;
    else if (axis.kind() == AxisKind::tiled)
      axis.tile = axis.open ? like.tile : std::min(like.tile, axis.extent - 1);
  }
  for (const auto& [place, ids] : indices_of(spec))
    for (Id x : ids)
      if (auto it = c.axes.find(x); it != c.axes.end() && !it->second.static_extent)
        c.tensors[place.first].shape[place.second] = it->second.extent;
  return c;
}

std::string KernelSpec::key() const {
  const KernelSpec c = any_size() ? without_sizes(*this) : with_class_representatives(*this);
  std::string s = any_size() ? "any size;" : "";
  s += streams ? "past the cache;" : "";
  if (vectors > 0) s += fmt::format("v{};", vectors);
  for (auto [result, input] : over) s += fmt::format("{} over {};", result, input);
  for (Id x : shared) {
    const SpecAxis& axis = c.axes.at(x);
    s += fmt::format("{}:{}/{}/{}{};", arena->name(x), axis.extent, static_cast<int>(axis.kind()), axis.tile, axis.sequential ? "+" : "");
  }
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    const SpecTensor& x = c.tensors[t];
    s += fmt::format("t{}{}{}[", static_cast<int>(x.type), static_cast<int>(x.use), x.by_value ? 'v' : x.dense ? 'd' : x.rows ? 'r' : 's');
    for (int64_t n : x.shape) s += fmt::format("{},", n);
    s += x.mostly_zero ? "]0" : "]";
  }
  std::unordered_map<Id, size_t> number;
  for (const SpecMember& m : members) {
    std::vector<Id> all = roots(m);
    all.insert(all.end(), m.left.begin(), m.left.end());
    all.insert(all.end(), m.reduced.begin(), m.reduced.end());
    for (Id id : reachable(*arena, all)) {
      if (!number.emplace(id, number.size()).second) continue;
      const Node& n = (*arena)[id];
      s += fmt::format("\n{}.{}", static_cast<int>(n.op), static_cast<int>(n.type));
      if (n.op == Op::axis) {
        auto it = c.axes.find(id);
        s += fmt::format("={}:", arena->name(id));
        if (it != c.axes.end()) s += fmt::format("{}{}", it->second.extent, it->second.static_extent ? "" : "?");
      } else if (n.op == Op::constant) {
        s += fmt::format("={:x}", n.integer);
      } else if (n.op == Op::dim) {
        s += fmt::format("={}", arena->name(id));
      } else if (is_read(n.op)) {
        s += fmt::format("={}", n.symbol);
      }
      for (Id x : n.args()) s += fmt::format(" {}", number.at(x));
    }
    s += fmt::format("\n{}:{}", m.tensor, static_cast<int>(m.op));
    for (Id x : m.left) s += fmt::format(" {}", number.at(x));
    s += " /";
    for (Id x : m.reduced) s += fmt::format(" {}", number.at(x));
    for (auto& [axis, index] : m.scatter) s += fmt::format(" @{}={}", number.at(axis), number.at(index));
    s += fmt::format(" {} {}", number.at(m.condition), number.at(m.body));
  }
  return s;
}

}  // namespace xhat::runtime
