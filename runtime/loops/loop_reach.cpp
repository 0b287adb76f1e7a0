#include "runtime/loops/loop_reach.h"

#include <algorithm>
#include <optional>
#include <set>

#include "expr/core/conditions.h"
#include "expr/index/dims.h"
#include "expr/index/loop_bounds.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {
namespace {

using Is = LoopBlock::Role::Is;

constexpr size_t kMostChanges = 8;  // of one result, that are kept by themselves
constexpr int kMostInlined = 8;     // in definitions in which a place is computed

class Changes {
 public:
  Changes(const Program& p, const Block& b, const LoopBlock::Direction& d, const SpecMember& m, const LoopMemory& memory)
      : b_(b), d_(d), m_(m), memory_(memory), from_(*d.spec.arena), to_(*p.arena) {}

  std::vector<Changed> run(size_t operand) {
    if (!leads_to_old(m_.body, operand) || !collect(m_.body, operand, {})) return {};
    std::vector<Changed> all;
    for (const std::vector<Id>& conditions : ways_) {
      std::optional<Changed> c = where(conditions);
      if (!c) return {};
      auto same = [&](const Changed& other) {
        return other.axes == c->axes && other.places == c->places && other.kept == c->kept &&
               std::ranges::equal(other.box, c->box, [](const Reach& x, const Reach& y) { return x.begin == y.begin && x.end == y.end; });
      };
      if (std::ranges::none_of(all, same)) all.push_back(std::move(*c));
    }
    return all;
  }

 private:
  const Block& b_;
  const LoopBlock::Direction& d_;
  const SpecMember& m_;
  const LoopMemory& memory_;
  Arena &from_, &to_;
  std::vector<std::vector<Id>> ways_;  // to what is no old element: the conditions on each
  std::vector<Changed::Kept> kept_;    // of the places being found
  std::set<size_t> members_;

  const LoopBlock::Role* role_of(uint32_t tensor) const {
    const auto role = d_.roles.find(d_.spec.tensors[tensor].original);
    return role == d_.roles.end() ? nullptr : &role->second;
  }

  bool is_old(Id x, size_t operand) const {
    const Node& n = from_[x];
    if (n.op != Op::read || !std::ranges::equal(read_indices(n), m_.left)) return false;
    const LoopBlock::Role* role = role_of(n.symbol);
    return role && role->is == Is::operand && role->number == operand;
  }
  bool leads_to_old(Id x, size_t operand) const {
    const Node n = from_[x];
    return n.op == Op::select ? leads_to_old(n.arg(1), operand) || leads_to_old(n.arg(2), operand) : is_old(x, operand);
  }

  // False: there are too many.
  bool collect(Id body, size_t operand, const std::vector<Id>& conditions) {
    if (is_old(body, operand)) return true;
    if (!leads_to_old(body, operand)) {
      ways_.push_back(conditions);
      return ways_.size() <= kMostChanges;
    }
    const Node n = from_[body];
    for (size_t side : {1, 2}) {
      std::vector<Id> here = conditions;
      for (Id c : side == 1 ? conjuncts(from_, n.arg(0)) : negated_conjuncts(from_, n.arg(0))) here.push_back(c);
      if (!collect(n.arg(side), operand, here)) return false;
    }
    return true;
  }

