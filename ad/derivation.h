// A program whose backward is being derived: what is known so far of each tensor's adjoint.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ad/partials.h"
#include "expr/program.h"

namespace xhat {

// What is known so far of d L / d tensor: the sum of the terms, over axes.
struct TensorAdjoint {
  std::vector<Id> axes;  // one per dimension; empty until the first term (or for a scalar)
  std::vector<Id> terms;
  std::vector<Id> guards;  // per term: a condition outside of which it is zero; kNone: no such knowledge
};

// A program whose backward is being derived.
struct Differentiation {
  Program program;
  std::vector<Definition> backward;     // in order
  std::vector<TensorAdjoint> adjoints;  // per tensor
  std::vector<char> active;             // per tensor: depends on an input asked for
  Partials partials;

  Arena& arena() { return *program.arena; }
  TensorAdjoint& adjoint(TensorId t) {
    if (adjoints.size() < program.tensors.size()) adjoints.resize(program.tensors.size());
    return adjoints[t];
  }
  bool is_active(TensorId t) const { return t < active.size() && active[t] != 0; }
  // A backward definition of a new tensor over these axes.
  TensorId define(const std::string& name, DType type, std::span<const AxisRange> axes, Id body);
  // The sum of t's terms, as an expression over adjoint(t).axes; kNone if there are none.
  Id total(TensorId t);
};

// The axes of t that contributions are written over. Named when first asked for: by wanted (kNone: no wish),
// else after t's dims, else i, j, …; not like one of avoid.
const std::vector<Id>& target_axes(Differentiation& d, TensorId t, std::span<const Id> wanted = {},
                                   std::span<const Id> avoid = {});

}  // namespace xhat
