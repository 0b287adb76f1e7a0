// Items as steps: runs of definitions become ops, which are handed rows of what they read.
//
//   for t: z = ..x[t,b,i]..h[b,k].., out_1 = out with out[t] = h      Loop t { block(x[t], h) -> h_1;  out_1[t] = h_1 }
#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "expr/core/conditions.h"
#include "expr/core/steps.h"
#include "expr/core/uses.h"
#include "expr/imperative/block.h"
#include "expr/imperative/finish.h"
#include "expr/imperative/forms.h"
#include "expr/imperative/image.h"
#include "expr/imperative/rename.h"
#include "expr/rules/simplify.h"

namespace xhat::imperative {

namespace {

class StepsForm {
 public:
  StepsForm(Context& c, const std::vector<Output>& outputs) : c_(c), a_(c.arena()), outputs_(outputs) {}

  Program run(Items items) {
    Forms forms = formed(items);
    if (!c_.tables.empty()) {
      if (forms.empty() || !std::holds_alternative<Run>(forms.front())) forms.insert(forms.begin(), Run{});
      std::vector<Definition>& first = std::get<Run>(forms.front()).definitions;
      first.insert(first.begin(), c_.tables.begin(), c_.tables.end());
    }
    for (const Output& o : outputs_) ++uses_[o.value];
    count(forms, 1);
    while (drop(forms)) {
    }
    Program& p = c_.program;
    for (const Output& o : outputs_) p.outputs.push_back(o.value);
    std::set<std::string> taken;
    for (const Dim& d : p.dims) taken.insert(a_.name(d.dim));
    for (Id axis : axes_) taken.insert(a_.name(axis));
    std::vector<TensorId> order;
    tensors(forms, order);
    name_tensors(p, order, outputs_, taken);
    p.steps = std::make_shared<const std::vector<Step>>(steps(forms));
    return compacted(p, order);
  }

 private:
  Forms formed(Items items) {
    read_newest(c_, items);
    Forms forms;
    auto definition = [&](Definition d) {
      if (!d.is_call()) d.body = simplify(a_, d.body);
      if (forms.empty() || !std::holds_alternative<Run>(forms.back())) forms.emplace_back(Run{});
      std::get<Run>(forms.back()).definitions.push_back(std::move(d));
    };
    for (const Item& item : items) {
      if (const auto* d = std::get_if<Definition>(&item.is)) {
        definition(*d);
      } else if (const auto* w = std::get_if<Write>(&item.is)) {
        if (std::optional<Update> u = row(*w, definition))
          forms.emplace_back(std::move(*u));
        else
          definition(select_form(c_, *w));
      } else if (const auto* l = std::get_if<LoopItem>(&item.is)) {
        LoopForm form;
        form.item = *l;
        form.item.body.clear(), form.item.test.clear();
        for (Id* bound : {&form.item.begin, &form.item.end}) *bound = step_index(*bound, "bound", l->pos, definition);
        const bool known = !reads_data(a_, l->begin) && !reads_data(a_, l->end);
        axes_.insert(l->variable);
        c_.state.loops.push_back({a_.name(l->variable), {l->variable, l->begin, l->end}, 0, !known});
        form.loops = c_.loop_ranges();
        for (const LoopVariable& v : c_.state.loops) form.variables.insert(v.range.axis);
        form.test = formed(l->test);
        form.body = formed(l->body);
        c_.state.loops.pop_back();
        forms.emplace_back(std::move(form));
      } else {
        const auto& b = std::get<BranchItem>(item.is);
        BranchForm form;
        form.item = b;
        form.item.then.clear(), form.item.otherwise.clear();
        form.then = formed(b.then);
        form.otherwise = formed(b.otherwise);
        forms.emplace_back(std::move(form));
      }
    }
    look_before_writing(c_, forms);
    return forms;
  }

  // What steps cannot compute by themselves is a scalar that a block makes.
  Id step_index(Id index, const char* name, Pos pos, const std::function<void(Definition)>& definition) {
    if (is_step_index(a_, index)) return index;
    Definition d;
    d.targets = {c_.new_tensor(name, DType::i64, {})};
    d.body = index;
    d.pos = pos;
    const TensorId t = d.target();
    definition(std::move(d));
    return a_.read(t, DType::i64, {});
  }

