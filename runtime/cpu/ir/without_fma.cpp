#include "runtime/cpu/ir/without_fma.h"

namespace xhat::runtime {
namespace {

// A processor without fma would call the C library for each lane (20 ns where that has to compute it). In double a product of
// floats is exact; the sum is rounded twice, which in one case of 2^29 gives the neighbouring float.
struct WithoutFma : Halide::Internal::IRMutator {
  using IRMutator::visit;
  Expr visit(const Halide::Internal::Call* op) override {
    Expr e = IRMutator::visit(op);
    if (op->name != "llvm.fma.f32") return e;
    auto wide = [&](size_t i) {
      const Expr& x = e.as<Halide::Internal::Call>()->args[i];
      return Halide::Internal::Cast::make(Halide::Float(64, x.type().lanes()), x);
    };
    Expr sum = Halide::Internal::Add::make(Halide::Internal::Mul::make(wide(0), wide(1)), wide(2));
    return Halide::Internal::Cast::make(op->type, sum);
  }
};

}  // namespace

Halide::Internal::Stmt without_fma(const Halide::Internal::Stmt& s) { return WithoutFma().mutate(s); }
void avoid_fma(Halide::Pipeline& pipeline) { pipeline.add_custom_lowering_pass(new WithoutFma); }

}  // namespace xhat::runtime
