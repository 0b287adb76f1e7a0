#include "runtime/lazy/lower.h"

#include <fmt/format.h>

#include <unordered_set>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "runtime/lazy/emit.h"

namespace xhat::lazy::detail {
namespace {

class Lowering {
 public:
  Lowering(const Walk& w, const std::vector<char>& varying, const std::vector<char>& parts) : w_(w), parts_(parts) {
    s_.numbers.assign(w.numbers.size(), kNone);
    Program& p = s_.program;
    p.name = "lazy";
    p.arena = std::make_shared<Arena>();
    for (Node* n : w.leaves) {
      Terms t;
      for (int64_t extent : n->shape) t.push_back(s_.extents.unknown(extent, true));
      leaf_terms_.push_back(std::move(t));
    }
    infer(w.graph, {});
    s_.extents.settle();
    for (size_t i = 0; i < w.leaves.size(); ++i) {
      std::vector<Id> shape;
      for (Extents::Term t : leaf_terms_[i]) shape.push_back(s_.extents.in(p, t));
      s_.leaves.push_back(input(fmt::format("x{}", i), w.leaves[i]->type, std::move(shape)));
      result_.leaves.push_back(static_cast<uint32_t>(i));
    }
    for (size_t i = 0; i < varying.size(); ++i) {
      if (!varying[i]) continue;
      s_.numbers[i] = input(fmt::format("c{}", i), w.numbers[i]->type, {});
      result_.numbers.push_back(static_cast<uint32_t>(i));
    }
  }

  Lowered run() {
    Emitter main(s_, w_.graph, terms_[0], {});
    next_terms_ = 1;
    std::vector<TensorId> made = emit(main, w_.graph, &parts_);
    Program& p = s_.program;
    for (TensorId t : made) {
      const auto at = std::ranges::find(p.outputs, t);
      result_.outputs.push_back(static_cast<uint32_t>(at - p.outputs.begin()));
      if (at == p.outputs.end()) p.outputs.push_back(t);
    }
    p = without_dead(ordered(p));
    drop_unused_inputs();
    verify(p);
    result_.program = std::move(p);
    result_.dims = s_.extents.dims();
    return std::move(result_);
  }

 private:
  TensorId input(std::string name, DType type, std::vector<Id> shape) {
    const TensorId t = s_.add(std::move(name), type, std::move(shape));
    s_.program.tensors[t].role = Role_input;
    s_.program.inputs.push_back(t);
    return t;
  }
  static constexpr xhat::Role Role_input = xhat::Role::input;

  // Depth first, as emit() visits derivatives.
  void infer(const Graph& g, const std::vector<Terms>& above) {
    const size_t mine = terms_.size();
    terms_.push_back(infer_extents(s_.extents, g, leaf_terms_, above));
    for (const auto& d : g.derivatives) {
      std::vector<Terms> by;
      for (uint32_t i : d->wrt_items) by.push_back(terms_[mine][i]);
      infer(d->graph, by);
    }
  }

  // The tensors of the graph's roots. Derivatives first: their definitions are those of the loss as well.
  std::vector<TensorId> emit(Emitter& e, const Graph& g, const std::vector<char>* parts) {
    for (const auto& d : g.derivatives) {
      std::vector<TensorId> by;
      for (uint32_t i : d->wrt_items) by.push_back(e.tensor(i));
      differentiate(e, *d, by);
    }
    std::vector<TensorId> made;
    for (size_t r = 0; r < g.roots.size(); ++r) made.push_back(parts && (*parts)[r] ? e.part(g.roots[r]) : e.tensor(g.roots[r]));
    return made;
  }

  void differentiate(Emitter& above, const Derivative& d, const std::vector<TensorId>& by) {
    Program& p = s_.program;
    // The loss as a program of its own, in the same arena and with the same tensors: what it is derived by are inputs.
    const Program outer = p;
    p.forward = {};
    std::vector<std::string> wrt;
    for (TensorId t : by) {
      p.tensors[t].role = Role_input;
      if (std::ranges::find(p.inputs, t) == p.inputs.end()) p.inputs.push_back(t);
      if (std::ranges::find(wrt, p.tensors[t].name) == wrt.end()) wrt.push_back(p.tensors[t].name);
    }
    Emitter inner(s_, d.graph, terms_[next_terms_++], by);
    const TensorId loss = emit(inner, d.graph, nullptr)[0];
    p.outputs = {loss};
    Program derived = gather(gradient(ordered(p), {wrt}));

    // Its definitions join the others; the cotangent of the loss is 1.
    p = outer;
    const std::vector<xhat::Tensor> known = std::exchange(p.tensors, derived.tensors);
    for (size_t t = 0; t < known.size(); ++t) p.tensors[t].role = known[t].role;
    p.dims = derived.dims;
    for (Region* r : {&derived.forward, &derived.backward})
      p.forward.definitions.insert(p.forward.definitions.end(), r->definitions.begin(), r->definitions.end());
    const TensorId cotangent = derived.cotangents[0];
    p.tensors[cotangent].role = xhat::Role::defined;
    s_.define(cotangent, p.arena->constant(p.tensors[cotangent].type, 1));
    std::vector<TensorId> gradients;
    for (TensorId t : by) {
      const auto at = std::ranges::find(derived.gradient_of, t) - derived.gradient_of.begin();
      gradients.push_back(derived.gradients[static_cast<size_t>(at)]);
    }
    above.derived(d, loss, std::move(gradients));
  }

  // Of the inputs that nothing reads, those stay that give the size of something.
  void drop_unused_inputs() {
    Program& p = s_.program;
    std::vector<char> read(p.tensors.size(), 0);
    for (const Definition& d : p.forward.definitions)
      for (TensorId t : d.is_call() ? d.arguments : tensors_read(*p.arena, d.body)) read[t] = 1;
    std::unordered_set<Id> given;
    auto give = [&](TensorId t) {
      bool fresh = false;
      for (Id extent : p.tensors[t].shape)
        for (Id id : reachable(*p.arena, extent))
          if ((*p.arena)[id].op == Op::dim) fresh |= given.insert(id).second;
      return fresh;
    };
    for (TensorId t : p.inputs)
      if (read[t]) give(t);
    std::vector<TensorId> inputs;
    std::vector<uint32_t> leaves, numbers;
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      const TensorId t = p.inputs[i];
      if (!read[t] && !give(t)) continue;
      inputs.push_back(t);
      if (i < result_.leaves.size())
        leaves.push_back(result_.leaves[i]);
      else
        numbers.push_back(result_.numbers[i - result_.leaves.size()]);
    }
    p.inputs = std::move(inputs);
    result_.leaves = std::move(leaves);
    result_.numbers = std::move(numbers);
  }

  const Walk& w_;
  const std::vector<char>& parts_;
  Emission s_;
  Lowered result_;
  std::vector<Terms> leaf_terms_;
  std::vector<std::vector<Terms>> terms_;  // of the graph, and of its derivatives depth first
  size_t next_terms_ = 1;
};

}  // namespace

Lowered lower(const Walk& w, const std::vector<char>& varying, const std::vector<char>& parts) { return Lowering(w, varying, parts).run(); }

}  // namespace xhat::lazy::detail
