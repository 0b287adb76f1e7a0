#include "runtime/cpu/ir/float_pairs.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

// b of (a, b - a) in the forms that the simplifier leaves. Where it has gone further, a + (b - a) has to do.
Expr second(const Expr& a, const Expr& step) {
  if (is_const_zero(a)) return step;
  if (const Sub* difference = step.as<Sub>(); difference && equal(difference->b, a)) return difference->a;
  if (const Add* sum = step.as<Add>()) {  // b - 3 is b + -3
    const FloatImm *first = a.as<FloatImm>(), *added = sum->b.as<FloatImm>();
    if (first && added && added->value == -first->value) return sum->a;
  }
  const Select *from = a.as<Select>(), *choice = step.as<Select>();
  if (from && choice && equal(from->condition, choice->condition))
    return Select::make(choice->condition, second(from->true_value, choice->true_value), second(from->false_value, choice->false_value));
  return Add::make(a, step);
}

struct Pairs : IRMutator {
  using IRMutator::visit;
  Expr visit(const Ramp* op) override {
    if (!op->type.is_float() || op->lanes != 2 || !op->base.type().is_scalar()) return IRMutator::visit(op);
    Expr first = mutate(op->base);
    return Shuffle::make_concat({first, mutate(second(op->base, op->stride))});
  }
};

}  // namespace

void keep_float_pairs(Halide::Pipeline& pipeline) { pipeline.add_custom_lowering_pass(new Pairs); }

}  // namespace xhat::runtime
