// A program on its way through differentiation, in either mode: what is asked for, which tensors depend on it, the
// definitions derived so far, and, in reverse mode, what is known of each tensor's adjoint.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ad/common/partials.h"
#include "expr/core/program.h"

namespace xhat {

// What is known so far of d L / d tensor: the sum of the terms, over axes.
struct TensorAdjoint {
  std::vector<Id> axes;  // one per dimension; empty until the first term (or for a scalar)
  std::vector<Id> terms;
  std::vector<Id> guards;  // per term: a condition outside of which it is zero; kNone: no such knowledge
};

struct Differentiation {
  Program program;
  std::vector<Definition> derived;      // in order
  std::vector<TensorAdjoint> adjoints;  // per tensor
  std::vector<char> active;             // per tensor: depends on an input asked for

  Arena& arena() { return *program.arena; }
  TensorAdjoint& adjoint(TensorId t) {
    if (adjoints.size() < program.tensors.size()) adjoints.resize(program.tensors.size());
    return adjoints[t];
  }
  bool is_active(TensorId t) const { return t < active.size() && active[t] != 0; }
  // A derived definition of a new tensor, or of t, over these axes.
  TensorId define(const std::string& name, DType type, std::span<const AxisRange> axes, Id body);
  void define(TensorId t, std::span<const AxisRange> axes, Id body);
  // The sum of t's terms, as an expression over adjoint(t).axes; kNone if there are none.
  Id total(TensorId t);
};

// Axes over the whole of t.
std::vector<AxisRange> whole(Differentiation& d, TensorId t, std::span<const Id> axes);

// A program with a backward, taken as one forward: cotangents become inputs, gradients outputs.
Program as_forward(const Program& p);
// The forward definitions alone, without a stated gradient.
Program without_backward(const Program& p);
std::vector<std::string> names_of(const Program& p, const std::vector<TensorId>& tensors);
// The inputs named; none: every float input that is not const. Throws Error for a name that is no input, not a
// float, or const.
std::vector<TensorId> asked_for(const Program& p, const std::vector<std::string>& wrt);
// Which tensors depend on these.
void mark_active(Differentiation& d, const std::vector<TensorId>& wrt);

// The axes of t that contributions are written over. Named when first asked for: by wanted (kNone: no wish),
// else after t's dims, else i, j, …; not like one of avoid.
const std::vector<Id>& target_axes(Differentiation& d, TensorId t, std::span<const Id> wanted = {},
                                   std::span<const Id> avoid = {});

}  // namespace xhat
