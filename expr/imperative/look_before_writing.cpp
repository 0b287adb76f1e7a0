#include <algorithm>
#include <map>

#include "expr/core/uses.h"
#include "expr/imperative/forms.h"

namespace xhat::imperative {
namespace {

// What becomes of the definitions behind one update.
class Look {
 public:
  Look(Context& c, const Forms& forms, size_t update) : c_(c), a_(c.arena()), forms_(forms), update_(update) {
    old_ = std::get<Update>(forms[update]).base;
    for (const LoopVariable& v : c.state.loops) variables_.insert(v.range.axis);
    for (size_t k = update; k < forms.size(); ++k) made(forms[k]);
  }

  // False: somebody needs more of the old value than numbers, or nobody reads it.
  bool run() {
    for (size_t k = update_ + 1; k < forms_.size(); ++k) {
      const auto* run = std::get_if<Run>(&forms_[k]);
      if (!run && reads(forms_[k])) return false;
      if (!run) continue;
      for (size_t d = 0; d < run->definitions.size(); ++d) {
        const Definition& of = run->definitions[d];
        if (!has_tensor(tensors_read(a_, of), old_)) continue;
        if (of.is_call()) return false;
        for (const AxisRange& r : of.axes)
          for (Id bound : {r.begin, r.end})
            if (has_tensor(tensors_read(a_, bound), old_)) return false;
        here_ = &of;
        const Id body = without(of.body, kNone, !of.axes.empty());
        if (body == kNone) return false;
        bodies_[{k, d}] = body;
      }
    }
    return !bodies_.empty();
  }

  void apply(Forms& forms) {
    for (const auto& [at, body] : bodies_) std::get<Run>(forms[at.first]).definitions[at.second].body = body;
    if (update_ > 0 && std::holds_alternative<Run>(forms[update_ - 1])) {
      std::vector<Definition>& before = std::get<Run>(forms[update_ - 1]).definitions;
      before.insert(before.end(), early_.begin(), early_.end());
    } else {
      forms.insert(forms.begin() + static_cast<std::ptrdiff_t>(update_), Run{early_});
    }
  }

 private:
  void made(const Forms::value_type& form) {
    if (const auto* r = std::get_if<Run>(&form)) {
      for (const Definition& d : r->definitions) late_.insert(d.targets.begin(), d.targets.end());
    } else if (const auto* u = std::get_if<Update>(&form)) {
      late_.insert(u->result);
    } else if (const auto* l = std::get_if<LoopForm>(&form)) {
      for (const CarriedValue& v : l->item.carried) late_.insert({v.entering, v.result});
      for (const Forms* list : {&l->test, &l->body})
        for (const auto& f : *list) made(f);
    } else {
      const auto& b = std::get<BranchForm>(form);
      for (const Merge& m : b.item.merges) late_.insert(m.result);
      for (const Forms* list : {&b.then, &b.otherwise})
        for (const auto& f : *list) made(f);
    }
  }

  bool reads(Id x) const { return x != kNone && has_tensor(tensors_read(a_, x), old_); }
  bool reads(const Forms& list) const {
    return std::ranges::any_of(list, [&](const auto& f) { return reads(f); });
  }
  bool reads(const Forms::value_type& form) const {
    if (const auto* r = std::get_if<Run>(&form))
      return std::ranges::any_of(r->definitions, [&](const Definition& d) { return has_tensor(tensors_read(a_, d), old_); });
    if (const auto* u = std::get_if<Update>(&form))
      return u->base == old_ || u->value == old_ || std::ranges::any_of(u->row, [&](Id index) { return reads(index); });
    if (const auto* l = std::get_if<LoopForm>(&form))
      return reads(l->item.begin) || reads(l->item.end) || reads(l->test) || reads(l->body) || l->item.condition == old_ ||
             std::ranges::any_of(l->item.carried, [&](const CarriedValue& v) { return v.initial == old_ || v.leaving == old_; });
    const auto& b = std::get<BranchForm>(form);
    return b.item.condition == old_ || reads(b.then) || reads(b.otherwise) ||
           std::ranges::any_of(b.item.merges, [&](const Merge& m) { return m.then == old_ || m.otherwise == old_; });
  }

  // A number that is known before the update.
  bool is_early(Id x) const {
    for (Id axis : a_[x].free_axes())
      if (!variables_.contains(axis)) return false;
    return std::ranges::none_of(tensors_read(a_, x), [&](TensorId t) { return late_.contains(t); });
  }

  bool reads_at_data(Id x) const {
    return std::ranges::any_of(reachable(a_, x), [&](Id id) {
      if (!is_read(a_[id].op)) return false;
      return std::ranges::any_of(read_indices(a_[id]), [&](Id index) { return !tensors_read(a_, index).empty(); });
    });
  }

  // x without reads of the old value; kNone: it cannot do without. guard: what holds where x is evaluated, kNone: everywhere. repeated: at
  // axes, which may have no points at all.
  Id without(Id x, Id guard, bool repeated) {
    if (!reads(x)) return x;
    if (auto it = done_.find({x, guard}); it != done_.end()) return it->second;
    return done_[{x, guard}] = made_without(x, guard, repeated);
  }
  Id made_without(Id x, Id guard, bool repeated) {
    if (is_early(x)) return repeated && reads_at_data(x) ? kNone : number(x, guard);
    const Node n = a_[x];
    std::vector<Id> args(n.args().begin(), n.args().end());
    if (n.op == Op::select) {
      const Id condition = without(args[0], guard, repeated);
      if (condition == kNone) return kNone;
      for (size_t side : {1, 2}) {
        if (!reads(args[side])) continue;
        if (!is_early(args[0])) return kNone;
        const Id holds = side == 1 ? args[0] : a_.unary(Op::lnot, args[0]);
        args[side] = without(args[side], guard == kNone ? holds : a_.land(guard, holds), repeated);
        if (args[side] == kNone) return kNone;
      }
      args[0] = condition;
      return a_.with_args(x, args);
    }
    if (n.op == Op::read_or || (n.op == Op::read && n.symbol == old_)) return kNone;
    for (Id& arg : args) {
      arg = without(arg, guard, repeated || is_reduction(n.op));
      if (arg == kNone) return kNone;
    }
    return a_.with_args(x, args);
  }

  Id number(Id x, Id guard) {
    const DType type = a_[x].type;
    Definition d;
    d.body = guard == kNone ? x : a_.select(guard, x, a_.constant(type, 0));
    d.targets = {c_.new_tensor(c_.program.tensors[here_->target()].name, type, {})};
    d.pos = here_->pos;
    early_.push_back(d);
    return a_.read(d.target(), type, {});
  }

  Context& c_;
  Arena& a_;
  const Forms& forms_;
  const size_t update_;
  TensorId old_ = 0;
  std::set<Id> variables_;
  std::set<TensorId> late_;
  const Definition* here_ = nullptr;
  std::vector<Definition> early_;
  std::map<std::pair<size_t, size_t>, Id> bodies_;
  std::map<std::pair<Id, Id>, Id> done_;
};

}  // namespace

void look_before_writing(Context& c, Forms& forms) {
  for (size_t k = 0; k < forms.size(); ++k) {
    if (!std::holds_alternative<Update>(forms[k])) continue;
    Look look(c, forms, k);
    if (!look.run()) continue;
    const size_t before = forms.size();
    look.apply(forms);
    k += forms.size() - before;
  }
}

}  // namespace xhat::imperative
