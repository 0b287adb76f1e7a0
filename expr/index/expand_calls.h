// Calls become definitions: the callee's dims are replaced by the arguments' extents, its own tensors get
// names of their own (`softmax_m`), calls inside it are expanded as well.
//   y = softmax(z)   =>   softmax_m[n] = max(d: z[n,d]) …  y[n,d] = softmax_e[n,d] / …
#pragma once
#include <string>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

struct ExpandedCall {
  std::string callee;
  TensorId result;                // the first
  std::vector<TensorId> members;  // of the expanded program: all that the call defines
};

// Does it say its gradient itself, by `grad` or by a backward block? Who calls it takes that.
inline bool states_gradient(const Program& p) { return p.custom_gradient || !p.gradients.empty(); }

// keep_custom: calls of ops that state their own gradient stay. calls: gets what was expanded, outer calls before those inside of them.
Program expand_calls(const Program& p, bool keep_custom = false, std::vector<ExpandedCall>* calls = nullptr);

// What a call of p computes, with calls inside it expanded: definitions of p, whose tensors p gets.
std::vector<Definition> expanded(Program& p, const Definition& call);

// The definitions that compute op's tensors (op without calls) inside p. tensors: op's tensor -> p's; entries
// that are kNoTensor get a new tensor, named prefix_<name>. Dims follow from the extents of op's inputs.
// Preconditions and dims that op needs are added to p.
std::vector<Definition> instantiate(Program& p, const Program& op, std::vector<TensorId>& tensors, const std::string& prefix);

// op's dims in p, where its inputs are these tensors of p; op is in the same arena.
Replacements dims_of_call(Program& p, const Program& op, const std::vector<TensorId>& arguments);

// Axes called like a tensor or a dim get another name: a pass that adds tensors cannot know the names of all
// axes.
Program with_clear_axes(const Program& p);

// A derived program as an op of that name: ordered, without what nothing needs, with clear axes, verified.
Program finished_op(Program p, const std::string& name);

}  // namespace xhat
