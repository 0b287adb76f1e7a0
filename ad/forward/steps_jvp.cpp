#include "ad/forward/steps_jvp.h"

#include <map>

#include "ad/common/differentiation.h"
#include "ad/common/steps_activity.h"
#include "expr/core/steps.h"

namespace xhat {
namespace {

class StepsForward {
 public:
  StepsForward(const Program& p, const std::vector<TensorId>& wrt) : p_(p), active_(active_values(p, wrt)) {
    for (TensorId t : wrt) {
      const TensorId tangent = tangents_[t] = p_.add_tensor("t_" + p_.tensors[t].name, p_.tensors[t].type, p_.tensors[t].shape);
      p_.tensors[tangent].role = Role::input;
      p_.inputs.push_back(tangent);
    }
  }

  Program run() {
    const std::shared_ptr<const Steps> steps = p_.steps;
    Steps made = list(*steps);
    for (TensorId t : std::vector(p_.outputs)) {
      if (!is_float(p_.tensors[t].type)) continue;
      const TensorId tangent = tangent_or_zero(t, made);
      // An output is a tensor of its own, with a name of its own.
      const TensorId named = p_.add_tensor("jvp_" + p_.tensors[t].name, p_.tensors[t].type, p_.tensors[t].shape);
      made.push_back({Block{identity(t), {{tangent, {}, kNone}}, {named}}});
      p_.outputs.push_back(named);
    }
    p_.steps = std::make_shared<const Steps>(std::move(made));
    p_.name += "_jvp";
    return std::move(p_);
  }

 private:
  Program p_;
  std::vector<char> active_;
  std::map<TensorId, TensorId> tangents_;
  std::map<std::pair<const Program*, std::vector<std::string>>, std::shared_ptr<const Program>> known_;

  TensorId tangent_of(TensorId t) {
    auto [it, fresh] = tangents_.try_emplace(t, 0);
    if (fresh) it->second = p_.add_tensor("t_" + p_.tensors[t].name, p_.tensors[t].type, p_.tensors[t].shape);
    return it->second;
  }

  // What does not move has a tangent of zeros, where one is asked for.
  TensorId tangent_or_zero(TensorId t, Steps& into) {
    if (active_[t]) return tangent_of(t);
    const TensorId zero = p_.add_tensor("t_" + p_.tensors[t].name, p_.tensors[t].type, p_.tensors[t].shape);
    into.push_back({Block{filled(t, false), {}, {zero}}});
    return zero;
  }

  std::shared_ptr<const Program> identity(TensorId t) const { return filled(t, true); }

  // y = x, or y = 0, of t's shape.
  std::shared_ptr<const Program> filled(TensorId t, bool copy) const {
    Program op;
    op.name = copy ? "copy" : "zeros";
    op.arena = p_.arena;
    op.dims = p_.dims;
    const Tensor& like = p_.tensors[t];
    std::vector<AxisRange> axes;
    std::vector<Id> indices;
    for (size_t k = 0; k < like.shape.size(); ++k) {
      const Id axis = op.arena->axis("i" + std::to_string(k));
      axes.push_back({axis, op.arena->integer(0), like.shape[k]});
      indices.push_back(axis);
    }
    Id body = op.arena->constant(like.type, 0);
    if (copy) {
      const TensorId x = op.add_tensor("x", like.type, like.shape);
      op.tensors[x].role = Role::input;
      op.inputs.push_back(x);
      body = op.arena->read(x, like.type, indices);
    }
    const TensorId y = op.add_tensor("y", like.type, like.shape);
    op.outputs.push_back(y);
    op.forward.definitions.push_back({{y}, axes, body, {}, nullptr, {}});
    return std::make_shared<const Program>(std::move(op));
  }

  Steps list(const Steps& steps) {
    Steps made;
    for (const Step& s : steps) std::visit([&](const auto& x) { push(x, made); }, s.is);
    return made;
  }

  void push(const Block& block, Steps& into) {
    const std::vector<std::string> names = active_inputs(block, active_);
    if (names.empty()) return into.push_back({block});
    auto& op = known_[{block.op.get(), names}];
    if (!op) op = std::make_shared<const Program>(jvp(*block.op, {names}));
    Block b = block;
    b.op = op;
    for (size_t k = 0; k < block.operands.size(); ++k)
      if (std::ranges::find(names, block.op->tensors[block.op->inputs[k]].name) != names.end())
        b.operands.push_back({tangent_of(block.operands[k].value), block.operands[k].row, kNone});
    for (TensorId t : block.results)
      if (is_float(p_.tensors[t].type)) b.results.push_back(tangent_of(t));
    into.push_back({std::move(b)});
  }

  void push(const Update& u, Steps& into) {
    into.push_back({u});
    if (!active_[u.result]) return;
    const TensorId base = tangent_or_zero(u.base, into), value = tangent_or_zero(u.value, into);
    into.push_back({Update{base, u.row, value, tangent_of(u.result), u.pos}});
  }

  void push(const Loop& loop, Steps& into) {
    Loop l = loop;
    l.test = list(loop.test);
    l.body = list(loop.body);
    for (const Carried& c : loop.carried) {
      if (!active_[c.entering]) continue;
      const TensorId initial = tangent_or_zero(c.initial, into);
      l.carried.push_back({initial, tangent_of(c.entering), tangent_or_zero(c.leaving, l.body), tangent_of(c.result)});
    }
    into.push_back({std::move(l)});
  }

  void push(const Branch& branch, Steps& into) {
    Branch b = branch;
    b.then = list(branch.then);
    b.otherwise = list(branch.otherwise);
    for (const Branch::Merge& m : branch.merges)
      if (active_[m.result])
        b.merges.push_back({tangent_or_zero(m.then, b.then), tangent_or_zero(m.otherwise, b.otherwise), tangent_of(m.result)});
    into.push_back({std::move(b)});
  }
};

}  // namespace

Program jvp_of_steps(const Program& p, const JvpOptions& options) {
  if (!p.gradients.empty()) throw Error(p.name + ": forward mode over the gradient of a program with loops or branches is not there yet");
  return StepsForward(p, asked_for(p, options.wrt)).run();
}

}  // namespace xhat
