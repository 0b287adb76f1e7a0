#include "expr/imperative/finish.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/uses.h"
#include "expr/imperative/image.h"
#include "expr/imperative/rename.h"
#include "expr/imperative/written.h"
#include "expr/rules/simplify.h"

namespace xhat::imperative {

void name_tensors(Program& p, const std::vector<TensorId>& live, const std::vector<Output>& outputs, const std::set<std::string>& words) {
  std::set<std::string> taken = words;
  std::set<TensorId> named(p.inputs.begin(), p.inputs.end());
  for (TensorId t : p.inputs) taken.insert(p.tensors[t].name);
  for (const Output& o : outputs) {
    taken.insert(o.name);
    named.insert(o.value);
    p.tensors[o.value].name = o.name;
  }
  for (TensorId t : live) {
    if (!named.insert(t).second) continue;
    const std::string base = p.tensors[t].name;
    std::string name = base;
    for (int i = 1; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    p.tensors[t].name = name;
  }
}

Program as_op(Context& c, Items items, const std::vector<Output>& outputs) {
  Program& p = c.program;
  read_what_was_written(c, items);
  for (Item& item : items) {
    if (const auto* w = std::get_if<Write>(&item.is)) item.is = select_form(c, *w);
    p.forward.definitions.push_back(std::get<Definition>(item.is));
  }
  p.forward.definitions.insert(p.forward.definitions.begin(), c.tables.begin(), c.tables.end());
  for (const Output& o : outputs) p.outputs.push_back(o.value);
  for (Definition& d : p.forward.definitions)
    if (!d.is_call()) d.body = simplify(*p.arena, d.body);
  Program live = without_dead(p);
  // Tensors that are left, in the order of their definitions.
  std::vector<TensorId> order = live.inputs;
  std::set<std::string> taken;
  for (const Dim& d : live.dims) taken.insert(live.arena->name(d.dim));
  for (const Definition& d : live.forward.definitions) {
    order.insert(order.end(), d.targets.begin(), d.targets.end());
    std::vector<Id> roots;
    for (const AxisRange& r : d.axes) roots.push_back(r.axis);
    if (!d.is_call()) roots.push_back(d.body);
    for (Id axis : all_axes(*live.arena, roots)) taken.insert(live.arena->name(axis));
  }
  name_tensors(live, order, outputs, taken);
  std::map<TensorId, TensorId> to;
  std::vector<Tensor> tensors;
  for (TensorId t : order) {
    to[t] = static_cast<TensorId>(tensors.size());
    tensors.push_back(live.tensors[t]);
  }
  auto renamed = [&](std::vector<TensorId>& list) {
    for (TensorId& t : list) t = to.at(t);
  };
  for (Definition& d : live.forward.definitions) {
    renamed(d.targets);
    renamed(d.arguments);
    if (!d.is_call()) d.body = with_tensors(*live.arena, d.body, to);
  }
  renamed(live.inputs);
  renamed(live.outputs);
  live.tensors = std::move(tensors);
  verify(live);
  return live;
}

}  // namespace xhat::imperative
