#include "runtime/loops/loop_reach.h"

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/dims.h"
#include "expr/index/loop_bounds.h"

namespace xhat::runtime {
namespace {

using Is = LoopBlock::Role::Is;

class Reached {
 public:
  Reached(const Program& p, const Block& b, const LoopBlock::Direction& d, const SpecMember& m)
      : b_(b), d_(d), m_(m), from_(*d.spec.arena), to_(*p.arena) {}

  std::vector<Reach> run(size_t operand) {
    std::vector<Id> conditions;
    Id body = m_.body;
    for (bool more = true; more;) {
      const Node n = from_[body];
      more = n.op == Op::select && (is_old(n.arg(1), operand) || is_old(n.arg(2), operand));
      if (!more) break;
      const bool kept_where_not = is_old(n.arg(2), operand);
      for (Id c : kept_where_not ? conjuncts(from_, n.arg(0)) : negated_conjuncts(from_, n.arg(0))) conditions.push_back(c);
      body = n.arg(kept_where_not ? 1 : 2);
    }
    std::vector<Reach> box;
    bool part = false;
    for (Id axis : m_.left) {
      const int64_t extent = d_.spec.axes.at(axis).extent;
      Reach r{to_.integer(0), to_.integer(extent)};
      LoopBounds found;
      for (Id c : conditions) bound_by(from_, c, axis, &found);
      for (Id bound : found.begins)
        if (Id at = moved(bound); at != kNone) r.begin = to_.binary(Op::maximum, r.begin, at), part = true;
      for (Id bound : found.ends)
        if (Id at = moved(bound); at != kNone) r.end = to_.binary(Op::minimum, r.end, at), part = true;
      r.begin = to_.binary(Op::minimum, r.begin, to_.integer(extent));
      box.push_back(r);
    }
    return part ? box : std::vector<Reach>();
  }

 private:
  bool is_old(Id x, size_t operand) const {
    const Node& n = from_[x];
    if (n.op != Op::read || !std::ranges::equal(read_indices(n), m_.left)) return false;
    const auto role = d_.roles.find(d_.spec.tensors[n.symbol].original);
    return role != d_.roles.end() && role->second.is == Is::operand && role->second.number == operand;
  }

  // A bound in terms of the program; kNone: it needs more than loop variables and sizes.
  Id moved(Id x) {
    const Node n = from_[x];
    switch (n.op) {
      case Op::constant: return to_.integer(n.integer);
      case Op::read: {
        const auto role = d_.roles.find(d_.spec.tensors[n.symbol].original);
        if (role == d_.roles.end() || role->second.is != Is::operand) return kNone;
        const Id scalar = b_.operands[role->second.number].scalar;
        return scalar != kNone && tensors_read(to_, scalar).empty() ? scalar : kNone;
      }
      case Op::add:
      case Op::sub:
      case Op::minimum:
      case Op::maximum: {
        const Id left = moved(n.arg(0)), right = moved(n.arg(1));
        return left == kNone || right == kNone ? kNone : to_.binary(n.op, left, right);
      }
      default: return kNone;
    }
  }

  const Block& b_;
  const LoopBlock::Direction& d_;
  const SpecMember& m_;
  Arena &from_, &to_;
};

}  // namespace

int64_t elements_in(const Arena& a, const std::vector<Reach>& box, const DimValues& dims, const AxisValues& at) {
  int64_t n = 1;
  for (const Reach& r : box) n *= std::max<int64_t>(0, evaluate_extent(a, r.end, dims, at) - evaluate_extent(a, r.begin, dims, at));
  return n;
}

std::vector<Reach> reach_of(const Program& p, const Block& b, const LoopBlock& block, const LoopMemory& memory, size_t result) {
  for (const auto& [r, operand] : block.in_place) {
    if (r != result || memory.place(b.results[result]) != memory.place(b.operands[operand].value)) continue;
    const LoopBlock::Direction& d = block.forward ? *block.forward : block.infer;
    for (const SpecMember& m : d.spec.members) {
      const auto role = d.roles.find(d.spec.tensors[m.tensor].original);
      if (role == d.roles.end() || role->second.is != Is::result || role->second.number != result) continue;
      if (!m.reduced.empty() || !m.scatter.empty() || !is_true(*d.spec.arena, m.condition)) return {};
      return Reached(p, b, d, m).run(operand);
    }
  }
  return {};
}

}  // namespace xhat::runtime