  // A row of result = value, if the write is of that kind: some of its indices are the same for all that it writes. What a part of the row,
  // or a guard, leaves alone is what it was.
  std::optional<Update> row(const Write& w, const std::function<void(Definition)>& definition) {
    const Tensor t = c_.program.tensors[w.result];
    Row fixed;
    size_t size = 0;
    for (Id index : w.indices) {
      const bool varies =
          std::ranges::any_of(w.axes, [&](const AxisRange& r) { return a_[index].depends_on(r.axis); });
      fixed.push_back(varies ? kNone : index);
      if (!varies) size = fixed.size();
    }
    fixed.resize(size);
    if (size == 0) return std::nullopt;
    const Shape shape = of_row(t.shape, fixed);
    Write part = w;  // of the row
    part.indices = of_row(w.indices, fixed);
    const bool whole = w.guard == kNone && covers(part, shape);
    part.result = c_.new_tensor(t.name + "_row", t.type, shape);
    if (!whole && !is_invertible(c_, part)) return std::nullopt;
    Update u;
    u.base = w.base;
    for (size_t d = 0; d < size; ++d) {
      u.row.push_back(fixed[d]);
      if (fixed[d] == kNone) continue;
      // Where the guard fails, the index may be outside.
      const bool inside = w.guard == kNone || is_inside(fixed[d], t.shape[d]);
      u.row[d] = step_index(inside ? fixed[d] : a_.select(w.guard, fixed[d], a_.integer(0)), "index", w.pos, definition);
    }
    u.result = w.result;
    u.pos = w.pos;
    u.value = part.result;
    Definition d;
    d.pos = w.pos;
    d.targets = {part.result};
    if (whole) {
      if (std::optional<TensorId> there = tensor_itself(w)) {
        u.value = *there;
        return u;
      }
      d.axes = w.axes;
      d.body = w.body;
    } else {
      d.axes = c_.element_axes(shape);
      std::vector<Id> element;
      for (const AxisRange& r : d.axes) element.push_back(r.axis);
      std::vector<AxisRange> around = c_.loop_ranges();
      around.insert(around.end(), d.axes.begin(), d.axes.end());
      d.body = value_at(c_, part, element, around, {}, a_.read(w.base, t.type, in_value(u.row, element)));
    }
    definition(std::move(d));
    return u;
  }

  bool is_inside(Id index, Id extent) {
    const std::vector<AxisRange> loops = c_.loop_ranges();
    return !reads_data(a_, index) && c_.implied(loops, {}, a_.binary(Op::le, a_.integer(0), index)) &&
           c_.implied(loops, {}, a_.binary(Op::lt, index, extent));
  }

  // Do the axes of the write run over all of this shape, in its order?
  bool covers(const Write& part, const Shape& shape) const {
    if (part.axes.size() != shape.size()) return false;
    for (size_t d = 0; d < shape.size(); ++d) {
      const AxisRange& r = part.axes[d];
      if (part.indices[d] != r.axis || !is_constant(a_, r.begin, 0) || !c_.scope.same_extent(r.end, shape[d])) return false;
    }
    return true;
  }
  // The tensor that a whole row is, if it is one already.
  std::optional<TensorId> tensor_itself(const Write& w) const {
    const Node& body = a_[w.body];
    if (body.op != Op::read || body.arg_count != w.axes.size() || c_.program.tensors[body.symbol].shape.size() != w.axes.size()) return {};
    for (size_t k = 0; k < w.axes.size(); ++k)
      if (body.arg(k) != w.axes[k].axis || !c_.scope.same_extent(c_.program.tensors[body.symbol].shape[k], w.axes[k].end)) return {};
    return body.symbol;
  }