  // Equations say where an axis is, other conditions between which places. None: it may be anywhere.
  std::optional<Changed> where(std::vector<Id> conditions) {
    std::vector<Id> places = m_.left, left;  // in terms of the axes that run
    for (size_t d = 0; d < m_.left.size(); ++d) {
      const Id at = place(conditions, m_.left[d]);
      if (at == kNone) {
        left.push_back(m_.left[d]);
        continue;
      }
      const Replacements there = {{m_.left[d], at}};
      for (Id& x : places) x = substitute(from_, x, there);
      for (Id& c : conditions) c = substitute(from_, c, there);
      const Id end = from_.integer(d_.spec.axes.at(m_.left[d]).extent);
      if (!from_[at].free_axes().empty())
        conditions.insert(conditions.end(), {from_.binary(Op::le, from_.integer(0), at), from_.binary(Op::lt, at, end)});
    }
    Changed made;
    bool part = left.size() < m_.left.size();
    std::unordered_map<Id, Id> axes;
    for (Id axis : left) {
      made.axes.push_back(axes[axis] = to_.axis("#" + std::to_string(made.axes.size())));
      const int64_t extent = d_.spec.axes.at(axis).extent;
      Reach r{to_.integer(0), to_.integer(extent)};
      LoopBounds found;
      for (Id c : conditions) bound_by(from_, c, axis, &found);
      for (Id bound : found.begins)
        if (Id at = moved(bound, nullptr); at != kNone) r.begin = to_.binary(Op::maximum, r.begin, at), part = true;
      for (Id bound : found.ends)
        if (Id at = moved(bound, nullptr); at != kNone) r.end = to_.binary(Op::minimum, r.end, at), part = true;
      r.begin = to_.binary(Op::minimum, r.begin, to_.integer(extent));
      made.box.push_back(r);
    }
    kept_.clear(), members_.clear();
    for (Id at : places) made.places.push_back(moved(at, &axes));
    made.kept = kept_;
    made.members.assign(members_.begin(), members_.end());
    return part ? std::optional(made) : std::nullopt;
  }

  // The place along the axis, if conditions leave one and the backward can find it.
  Id place(const std::vector<Id>& conditions, Id axis) {
    std::unordered_map<Id, Id> axes;
    for (Id x : m_.left) axes[x] = to_.axis("#");
    for (Id c : conditions)
      if (const Id at = place_by(from_, c, axis); at != kNone && moved(at, &axes) != kNone) return at;
    return kNone;
  }

  // In terms of the program; kNone: it needs more than loop variables and sizes, or, with axes to put in place of the spec's, more than
  // integers that are in memory before the block runs.
  Id moved(Id x, const std::unordered_map<Id, Id>* axes, int depth = 0) {
    const Node n = from_[x];
    if (!is_integer(n.type) && n.type != DType::boolean) return kNone;
    auto all = [&](std::span<const Id> list) -> std::optional<std::vector<Id>> {
      std::vector<Id> made;
      for (Id arg : list)
        if (made.push_back(moved(arg, axes, depth)); made.back() == kNone) return {};
      return made;
    };
    if (n.op == Op::constant) return n.type == DType::boolean ? to_.boolean(n.integer != 0) : to_.integer(n.integer, n.type);
    if (n.op == Op::axis) return axes && axes->contains(x) ? axes->at(x) : kNone;
    if (is_read(n.op)) return read(x, axes, depth);
    const bool in_bounds = n.op == Op::add || n.op == Op::sub || n.op == Op::minimum || n.op == Op::maximum;
    if (is_reduction(n.op) || n.op == Op::dim || (!axes && !in_bounds)) return kNone;
    const auto args = all(n.args());
    if (!args) return kNone;
    if (n.op == Op::select) return to_.select((*args)[0], (*args)[1], (*args)[2]);
    return n.op == Op::cast ? to_.cast(n.type, (*args)[0]) : to_.apply(n.op, *args);
  }

  Id read(Id x, const std::unordered_map<Id, Id>* axes, int depth) {
    const Node n = from_[x];
    const LoopBlock::Role* role = role_of(n.symbol);
    if (!role || role->is != Is::operand) {
      if (!axes) return kNone;
      const auto kept = kept_;
      const auto members = members_;
      if (const Id at = inlined(n, axes, depth); at != kNone) return at;
      kept_ = kept, members_ = members;
      return role ? computed(n, *role, axes, depth) : kNone;
    }
    const Operand& o = b_.operands[role->number];
    if (o.scalar != kNone) return axes || tensors_read(to_, o.scalar).empty() ? o.scalar : kNone;
    if (!axes || memory_.is_copied(b_, role->number)) return kNone;
    std::vector<Id> at = o.row;
    size_t next = 0;
    for (size_t d = 0; next < read_indices(n).size() || d < at.size(); ++d) {
      if (!is_whole(at, d)) continue;
      if (d >= at.size()) at.push_back(kNone);
      if ((at[d] = moved(n.arg(next++), axes, depth)) == kNone) return kNone;
    }
    if (n.op == Op::read) return to_.read(o.value, n.type, at);
    const Id otherwise = moved(n.args().back(), axes, depth);
    return otherwise == kNone ? kNone : to_.read_or(o.value, n.type, at, otherwise);
  }

