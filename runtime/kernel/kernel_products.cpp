// Sums of products whose factors read along different axes, as gradients of convolutions leave them:
//
//   sum(k, t: 0 <= l-1+t < W: dy[k,l-1+t] * w[k,c,2-t])
//
// The factor that the vectors of results walk along takes the conditions that differ from lane to lane, as zeros where it is
// packed, so that the sum needs none; and what the rows are multiplied by is read forward.
#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/index/affine_poly.h"
#include "expr/rules/simplify.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {
namespace {

class Product {
 public:
  Product(KernelSpec& spec, SpecMember& m) : spec_(spec), a_(*spec.arena), m_(m) {}

  void settle() {
    const Node n = a_[m_.body];
    if (m_.op != Op::sum || n.op != Op::mul || !is_float(n.type) || m_.left.empty() || !m_.scatter.empty()) return;
    const Id v = walked_by_vectors();
    for (size_t across : {size_t{0}, size_t{1}}) {
      Id lanes = n.arg(static_cast<int>(across)), rows = n.arg(static_cast<int>(1 - across));
      bool of_rows = std::ranges::any_of(m_.left, [&](Id y) { return a_[rows].depends_on(y) && !a_[lanes].depends_on(y); });
      if (!of_rows || !a_[lanes].depends_on(v) || a_[rows].depends_on(v)) continue;
      if (Id settled = with_conditions(lanes, v); settled != lanes) m_.body = a_.mul(settled, rows);
      read_forward(rows);
      return;
    }
    settle_window(v);
  }

 private:
  // Vectors go along the last axis of the result, or, where that is a remainder, along its quotient (kernel_phases.cpp).
  Id walked_by_vectors() const {
    const Id last = m_.left.back();
    const auto quotient = std::ranges::find_if(m_.left, [&](Id x) { return spec_.remainder_of(m_, x) == last; });
    return quotient == m_.left.end() ? last : *quotient;
  }

  // A window's weights, the same for all lanes: 0 from outside is added for what the conditions leave out because it is outside.
  void settle_window(Id v) {
    const Node n = a_[m_.body];
    for (int i : {0, 1}) {
      const Id factor = n.arg(i), weight = n.arg(1 - i);
      if (!a_[factor].depends_on(v) || a_[weight].depends_on(v) || !is_anywhere(weight)) continue;
      const std::vector<Id> reads = zero_outside(factor);
      if (reads.empty()) continue;
      Id others = a_.boolean(true);
      for (Id c : conjuncts(a_, m_.condition))
        if (!keeps_inside(c, a_[reads[0]]) || along_long_sum(c)) others = is_true(a_, others) ? c : a_.land(others, c);
      if (others == m_.condition) return;
      m_.condition = others;
      Replacements replace;
      for (Id read : reads) replace[read] = or_zero(read);
      m_.body = a_.mul(substitute(a_, factor, replace), weight);
      return;
    }
  }

  Id or_zero(Id read) {
    const Node n = a_[read];
    const std::vector<Id> indices(read_indices(n).begin(), read_indices(n).end());
    return a_.read_or(n.symbol, n.type, indices, a_.constant(n.type, 0));
  }

  // What the factor reads, if that is all at one place, and the factor is 0 where the place is outside and gives 0.
  std::vector<Id> zero_outside(Id factor) {
    std::vector<Id> reads;
    Replacements zeros;
    for (Id id : reachable(a_, factor)) {
      const Node& n = a_[id];
      if (!is_read(n.op) || n.free_axes().empty()) continue;
      auto same = [&](const Node& first) {
        return std::ranges::equal(read_indices(n), read_indices(first)) &&
               spec_.tensors[n.symbol].shape == spec_.tensors[first.symbol].shape;
      };
      if (n.op != Op::read || (!reads.empty() && !same(a_[reads[0]]))) return {};
      reads.push_back(id);
    }
    for (Id read : reads) zeros[read] = a_.constant(a_[read].type, 0);
    const bool zero = !reads.empty() && is_constant(a_, simplify(a_, substitute(a_, factor, zeros)), 0);
    return zero ? reads : std::vector<Id>{};
  }