  // How often each tensor is looked at.
  void count(const Forms& forms, int by) {
    for (const auto& form : forms) count_one(form, by);
  }
  void count_read(Id x, int by) {
    if (x == kNone) return;
    for (TensorId t : tensors_read(a_, x)) uses_[t] += by;
  }
  void count_definition(const Definition& d, int by) {
    for (TensorId t : tensors_read(a_, d)) uses_[t] += by;
  }
  void count_one(const Forms::value_type& form, int by) {
    if (const auto* r = std::get_if<Run>(&form)) {
      for (const Definition& d : r->definitions) count_definition(d, by);
    } else if (const auto* u = std::get_if<Update>(&form)) {
      uses_[u->base] += by, uses_[u->value] += by;
      for (Id index : u->row) count_read(index, by);
    } else if (const auto* l = std::get_if<LoopForm>(&form)) {
      count_read(l->item.begin, by), count_read(l->item.end, by);
      for (const CarriedValue& v : l->item.carried) uses_[v.initial] += by, uses_[v.leaving] += by;
      if (l->item.condition) uses_[*l->item.condition] += by;
      count(l->test, by), count(l->body, by);
    } else {
      const auto& b = std::get<BranchForm>(form);
      uses_[b.item.condition] += by;
      for (const Merge& m : b.item.merges) uses_[m.then] += by, uses_[m.otherwise] += by;
      count(b.then, by), count(b.otherwise, by);
    }
  }

