// A call whose steps or definitions stand in its place: of a program whose loops or branches stay, or with shapes that depend on the
// iteration.
#pragma once
#include "expr/imperative/state.h"

namespace xhat::imperative {

// A tensor, and what of it means something: all, unless the shape depends on the iteration.
struct Shaped {
  TensorId tensor = 0;
  Shape shape;
};
struct InlinedCall {
  const Program& callee;
  Replacements dims;                   // the callee's
  std::map<TensorId, Shaped> tensors;  // the caller's for the callee's inputs and outputs
  Pos pos;
};
Items inline_call(Context& c, InlinedCall call);

}  // namespace xhat::imperative
