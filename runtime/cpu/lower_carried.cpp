// Sums that are carried from tile to tile (Kernel::sequential): the result itself holds what the tiles before have summed up. The code gets
// it as an input as well, whole, and reads each element just before it writes it (read_results, runtime/cpu/ir/write_over.h).
#include "runtime/cpu/lowering.h"
#include "runtime/emit/emit_ops.h"

namespace xhat::runtime {

void Lowering::declare_carried() {
  for (const SpecMember& m : spec_.members) {
    if (spec_.carried_over(m) == kNone) continue;
    const SpecTensor& x = spec_.tensors[m.tensor];
    Halide::ImageParam image(storage_type(x.type), static_cast<int>(x.shape.size()), name("carried", m.tensor));
    for (int d = 0; d < static_cast<int>(x.shape.size()); ++d) image.dim(d).set_min(0);
    if (!x.dense && !x.rows) image.dim(0).set_stride(Expr());
    carried_.emplace(m.tensor, image);
    out_.inputs.push_back(m.tensor);
    out_.arguments.push_back(image);
  }
}

Expr Lowering::carry(const SpecMember& m, const Expr& own) const {
  const Id over = spec_.carried_over(m);
  if (over == kNone) return own;
  const Emitter::Axes local = left_locals(m);
  std::vector<Expr> at;
  for (size_t i = m.left.size(); i-- > 0;) {
    auto origin = emit_.origin.find(m.left[i]);
    at.push_back(origin == emit_.origin.end() ? local.at(m.left[i]) : Expr(origin->second) + local.at(m.left[i]));
  }
  return Halide::select(Expr(emit_.origin.at(over)) == 0, own, ops::element(carried_.at(m.tensor), at) + own);
}

Func Lowering::added_up(const SpecMember& m, Func own) {
  place(own);
  Func sum(name("sum", m.tensor));
  const std::vector<Var> left = func_vars(m);
  sum(left) = carry(m, own(exprs(left)));
  along_memory(sum, m);
  return sum;
}

}  // namespace xhat::runtime