  // Takes away what nothing looks at; true if there was something.
  bool drop(Forms& forms) {
    bool any = false;
    for (size_t i = forms.size(); i-- > 0;) {
      if (auto* r = std::get_if<Run>(&forms[i])) {
        for (size_t k = r->definitions.size(); k-- > 0;) {
          const Definition d = r->definitions[k];
          if (std::ranges::any_of(d.targets, [&](TensorId t) { return uses_[t] > 0; })) continue;
          count_definition(d, -1);
          r->definitions.erase(r->definitions.begin() + static_cast<std::ptrdiff_t>(k));
          any = true;
        }
        if (r->definitions.empty()) forms.erase(forms.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (const auto* u = std::get_if<Update>(&forms[i])) {
        if (uses_[u->result] > 0) continue;
        count_one(forms[i], -1);
        forms.erase(forms.begin() + static_cast<std::ptrdiff_t>(i));
        any = true;
      } else if (auto* l = std::get_if<LoopForm>(&forms[i])) {
        any |= drop(l->body) | drop(l->test);
        // A value that only its own next iteration looks at, and that is not needed for one.
        std::vector<CarriedValue>& carried = l->item.carried;
        for (size_t k = carried.size(); k-- > 0;) {
          const CarriedValue v = carried[k];
          if (uses_[v.result] > 0 || uses_[v.entering] > 0) continue;
          uses_[v.initial] -= 1, uses_[v.leaving] -= 1;
          carried.erase(carried.begin() + static_cast<std::ptrdiff_t>(k));
          any = true;
        }
        if (carried.empty()) {
          count_one(forms[i], -1);
          forms.erase(forms.begin() + static_cast<std::ptrdiff_t>(i));
          any = true;
        }
      } else {
        auto& b = std::get<BranchForm>(forms[i]);
        any |= drop(b.then) | drop(b.otherwise);
        std::vector<Merge>& merges = b.item.merges;
        for (size_t k = merges.size(); k-- > 0;) {
          if (uses_[merges[k].result] > 0) continue;
          uses_[merges[k].then] -= 1, uses_[merges[k].otherwise] -= 1;
          merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(k));
          any = true;
        }
        if (merges.empty()) {
          count_one(forms[i], -1);
          forms.erase(forms.begin() + static_cast<std::ptrdiff_t>(i));
          any = true;
        }
      }
    }
    return any;
  }

  // All tensors, in the order in which they get their values.
  void tensors(const Forms& forms, std::vector<TensorId>& order) {
    for (const auto& form : forms) {
      if (const auto* r = std::get_if<Run>(&form)) {
        for (const Definition& d : r->definitions) {
          order.insert(order.end(), d.targets.begin(), d.targets.end());
        }
      } else if (const auto* u = std::get_if<Update>(&form)) {
        order.push_back(u->result);
      } else if (const auto* l = std::get_if<LoopForm>(&form)) {
        for (const CarriedValue& v : l->item.carried) order.push_back(v.entering);
        tensors(l->test, order);
        tensors(l->body, order);
        for (const CarriedValue& v : l->item.carried) order.push_back(v.result);
      } else {
        const auto& b = std::get<BranchForm>(form);
        tensors(b.then, order);
        tensors(b.otherwise, order);
        for (const Merge& m : b.item.merges) order.push_back(m.result);
      }
    }
  }

  std::vector<Step> steps(const Forms& forms) {
    std::vector<Step> made;
    for (const auto& form : forms) {
      made.emplace_back();
      if (const auto* r = std::get_if<Run>(&form)) {
        made.back().is = block(*r);
      } else if (const auto* u = std::get_if<Update>(&form)) {
        made.back().is = *u;
      } else if (const auto* l = std::get_if<LoopForm>(&form)) {
        Loop loop;
        loop.variable = l->item.variable;
        loop.begin = l->item.begin, loop.end = l->item.end;
        for (const CarriedValue& v : l->item.carried) loop.carried.push_back({v.initial, v.entering, v.leaving, v.result});
        const std::vector<AxisRange> outer = std::exchange(loops_, l->loops);
        const std::set<Id> variables = std::exchange(variables_, l->variables);
        loop.test = steps(l->test);
        loop.condition = l->item.condition;
        loop.body = steps(l->body);
        loops_ = outer;
        variables_ = variables;
        loop.why = l->item.why;
        loop.pos = l->item.pos;
        made.back().is = std::move(loop);
      } else {
        const auto& b = std::get<BranchForm>(form);
        Branch branch;
        branch.condition = b.item.condition;
        branch.then = steps(b.then);
        branch.otherwise = steps(b.otherwise);
        for (const Merge& m : b.item.merges) branch.merges.push_back({m.then, m.otherwise, m.result});
        branch.pos = b.item.pos;
        made.back().is = std::move(branch);
      }
    }
    return made;
  }

  Block block(const Run& run) {
    // What the run defines and others look at.
    std::map<TensorId, int> inside;
    for (const Definition& d : run.definitions)
      for (TensorId t : tensors_read(a_, d)) ++inside[t];
    std::vector<TensorId> results;
    for (const Definition& d : run.definitions)
      for (TensorId t : d.targets)
        if (uses_[t] > inside[t]) results.push_back(t);
    return make_block(c_, run.definitions, results, loops_, variables_, fmt::format("{}_{}", c_.program.name, ++blocks_));
  }

  // Tensors that are left, numbered anew.
  Program compacted(const Program& p, const std::vector<TensorId>& order) {
    Program result = p;
    std::map<TensorId, TensorId> to;
    result.tensors.clear();
    for (const std::vector<TensorId>* list : {&p.inputs, &order})
      for (TensorId t : *list)
        if (to.emplace(t, static_cast<TensorId>(result.tensors.size())).second) result.tensors.push_back(p.tensors[t]);
    for (TensorId& t : result.inputs) t = to.at(t);
    for (TensorId& t : result.outputs) t = to.at(t);
    std::vector<Step> steps = *p.steps;
    for_each_expression(steps, [&](Id& x) { x = with_tensors(a_, x, to); });
    renumber(steps, to);
    result.steps = std::make_shared<const std::vector<Step>>(std::move(steps));
    return result;
  }
  void renumber(std::vector<Step>& steps, const std::map<TensorId, TensorId>& to) {
    auto id = [&](TensorId& t) { t = to.at(t); };
    for (Step& s : steps) {
      if (auto* b = std::get_if<Block>(&s.is)) {
        for (Operand& o : b->operands)
          if (o.scalar == kNone) id(o.value);
        for (TensorId& t : b->results) id(t);
      } else if (auto* u = std::get_if<Update>(&s.is)) {
        id(u->base), id(u->value), id(u->result);
      } else if (auto* l = std::get_if<Loop>(&s.is)) {
        for (Carried& v : l->carried) id(v.initial), id(v.entering), id(v.leaving), id(v.result);
        if (l->condition) id(*l->condition);
        renumber(l->test, to), renumber(l->body, to);
      } else {
        auto& branch = std::get<Branch>(s.is);
        id(branch.condition);
        for (Branch::Merge& m : branch.merges) id(m.then), id(m.otherwise), id(m.result);
        renumber(branch.then, to), renumber(branch.otherwise, to);
      }
    }
  }

  Context& c_;
  Arena& a_;
  const std::vector<Output>& outputs_;
  std::map<TensorId, int> uses_;
  std::set<Id> axes_;
  std::vector<AxisRange> loops_;
  std::set<Id> variables_;
  int blocks_ = 0;
};

}  // namespace

Program as_steps(Context& c, Items items, const std::vector<Output>& outputs) { return StepsForm(c, outputs).run(std::move(items)); }

}  // namespace xhat::imperative
