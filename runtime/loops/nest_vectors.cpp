#include "runtime/loops/nest_vectors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "expr/index/linear.h"
#include "expr/index/loop_bounds.h"
#include "runtime/emit/emit.h"
#include "runtime/loops/nest.h"
#include "runtime/loops/nest_pieces.h"

namespace xhat::runtime {

bool is_place(Op op) { return op == Op::argmax || op == Op::argmin; }

std::vector<Id> reads_in(const Arena& a, std::span<const Id> roots) {
  std::set<Id> found;
  for (Id root : roots)
    for (Id id : reachable(a, root))
      if (is_read(a[id].op)) found.insert(id);
  return {found.begin(), found.end()};
}

std::vector<Id> reads_of(const Arena& a, const SpecMember& m) {
  std::vector<Id> roots = {m.body, m.condition};
  for (const auto& [axis, index] : m.scatter) roots.push_back(index);
  return reads_in(a, roots);
}

bool reads(const KernelSpec& spec, uint32_t tensor) {
  const Arena& a = *spec.arena;
  return std::ranges::any_of(spec.members, [&](const SpecMember& m) {
    return std::ranges::any_of(reads_of(a, m), [&](Id id) { return a[id].symbol == tensor; });
  });
}

namespace {

constexpr int64_t kShortestVector = 4;

// How the innermost loop over an axis walks through memory: along a tensor, at one place of it, or from row to row.
enum class Along : uint8_t { fixed, contiguous, strided };

Along along(const Arena& a, std::span<const Id> indices, Id axis) {
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!a[indices[k]].depends_on(axis)) continue;
    if (k + 1 < indices.size()) return Along::strided;
    Id at = indices[k];
    while (at != axis && (a[at].op == Op::add || a[at].op == Op::sub)) {
      if (a[at].op == Op::sub && a[a[at].arg(1)].depends_on(axis)) return Along::strided;
      if (a[a[at].arg(0)].depends_on(axis) && a[a[at].arg(1)].depends_on(axis)) return Along::strided;
      at = a[at].arg(a[a[at].arg(0)].depends_on(axis) ? 0 : 1);
    }
    return at == axis ? Along::contiguous : Along::strided;
  }
  return Along::fixed;
}

// Loads and stores that an inner loop over the axis makes from row to row.
int strided(const Arena& a, const SpecMember& m, Id axis) {
  int count = along(a, m.left, axis) == Along::strided;
  if (std::ranges::any_of(m.scatter, [&](const auto& s) { return a[s.second].depends_on(axis); })) return 100;
  for (Id id : reads_in(a, std::array{m.body, m.condition})) count += along(a, read_indices(a[id]), axis) == Along::strided;
  return count;
}

// Of terms that go where an index says: the last axis, if all of a row goes to one place.
Id axis_of_rows(const KernelSpec& spec, const SpecMember& m) {
  const Arena& a = *spec.arena;
  if (m.left.empty() || spec.axes.at(m.left.back()).extent < kShortestVector || a[m.condition].depends_on(m.left.back())) return kNone;
  const Id axis = m.left.back();
  for (const auto& [found, index] : m.scatter)
    if (found == axis || a[index].depends_on(axis)) return kNone;
  return strided(a, m, axis) == 0 ? axis : kNone;
}

// Does the axis decide the one place along another one, whose loop stands in its own? Vectors along it would look for that place.
bool names_a_place(Arena& a, const SpecMember& m, Id axis) {
  for (auto inner = std::ranges::find(m.left, axis); inner != m.left.end(); ++inner)
    for (Id c : conjuncts_of(a, m.condition))
      if (*inner != axis && a[c].depends_on(axis) && place_by(a, c, *inner) != kNone) return true;
  return false;
}

}  // namespace

Id vector_axis(const KernelSpec& spec, const SpecMember& m) {
  Arena& a = *spec.arena;
  if (!m.scatter.empty()) return axis_of_rows(spec, m);
  Id best = kNone;
  int least = 0;
  auto try_axis = [&](Id axis) {
    if (spec.axes.at(axis).extent < kShortestVector || (m.reduced.empty() && (is_one_place(a, m, axis) || names_a_place(a, m, axis))))
      return;
    const int count = strided(a, m, axis);
    if (best == kNone || count < least) best = axis, least = count;
  };
  if (!m.left.empty()) try_axis(m.left.back());
  for (size_t k = m.reduced.size(); k-- > 0;) try_axis(m.reduced[k]);
  for (size_t k = m.left.size(); k-- > 0;) try_axis(m.left[k]);
  return best;
}