  // What the block makes by more than choices and arithmetic, and has in memory afterwards.
  Id computed(const Node& n, const LoopBlock::Role& role, const std::unordered_map<Id, Id>* axes, int depth) {
    if (n.op != Op::read || (role.is != Is::result && role.is != Is::kept) || !needs(n.symbol)) return kNone;
    std::vector<Id> at;
    for (Id x : read_indices(n))
      if (at.push_back(moved(x, axes, depth)); at.back() == kNone) return kNone;
    if (role.is == Is::result) return to_.read(b_.results[role.number], n.type, at);
    kept_.push_back({to_.axis("#kept" + std::to_string(kept_.size())), role.number, at});
    return to_.to(n.type, kept_.back().axis);
  }

  // Notes the members that make the tensor. False: one of them writes over what the block still reads.
  bool needs(uint32_t tensor) {
    for (size_t k = 0; k < d_.spec.members.size(); ++k) {
      const SpecMember& m = d_.spec.members[k];
      if (m.tensor != tensor || members_.contains(k)) continue;
      if (const LoopBlock::Role* role = role_of(tensor); role && role->is == Is::result)
        for (const Operand& o : b_.operands)
          if (o.scalar == kNone && memory_.place(o.value) == memory_.place(b_.results[role->number])) return false;
      members_.insert(k);
      for (Id id : reads_of(from_, m))
        if (!needs(from_[id].symbol)) return false;
    }
    return true;
  }

  // What the block computes for itself.
  Id inlined(const Node& n, const std::unordered_map<Id, Id>* axes, int depth) {
    for (const SpecMember& m : d_.spec.members) {
      if (m.tensor != n.symbol) continue;
      if (n.op != Op::read || depth == kMostInlined || !m.reduced.empty() || !m.scatter.empty() || !is_true(from_, m.condition))
        return kNone;
      Replacements at;
      for (size_t k = 0; k < m.left.size(); ++k) at[m.left[k]] = n.arg(k);
      return moved(substitute(from_, m.body, at), axes, depth + 1);
    }
    return kNone;
  }
};

}  // namespace

std::vector<Id> Changed::all_places() const {
  std::vector<Id> all = places;
  for (const Kept& k : kept) all.insert(all.end(), k.at.begin(), k.at.end());
  return all;
}

int64_t elements_in(const Arena& a, const std::vector<Reach>& box, const DimValues& dims, const AxisValues& at) {
  int64_t n = 1;
  for (const Reach& r : box) n *= std::max<int64_t>(0, evaluate_extent(a, r.end, dims, at) - evaluate_extent(a, r.begin, dims, at));
  return n;
}

std::vector<Changed> changed_by(const Program& p, const Block& b, const LoopBlock& block, const LoopMemory& memory, size_t result) {
  for (const auto& [r, operand] : block.in_place) {
    if (r != result || memory.place(b.results[result]) != memory.place(b.operands[operand].value)) continue;
    const LoopBlock::Direction& d = block.forward ? *block.forward : block.infer;
    for (const SpecMember& m : d.spec.members) {
      const auto role = d.roles.find(d.spec.tensors[m.tensor].original);
      if (role == d.roles.end() || role->second.is != LoopBlock::Role::Is::result || role->second.number != result) continue;
      if (!m.reduced.empty() || !m.scatter.empty() || !is_true(*d.spec.arena, m.condition)) return {};
      return Changes(p, b, d, m, memory).run(operand);
    }
  }
  return {};
}

}  // namespace xhat::runtime
