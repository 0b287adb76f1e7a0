#include "expr/imperative/rename.h"

namespace xhat::imperative {

void replace_all(Items& items, const std::function<Id(Id)>& expression, const std::function<TensorId(TensorId)>& tensor) {
  auto put = [&](Id& x) {
    if (x != kNone) x = expression(x);
  };
  auto axes = [&](std::vector<AxisRange>& ranges) {
    for (AxisRange& r : ranges) put(r.begin), put(r.end);
  };
  for (Item& item : items) {
    if (auto* d = std::get_if<Definition>(&item.is)) {
      axes(d->axes);
      put(d->body);
      for (TensorId& t : d->arguments) t = tensor(t);
    } else if (auto* w = std::get_if<Write>(&item.is)) {
      axes(w->axes);
      for (Id& index : w->indices) put(index);
      put(w->body);
      put(w->guard);
      w->base = tensor(w->base);
    } else if (auto* l = std::get_if<LoopItem>(&item.is)) {
      put(l->begin), put(l->end);
      for (CarriedValue& v : l->carried) v.initial = tensor(v.initial), v.leaving = tensor(v.leaving);
      if (l->condition) l->condition = tensor(*l->condition);
      replace_all(l->test, expression, tensor);
      replace_all(l->body, expression, tensor);
    } else if (auto* b = std::get_if<BranchItem>(&item.is)) {
      b->condition = tensor(b->condition);
      for (Merge& m : b->merges) m.then = tensor(m.then), m.otherwise = tensor(m.otherwise);
      replace_all(b->then, expression, tensor);
      replace_all(b->otherwise, expression, tensor);
    }
  }
}

Id with_tensors(Arena& a, Id root, const std::map<TensorId, TensorId>& to) {
  return rewrite(a, root, [&](Id x) {
    const Node n = a[x];
    if (!is_read(n.op) || !to.contains(n.symbol)) return x;
    const std::vector<Id> args(n.args().begin(), n.args().end());
    const TensorId t = to.at(n.symbol);
    return n.op == Op::read ? a.read(t, n.type, args) : a.read_or(t, n.type, std::span(args).first(args.size() - 1), args.back());
  });
}

void rename_tensors(Arena& a, Items& items, const std::map<TensorId, TensorId>& to) {
  if (to.empty()) return;
  replace_all(
      items, [&](Id x) { return with_tensors(a, x, to); },
      [&](TensorId t) {
        auto it = to.find(t);
        return it == to.end() ? t : it->second;
      });
}

}  // namespace xhat::imperative
