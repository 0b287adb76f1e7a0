#include "runtime/cpu/ir/rare_lanes.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

struct RareLanes : IRMutator {
  using IRMutator::visit;
  Expr visit(const Call* op) override {
    const Expr mutated = IRMutator::visit(op);
    const Call* call = mutated.as<Call>();
    if (!call || !call->is_intrinsic(Call::if_then_else) || call->args.size() != 3 || !call->args[0].type().is_vector()) return mutated;
    const int lanes = call->type.lanes();
    const std::string condition = unique_name("rare"), usual = unique_name("usual");
    const Expr rare = Variable::make(call->args[0].type(), condition), value = Variable::make(call->type, usual);
    const Expr any = Broadcast::make(VectorReduce::make(VectorReduce::Or, rare, 1), lanes);
    const Expr branch =
        Call::make(call->type, Call::if_then_else, {any, Select::make(rare, call->args[1], value), value}, Call::PureIntrinsic);
    return Let::make(condition, call->args[0], Let::make(usual, call->args[2], branch));
  }
};

}  // namespace

void branch_for_vectors(Halide::Pipeline& pipeline) { pipeline.add_custom_lowering_pass(new RareLanes); }
Stmt with_branches_for_vectors(const Stmt& lowered) { return RareLanes().mutate(lowered); }

}  // namespace xhat::runtime
