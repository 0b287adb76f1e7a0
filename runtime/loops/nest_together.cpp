#include "runtime/loops/nest_together.h"

#include <algorithm>
#include <optional>

#include "expr/rules/simplify.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {
namespace {

constexpr size_t kMostTogether = 24;  // in one loop: registers and the compiler's time have an end

class Together {
 public:
  Together(const KernelSpec& spec, std::span<const NestPlace> places) : spec_(spec), a_(*spec.arena), places_(places) {}

  void add(ReadyPiece next) {
    // It may join a group that is not the last, if it would find there what it finds at the end, and spoil nothing in between.
    for (size_t g = groups_.size(); g-- > 0;) {
      if (auto joined = renamed(next, groups_[g]); joined && may_join(*joined, groups_[g])) {
        groups_[g].push_back(std::move(*joined));
        return;
      }
      if (std::ranges::any_of(groups_[g], [&](const ReadyPiece& other) { return meet(other, next, false); })) break;
    }
    groups_.push_back({std::move(next)});
  }

  std::vector<std::vector<ReadyPiece>> groups_;

 private:
  const KernelSpec& spec_;
  Arena& a_;
  std::span<const NestPlace> places_;

  struct Access {
    uint32_t tensor;
    std::vector<Id> at;
    bool writes;
  };
  std::vector<Access> accesses(const ReadyPiece& r) const {
    const SpecMember& m = r.piece.member;
    Access written{m.tensor, {}, true};
    for (size_t k = 0; k < m.left.size(); ++k) {
      const Id first = a_.integer(r.piece.first[k]);
      const bool one = spec_.axes.at(m.left[k]).extent == 1;
      written.at.push_back(one ? first : r.piece.first[k] == 0 ? m.left[k] : simplify(a_, a_.add(m.left[k], first)));
    }
    std::vector<Access> all = {written};
    std::vector<Id> roots = {m.body, m.condition};
    for (const auto& [axis, index] : m.scatter) roots.push_back(index);
    for (const auto* list : {&r.outer, &r.inner})
      for (const NestLoop& l : *list) roots.insert(roots.end(), l.guards.begin(), l.guards.end());
    for (Id id : reads_in(a_, roots)) {
      const auto at = read_indices(a_[id]);
      all.push_back({a_[id].symbol, {at.begin(), at.end()}, false});
    }
    return all;
  }

  // Does one of them write what the other reads or writes? at_points: what both have at the same point of their common axes does not count.
  bool meet(const ReadyPiece& one, const ReadyPiece& other, bool at_points) const {
    for (const Access& x : accesses(one))
      for (const Access& y : accesses(other)) {
        const NestPlace &from = places_[x.tensor], &to = places_[y.tensor];
        if (!(x.writes || y.writes) || from.value.defined() || to.value.defined() || from.buffer != to.buffer) continue;
        if (x.writes && y.writes && x.tensor == y.tensor) continue;  // parts of one result, or terms that are added to it
        const bool same = from.strides == to.strides && Halide::Internal::equal(from.offset, to.offset) && x.at == y.at;
        if (!(at_points && same)) return true;
      }
    return false;
  }

  static bool is_map(const ReadyPiece& r) { return r.piece.member.reduced.empty() && r.piece.member.scatter.empty(); }
  static bool is_sum(const ReadyPiece& r) {
    return !r.piece.member.reduced.empty() && r.piece.member.scatter.empty() && !is_place(r.piece.member.op);
  }

  // With the axes of the group's first in place of its own, if it has as many of the same lengths.
  std::optional<ReadyPiece> renamed(const ReadyPiece& r, const std::vector<ReadyPiece>& group) const {
    const ReadyPiece& first = group.front();
    const bool alike = (is_map(r) && is_map(first)) || (is_sum(r) && is_sum(first) && r.width == first.width && r.parts == first.parts);
    if (!alike || group.size() == kMostTogether || r.along_left != first.along_left || r.lanes != first.lanes) return {};
    Replacements to;
    for (auto loops : {&ReadyPiece::outer, &ReadyPiece::inner}) {
      const auto &own = r.*loops, &others = first.*loops;
      if (own.size() != others.size()) return {};
      for (size_t k = 0; k < own.size(); ++k) {
        if (spec_.axes.at(own[k].axis).extent != spec_.axes.at(others[k].axis).extent) return {};
        if ((own[k].axis == r.vectors) != (others[k].axis == first.vectors)) return {};
        to[own[k].axis] = others[k].axis;
      }
    }
    ReadyPiece made = r;
    made.vectors = first.vectors;
    SpecMember& m = made.piece.member;
    auto with_axes = [&](Id id) { return substitute(a_, id, to); };
    for (Id& x : m.left) x = with_axes(x);
    for (Id& x : m.reduced) x = with_axes(x);
    m.body = with_axes(m.body);
    m.condition = with_axes(m.condition);
    for (auto* loops : {&made.outer, &made.inner})
      for (NestLoop& l : *loops) {
        l.axis = to.at(l.axis);
        for (Id& g : l.guards) g = with_axes(g);
      }
    return made;
  }

  bool may_join(const ReadyPiece& r, const std::vector<ReadyPiece>& group) const {
    // A sum is there when its loop is done: nothing in that loop reads it.
    return r.outer == group.front().outer && r.inner == group.front().inner &&
           std::ranges::none_of(group, [&](const ReadyPiece& other) { return meet(other, r, is_map(r)); });
  }
};

}  // namespace

std::vector<std::vector<ReadyPiece>> together(const KernelSpec& spec, std::vector<ReadyPiece> pieces, std::span<const NestPlace> places) {
  Together all(spec, places);
  for (ReadyPiece& p : pieces) all.add(std::move(p));
  return std::move(all.groups_);
}

}  // namespace xhat::runtime
