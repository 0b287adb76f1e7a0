#include "ad/gather/pieces.h"

#include <algorithm>
#include <unordered_set>

#include "expr/index/affine.h"

namespace xhat {
namespace {

bool has_pieces(const Arena& a, const Node& n) {
  if (n.type != DType::i64) return false;
  switch (n.op) {
    case Op::minimum:
    case Op::maximum:
    case Op::clamp:
    case Op::abs:
    case Op::relu: return true;
    case Op::select: return is_about_positions(a, n.arg(0));
    default: return false;
  }
}

class Pieces {
 public:
  Pieces(Arena& a, std::span<const AxisRange> axes, std::span<const Id> known) : a_(a), axes_(axes), known_(known) {}

  std::vector<IndexPiece> of(Id part) {
    const Node n = a_[part];
    const Id zero = a_.integer(0);
    switch (n.op) {
      case Op::minimum: add({le(n.arg(0), n.arg(1))}, n.arg(0)), add({lt(n.arg(1), n.arg(0))}, n.arg(1)); break;
      case Op::maximum: add({le(n.arg(1), n.arg(0))}, n.arg(0)), add({lt(n.arg(0), n.arg(1))}, n.arg(1)); break;
      case Op::relu: add({le(zero, n.arg(0))}, n.arg(0)), add({lt(n.arg(0), zero)}, zero); break;
      case Op::abs: add({le(zero, n.arg(0))}, n.arg(0)), add({lt(n.arg(0), zero)}, a_.unary(Op::neg, n.arg(0))); break;
      case Op::clamp: {  // min(max(x, low), high)
        const Id x = n.arg(0), low = n.arg(1), high = n.arg(2);
        if (!always(low, high)) return {};
        add({le(low, x), le(x, high)}, x), add({lt(x, low)}, low), add({lt(high, x)}, high);
        break;
      }
      case Op::select: add(conjuncts(a_, n.arg(0)), n.arg(1)), add(negated_conjuncts(a_, n.arg(0)), n.arg(2)); break;
      default: break;
    }
    return std::move(made_);
  }

 private:
  Id le(Id x, Id y) { return always(x, y) ? a_.boolean(true) : a_.binary(Op::le, x, y); }
  Id lt(Id x, Id y) { return always(y, x) ? a_.boolean(false) : a_.binary(Op::lt, x, y); }

  // Is x <= y at all points?
  bool always(Id x, Id y) {
    const Id difference = a_.sub(y, x);
    const BoundsQuestion q{axes_, known_, difference, a_.add(difference, a_.integer(1))};
    return prove_bounds(a_, q).verdict == BoundsAnswer::Verdict::proved;
  }

  void add(const std::vector<Id>& where, Id value) {
    Literals needed;
    for (Id condition : where) {
      if (is_false(a_, condition)) return;
      add_literals(a_, needed, condition);
    }
    made_.push_back({needed, value});
  }

  Arena& a_;
  std::span<const AxisRange> axes_;
  std::span<const Id> known_;
  std::vector<IndexPiece> made_;
};

}  // namespace

Id part_with_pieces(const Arena& a, Id index, std::span<const Id> axes) {
  const std::vector<Id> all = reachable(a, index);  // operands before what is made of them
  const bool data = std::ranges::any_of(all, [&](Id id) { return is_read(a[id].op) || is_reduction(a[id].op) || is_float(a[id].type); });
  if (data) return kNone;
  auto found = std::ranges::find_if(all, [&](Id id) { return has_pieces(a, a[id]) && depends_on(a, id, axes); });
  return found == all.end() ? kNone : *found;
}

std::vector<IndexPiece> pieces_of(Arena& a, Id part, std::span<const AxisRange> axes, std::span<const Id> known) {
  return Pieces(a, axes, known).of(part);
}

}  // namespace xhat
