#include "ad/common/steps_activity.h"

#include <algorithm>

namespace xhat {
namespace {

class Activity {
 public:
  Activity(const Program& p, const std::vector<TensorId>& wrt) : p_(p), active_(p.tensors.size(), 0) {
    for (TensorId t : wrt) active_[t] = 1;
  }

  std::vector<char> run() {
    do {
      changed_ = false;
      for_each_list(*p_.steps, [&](const Steps& list) {
        for (const Step& s : list) std::visit([&](const auto& x) { spread(x); }, s.is);
      });
    } while (changed_);
    return std::move(active_);
  }

 private:
  void spread(const Block& b) {
    if (!active_inputs(b, active_).empty())
      for (TensorId t : b.results) reach(t);
  }
  void spread(const Update& u) { between(u.result, {u.base, u.value}); }
  void spread(const Loop& l) {
    for (const Carried& c : l.carried) {
      between(c.entering, {c.initial, c.leaving});
      between(c.result, {c.initial, c.leaving});
    }
  }
  void spread(const Branch& b) {
    for (const Branch::Merge& m : b.merges) between(m.result, {m.then, m.otherwise});
  }

  void between(TensorId to, std::initializer_list<TensorId> from) {
    if (std::ranges::any_of(from, [&](TensorId t) { return active_[t] != 0; })) reach(to);
  }
  void reach(TensorId t) {
    if (active_[t] || !is_float(p_.tensors[t].type)) return;
    active_[t] = 1;
    changed_ = true;
  }

  const Program& p_;
  std::vector<char> active_;
  bool changed_ = false;
};

}  // namespace

std::vector<char> active_values(const Program& p, const std::vector<TensorId>& wrt) { return Activity(p, wrt).run(); }

std::vector<std::string> active_inputs(const Block& block, const std::vector<char>& active) {
  std::vector<std::string> names;
  for (size_t k = 0; k < block.operands.size(); ++k) {
    const Tensor& input = block.op->tensors[block.op->inputs[k]];
    if (block.operands[k].scalar == kNone && active[block.operands[k].value] && is_float(input.type)) names.push_back(input.name);
  }
  return names;
}

}  // namespace xhat