  // Is the factor a number that 0 may be multiplied by where conditions are not met, too? 1/z[t] of a place t outside may be infinite.
  bool is_anywhere(Id factor) const {
    return is_read(a_[factor].op) ||
           std::ranges::all_of(reachable(a_, factor), [&](Id id) { return !is_read(a_[id].op) || spec_.inside(a_[id]); });
  }

  // 0 <= i, or i < extent, for one of the read's indices.
  bool keeps_inside(Id condition, const Node& read) {
    using affine::Poly;
    const Node c = a_[condition];
    if ((c.op != Op::lt && c.op != Op::le) || a_[c.arg(0)].type != DType::i64) return false;
    auto poly = [&](Id e) { return affine::polynomial_through_divisions(a_, e, Poly::atom); };
    try {
      const Poly least = poly(c.arg(1)) - poly(c.arg(0)) - Poly::constant(c.op == Op::lt);
      for (size_t d = 0; d < read_indices(read).size(); ++d) {
        const Poly at = poly(read_indices(read)[d]), last = Poly::constant(spec_.tensors[read.symbol].shape[d] - 1);
        for (const Poly& inside : {least - at, least - (last - at)})
          if (auto room = inside.as_constant(); room && *room >= 0) return true;
      }
    } catch (const affine::GaveUp&) {
    }
    return false;
  }

  // The factor, 0 where one of the sum's conditions on v is not met; those are the sum's no longer.
  Id with_conditions(Id factor, Id v) {
    Id mine = kNone, others = a_.boolean(true);
    for (Id c : conjuncts(a_, m_.condition)) {
      bool moves = a_[c].depends_on(v) && std::ranges::all_of(a_[c].free_axes(), [&](Id x) { return a_[factor].depends_on(x); });
      moves = moves && !((a_[c].op == Op::lt || a_[c].op == Op::le) && along_long_sum(c));
      if (moves)
        mine = mine == kNone ? c : a_.land(mine, c);
      else
        others = is_true(a_, others) ? c : a_.land(others, c);
    }
    if (mine == kNone) return factor;
    m_.condition = others;
    const DType type = a_[factor].type;
    return a_.select(mine, anywhere(factor), a_.constant(type, 0));
  }

  // Blocks of a long sum leave out what its triangles and bands do (runtime/cpu/lower_bands.cpp).
  bool along_long_sum(Id condition) const {
    return std::ranges::any_of(m_.reduced, [&](Id x) { return a_[condition].depends_on(x) && spec_.axes.at(x).extent > 2 * kFewTerms; });
  }

  // Without reading outside where a condition is not met.
  Id anywhere(Id factor) {
    Replacements replace;
    for (Id id : reachable(a_, factor)) {
      const Node n = a_[id];
      if (n.op != Op::read || spec_.inside(n)) continue;
      replace[id] = or_zero(id);
    }
    return substitute(a_, factor, replace);
  }

  // Axes of the sum along which `rows` is read backwards are walked from their end.
  void read_forward(Id rows) {
    Replacements turned;
    for (Id x : m_.reduced) {
      const SpecAxis& axis = spec_.axes.at(x);
      if (axis.shared < 0 && backwards(rows, x)) turned[x] = a_.sub(a_.integer(axis.extent - 1), x);
    }
    if (turned.empty()) return;
    auto walked = [&](Id e) { return simplify(a_, with_collected_indices(a_, substitute(a_, e, turned))); };
    m_.body = walked(m_.body);
    m_.condition = walked(m_.condition);
  }

  bool backwards(Id e, Id x) {
    bool any = false;
    for (Id id : reachable(a_, e)) {
      const Node n = a_[id];
      if (!is_read(n.op)) continue;
      for (Id index : read_indices(n)) {
        if (!a_[index].depends_on(x)) continue;
        auto step = step_along(a_, index, x);
        if (!step || *step > 0) return false;
        any |= *step < 0;
      }
    }
    return any;
  }

  KernelSpec& spec_;
  Arena& a_;
  SpecMember& m_;
};

}  // namespace

void fold_conditions_into_packed(KernelSpec& spec) {
  for (SpecMember& m : spec.members) Product(spec, m).settle();
}

}  // namespace xhat::runtime