int lanes_along(const KernelSpec& spec, const Halide::Target& target, const SpecMember& m, Id axis) {
  const Arena& a = *spec.arena;
  Halide::Type widest = storage_type(a[m.body].type == DType::boolean ? DType::i32 : a[m.body].type);
  for (Id id : reads_in(a, std::array{m.body, m.condition}))
    if (Halide::Type t = storage_type(a[id].type); t.bits() > widest.bits()) widest = t;
  int lanes = target.natural_vector_size(widest);
  while (lanes > spec.axes.at(axis).extent) lanes /= 2;
  return lanes;
}

double price_ps(const KernelSpec& whole, const std::function<bool(uint32_t)>& added, const std::function<double(const SpecMember&)>& times,
                const std::function<bool(uint32_t, uint32_t)>& over) {
  constexpr double kLoad_ps = 30;  // of a vector that lies in L1, per element
  constexpr double kScalar = 5;    // how much longer an element takes by itself than in a vector
  KernelSpec spec = whole;
  Arena& a = *spec.arena;
  double sum = 0;
  std::vector<SpecMember> parts;
  for (const SpecMember& m : whole.members)
    for (const Piece& piece : pieces_of(spec, m, added(m.tensor))) {
      SpecMember part = piece.member;
      auto is_left = [&](Id id) {
        return a[id].op == Op::read && over(m.tensor, a[id].symbol) && is_own_element(spec, part, piece.first, a[id]);
      };
      if (over && part.reduced.empty() && part.scatter.empty() && is_true(a, part.condition)) {
        if (is_left(part.body)) continue;
        if (const Node n = a[part.body]; n.op == Op::select && is_left(n.arg(2))) part.condition = n.arg(0), part.body = n.arg(1);
      }
      parts.push_back(std::move(part));
    }
  for (const SpecMember& m : parts) {
    const Id vectors = vector_axis(spec, m);
    double each = 0;
    for (Id id : reachable(a, m.body)) {
      if (a[id].type != DType::i64 || a[m.body].type == DType::i64) each += static_cast<double>(cost_ps(a, a[id]));  // indices are free
      if (is_read(a[id].op))
        each += vectors != kNone && along(a, read_indices(a[id]), vectors) == Along::strided ? kScalar * kLoad_ps : kLoad_ps;
    }
    double points = 1;
    for (const auto* list : {&m.left, &m.reduced})
      for (Id x : *list) {
        if (!is_one_place(a, m, x) && std::ranges::none_of(m.scatter, [&](const auto& s) { return s.first == x; }))
          points *= static_cast<double>(spec.axes.at(x).extent);
      }
    sum += (times ? times(m) : 1) * (kLoopStart_ps + points * each * (vectors == kNone ? kScalar : 1));
  }
  return sum;
}

namespace {

// The one less the other, if that is a number.
std::optional<int64_t> distance(const Arena& a, Id index, Id other) {
  Linear d = linear(a, index);
  add_scaled(d, linear(a, other), -1);
  std::erase_if(d.terms, [](const auto& term) { return term.second == 0; });
  return d.terms.empty() ? std::optional(d.constant) : std::nullopt;
}

// index in [0, extent) wherever all of the conditions hold?
bool within(const KernelSpec& spec, std::span<const Id> guards, Id index, int64_t extent) {
  if (const auto [low, high] = spec.interval(index); low >= 0 && high < extent) return true;
  const Arena& a = *spec.arena;
  bool from = false, to = false;
  for (Id guard : guards) {
    const Node g = a[guard];
    if (g.op != Op::lt && g.op != Op::le) continue;
    const int64_t strict = g.op == Op::lt;
    const std::optional<int64_t> above = distance(a, index, g.arg(0)), below = distance(a, index, g.arg(1));
    const int64_t first = spec.interval(g.arg(0)).first, last = spec.interval(g.arg(1)).second;
    from |= below && first > -KernelSpec::kFar && first + strict + *below >= 0;
    to |= above && last < KernelSpec::kFar && last - strict + *above < extent;
  }
  return from && to;
}

}  // namespace

bool keep_inside(const KernelSpec& spec, std::span<const Id> guards, Id axis, std::span<const Id> reads) {
  const Arena& a = *spec.arena;
  return std::ranges::all_of(reads, [&](Id id) {
    const Node read = a[id];
    if (read.op != Op::read) return false;
    for (size_t d = 0; d < read_indices(read).size(); ++d) {
      const Id index = read_indices(read)[d];
      if (a[index].depends_on(axis) && !within(spec, guards, index, spec.tensors[read.symbol].shape[d])) return false;
    }
    return true;
  });
}

}  // namespace xhat::runtime
